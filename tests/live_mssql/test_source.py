"""SQL Server as a source: every value exactly, one snapshot, and what is refused before a row is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_dpone.engines.mssql import aggregates, catalog
from airflow_provider_dpone.engines.mssql.session import connect
from airflow_provider_dpone.errors import (
    DponeError,
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
    with source.open("dbo", "moving") as snapshot:
        conversion = plan_conversion(snapshot.table, designs, source.explain)
        database.run("INSERT INTO dbo.moving VALUES (3)", "UPDATE dbo.moving SET a = 9 WHERE a = 1")
        rows = [value for batch in snapshot.batches(conversion) for value in batch.column(0).to_pylist()]
        counted = snapshot.aggregates(conversion)
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
        connect(database.params(password="wrong"))


def test_a_password_never_shows(database: MssqlSourceDatabase) -> None:
    assert database.params().password not in repr(database.params())
