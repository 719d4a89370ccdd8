"""SQL Server as a source: every value exactly, one snapshot, and what is refused before a row is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_dpone.engines.mssql import aggregates, catalog, snapshot
from airflow_provider_dpone.engines.mssql.session import connect
from airflow_provider_dpone.engines.mssql.snapshot import MssqlSnapshot
from airflow_provider_dpone.engines.mssql.types import TYPES
from airflow_provider_dpone.errors import (
    CeilingExceeded,
    DponeError,
    DriverFailed,
    ServerRefused,
    ServerUnreachable,
    SourceChanged,
    SourceMissing,
    SourceUnsupported,
    TypeNotMapped,
    ValueNotExact,
)
from airflow_provider_dpone.transfer.convert import plan_conversion
from tests.integration.transfer_support import Engine
from tests.live_mssql.source_support import MssqlSourceDatabase, copy, stand_in
from tests.mssql_server import MssqlServer


@pytest.fixture(scope="module")
def database(mssql_server: MssqlServer) -> MssqlSourceDatabase:
    return MssqlSourceDatabase.fresh(mssql_server)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    return Engine(tmp_path_factory.mktemp("engine"))


@pytest.fixture(autouse=True)
def standing_in(mssql_server: MssqlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(mssql_server, monkeypatch, aggregates, catalog)


WIDE = (
    "CREATE TABLE dbo.wide (id bigint NOT NULL PRIMARY KEY, small smallint, tiny tinyint, flag bit, whole int,"
    " amount decimal(38,10), price money, cent smallmoney, ratio float, single real, label nvarchar(40),"
    " code varchar(20), long_text nvarchar(max), day date, at datetime2(6), stamp datetime, minute smalldatetime,"
    " clock time(6), moment datetimeoffset(6), guid uniqueidentifier)"
)
WIDE_TARGET = {
    "id": "Int64", "small": "Nullable(Int16)", "tiny": "Nullable(UInt8)", "flag": "Nullable(Bool)",
    "whole": "Nullable(Int32)", "amount": "Nullable(Decimal(38, 10))", "price": "Nullable(Decimal(19, 4))",
    "cent": "Nullable(Decimal(10, 4))", "ratio": "Nullable(Float64)", "single": "Nullable(Float32)",
    "label": "Nullable(String)", "code": "Nullable(String)", "long_text": "Nullable(String)", "day": "Nullable(Date32)",
    "at": "Nullable(DateTime64(6))", "stamp": "Nullable(DateTime64(3))", "minute": "Nullable(DateTime)",
    "clock": "Nullable(Time64(6))", "moment": "Nullable(DateTime64(6, 'UTC'))", "guid": "Nullable(UUID)",
}  # fmt: skip


def test_every_kind_of_value_arrives_exactly(database: MssqlSourceDatabase, engine: Engine) -> None:
    database.run(
        WIDE,
        "INSERT INTO dbo.wide VALUES (-9223372036854775808, -32768, 255, 1, -2147483648,"
        " '-1234567890123456789012345678.0123456789', -922337203685477.5808, 214748.3647, 0.1, 1.5, N'blank ', 'code',"
        " N'long', '1900-01-01', '2299-12-31 23:59:59.999999', '2024-01-02 03:04:05.007', '2024-01-02 03:04',"
        " '23:59:59.999999', '2024-01-02 03:04:05.123456 +02:00', '00112233-4455-6677-8899-AABBCCDDEEFF')",
        "INSERT INTO dbo.wide (id) VALUES (1)",
        "INSERT INTO dbo.wide (id, label, long_text, tiny, flag) VALUES (2, N'', N'', 0, 0)",
    )
    result = copy(database.source(), engine, "wide", WIDE_TARGET)
    assert result.content.rows == 3
    shown = engine.values("wide", "toString(tuple(* EXCEPT id))", "id")
    assert shown[0] == (
        "(-32768,255,true,-2147483648,-1234567890123456789012345678.0123456789,-922337203685477.5808,214748.3647,0.1,1.5,"
        "'blank ','code','long','1900-01-01','2299-12-31 23:59:59.999999','2024-01-02 03:04:05.007','2024-01-02 03:04:00',"
        "'23:59:59.999999','2024-01-02 01:04:05.123456','00112233-4455-6677-8899-aabbccddeeff')"
    )
    assert shown[1].count("NULL") == 19


@pytest.mark.parametrize(
    "text", ["é😀", "\u4e2d\u6587", "a\u0301", "\uffff", "trailing  ", "tab\tnew\nline", "x" * 3999, "y" * 20000]
)
def test_text_is_kept_whatever_it_holds(database: MssqlSourceDatabase, engine: Engine, text: str) -> None:
    database.run("DROP TABLE IF EXISTS dbo.words", "CREATE TABLE dbo.words (w nvarchar(max))")
    quoted = text.replace("'", "''")
    database.run(f"INSERT INTO dbo.words VALUES (N'{quoted}')")
    copy(database.source(), engine, "words", {"w": "Nullable(String)"})
    assert engine.values("words", "w") == [text]


def test_names_are_taken_as_they_are(database: MssqlSourceDatabase, engine: Engine) -> None:
    database.run(
        "CREATE TABLE dbo.[größe] ([order by] int, [größe] int, [ñ] nvarchar(max))",
        "INSERT INTO dbo.[größe] VALUES (1, 2, N'量')",
    )
    columns = {"order by": "Nullable(Int32)", "größe": "Nullable(Int32)", "ñ": "Nullable(String)"}
    copy(database.source(), engine, "größe", columns)
    assert engine.values("größe", "`größe`") == [2]
    assert engine.values("größe", "`ñ`") == ["量"]


def test_an_empty_table_is_a_snapshot(database: MssqlSourceDatabase, engine: Engine) -> None:
    database.run("CREATE TABLE dbo.none (a int)")
    assert copy(database.source(), engine, "none", {"a": "Nullable(Int32)"}).content.rows == 0


def test_rows_changed_during_the_read_are_not_seen(database: MssqlSourceDatabase, engine: Engine) -> None:
    database.run("CREATE TABLE dbo.moving (a int)", "INSERT INTO dbo.moving VALUES (1), (2)")
    source = database.source()
    designs = engine.create("moving", {"a": "Nullable(Int32)"})
    with source.open("dbo", "moving") as held:
        conversion = plan_conversion(held.table, designs, source.explain)
        database.run("INSERT INTO dbo.moving VALUES (3)", "UPDATE dbo.moving SET a = 9 WHERE a = 1")
        rows = [value for batch in held.batches(conversion) for value in batch.column(0).to_pylist()]
        counted = held.aggregates(conversion)
    assert sorted(rows) == [1, 2]
    assert (counted.rows, counted.columns[0].high) == (2, "2")


def test_a_value_the_target_cannot_hold_is_refused_by_name(database: MssqlSourceDatabase, engine: Engine) -> None:
    database.run("CREATE TABLE dbo.far (at datetime2(6))", "INSERT INTO dbo.far VALUES ('9999-12-31 23:59:59.999999')")
    with pytest.raises(ValueNotExact, match="'at'"):
        copy(database.source(), engine, "far", {"at": "Nullable(DateTime64(6))"})


@pytest.mark.parametrize(
    ("make", "name", "error", "words"),
    [
        ("CREATE VIEW dbo.seen AS SELECT 1 AS a", "seen", SourceUnsupported, "a view"),
        ("SELECT 1", "absent", SourceMissing, "no table"),
    ],
)
def test_what_is_no_table_is_refused(
    database: MssqlSourceDatabase, make: str, name: str, error: type[DponeError], words: str
) -> None:
    database.run(make)
    with pytest.raises(error, match=words):
        database.source().describe("dbo", name)


def test_a_database_without_snapshot_isolation_is_refused(
    database: MssqlSourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE dbo.plain (a int)")
    monkeypatch.setattr(catalog, "_SNAPSHOT_ON", 99)
    with pytest.raises(SourceUnsupported, match="ALLOW_SNAPSHOT_ISOLATION"):
        database.source().describe("dbo", "plain")


def test_a_type_without_an_exact_form_is_refused(database: MssqlSourceDatabase, engine: Engine) -> None:
    database.run("CREATE TABLE dbo.guess (v sql_variant)")
    designs = engine.create("guess", {"v": "Nullable(String)"})
    with pytest.raises(TypeNotMapped, match="guessed"):
        plan_conversion(database.source().describe("dbo", "guess"), designs)


def test_a_table_changed_since_planning_is_refused(database: MssqlSourceDatabase) -> None:
    database.run("CREATE TABLE dbo.grows (a int)")
    planned = database.source().describe("dbo", "grows")
    database.run("ALTER TABLE dbo.grows ADD b int")
    with pytest.raises(SourceChanged), database.source().open("dbo", "grows", planned):
        pass


def test_an_unreachable_server_is_told_from_a_refusing_one(database: MssqlSourceDatabase) -> None:
    with pytest.raises(ServerUnreachable):
        connect(database.params(port=1, connect_timeout=2))
    with pytest.raises(ServerRefused, match="login"):
        connect(database.params(user="dpone_nobody"))  # a stand-in may not ask for passwords


def test_a_password_never_shows(database: MssqlSourceDatabase) -> None:
    assert database.params().password not in repr(database.params())


#: Each type at its longest: how it is declared, the target's type, a value, and the length the target shows (None: none).
LONGEST: list[tuple[str, str, str, int | None]] = [
    ("bit", "Bool", "1", None),
    ("tinyint", "UInt8", "255", None),
    ("smallint", "Int16", "-32768", None),
    ("int", "Int32", "-2147483648", None),
    ("bigint", "Int64", "-9223372036854775808", None),
    ("decimal(38,19)", "Decimal(38, 19)", f"-{'9' * 19}.{'9' * 19}", None),
    ("numeric(38,0)", "Decimal(38, 0)", "9" * 38, None),
    ("money", "Decimal(19, 4)", "-922337203685477.5808", None),
    ("smallmoney", "Decimal(10, 4)", "-214748.3648", None),
    ("real", "Float32", "CONVERT(real, 3.4028235E38)", None),
    ("float", "Float64", "CONVERT(float, 1.7976931348623157E308)", None),
    ("char(8000)", "String", "REPLICATE(CONVERT(varchar(max), 'c'), 8000)", 8000),
    ("varchar(8000)", "String", "REPLICATE(CONVERT(varchar(max), 'v'), 8000)", 8000),
    ("varchar(max)", "String", "REPLICATE(CONVERT(varchar(max), 'v'), 5242880)", 5242880),
    ("text", "String", "REPLICATE(CONVERT(varchar(max), 't'), 100000)", 100000),
    ("nchar(4000)", "String", "REPLICATE(CONVERT(nvarchar(max), N'é'), 4000)", 8000),
    ("nvarchar(4000)", "String", "REPLICATE(CONVERT(nvarchar(max), N'中'), 4000)", 12000),
    ("nvarchar(max)", "String", "REPLICATE(CONVERT(nvarchar(max), N'é'), 2621440)", 5242880),
    ("sysname", "String", "REPLICATE(N's', 128)", 128),
    ("ntext", "String", "REPLICATE(CONVERT(nvarchar(max), N'é'), 100000)", 200000),
    ("binary(8000)", "String", "CONVERT(binary(8000), 0x01)", 8000),
    ("varbinary(8000)", "String", "CONVERT(varbinary(8000), REPLICATE(CONVERT(varchar(max), 'b'), 8000))", 8000),
    ("varbinary(max)", "String", "CONVERT(varbinary(max), REPLICATE(CONVERT(varchar(max), 'b'), 5242880))", 5242880),
    ("image", "String", "CONVERT(varbinary(max), REPLICATE(CONVERT(varchar(max), 'i'), 100000))", 100000),
    ("timestamp", "String", "DEFAULT", 8),
    ("uniqueidentifier", "UUID", "'FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFE'", None),
    ("date", "Date32", "'2299-12-31'", None),
    ("time(6)", "Time64(6)", "'23:59:59.999999'", None),
    ("smalldatetime", "DateTime64(0)", "'2079-06-06 23:59'", None),
    ("datetime", "DateTime64(3)", "'2299-12-31 23:59:59.997'", None),
    ("datetime2(6)", "DateTime64(6)", "'2299-12-31 23:59:59.999999'", None),
    ("datetimeoffset(6)", "DateTime64(6, 'UTC')", "'2299-12-31 23:59:59.999999 -14:00'", None),
    ("xml", "String", "'<a>' + REPLICATE(CONVERT(varchar(max), 'x'), 100000) + '</a>'", 100007),
]  # fmt: skip
#: Types no stand-in has, and those of a newer server.
ELSEWHERE = {"hierarchyid", "json", "vector"}


def test_every_type_that_is_read_is_read_at_its_longest() -> None:
    assert {declared.partition("(")[0] for declared, *_ in LONGEST} | ELSEWHERE == {
        name for name, rule in TYPES.items() if rule.kind is not None
    }


@pytest.mark.parametrize(("declared", "target", "value", "length"), LONGEST, ids=[declared for declared, *_ in LONGEST])
def test_the_longest_value_of_a_type_arrives(
    database: MssqlSourceDatabase, engine: Engine, declared: str, target: str, value: str, length: int | None
) -> None:
    database.run(
        "DROP TABLE IF EXISTS dbo.longest",
        f"CREATE TABLE dbo.longest (id int NOT NULL, v {declared})",
        f"INSERT INTO dbo.longest VALUES (1, {value})",
        *([] if declared == "timestamp" else ["INSERT INTO dbo.longest VALUES (2, NULL)"]),
    )
    copy(database.source(), engine, "longest", {"id": "Int32", "v": f"Nullable({target})"})
    [shown, *rest] = engine.values("longest", "length(v)" if length else "v", "id")
    assert shown == length if length else shown is not None
    assert rest == ([] if declared == "timestamp" else [None])


@pytest.mark.needs("hierarchyid")
def test_a_path_arrives_as_text(database: MssqlSourceDatabase, engine: Engine) -> None:
    database.run("CREATE TABLE dbo.paths (v hierarchyid)", "INSERT INTO dbo.paths VALUES ('/1/2.5/3/')")
    copy(database.source(), engine, "paths", {"v": "Nullable(String)"})
    assert engine.values("paths", "v") == ["/1/2.5/3/"]


@pytest.mark.parametrize("columns", [1, 3])
def test_long_values_in_several_columns_are_read(database: MssqlSourceDatabase, engine: Engine, columns: int) -> None:
    wide = ", ".join(f"c{i} nvarchar(max)" for i in range(columns))
    long = ", ".join(["REPLICATE(CONVERT(nvarchar(max), N'x'), 5242880)"] * columns)
    database.run(
        "DROP TABLE IF EXISTS dbo.long_texts",
        f"CREATE TABLE dbo.long_texts ({wide})",
        f"INSERT INTO dbo.long_texts VALUES ({long})",
        "INSERT INTO dbo.long_texts (c0) VALUES (N'short'), (NULL)",
    )
    copy(database.source(), engine, "long_texts", {f"c{i}": "Nullable(String)" for i in range(columns)})
    total = " + ".join(f"coalesce(length(c{i}), 0)" for i in range(columns))
    assert sorted(engine.values("long_texts", total)) == [0, 5, columns * 5242880]


def test_long_bytes_in_many_columns_are_read(database: MssqlSourceDatabase, engine: Engine) -> None:
    many = ", ".join(f"c{i} varbinary(max)" for i in range(12))
    long = ", ".join(["CONVERT(varbinary(max), REPLICATE(CONVERT(varchar(max), 'b'), 5242880))"] * 12)
    database.run(f"CREATE TABLE dbo.many_bytes ({many})", f"INSERT INTO dbo.many_bytes VALUES ({long})")
    copy(database.source(), engine, "many_bytes", {f"c{i}": "Nullable(String)" for i in range(12)})
    assert engine.values("many_bytes", "length(c0) + length(c11)") == [2 * 5242880]


def test_a_row_wider_than_is_read_at_once_is_refused_by_its_columns(
    database: MssqlSourceDatabase, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "ROW_BYTES", 2**20)
    database.run(
        "CREATE TABLE dbo.too_wide (a nvarchar(max), b varbinary(max), c nvarchar(max))",
        "INSERT INTO dbo.too_wide VALUES (REPLICATE(CONVERT(nvarchar(max), N'x'), 400000),"
        " CONVERT(varbinary(max), REPLICATE(CONVERT(varchar(max), 'b'), 300000)), N'short')",
    )
    with pytest.raises(CeilingExceeded) as refused:
        copy(database.source(), engine, "too_wide", dict.fromkeys("abc", "Nullable(String)"))
    assert refused.value.details["columns"] == ["a", "b"]


def test_an_error_of_the_driver_itself_is_no_lost_connection(
    database: MssqlSourceDatabase, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE dbo.cut (v nvarchar(max))", "INSERT INTO dbo.cut VALUES (REPLICATE(N'x', 4000))")
    monkeypatch.setattr(MssqlSnapshot, "_measured", lambda self, conversion: {"v": 4001})
    monkeypatch.setattr(snapshot, "_TEXT", 1000)
    monkeypatch.setattr(snapshot, "_buffers", lambda conversion, measured: (10, 10, 0))
    with pytest.raises(DriverFailed) as failed:
        copy(database.source(), engine, "cut", {"v": "Nullable(String)"})
    assert not failed.value.retryable
