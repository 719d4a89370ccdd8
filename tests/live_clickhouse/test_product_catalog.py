"""The catalog: every feature that forbids an exact swap is named, every design is copied exactly or refused."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_dpone.engines.clickhouse.catalog import read_catalog
from airflow_provider_dpone.engines.clickhouse.content import read_content, stored_columns
from airflow_provider_dpone.engines.clickhouse.control import NativeControl
from airflow_provider_dpone.engines.clickhouse.design import render_create, require_same_design
from airflow_provider_dpone.engines.clickhouse.quoting import identifier, literal, table
from airflow_provider_dpone.engines.clickhouse.storage import read_storage
from airflow_provider_dpone.errors import (
    AmbientWriter,
    CounterUnreadable,
    DesignMismatch,
    TargetUnsupported,
    ViewIncomplete,
)
from tests.live_clickhouse.product import Product


@pytest.fixture
def mart(product: Product) -> Iterator[str]:
    with product.database() as database:
        yield database


PLAIN = "CREATE TABLE {db}.orders (id Int64, name String, at DateTime) ENGINE = MergeTree ORDER BY id"

FEATURES = {
    "incoming_view:{db}.feed": [
        "CREATE TABLE {db}.src (id Int64, name String, at DateTime) ENGINE = MergeTree ORDER BY id",
        "CREATE MATERIALIZED VIEW {db}.feed TO {db}.orders AS SELECT id, name, at FROM {db}.src",
    ],
    "outgoing_view:{db}.daily": [
        "CREATE MATERIALIZED VIEW {db}.daily ENGINE = MergeTree ORDER BY id AS SELECT id FROM {db}.orders"
    ],
    "refreshable_view:{db}.hourly": [
        "CREATE MATERIALIZED VIEW {db}.hourly REFRESH EVERY 1 YEAR ENGINE = MergeTree ORDER BY id "
        "AS SELECT id FROM {db}.orders"
    ],
    "dictionary:{db}.names": [
        "CREATE DICTIONARY {db}.names (id Int64, name String) PRIMARY KEY id "
        "SOURCE(CLICKHOUSE(DB '{db}' TABLE 'orders')) LAYOUT(HASHED()) LIFETIME(0)"
    ],
    "buffer:{db}.buffered": [
        "CREATE TABLE {db}.buffered AS {db}.orders ENGINE = Buffer('{db}', 'orders', 1, 10, 100, 1, 10, 1000, 1000000)"
    ],
    "projection:by_name": ["ALTER TABLE {db}.orders ADD PROJECTION by_name (SELECT name ORDER BY name)"],
    "computed_column:n:DEFAULT": ["ALTER TABLE {db}.orders ADD COLUMN n Int64 DEFAULT id + 1"],
    "computed_column:n:MATERIALIZED": ["ALTER TABLE {db}.orders ADD COLUMN n Int64 MATERIALIZED id + 1"],
    "computed_column:n:ALIAS": ["ALTER TABLE {db}.orders ADD COLUMN n Int64 ALIAS id + 1"],
    "computed_column:n:EPHEMERAL": ["ALTER TABLE {db}.orders ADD COLUMN n Int64 EPHEMERAL 3"],
    "ttl": ["ALTER TABLE {db}.orders MODIFY TTL at + INTERVAL 1 DAY"],
    "column_attribute:name": ["ALTER TABLE {db}.orders MODIFY COLUMN name String TTL at + INTERVAL 1 DAY"],
    "table_setting:async_insert": ["ALTER TABLE {db}.orders MODIFY SETTING async_insert = 1"],
}


def see(product: Product, database: str, *names: str) -> tuple[str, ...]:
    return product.view(database, *(names or ("orders",))).features


def test_a_plain_table_has_no_feature_and_only_administrators_can_write_it(product: Product, mart: str) -> None:
    product.run(PLAIN.format(db=mart))
    view = product.view(mart, "orders")
    assert (view.features, view.writers, view.database_engine) == ((), (), "Atomic")
    view.require_supported()


@pytest.mark.parametrize("feature", FEATURES, ids=lambda f: f.replace("{db}.", ""))
def test_a_feature_that_forbids_an_exact_swap_is_named_and_refused(product: Product, mart: str, feature: str) -> None:
    product.run(PLAIN.format(db=mart))
    assert see(product, mart) == ()
    product.run(*(statement.format(db=mart) for statement in FEATURES[feature]))
    view = product.view(mart, "orders")
    assert feature.format(db=mart) in view.features
    with pytest.raises(TargetUnsupported):
        view.require_supported()


def test_a_feature_accepted_by_name_is_allowed_and_no_other(product: Product, mart: str) -> None:
    product.run(PLAIN.format(db=mart), *(s.format(db=mart) for s in FEATURES["outgoing_view:{db}.daily"]))
    view = product.view(mart, "orders")
    view.require_supported([f"outgoing_view:{mart}.daily"])
    with pytest.raises(TargetUnsupported):
        view.require_supported([f"outgoing_view:{mart}.weekly"])


def test_an_unfinished_mutation_is_named(product: Product, mart: str) -> None:
    product.run(
        PLAIN.format(db=mart),
        f"INSERT INTO {mart}.orders SELECT number, 'a', now() FROM numbers(3)",
        f"ALTER TABLE {mart}.orders UPDATE name = toString(throwIf(id = 1)) WHERE 1 SETTINGS mutations_sync = 0",
    )
    [feature] = see(product, mart)
    assert feature.startswith("unfinished_mutation:")


def test_a_mention_of_another_table_is_no_feature(product: Product, mart: str) -> None:
    product.run(
        PLAIN.format(db=mart),
        f"CREATE TABLE {mart}.orders_eu AS {mart}.orders",
        f"CREATE MATERIALIZED VIEW {mart}.eu ENGINE = MergeTree ORDER BY id AS SELECT id FROM {mart}.orders_eu",
        f"CREATE VIEW {mart}.plain AS SELECT id FROM {mart}.orders",
    )
    with product.database() as other:
        product.run(
            PLAIN.format(db=other),
            f"CREATE TABLE {other}.buffered AS {other}.orders "
            f"ENGINE = Buffer('{other}', 'orders', 1, 10, 100, 1, 10, 1000, 1000000)",
            f"CREATE MATERIALIZED VIEW {other}.hourly REFRESH EVERY 1 YEAR ENGINE = MergeTree ORDER BY id "
            f"AS SELECT id FROM {other}.orders",
        )
        assert see(product, mart) == ()


@pytest.mark.parametrize(
    ("feature", "ddl"),
    [
        ("table_engine:View", "CREATE VIEW {db}.orders AS SELECT 1 AS id"),
        ("table_engine:MaterializedView", "CREATE MATERIALIZED VIEW {db}.orders ENGINE = Memory AS SELECT 1 AS id"),
        (
            "table_engine:Dictionary",
            "CREATE DICTIONARY {db}.orders (id UInt64, n String) PRIMARY KEY id "
            "SOURCE(CLICKHOUSE(TABLE 'x')) LAYOUT(FLAT()) LIFETIME(0)",
        ),
        ("table_engine:Memory", "CREATE TABLE {db}.orders (id Int64) ENGINE = Memory"),
        ("table_engine:ReplacingMergeTree", "CREATE TABLE {db}.orders (i Int8) ENGINE = ReplacingMergeTree ORDER BY i"),
        ("table_engine:SummingMergeTree", "CREATE TABLE {db}.orders (id Int64) ENGINE = SummingMergeTree ORDER BY id"),
        ("table_engine:Merge", "CREATE TABLE {db}.orders (id Int64) ENGINE = Merge('{db}', '^x')"),
        ("table_engine:Null", "CREATE TABLE {db}.orders (id Int64) ENGINE = Null"),
    ],
)  # fmt: skip
def test_a_target_that_is_no_plain_table_is_refused(product: Product, mart: str, feature: str, ddl: str) -> None:
    product.run(ddl.format(db=mart))
    view = product.view(mart, "orders")
    assert feature in view.features
    with pytest.raises(TargetUnsupported):
        view.require_supported()


def test_a_database_engine_without_exchange_is_refused(product: Product) -> None:
    with product.database("Memory") as database:
        product.run(f"CREATE TABLE {database}.orders (id Int64) ENGINE = MergeTree ORDER BY id")
        view = product.view(database, "orders")
        assert "database_engine:Memory" in view.features
        with pytest.raises(TargetUnsupported):
            view.require_supported()


class Recorded:
    """A session whose statements read recorded rows where they would read a system table, as another server gave them."""

    def __init__(self, control: NativeControl, table: str, rows: str) -> None:
        self._control, self._table, self._rows = (
            control,
            re.compile(rf"FROM {table}(?=\s+WHERE (engine|type|database) IN|\s+WHERE type)"),
            rows,
        )

    def query(self, sql: str, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self._control.query(self._table.sub(f"FROM ({self._rows}) AS recorded", sql), params)


#: Tables as ClickHouse 25.8 shows them: engine, where it writes, the statement, the engine's arguments. ``{db}`` is the
#: database of ``orders``; the table itself stands in another one.
WRITERS = {
    "windowview:far.x": (
        "WindowView",
        "CREATE WINDOW VIEW far.x TO {db}.orders (`id` Int64) AS SELECT count() AS id FROM far.clicks GROUP BY tumble(at, toIntervalDay(1))",
        "",
    ),
    "timeseries:far.x": (
        "TimeSeries",
        "CREATE TABLE far.x (`id` UUID) ENGINE = TimeSeries DATA {db}.orders TAGS far.tags METRICS far.metrics",
        "TimeSeries",
    ),
    "distributed:far.x": (
        "Distributed",
        "CREATE TABLE far.x (`id` Int64) ENGINE = Distributed('all', '{db}', 'orders', rand())",
        "Distributed('all', '{db}', 'orders', rand())",
    ),
    "alias:far.x": ("Alias", "CREATE TABLE far.x ENGINE = Alias('{db}', 'orders')", "Alias('{db}', 'orders')"),
    "buffer:far.x": ("Buffer", "", "Buffer('{db}', 'orders', 1, 10, 100, 1, 10, 1000, 1000000)"),
    "merge:far.x": (
        "Merge",
        "CREATE TABLE far.x (`id` Int64) ENGINE = Merge('{db}', '^ord', '{db}.orders')",
        "Merge('{db}', '^ord', '{db}.orders')",
    ),
    "hybrid:far.x": (
        "Hybrid",
        "",
        "Hybrid(remote('localhost:9000', '{db}', 'orders'), at > now(), remote('localhost:9000', 'far', 'old'), at <= now())",
    ),
    "storageproxy:far.x": (
        "StorageProxy",
        "CREATE TABLE far.x (`id` Int64) AS remote('127.0.0.1', '{db}', 'orders')",
        "",
    ),
}


def _recorded(product: Product, mart: str, table: str, rows: str) -> tuple[str, ...]:
    with product.control as control:
        seen = Recorded(control, table, rows)
        return read_catalog(seen, mart, ["orders"], administrators=product.administrators).features  # type: ignore[arg-type]


@pytest.mark.parametrize("feature", WRITERS)
def test_a_writer_the_local_server_cannot_make_is_seen_in_recorded_rows(
    product: Product, mart: str, feature: str
) -> None:
    """The same statement judges them, on the engine: only the rows are recorded."""
    product.run(PLAIN.format(db=mart))
    engine, statement, arguments = WRITERS[feature]

    def rows(database: str) -> str:
        columns = "database, name, engine, target_database, target_table, create_table_query, engine_full"
        values = ["far", "x", engine, "", "", statement.format(db=database), arguments.format(db=database)]
        named = ", ".join(f"{literal(v)} AS {c}" for v, c in zip(values, columns.split(", "), strict=True))
        return f"SELECT {columns} FROM system.tables UNION ALL SELECT {named}"

    assert _recorded(product, mart, "system.tables", rows(mart)) == (feature,)
    assert _recorded(product, mart, "system.tables", rows("other")) == ()


def test_a_merge_table_that_only_reads_is_no_feature(product: Product, mart: str) -> None:
    product.run(PLAIN.format(db=mart), f"CREATE TABLE {mart}.every (id Int64) ENGINE = Merge('{mart}', '^orders')")
    assert see(product, mart) == ()


@pytest.mark.parametrize(
    ("table", "rows", "feature"),
    [
        ("system.row_policies", "SELECT 'mine' AS short_name, '{db}' AS database, 'orders' AS table", "row_policy:mine"),
        ("system.row_policies", "SELECT 'all' AS short_name, '{db}' AS database, '' AS table", "row_policy:all"),
        ("system.row_policies", "SELECT 'no' AS short_name, '{db}' AS database, 'orders_eu' AS table", None),
        ("system.masking_policies", "SELECT 'hide' AS short_name, '{db}' AS database, 'orders' AS table", "masking_policy:hide"),
        ("system.masking_policies", "SELECT 'no' AS short_name, 'far' AS database, 'orders' AS table", None),
        ("system.user_directories", "SELECT 'zoo' AS name, 'replicated' AS type", "replicated_access_storage:zoo"),
        ("system.user_directories", "SELECT 'disk' AS name, 'local_directory' AS type", None),
    ],
)  # fmt: skip
def test_what_the_local_server_cannot_have_is_seen_in_recorded_rows(
    product: Product, mart: str, table: str, rows: str, feature: str | None
) -> None:
    product.run(PLAIN.format(db=mart))
    assert _recorded(product, mart, table, rows.format(db=mart)) == ((feature,) if feature else ())


def test_a_missing_table_is_seen_as_missing(product: Product, mart: str) -> None:
    view = product.view(mart, "orders")
    assert view.tables == {}
    with pytest.raises(TargetUnsupported):
        view.table("orders")


def test_a_controller_that_cannot_see_everything_is_refused(product: Product, mart: str) -> None:
    product.run(
        PLAIN.format(db=mart),
        "DROP USER IF EXISTS dpone_blind",
        "CREATE USER dpone_blind IDENTIFIED WITH sha256_password BY 'x'",
        f"GRANT SHOW ON {mart}.* TO dpone_blind",
        "GRANT SELECT ON system.* TO dpone_blind",
    )
    with (
        NativeControl(lambda: product.server.client("dpone_blind", "x")) as control,
        pytest.raises(ViewIncomplete),
    ):
        read_catalog(control, mart, ["orders"], administrators=())
    product.run("DROP USER dpone_blind")


@pytest.mark.parametrize(
    "privilege", ["INSERT", "ALTER DELETE", "TRUNCATE", "DROP TABLE", "OPTIMIZE", "CREATE TABLE", "ALTER"]
)
def test_somebody_else_who_can_write_is_named_and_refused(product: Product, mart: str, privilege: str) -> None:
    product.run(
        PLAIN.format(db=mart),
        "DROP USER IF EXISTS dpone_ann",
        "CREATE USER dpone_ann IDENTIFIED WITH sha256_password BY 'x'",
        f"GRANT {privilege} ON {mart}.* TO dpone_ann",
    )
    view = product.view(mart, "orders")
    assert view.writers == ("dpone_ann",)
    with pytest.raises(AmbientWriter):
        view.require_supported()
    product.run(f"REVOKE {privilege} ON {mart}.* FROM dpone_ann", f"GRANT SELECT ON {mart}.* TO dpone_ann")
    assert product.view(mart, "orders").writers == ()
    product.run("DROP USER dpone_ann")


DESIGNS = [
    "(id Int64) ENGINE = MergeTree ORDER BY tuple()",
    "(id Int64, `Minimum Value` String, `a``b` Int8, `a]b` Int8, `sélect` Int8, `order` Int8, "
    "`a.b` Int8, `q\\\\` Int8) ENGINE = MergeTree ORDER BY (`order`, `a``b`)",
    "(id Int64, Id Int64, ID Int64) ENGINE = MergeTree ORDER BY id",
    "(id Int64, n UInt64, e Enum8('a' = 1, 'b,c\\'(' = 2), INDEX i1 id TYPE minmax GRANULARITY 2, "
    "INDEX `i 2` e TYPE set(100) GRANULARITY 1, CONSTRAINT c CHECK id > 0, CONSTRAINT `c d` ASSUME n > 3) "
    "ENGINE = MergeTree PARTITION BY (id % 10, e) ORDER BY (n, intHash32(id)) PRIMARY KEY n SAMPLE BY n "
    "SETTINGS index_granularity = 1024, allow_nullable_key = 1 COMMENT 'it\\'s ) ENGINE = (here)\\n\\tx'",
    "(id Int64 COMMENT 'it''s, the (id' CODEC(Delta, ZSTD(3)), s LowCardinality(Nullable(String)) CODEC(LZ4HC(9))) "
    "ENGINE = MergeTree ORDER BY id",
    "(id Int64, at DateTime) ENGINE = MergeTree ORDER BY id TTL at + INTERVAL 1 DAY RECOMPRESS CODEC(ZSTD(9)), "
    "at + INTERVAL 1 YEAR TO DISK 'default'",
    "(x Nested(a Int32, b String), t Tuple(a Int32, `b c` String), m Map(String, Array(Nullable(Decimal(9, 2)))), "
    "d DateTime64(6, 'Europe/Helsinki'), d32 Date32, f FixedString(3), u UUID, v4 IPv4, v6 IPv6, i256 Int256, b Bool) "
    "ENGINE = MergeTree ORDER BY u",
]


@pytest.mark.parametrize("ddl", DESIGNS, ids=range(len(DESIGNS)))
def test_a_generation_carries_exactly_the_targets_design(product: Product, mart: str, ddl: str) -> None:
    product.run(f"CREATE TABLE {mart}.orders {ddl}")
    view = product.view(mart, "orders")
    design = view.table("orders").design
    assert view.features == ()
    assert design is not None
    product.run(render_create(mart, "dpone_g_1", design))
    made = product.view(mart, "dpone_g_1").table("dpone_g_1").design
    require_same_design(made, design, "dpone_g_1")
    texts = product.rows(
        f"SELECT DISTINCT replaceOne(create_table_query, {literal(mart)} || '.' || name, '') FROM system.tables "
        f"WHERE database = '{mart}'"
    )
    assert len(texts) == 1


def test_a_difference_in_design_is_named(product: Product, mart: str) -> None:
    product.run(
        PLAIN.format(db=mart), f"CREATE TABLE {mart}.other (id Int64, name String) ENGINE = MergeTree ORDER BY id"
    )
    view = product.view(mart, "orders", "other")
    design = view.table("orders").design
    assert design is not None
    with pytest.raises(DesignMismatch, match="columns"):
        require_same_design(view.table("other").design, design, "other")


@pytest.mark.parametrize(
    "name", ["Minimum Value", "a`b", "a'b", "a]b", "sélect", "order", "a\\b", "a.b", "x{y:String}"]
)
def test_any_table_name_is_quoted_and_found(product: Product, mart: str, name: str) -> None:
    product.run(f"CREATE TABLE {table(mart, name)} (id Int64, {identifier(name)} Int8) ENGINE = MergeTree ORDER BY id")
    product.run(f"INSERT INTO {table(mart, name)} VALUES (1, 2)")
    facts = product.view(mart, name).table(name)
    assert facts.rows == 1
    assert facts.design is not None
    with product.control as control:
        assert read_content(control, mart, name, stored_columns(facts.design)).rows == 1
        assert read_storage(control, mart, name, name).generation > 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_text_survives_as_a_literal(product: Product, text: str) -> None:
    with product.admin as admin:
        [(length, back)] = admin.query("SELECT length({text:String}), hex({text:String})", {"text": text})
    assert (length, bytes.fromhex(back)) == (len(text.encode()), text.encode())


def test_storage_counts_target_generation_and_retained_apart(product: Product, mart: str) -> None:
    for name, rows in (("orders", 1000), ("dpone_g_1", 100_000), ("dpone_g_0", 10)):
        product.run(
            f"CREATE TABLE {mart}.{name} (id UInt64) ENGINE = MergeTree ORDER BY id",
            f"INSERT INTO {mart}.{name} SELECT cityHash64(number) FROM numbers({rows})",
        )
    with product.control as control:
        seen = read_storage(control, mart, "orders", "dpone_g_1", ["dpone_g_0"])
        assert seen.generation > 100_000 > seen.old_target > 1000
        assert 0 < seen.retained < seen.old_target
        with pytest.raises(CounterUnreadable):
            read_storage(control, mart, "orders", "dpone_g_1", ["dpone_g_none"])
        product.run(f"DROP TABLE {mart}.dpone_g_0 SYNC", f"CREATE VIEW {mart}.dpone_g_0 AS SELECT 1")
        with pytest.raises(CounterUnreadable):
            read_storage(control, mart, "orders", "dpone_g_1", ["dpone_g_0"])


TYPES = {
    "Int8": ["-128", "127"],
    "UInt64": ["0", "18446744073709551615"],
    "Int128": ["'-170141183460469231731687303715884105728'"],
    "UInt256": ["'115792089237316195423570985008687907853269984665640564039457584007913129639935'"],
    "Float32": ["-0.0", "0.0", "inf", "-inf", "nan", "1.5"],
    "Float64": ["-0.0", "0.0", "inf", "-inf", "nan", "0.1"],
    "Decimal(20, 10)": ["'9999999999.9999999999'", "'-9999999999.9999999999'", "'1.5'"],
    "Decimal(38, 18)": ["'99999999999999999999.999999999999999999'", "'0'"],
    "Decimal(76, 0)": ["'" + "9" * 76 + "'"],
    "Bool": ["true", "false"],
    "String": ["''", "'a'", "'\\xff\\0'", "'sélect 漢'"],
    "FixedString(4)": ["'ab'"],
    "LowCardinality(String)": ["''", "'a'"],
    "Nullable(String)": ["NULL", "''", "'NULL'"],
    "LowCardinality(Nullable(String))": ["NULL", "''"],
    "Nullable(Int32)": ["NULL", "0"],
    "Date": ["'1970-01-01'", "'2149-06-06'"],
    "Date32": ["'1900-01-01'", "'2299-12-31'"],
    "DateTime": ["0", "4294967295"],
    "DateTime64(6)": ["'1900-01-01 00:00:00.000001'", "'2299-12-31 23:59:59.999999'"],
    "UUID": ["'01020304-0506-0708-090a-0b0c0d0e0f10'"],
    "IPv4": ["'255.0.0.1'"],
    "IPv6": ["'::1'"],
    "Enum8('a' = 1, 'b' = -2)": ["'a'", "'b'"],
    "Array(Nullable(Int16))": ["[1, NULL]", "[]"],
    "Map(String, UInt8)": ["map('k', 1)"],
    "Tuple(Int8, String)": ["(1, 'x')"],
}


@pytest.mark.parametrize("type_name", TYPES)
def test_the_digest_of_every_type_is_the_sum_of_its_rows_hashes(product: Product, mart: str, type_name: str) -> None:
    product.run(f"CREATE TABLE {mart}.t (x {type_name}, n UInt8) ENGINE = MergeTree ORDER BY tuple()")
    rows = ", ".join(f"({value}, {n})" for n, value in enumerate(TYPES[type_name] * 2))
    product.run(f"INSERT INTO {mart}.t VALUES {rows}")
    encoded = product.rows(f"SELECT hex(formatRow('RowBinary', x, n)) FROM {mart}.t")
    expected = sum(int.from_bytes(hashlib.sha256(bytes.fromhex(row)).digest(), "little") for (row,) in encoded)
    with product.control as control:
        content = read_content(control, mart, "t", ("x", "n"))
    assert content.rows == len(encoded) == 2 * len(TYPES[type_name])
    assert content.row_sum == format(expected % 2**256, "064x")


def test_the_digest_keeps_a_newline_that_ends_a_row(product: Product, mart: str) -> None:
    """The engine's ``formatRowNoNewline`` strips a last byte 0x0A, whatever it is part of."""
    product.run(f"CREATE TABLE {mart}.t (x String) ENGINE = MergeTree ORDER BY tuple()")
    product.run(f"INSERT INTO {mart}.t VALUES ('a\\n')")
    with product.control as control:
        content = read_content(control, mart, "t", ("x",))
    assert content.row_sum == format(int.from_bytes(hashlib.sha256(b"\x02a\n").digest(), "little"), "064x")


