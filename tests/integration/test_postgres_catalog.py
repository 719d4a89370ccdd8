"""The catalog describes a relation completely, and refuses what would not be read whole and consistent."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_dpone.contracts.columns import SourceTable, ValueKind
from airflow_provider_dpone.contracts.naming import parse_relation
from airflow_provider_dpone.engines.postgres import snapshot as snapshot_module
from airflow_provider_dpone.engines.postgres.session import PostgresParams, connect
from airflow_provider_dpone.engines.postgres.snapshot import describe_table, open_snapshot
from airflow_provider_dpone.errors import (
    AnswerLost,
    DponeError,
    ServerRefused,
    ServerUnreachable,
    SourceChanged,
    SourceMissing,
    SourceNotReadable,
    SourceUnsupported,
    Stopped,
)
from airflow_provider_dpone.transfer.stream import stream_snapshot
from tests.integration.transfer_support import SourceDatabase, meter, plan
from tests.servers import PostgresUnderTest
from tests.unit.test_transfer_convert import design

PASSWORD = "a;b{c}d'e]f\\g %h@i/j=k"


@pytest.fixture(scope="module")
def source(postgres_server: PostgresUnderTest) -> SourceDatabase:
    database = SourceDatabase.fresh(postgres_server)
    database.run(
        "CREATE ROLE transfer_reader LOGIN PASSWORD 'r'",
        "CREATE TABLE public.t (a int NOT NULL, b text)",
        "INSERT INTO public.t SELECT n, 'x' FROM generate_series(1, 10) n",
        "GRANT SELECT ON public.t TO transfer_reader",
    )
    return database


@pytest.fixture
def params(source: SourceDatabase) -> PostgresParams:
    return source.params()


@pytest.fixture
def reader(source: SourceDatabase) -> PostgresParams:
    return source.params("transfer_reader", "r")


def test_an_ordinary_reader_sees_a_complete_description(reader: PostgresParams, params: PostgresParams) -> None:
    table = describe_table(reader, "public", "t")
    assert table == describe_table(params, "public", "t")
    assert table.relation_kind == "table"
    assert int(table.service_id) > 0
    assert [(column.name, column.kind, column.nullable) for column in table.columns] == [
        ("a", ValueKind.INTEGER, False), ("b", ValueKind.TEXT, True),
    ]  # fmt: skip
    assert SourceTable.parse(table.wire()) == table


def test_attributes_are_described(source: SourceDatabase, params: PostgresParams) -> None:
    source.run("CREATE DOMAIN public.code AS varchar(9) COLLATE \"C\" NOT NULL",
        "CREATE TABLE public.att (a int GENERATED ALWAYS AS IDENTITY, b public.code, c text COLLATE \"C\", "
        "d numeric(12,3), e int GENERATED ALWAYS AS (1) STORED, dropped int, f int[] NOT NULL)",
        "ALTER TABLE public.att DROP COLUMN dropped")  # fmt: skip
    columns = {column.name: column for column in describe_table(params, "public", "att").columns}
    assert list(columns) == ["a", "b", "c", "d", "e", "f"]
    assert columns["a"].attributes == ("identity:always",)
    assert set(columns["b"].attributes) == {"domain:public.code", "collation:pg_catalog.C"}
    assert columns["b"].nullable, "a domain's NOT NULL is no promise of the column"
    assert (columns["d"].declared, columns["d"].precision, columns["d"].scale) == ("numeric(12,3)", 12, 3)
    assert columns["e"].attributes == ("generated:stored",)
    assert (columns["f"].array, columns["f"].kind) == (True, ValueKind.INTEGER)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        ("CREATE VIEW public.v AS SELECT 1 AS a", "v"),
        ("CREATE SEQUENCE public.s", "s"),
        ("CREATE MATERIALIZED VIEW public.mv0 AS SELECT 1 AS a WITH NO DATA", "mv0"),
        ("CREATE TABLE public.parent (a int); CREATE TABLE public.child () INHERITS (public.parent)", "parent"),
        ("CREATE TABLE public.nothing ()", "nothing"),
        ("CREATE EXTENSION IF NOT EXISTS postgres_fdw; CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw; "
         "CREATE FOREIGN TABLE public.ft (a int) SERVER far", "ft"),
        ("CREATE TABLE public.pf (a int) PARTITION BY RANGE (a); CREATE FOREIGN TABLE public.pf1 PARTITION OF public.pf "
         "FOR VALUES FROM (1) TO (9) SERVER far", "pf"),
    ],
)  # fmt: skip
def test_what_is_no_plain_stored_relation_is_refused(
    source: SourceDatabase, params: PostgresParams, make: str, name: str
) -> None:
    source.run(make)
    with pytest.raises(SourceUnsupported):
        describe_table(params, "public", name)


@pytest.mark.parametrize(("namespace", "name"), [("public", "none"), ("nowhere", "t"), ("public", "T")])
def test_a_missing_relation_is_refused(params: PostgresParams, namespace: str, name: str) -> None:
    with pytest.raises(SourceMissing):
        describe_table(params, namespace, name)


def test_partitioned_tables_and_filled_materialized_views_are_read_whole(
    source: SourceDatabase, params: PostgresParams
) -> None:
    source.run("CREATE TABLE public.p (a int) PARTITION BY RANGE (a)",
        "CREATE TABLE public.p1 PARTITION OF public.p FOR VALUES FROM (0) TO (50)",
        "CREATE TABLE public.p2 PARTITION OF public.p FOR VALUES FROM (50) TO (100)",
        "INSERT INTO public.p SELECT generate_series(0, 99)", "CREATE MATERIALIZED VIEW public.mv AS TABLE public.p")  # fmt: skip
    for name in ("p", "mv"):
        with open_snapshot(params, "public", name) as snapshot:
            conversion = plan(snapshot, [design("Nullable(Int32)")])
            assert sum(batch.num_rows for batch in snapshot.batches(conversion)) == 100
            assert snapshot.aggregates(conversion).rows == 100


def test_a_temporary_table_is_refused(source: SourceDatabase, params: PostgresParams) -> None:
    with source.connect() as connection:
        connection.execute("CREATE TEMP TABLE tmp (a int)")
        [namespace] = (
            connection.execute("SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema()").fetchone() or []
        )
        with pytest.raises(DponeError):
            describe_table(params, namespace, "tmp")


def test_a36_row_security_that_would_filter_is_refused(
    source: SourceDatabase, params: PostgresParams, reader: PostgresParams
) -> None:
    source.run("CREATE TABLE public.rls (a int)", "INSERT INTO public.rls VALUES (1), (2)",
        "GRANT SELECT ON public.rls TO transfer_reader", "ALTER TABLE public.rls ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY half ON public.rls USING (a = 1)")  # fmt: skip
    with pytest.raises(SourceNotReadable):
        describe_table(reader, "public", "rls")
    assert describe_table(params, "public", "rls").name == "rls"


def test_row_security_switched_on_after_planning_cannot_filter_the_read(
    source: SourceDatabase, reader: PostgresParams
) -> None:
    source.run("CREATE TABLE public.late (a int NOT NULL)", "INSERT INTO public.late VALUES (1), (2)",
        "GRANT SELECT ON public.late TO transfer_reader")  # fmt: skip
    with open_snapshot(reader, "public", "late") as snapshot:
        conversion = plan(snapshot, [design("Int32")])
        blocked = threading.Thread(
            target=source.run, args=("CREATE POLICY half ON public.late USING (a = 1)",
                              "ALTER TABLE public.late ENABLE ROW LEVEL SECURITY"), daemon=True,
        )  # fmt: skip
        blocked.start()
        time.sleep(0.3)
        assert sum(batch.num_rows for batch in snapshot.batches(conversion)) == 2
    blocked.join(5)
    with pytest.raises(SourceNotReadable):
        describe_table(reader, "public", "late")


def test_a_column_the_reader_may_not_see_is_refused(source: SourceDatabase, reader: PostgresParams) -> None:
    source.run("CREATE TABLE public.part (a int, secret int)", "GRANT SELECT (a) ON public.part TO transfer_reader")
    with pytest.raises(DponeError) as caught:
        describe_table(reader, "public", "part")
    assert "secret" in caught.value.message
    source.run("CREATE TABLE public.private (a int)")
    with pytest.raises(SourceNotReadable):
        describe_table(reader, "public", "private")


def test_truncate_cannot_come_between_lock_and_read(source: SourceDatabase, params: PostgresParams) -> None:
    source.run("CREATE TABLE public.trunc AS SELECT generate_series(1, 1000) AS a")
    bounded = replace(params, options=(("options", "-c lock_timeout=3s"),))
    with open_snapshot(bounded, "public", "trunc") as snapshot:
        other = threading.Thread(target=source.run, args=("TRUNCATE public.trunc",), daemon=True)
        other.start()
        time.sleep(0.3)
        assert other.is_alive(), "TRUNCATE must wait for the snapshot"
        conversion = plan(snapshot, [design("Nullable(Int32)")])
        assert sum(batch.num_rows for batch in snapshot.batches(conversion)) == 1000
        assert snapshot.aggregates(conversion).rows == 1000
    other.join(5)
    assert not other.is_alive()


def test_an_exclusive_request_that_comes_between_the_two_sessions_is_let_through(
    source: SourceDatabase, params: PostgresParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.run("CREATE TABLE public.busy AS SELECT generate_series(1, 10) AS a")
    join, waiting = snapshot_module._join_snapshot, []

    def late(*args: Any) -> bool:
        if not waiting:
            sql = "ALTER TABLE public.busy ADD COLUMN b int"
            waiting.append(threading.Thread(target=source.run, args=(sql,), daemon=True))
            waiting[0].start()
            time.sleep(0.3)
        return join(*args)

    monkeypatch.setattr(snapshot_module, "_join_snapshot", late)
    began = time.monotonic()
    with open_snapshot(params, "public", "busy") as snapshot:
        assert [column.name for column in snapshot.table.columns] == ["a", "b"]
    waiting[0].join(5)
    assert time.monotonic() - began < 3


def test_rows_committed_between_the_two_sessions_are_in_neither(
    source: SourceDatabase, params: PostgresParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.run("CREATE TABLE public.grows AS SELECT generate_series(1, 10) AS a")
    join = snapshot_module._join_snapshot

    def late(*args: Any) -> bool:
        source.run("INSERT INTO public.grows VALUES (11)")
        return join(*args)

    monkeypatch.setattr(snapshot_module, "_join_snapshot", late)
    with open_snapshot(params, "public", "grows") as snapshot:
        conversion = plan(snapshot, [design("Nullable(Int32)")])
        assert sum(batch.num_rows for batch in snapshot.batches(conversion)) == 10
        assert snapshot.aggregates(conversion).rows == 10


def test_a_relation_changed_since_planning_is_refused(source: SourceDatabase, params: PostgresParams) -> None:
    source.run("CREATE TABLE public.moved (a int)")
    planned = describe_table(params, "public", "moved")
    with open_snapshot(params, "public", "moved", planned):
        pass
    source.run("DROP TABLE public.moved", "CREATE TABLE public.moved (a int)")
    with pytest.raises(SourceChanged), open_snapshot(params, "public", "moved", planned):
        pass


def test_the_reading_sessions_cannot_write(source: SourceDatabase, params: PostgresParams) -> None:
    source.run("CREATE TABLE public.log (a int)",
        "CREATE FUNCTION public.noisy(int) RETURNS int LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO public.log VALUES (1); RETURN 1; END'",
        "CREATE TABLE public.watched (a int NOT NULL)", "INSERT INTO public.watched VALUES (1)")  # fmt: skip
    with open_snapshot(params, "public", "watched") as snapshot:
        conversion = plan(snapshot, [design("Int32")])
        column = conversion.columns[0].source.model_copy(update={"native_read": "public.noisy({c})"})
        object.__setattr__(conversion.columns[0], "source", column)
        with pytest.raises(ServerRefused) as caught:
            list(snapshot.batches(conversion))
    assert "read-only transaction" in caught.value.message


def test_d16_a_password_with_any_characters_works_and_never_shows(source: SourceDatabase) -> None:
    with source.connect() as connection:
        connection.execute("CREATE ROLE with_password LOGIN")
        connection.execute(b"ALTER ROLE with_password PASSWORD '" + PASSWORD.replace("'", "''").encode() + b"'")
        connection.execute("GRANT SELECT ON public.t TO with_password")
    params = source.params("with_password", PASSWORD)
    assert PASSWORD not in repr(params)
    with open_snapshot(params, "public", "t") as snapshot:
        conversion = plan(snapshot, [design("Int32"), design("Nullable(String)", "b")])
        assert sum(batch.num_rows for batch in snapshot.batches(conversion)) == 10
    source.run("ALTER ROLE with_password NOLOGIN")
    with pytest.raises(DponeError) as caught:
        connect(params)
    assert PASSWORD not in str(caught.value)
    assert PASSWORD not in repr(caught.value.__cause__)


def test_an_unreachable_server_is_told_from_a_refusing_one(params: PostgresParams, source: SourceDatabase) -> None:
    with pytest.raises(ServerUnreachable):
        connect(PostgresParams("127.0.0.1", "postgres", "postgres", port=1))
    with pytest.raises(DponeError) as caught:
        connect(replace(params, dbname="nowhere"))
    assert "nowhere" in caught.value.message


def test_a_session_ended_by_the_server_is_a_lost_answer(source: SourceDatabase, params: PostgresParams) -> None:
    source.run("CREATE TABLE public.big AS SELECT n AS a, repeat('x', 900) AS b FROM generate_series(1, 60000) n")
    with open_snapshot(params, "public", "big") as snapshot:
        conversion = plan(snapshot, [design("Nullable(Int32)"), design("Nullable(String)", "b")])
        batches = snapshot.batches(conversion)
        next(batches)
        source.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT%big%'")
        with pytest.raises(AnswerLost):
            list(batches)


def test_a_stop_cancels_a_read_that_waits_for_the_server(source: SourceDatabase, params: PostgresParams) -> None:
    source.run("CREATE TABLE public.slow (a int NOT NULL)", "INSERT INTO public.slow SELECT generate_series(1, 5)")
    with open_snapshot(params, "public", "slow") as snapshot:
        conversion = plan(snapshot, [design("Int32")])
        column = conversion.columns[0].source.model_copy(update={"native_read": "({c} + pg_sleep(20)::text::int)"})
        object.__setattr__(conversion.columns[0], "source", column)
        flag = threading.Event()
        threading.Timer(0.4, flag.set).start()
        began = time.monotonic()
        with pytest.raises(Stopped):
            stream_snapshot(
                snapshot.batches(conversion), conversion, meter(), lambda body: list(body) and None,
                stop=flag.is_set, cancel_read=snapshot.cancel,
            )  # fmt: skip
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("text", "parts"),
    [("public.t", ("public", "t")), ('"a.b"."c""d"', ("a.b", 'c"d')), ("Public.Order Items", ("Public", "Order Items"))],
)  # fmt: skip
def test_relation_names_are_read_as_written(text: str, parts: tuple[str, str]) -> None:
    assert parse_relation(text) == parts


@pytest.mark.parametrize("text", ["t", "a.b.c", "", ".t", "a.", '"a.b', 'a"b.c'])
def test_other_relation_names_are_refused(text: str) -> None:
    with pytest.raises(SourceMissing):
        parse_relation(text)
