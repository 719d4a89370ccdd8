"""Values travel from a real PostgreSQL into a real ClickHouse engine exactly, or are refused."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from airflow_provider_dpone.engines.postgres.session import PostgresParams
from airflow_provider_dpone.engines.postgres.snapshot import open_snapshot
from airflow_provider_dpone.errors import DesignMismatch, DponeError, TypeNotMapped, ValueNotExact
from airflow_provider_dpone.transfer.stream import stream_snapshot
from tests.integration.transfer_support import Engine, SourceDatabase, copy, meter, plan
from tests.servers import PostgresUnderTest


@pytest.fixture(scope="module")
def source(postgres_server: PostgresUnderTest) -> SourceDatabase:
    return SourceDatabase.fresh(postgres_server)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(tmp_path_factory.mktemp("clickhouse"))


@pytest.fixture(scope="module")
def params(source: SourceDatabase) -> PostgresParams:
    return source.params()


class Tables:
    """Makes source tables from a column list and rows in SQL."""

    def __init__(self, source: SourceDatabase) -> None:
        self.connection = source.connect()
        self.count = 0

    def make(self, columns: str, rows: str = "") -> str:
        self.count += 1
        name = f"t{self.count}"
        self.connection.execute(f"CREATE TABLE public.{name} ({columns})".encode())
        if rows:
            self.connection.execute(f"INSERT INTO public.{name} {rows}".encode())
        return name


@pytest.fixture(scope="module")
def tables(source: SourceDatabase) -> Iterator[Tables]:
    made = Tables(source)
    yield made
    made.connection.close()


def refuse(params: PostgresParams, engine: Engine, source: str, columns: dict[str, str]) -> DponeError:
    with pytest.raises(DponeError) as caught:
        copy(params, engine, source, columns)
    assert engine.values(source, "count()") == [0] or engine.values(source, "count()") == ["0"]
    return caught.value


def test_a01_uuid_keeps_its_text(params: PostgresParams, engine: Engine, tables: Tables) -> None:
    t = tables.make(
        "u uuid not null, s uuid",
        "values ('01020304-0506-0708-090a-0b0c0d0e0f10', '01020304-0506-0708-090a-0b0c0d0e0f10'), ('ffffffff-0000-0000-0000-000000000001', null)",
    )
    copy(params, engine, t, {"u": "UUID", "s": "Nullable(String)"})
    assert engine.values(t, "toString(u)") == [
        "01020304-0506-0708-090a-0b0c0d0e0f10", "ffffffff-0000-0000-0000-000000000001",
    ]  # fmt: skip
    assert engine.values(t, "s")[0] == "01020304-0506-0708-090a-0b0c0d0e0f10"


def test_a04_decimals_at_their_limits_keep_every_digit(params: PostgresParams, engine: Engine, tables: Tables) -> None:
    t = tables.make(
        "i int not null, a numeric(20,10), b numeric(38,18), c numeric, d numeric(76,20), e numeric(4,-2)",
        """values (1, 9999999999.9999999999, 99999999999999999999.999999999999999999, 1.5000, null, 123400),
                  (2, -9999999999.9999999999, -99999999999999999999.999999999999999999, -0.00, 0.00000000000000000001, null),
                  (3, 1.1000000000, 0.000000000000000001, 100, -12345678901234567890123456789012345678901234567890123456.12345678901234567890, -100),
                  (4, null, null, null, 99999999999999999999999999999999999999999999999999999999.99999999999999999999, 0)""",
    )
    copy(params, engine, t, {"i": "Int8", "a": "Nullable(Decimal(20, 10))", "b": "Nullable(Decimal(38, 18))",
                             "c": "Nullable(Decimal(9, 4))", "d": "Nullable(Decimal(76, 20))",
                             "e": "Nullable(Int32)"})  # fmt: skip
    assert engine.values(t, "toString(a)", "i") == ["9999999999.9999999999", "-9999999999.9999999999", "1.1", None]
    assert engine.values(t, "toString(b)", "i") == [
        "99999999999999999999.999999999999999999", "-99999999999999999999.999999999999999999", "0.000000000000000001",
        None,
    ]  # fmt: skip
    assert engine.values(t, "toString(c)", "i") == ["1.5", "0", "100", None]
    assert engine.values(t, "toString(e)", "i") == ["123400", None, "-100", "0"]


def test_decimal_with_more_zeros_than_any_type_holds_is_still_exact(
    params: PostgresParams, engine: Engine, tables: Tables
) -> None:
    t = tables.make("a numeric", "values (1.5" + "0" * 100 + "), (-2)")
    copy(params, engine, t, {"a": "Nullable(Decimal(9, 1))"})
    assert engine.values(t, "toString(a)") == ["-2", "1.5"]


def test_a13_naive_timestamp_is_the_same_on_every_worker(
    params: PostgresParams, engine: Engine, tables: Tables
) -> None:
    t = tables.make(
        "a timestamp not null, b timestamptz not null", "values ('2024-03-31 03:30', '2024-03-31 03:30+03')"
    )
    contents = set()
    before = os.environ.get("TZ")
    try:
        for zone in ("Europe/Helsinki", "UTC", "America/New_York"):
            os.environ["TZ"] = zone
            time.tzset()
            result = copy(params, engine, t, {"a": "DateTime64(6)", "b": "DateTime64(6, 'Europe/Helsinki')"})
            contents.add(result.content.digest())
            assert engine.values(t, "toUnixTimestamp64Micro(a)") in ([1711855800000000], ["1711855800000000"])
    finally:
        os.environ.pop("TZ") if before is None else os.environ.__setitem__("TZ", before)
        time.tzset()
    assert len(contents) == 1
    copy(params, engine, t, {"a": "DateTime64(6, 'UTC')", "b": "DateTime('UTC')"})
    assert engine.values(t, "toString(a)") == ["2024-03-31 03:30:00.000000"]
    assert engine.values(t, "toString(b)") == ["2024-03-31 00:30:00"]


def test_a_wall_clock_never_goes_into_a_column_with_a_zone(
    params: PostgresParams, engine: Engine, tables: Tables
) -> None:
    t = tables.make("a timestamp not null")
    assert "timestamptz" in refuse(params, engine, t, {"a": "DateTime64(6, 'Europe/Helsinki')"}).message


def test_a15_nullable_column_into_a_default_is_refused_at_preflight(
    params: PostgresParams, engine: Engine, tables: Tables
) -> None:
    t = tables.make("a text, b int not null", "values (null, 1)")
    error = refuse(params, engine, t, {"a": "String DEFAULT 'aaa'", "b": "Int32"})
    assert isinstance(error, DesignMismatch)
    assert "'a'" in error.message
    assert "NULL" in error.message


def test_not_null_that_was_never_validated_counts_as_nullable(
    params: PostgresParams, engine: Engine, tables: Tables
) -> None:
    t = tables.make("a int", "values (null)")
    tables.connection.execute(f"ALTER TABLE public.{t} ADD CONSTRAINT late NOT NULL a NOT VALID".encode())
    assert isinstance(refuse(params, engine, t, {"a": "Int32"}), DesignMismatch)


def test_a16_empty_text_and_null_are_never_mixed(params: PostgresParams, engine: Engine, tables: Tables) -> None:
    t = tables.make("a text", "select '' from generate_series(1, 1000) union all select 'x' union all select null")
    copy(params, engine, t, {"a": "Nullable(String)"})
    assert engine.values(t, "countIf(a = ''), countIf(a = 'x'), countIf(a IS NULL)") in (
        [("1000", "1", "1")], [(1000, 1, 1)],
    )  # fmt: skip


def test_a27_bytes_beside_text_and_bytes_that_are_no_text(
    params: PostgresParams, engine: Engine, tables: Tables
) -> None:
    t = tables.make(
        "a bytea, b varchar(10)", "values ('\\x00de', '00de'), ('\\xff00fe', 'é'), (null, null), ('\\x', '')"
    )
    copy(params, engine, t, {"a": "Nullable(String)", "b": "LowCardinality(Nullable(String))"})
    assert engine.values(t, "hex(a), b", "a NULLS LAST") == [("", ""), ("00DE", "00de"), ("FF00FE", "é"), (None, None)]


def test_a30_identical_rows_are_all_kept(params: PostgresParams, engine: Engine, tables: Tables) -> None:
    t = tables.make("a int not null", "select 7 from generate_series(1, 50000)")
    result = copy(params, engine, t, {"a": "Int32"})
    assert result.content.rows == 50000


def test_a34_rows_changed_during_the_read_are_not_seen(params: PostgresParams, engine: Engine, tables: Tables) -> None:
    t = tables.make("a int not null, b text not null", "select n, repeat('x', 500) from generate_series(1, 60000) n")
    designs = engine.create(t, {"a": "Int32", "b": "String"})
    with open_snapshot(params, "public", t) as snapshot:
        conversion = plan(snapshot, designs)

        def batches():  # type: ignore[no-untyped-def]
            for number, batch in enumerate(snapshot.batches(conversion)):
                yield batch
                if number == 0:
                    tables.connection.execute(
                        f"INSERT INTO {t} SELECT n, 'new' FROM generate_series(100001, 120000) n".encode()
                    )
                    tables.connection.execute(f"DELETE FROM {t} WHERE a % 3 = 0".encode())
                    tables.connection.execute(f"UPDATE {t} SET a = -a WHERE a % 3 = 1".encode())

        result = stream_snapshot(batches(), conversion, meter(), engine.sender(t, conversion))
        aggregates = snapshot.aggregates(conversion)
    assert result.content.rows == 60000
    assert engine.values(t, "count(), min(a), max(a), uniqExact(a)") in (
        [("60000", 1, 60000, "60000")], [(60000, 1, 60000, 60000)],
    )  # fmt: skip
    assert aggregates.difference(engine.aggregates(t, conversion)) is None


@pytest.mark.parametrize(
    ("column", "value", "target", "shown"),
    [
        ("numeric", "'NaN'", "Decimal(10, 2)", "NaN"),
        ("numeric", "'Infinity'", "Decimal(10, 2)", "Infinity"),
        ("numeric", "'-Infinity'", "Int64", "-Infinity"),
        ("timestamp", "'infinity'", "DateTime64(6)", "infinity"),
        ("timestamp", "'-infinity'", "DateTime64(6)", "-infinity"),
        ("timestamptz", "'infinity'", "DateTime64(3, 'UTC')", "infinity"),
        ("timestamptz", "'-infinity'", "DateTime", "-infinity"),
        ("date", "'infinity'", "Date32", "infinity"),
        ("date", "'-infinity'", "Date", "-infinity"),
    ],
)
def test_a37_what_is_not_finite_is_refused_by_name(
    params: PostgresParams, engine: Engine, tables: Tables, column: str, value: str, target: str, shown: str
) -> None:
    t = tables.make(f"i int not null, a {column}", f"values (1, null), (2, {value})")
    error = refuse(params, engine, t, {"i": "Int32", "a": f"Nullable({target})"})
    assert isinstance(error, ValueNotExact)
    assert error.details["value"] == shown
    assert error.details["column"] == "a"
    assert error.details["row"] == 2


def test_a41_an_empty_source_makes_an_empty_target_without_a_request(
    params: PostgresParams, engine: Engine, tables: Tables
) -> None:
    t = tables.make("a int not null, b text, c numeric, d timestamp, e float8, f bytea, g uuid, h bool, j time")
    result = copy(params, engine, t, {
        "a": "Int32", "b": "Nullable(String)", "c": "Nullable(Decimal(9, 2))", "d": "Nullable(DateTime64(6))",
        "e": "Nullable(Float64)", "f": "Nullable(String)", "g": "Nullable(UUID)", "h": "Nullable(Bool)",
        "j": "Nullable(Time64(6))",
    })  # fmt: skip
    assert (result.content.rows, result.sent) == (0, False)


def test_a42_a43_names_are_kept_and_never_merged(params: PostgresParams, engine: Engine, tables: Tables) -> None:
    names = [
        "Minimum Value",
        "a`b",
        "a]b",
        "sélect",
        "order",
        "Name",
        "name",
        "a.b",
        'q"uote',
        "back\\slash",
        "new\nline",
        "a%s{}",
    ]
    listed = ", ".join('"' + name.replace('"', '""') + '" int not null' for name in names)
    t = tables.make(listed, "values (" + ", ".join(map(str, range(len(names)))) + ")")
    copy(params, engine, t, dict.fromkeys(reversed(names), "Int32"))
    kept = engine.query(f"SELECT name FROM system.columns WHERE database = 'mart' AND table = '{t}' ORDER BY position")
    stored = dict(zip([row[0] for row in kept], engine.query(f"SELECT * FROM mart.{t}")[0], strict=True))
    assert stored == {name: number for number, name in enumerate(names)}


@pytest.mark.parametrize(("ours", "theirs"), [(["a"], ["a", "b"]), (["a", "b"], ["a"]), (["Name"], ["name"])])
def test_columns_that_do_not_match_by_name_are_refused(
    params: PostgresParams, engine: Engine, tables: Tables, ours: list[str], theirs: list[str]
) -> None:
    t = tables.make(", ".join(f'"{name}" int not null' for name in ours))
    assert isinstance(refuse(params, engine, t, dict.fromkeys(theirs, "Int32")), DesignMismatch)


@pytest.mark.parametrize(
    ("column", "value", "target"),
    [
        ("date", "'2200-01-01'", "Date"),
        ("date", "'1969-12-31'", "Date"),
        ("date", "'1899-12-31'", "Date32"),
        ("date", "'2300-01-01'", "Date32"),
        ("date", "'0001-01-01'", "Date32"),
        ("date", "'9999-12-31'", "Date32"),
        ("date", "'4713-01-01 BC'", "Date32"),
        ("bigint", "2^40", "Int32"),
        ("bigint", "-1", "UInt64"),
        ("int", "128", "Int8"),
        ("int", "-1", "UInt256"),
        ("numeric(10,5)", "1.23456", "Decimal(10, 2)"),
        ("numeric", "153.41526", "Decimal(7, 5)"),
        ("numeric", "1e40", "Decimal(38, 0)"),
        ("numeric", "1e80", "Decimal(76, 0)"),
        ("numeric", "0.5", "Int64"),
        ("numeric", "9223372036854775808", "Int64"),
        ("numeric", "-1", "UInt128"),
        ("numeric", "170141183460469231731687303715884105728", "Int128"),
        ("float8", "0.1", "Float32"),
        ("float8", "1e300", "Float32"),
        ("timestamp", "'1899-12-31 23:59:59.999999'", "DateTime64(6)"),
        ("timestamp", "'2300-01-01'", "DateTime64(6)"),
        ("timestamp", "'2024-01-01 00:00:00.000001'", "DateTime64(3)"),
        ("timestamp", "'2024-01-01 00:00:00.5'", "DateTime"),
        ("timestamp", "'2106-02-07 06:28:16'", "DateTime"),
        ("timestamp", "'2270-01-01'", "DateTime64(9)"),
        ("timestamp", "'294276-12-31 23:59:59.999999'", "DateTime64(6)"),
        ("timestamptz", "'1900-01-01 00:00+00'", "DateTime64(6, 'America/New_York')"),
        ("time", "'12:34:56.000001'", "Time64(3)"),
        ("time", "'12:34:56.5'", "Time"),
        ("text", "'abc'", "FixedString(4)"),
        ("bytea", "'\\x0001'", "FixedString(3)"),
        ("text", "'c'", "Enum8('a' = 1, 'b' = 2)"),
        ("inet", "'10.0.0.0/8'", "IPv4"),
        ("inet", "'::1'", "IPv4"),
        ("inet", "'1.2.3.4'", "IPv6"),
    ],
)
def test_a47_a50_a_value_the_target_cannot_hold_is_refused_naming_it(
    params: PostgresParams, engine: Engine, tables: Tables, column: str, value: str, target: str
) -> None:
    t = tables.make(f"i int not null, a {column}", f"values (1, null), (2, null), (3, {value})")
    error = refuse(params, engine, t, {"i": "Int32", "a": f"Nullable({target})"})
    assert isinstance(error, ValueNotExact), error
    assert (error.details["column"], error.details["row"]) == ("a", 3)
    assert str(error.details["value"]) in error.message


EXACT = [
    ("smallint", "(-32768), (32767)", "Int16", ["-32768", "32767"]),
    ("bigint", "(-9223372036854775808), (9223372036854775807)", "Int64", ["-9223372036854775808", "9223372036854775807"]),
    ("bigint", "(-9223372036854775808), (9223372036854775807)", "Int128", ["-9223372036854775808", "9223372036854775807"]),
    ("bigint", "(-5), (9223372036854775807)", "Int256", ["-5", "9223372036854775807"]),
    ("bigint", "(0), (9223372036854775807)", "UInt64", ["0", "9223372036854775807"]),
    ("int", "(-7), (200)", "Decimal(10, 3)", ["-7", "200"]),
    ("oid", "(0), (4294967295)", "UInt32", ["0", "4294967295"]),
    ("boolean", "(true), (false)", "Bool", ["false", "true"]),
    ("boolean", "(true), (false)", "UInt8", ["0", "1"]),
    ("boolean", "(true), (false)", "String", ["false", "true"]),
    ("real", "(1.1), ('-0'), (3.4e38)", "Float32", ["-0", "1.1", "3.4e38"]),
    ("real", "(1.5)", "Float64", ["1.5"]),
    ("float8", "(1e300), ('NaN'), ('-Infinity')", "Float64", ["-inf", "1e300", "nan"]),
    ("float8", "(0.5), ('NaN')", "Float32", ["0.5", "nan"]),
    ("numeric(38,0)", "(99999999999999999999999999999999999999), (-1)", "Int128", ["-1", "99999999999999999999999999999999999999"]),
    ("numeric", "(170141183460469231731687303715884105727)", "Int128", ["170141183460469231731687303715884105727"]),
    ("numeric", "(18446744073709551615), (0)", "UInt64", ["0", "18446744073709551615"]),
    ("numeric", "(1.50), ('NaN')", "String", ["1.50", "NaN"]),
    ("money", "(-12.34), (92233720368547758.07)", "Decimal(19, 2)", ["-12.34", "92233720368547758.07"]),
    ("text", "('a'), ('b')", "Enum8('a' = -1, 'b' = 2)", ["a", "b"]),
    ("text", "('abc')", "FixedString(3)", ["abc"]),
    ("char(5)", "('ab'), ('é')", "String", ["ab   ", "é    "]),
    ("name", "('n')", "String", ["n"]),
    ('"char"', "('x')", "String", ["x"]),
    ("date", "('1970-01-01'), ('2149-06-06')", "Date", ["1970-01-01", "2149-06-06"]),
    ("date", "('1900-01-01'), ('2299-12-31')", "Date32", ["1900-01-01", "2299-12-31"]),
    ("date", "('4713-01-01 BC'), ('infinity')", "String", ["4713-01-01 BC", "infinity"]),
    ("timestamp", "('1900-01-01'), ('2299-12-31 23:59:59.999999')", "DateTime64(6, 'UTC')", ["1900-01-01 00:00:00.000000", "2299-12-31 23:59:59.999999"]),
    ("timestamp", "('2024-02-29 12:00:00.123')", "DateTime64(3, 'UTC')", ["2024-02-29 12:00:00.123"]),
    ("timestamp", "('2024-02-29 12:00:00.123456')", "DateTime64(9, 'UTC')", ["2024-02-29 12:00:00.123456000"]),
    ("timestamp", "('1970-01-01'), ('2106-02-07 06:28:15')", "DateTime('UTC')", ["1970-01-01 00:00:00", "2106-02-07 06:28:15"]),
    ("timestamptz", "('2024-06-01 00:00:00.5+02')", "DateTime64(6, 'Asia/Tokyo')", ["2024-06-01 07:00:00.500000"]),
    ("timestamptz", "('2024-06-01 00:00:00.5+02')", "String", ["2024-05-31 22:00:00.5+00"]),
    ("time", "('00:00'), ('12:34:56.123456'), ('24:00')", "Time64(6)", ["00:00:00.000000", "12:34:56.123456", "24:00:00.000000"]),
    ("time", "('12:34:56')", "Time", ["12:34:56"]),
    ("timetz", "('12:34:56.5+02')", "String", ["12:34:56.5+02"]),
    ("interval", "('1 year 2 mons 3 days 04:05:06.7')", "String", ["1 year 2 mons 3 days 04:05:06.7"]),
    ("inet", "('1.2.3.4'), ('255.255.255.255')", "IPv4", ["1.2.3.4", "255.255.255.255"]),
    ("inet", "('::1'), ('2001:db8::ff')", "IPv6", ["2001:db8::ff", "::1"]),
    ("inet", "('10.0.0.1/8')", "String", ["10.0.0.1/8"]),
    ("cidr", "('10.0.0.0/8')", "String", ["10.0.0.0/8"]),
    ("json", """('{"b": 1,  "a": 1.10}')""", "String", ['{"b": 1,  "a": 1.10}']),
    ("jsonb", """('{"b": 1,  "a": 1.10}')""", "String", ['{"a": 1.10, "b": 1}']),
    ("bit(3)", "('101')", "String", ["101"]),
    ("int4range", "('[1,5)')", "String", ["[1,5)"]),
    ("point", "('(0.1,2)')", "String", ["(0.1,2)"]),
    ("int[]", "('{1,NULL,3}'), ('{{1,2},{3,4}}'), ('[5:6]={1,2}')", "String", ["[5:6]={1,2}", "{1,NULL,3}", "{{1,2},{3,4}}"]),
    ("tsvector", "('a:1 b:2')", "String", ["'a':1 'b':2"]),
    ("xid8", "('18446744073709551615')", "String", ["18446744073709551615"]),
    ("regclass", "('pg_catalog.pg_class')", "String", ["pg_class"]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "values", "target", "shown"), EXACT, ids=lambda v: str(v)[:30])
def test_values_arrive_exactly(
    params: PostgresParams, engine: Engine, tables: Tables, column: str, values: str, target: str, shown: list[str]
) -> None:
    t = tables.make(f"a {column} not null, b {column}")
    tables.connection.execute(f"INSERT INTO public.{t} (a) VALUES {values}".encode())
    tables.connection.execute(f"INSERT INTO public.{t} SELECT a, a FROM public.{t}".encode())
    copy(params, engine, t, {"a": target, "b": f"Nullable({target})"})
    found = engine.values(t, "toString(a), toString(b)")
    assert sorted(a for a, _ in found) == sorted(shown * 2)
    assert sorted(b for _, b in found if b is not None) == sorted(shown)


ARRAYS = [
    ("int[]", "('{1,2,3}'), ('{}')", "Array(Int32)", ["[1,2,3]", "[]"]),
    ("int[]", "('{1,NULL}')", "Array(Nullable(Int64))", ["[1,NULL]"]),
    ("text[]", """('{"a",NULL,""}'), ('{x}')""", "Array(Nullable(String))", ["['a',NULL,'']", "['x']"]),
    ("numeric[]", "('{1.5,-2}')", "Array(Decimal(9, 2))", ["[1.5,-2]"]),
    (
        "uuid[]",
        "('{01020304-0506-0708-090a-0b0c0d0e0f10}')",
        "Array(UUID)",
        ["['01020304-0506-0708-090a-0b0c0d0e0f10']"],
    ),
    ("date[]", "('{2024-01-01}')", "Array(Date)", ["['2024-01-01']"]),
    ("timestamp[]", "('{2024-01-01 00:00:00.5}')", "Array(DateTime64(6, 'UTC'))", ["['2024-01-01 00:00:00.500000']"]),
    ("boolean[]", "('{t,f}')", "Array(Bool)", ["[true,false]"]),
    ("float8[]", "('{0.1,NaN}')", "Array(Float64)", ["[0.1,nan]"]),
]


@pytest.mark.parametrize(("column", "values", "target", "shown"), ARRAYS, ids=[a[2] + a[1][:12] for a in ARRAYS])
def test_arrays_arrive_exactly(
    params: PostgresParams, engine: Engine, tables: Tables, column: str, values: str, target: str, shown: list[str]
) -> None:
    t = tables.make(f"a {column} not null", f"values {values}")
    copy(params, engine, t, {"a": target})
    assert sorted(engine.values(t, "toString(a)")) == sorted(shown)


@pytest.mark.parametrize("value", ["'{{1,2},{3,4}}'", "'[5:6]={1,2}'"])
def test_an_array_that_is_not_one_plain_list_is_refused_never_flattened(
    params: PostgresParams, engine: Engine, tables: Tables, value: str
) -> None:
    t = tables.make("a int[] not null", f"values ('{{1}}'), ({value})")
    assert isinstance(refuse(params, engine, t, {"a": "Array(Int32)"}), ValueNotExact)


def test_null_element_is_refused_naming_the_row(params: PostgresParams, engine: Engine, tables: Tables) -> None:
    t = tables.make("a int[] not null", "values ('{1}'), ('{}'), ('{2,NULL}')")
    error = refuse(params, engine, t, {"a": "Array(Int32)"})
    assert isinstance(error, ValueNotExact)
    assert error.details["row"] == 3


@pytest.mark.parametrize(
    ("column", "target"),
    [("float8", "Decimal(10, 2)"), ("text", "Int32"), ("timestamp", "Date"), ("json", "JSON"), ("date", "DateTime"),
     ("money", "String"), ("numeric", "Float64"), ("int", "Float64"), ("bytea", "UUID"), ("pg_node_tree", "String")],
)  # fmt: skip
def test_pairs_without_an_exact_conversion_are_refused_at_preflight(
    params: PostgresParams, engine: Engine, tables: Tables, column: str, target: str
) -> None:
    t = tables.make(f"a {column} not null")
    assert isinstance(refuse(params, engine, t, {"a": target}), TypeNotMapped)


def test_domains_and_enums_are_followed(params: PostgresParams, engine: Engine, tables: Tables) -> None:
    run = tables.connection.execute
    run("CREATE DOMAIN public.price AS numeric(10,2) CHECK (VALUE >= 0)")
    run("CREATE DOMAIN public.rebate AS public.price")
    run("CREATE TYPE public.mood AS ENUM ('sad', 'ok', 'it''s')")
    t = tables.make(
        "a public.rebate not null, b public.mood, c public.price[] not null", "values (1.25, 'it''s', '{2}')"
    )
    copy(
        params,
        engine,
        t,
        {"a": "Decimal(10, 2)", "b": "Nullable(Enum8('sad' = 1, 'ok' = 2, 'it\\'s' = 3))", "c": "String"},
    )
    assert engine.values(t, "toString(a), toString(b), c") == [("1.25", "it's", "{2.00}")]


def test_generated_columns_are_read_by_name(params: PostgresParams, engine: Engine, tables: Tables) -> None:
    t = tables.make(
        "a int not null, g int generated always as (a * 2) stored, v int generated always as (a * 3) virtual, z text not null"
    )
    tables.connection.execute(f"INSERT INTO {t} (a, z) VALUES (1, 'z')".encode())
    copy(params, engine, t, {"z": "String", "v": "Nullable(Int32)", "g": "Nullable(Int32)", "a": "Int32"})
    assert engine.values(t, "a, g, v, z") == [(1, 2, 3, "z")]


def test_a_worker_process_in_another_zone_writes_the_same_bytes(params: PostgresParams, tables: Tables) -> None:
    t = tables.make("a timestamp not null, b text", "values ('2024-03-31 03:30', 'x')")
    script = (
        "import sys; sys.path[:0] = sys.argv[2:];"
        "from airflow_provider_dpone.engines.postgres.session import PostgresParams;"
        "from airflow_provider_dpone.engines.postgres.snapshot import open_snapshot;"
        "from airflow_provider_dpone.contracts.enrolment import ColumnDesign as C;"
        "from airflow_provider_dpone.transfer.convert import plan_conversion as p;"
        "from airflow_provider_dpone.transfer.rowbinary import encode_rows as e;"
        f"q = PostgresParams({params.host!r}, {params.dbname!r}, {params.user!r}, {params.password!r}, {params.port});"
        "c = lambda n, t: C(name=n, type=t, default_kind='', default_expression='', codec='', comment='');"
        f"s = open_snapshot(q, 'public', {t!r});"
        "o = s.__enter__(); v = p(o.table, [c('a', 'DateTime64(6)'), c('b', 'Nullable(String)')]);"
        "print([e(v.convert(b), v.types).data.hex() for b in o.batches(v)]); s.__exit__(None, None, None)"
    )
    outputs = set()
    for zone in ("Europe/Helsinki", "UTC"):
        done = subprocess.run([sys.executable, "-c", script, "", *sys.path], env={**os.environ, "TZ": zone},
                              capture_output=True, text=True, check=True)  # fmt: skip
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert outputs != {"[]\n"}


def test_a_very_wide_table_is_aggregated_in_parts(params: PostgresParams, engine: Engine, tables: Tables) -> None:
    names = [f"c{number}" for number in range(650)]
    t = tables.make(", ".join(f"{name} int" for name in names), f"values ({', '.join(map(str, range(650)))})")
    result = copy(params, engine, t, dict.fromkeys(names, "Nullable(Int32)"))
    assert result.content.rows == 1