def test_the_digest_sees_duplicates_and_nulls_and_not_the_order_of_rows(product: Product, mart: str) -> None:
    def digest(values: str) -> tuple[int, str]:
        name = f"t_{uuid.uuid4().hex[:8]}"
        product.run(f"CREATE TABLE {mart}.{name} (x Nullable(String)) ENGINE = MergeTree ORDER BY tuple()")
        if values:
            product.run(f"INSERT INTO {mart}.{name} VALUES {values}")
        with product.control as control:
            content = read_content(control, mart, name, ("x",))
        return content.rows, content.row_sum

    assert digest("('a'), ('b')") == digest("('b'), ('a')")
    assert digest("") == (0, "0" * 64)
    different = [digest(v) for v in ("('a'), ('a')", "('a')", "(NULL)", "('')", "(NULL), (NULL)", "('a'), (NULL)")]
    assert len(set(different)) == len(different)


def test_a_merge_changes_part_hashes_but_not_the_digest(product: Product, mart: str) -> None:
    product.run(f"CREATE TABLE {mart}.t (x Int64) ENGINE = MergeTree ORDER BY x")
    for start in (0, 100):
        product.run(f"INSERT INTO {mart}.t SELECT number + {start} FROM numbers(100)")

    def look() -> tuple[str, str]:
        with product.control as control:
            return product.view(mart, "t").table("t").parts_sha256, read_content(control, mart, "t", ("x",)).row_sum

    before = look()
    product.run(f"OPTIMIZE TABLE {mart}.t FINAL")
    after = look()
    assert before[0] != after[0]
    assert before[1] == after[1]
