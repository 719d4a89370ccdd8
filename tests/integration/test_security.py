"""Bounds tried from the inside: the ledger's runtime role, names that are statements, secrets under failure."""

from __future__ import annotations

import contextlib
import traceback

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_provider_dpone.contracts.naming import parse_relation, split_table
from airflow_provider_dpone.contracts.states import Connector, Purpose
from airflow_provider_dpone.engines.clickhouse.quoting import identifier, literal
from airflow_provider_dpone.engines.postgres.snapshot import describe_table
from airflow_provider_dpone.errors import DeclarationInvalid, DponeError, Fenced, SourceMissing
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.journal import LedgerJournal
from tests import builders
from tests.ledger_database import LedgerDatabase
from tests.snapshot_world import SnapshotWorld

# --- the runtime role of the ledger, tried beyond its bounds ----------------------------------------------------

BEYOND = [
    "CREATE TABLE dpone.mine (a int)",
    "CREATE FUNCTION dpone.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION dpone.refuse(rule text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$",
    "ALTER FUNCTION dpone.attempt_rule() RESET ALL",
    "ALTER TABLE dpone.attempt OWNER TO CURRENT_USER",
    "ALTER TABLE dpone.attempt DISABLE TRIGGER attempt_rule",
    "DROP TRIGGER attempt_rule ON dpone.attempt",
    "DROP INDEX dpone.uq_attempt_guard_open",
    "GRANT DELETE ON dpone.attempt TO CURRENT_USER; DELETE FROM dpone.attempt",
    "SET session_replication_role = replica",
    "SET ROLE {admin}",
    "SET SESSION AUTHORIZATION {admin}",
    "COPY dpone.attempt TO PROGRAM 'cat'",
    "COPY dpone.attempt FROM '/etc/hostname'",
    "SELECT pg_read_file('/etc/hostname')",
    "SELECT lo_import('/etc/hostname')",
    "CREATE EXTENSION dblink",
    "DELETE FROM dpone.evidence",
    "TRUNCATE dpone.evidence CASCADE",
    "UPDATE dpone.attempt SET document = '{{}}'",
    "UPDATE dpone.principal SET name = 'other'",
    "UPDATE dpone.dispatch SET statement = 'other'",
    "UPDATE dpone.publication SET intent_sha256 = record_sha256",
    "UPDATE dpone.ledger_meta SET family = 'production'",
    "INSERT INTO dpone.ledger_meta SELECT 2, schema_version, service_id, family, layout_sha256 FROM dpone.ledger_meta",
    "INSERT INTO dpone.authority_log (entry_sha256, kind, environment, revision, document_sha256)"
    " SELECT evidence_sha256, 1, 'test', 1, evidence_sha256 FROM dpone.evidence LIMIT 1",
    "INSERT INTO dpone.guard SELECT * FROM dpone.guard",
]


@pytest.mark.parametrize("statement", BEYOND)
def test_the_runtime_role_ends_at_its_bounds(ledger_database: LedgerDatabase, statement: str) -> None:
    builders.activate(ledger_database.admin(), ledger_database.runtime(), "orders")
    with ledger_database.connect_runtime() as connection:
        connection.execute("SELECT pg_advisory_xact_lock(1685090149, 1)")
        with pytest.raises(psycopg.Error):
            connection.execute(statement.format(admin=ledger_database.admin_role).encode())


def test_what_the_runtime_role_puts_on_its_search_path_changes_no_rule(ledger_database: LedgerDatabase) -> None:
    """Functions and tables of a temporary schema shadow nothing the rules read."""
    active = builders.activate(ledger_database.admin(), ledger_database.runtime(), "orders")
    sha256 = CompositionAttemptStore(active.ledger).admit_once(active.attempt("orders"))
    CompositionAttemptStore(active.ledger).fence(sha256)
    with ledger_database.connect_runtime() as connection:
        for statement in (
            "CREATE TEMP TABLE attempt AS SELECT attempt_sha256, 1::smallint AS state, false AS fenced FROM dpone.attempt",
            "CREATE FUNCTION pg_temp.refuse(rule text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$",
            "CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT ''::bytea $$",
            "SET search_path = pg_temp, dpone, pg_catalog",
            "SELECT pg_advisory_xact_lock(1685090149, 1)",
        ):
            connection.execute(statement.encode())
        with pytest.raises(psycopg.Error, match="attempt_fenced"):
            connection.execute(
                "INSERT INTO dpone.principal (connector, service_id, name, attempt_sha256, purpose, state)"
                " SELECT 'clickhouse', 's', 'dpone_x', attempt_sha256, 'ingest', 1 FROM dpone.attempt"
            )
    with pytest.raises(Fenced):
        LedgerJournal(active.ledger, sha256).journal(
            connector=Connector.CLICKHOUSE, service_id="s", name="dpone_y", purpose=Purpose.INGEST
        )


# --- names that are statements ----------------------------------------------------------------------------------

NASTY = [
    'x"; DROP TABLE victim; --',
    "x'; DROP TABLE victim; --",
    "x`; DROP TABLE victim; --",
    "%(name)s %s %%",
    "{{ ds }} {name:String}",
    "back\\slash \\' \\x00",
    "naïve ÅÄÖ 表",
    "a/*b*/c",
    "$$ $1 :name ?",
]


@pytest.mark.parametrize("name", NASTY)
def test_a_name_is_a_name_in_every_statement(world: SnapshotWorld, name: str) -> None:
    """As the name of the source table, the target table and a column, read back from both catalogs."""
    quoted = '"' + name.replace('"', '""') + '"'
    world.pg("CREATE TABLE victim (id bigint)")
    world.ch(f"CREATE TABLE {world.database}.victim (id Int64) ENGINE = MergeTree ORDER BY id")
    world.pg(f"CREATE TABLE {quoted.replace('%', '%')} (id bigint NOT NULL, {quoted} text)")
    world.pg(f"INSERT INTO {quoted} VALUES (1, 'one'), (2, NULL)")
    who = identifier(name)
    world.ch(f"CREATE TABLE {world.database}.{who} (id Int64, {who} Nullable(String)) ENGINE = MergeTree ORDER BY id")
    world.activate(name)
    receipt = world.cell(name).run()
    assert (receipt.rows, receipt.state) == (2, "PUBLISHED")
    assert world.retention(name, 0, run_id="later").run().removed
    assert world.pg("SELECT count(*) FROM victim") == [(0,)]
    assert world.ch(f"SELECT count() FROM {world.database}.victim") == [(0,)]
    assert world.ch(f"SELECT id, {who} FROM {world.database}.{who} ORDER BY id") == [(1, "one"), (2, None)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60))
@example("public.orders; DROP TABLE victim")
@example('public."orders""; DROP TABLE victim; --"')
def test_any_text_as_a_source_table_names_a_table_or_is_refused(world: SnapshotWorld, text: str) -> None:
    try:
        schema, name = parse_relation(text)
    except SourceMissing:
        return
    with pytest.raises(DponeError):  # nothing of that name exists; and nothing of it was run as a statement
        describe_table(world.source, schema, name)


@given(text=st.text(max_size=60))
def test_any_text_as_a_target_is_two_names_or_refused(text: str) -> None:
    with contextlib.suppress(DeclarationInvalid):
        assert all(split_table(text))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40))
def test_any_text_survives_quoting_for_clickhouse(world: SnapshotWorld, text: str) -> None:
    assert world.ch(f"SELECT {literal(text)}") == [(text,)]


# --- secrets under failure --------------------------------------------------------------------------------------


def test_no_password_is_left_anywhere_when_attempts_fail(world: SnapshotWorld) -> None:
    """Failures of every kind: an error out of each step, with its trace, its ledger and the server's own log."""
    world.pg("CREATE TABLE orders (id bigint NOT NULL, n numeric(38, 0))")
    world.pg("INSERT INTO orders VALUES (1, 1), (2, 2)")
    world.ch(
        f"CREATE TABLE {world.database}.orders (id Int64, n Nullable(Decimal(38, 0))) ENGINE = MergeTree ORDER BY id"
    )
    world.activate("orders")
    holds = world.clickhouse.holds
    holds.record_logins()
    traces: list[str] = []
    for number, (point, action, kind, prefix) in enumerate(
        [
            ("checked", "cut", "Insert", "dpone_ingest"),
            ("answer", "cut", "Insert", "dpone_ingest"),
            ("answer", "cut", "Exchange", "dpone_publisher"),
            ("answer", "cut", "CreateUser", ""),
        ]
    ):
        rule = holds.set(point, action, kind=kind, user_prefix=prefix)
        try:
            world.cell("orders", run_id=f"fails{number}").run()
        except DponeError as error:
            traces += ["".join(traceback.format_exception(error)), repr(error.__dict__), _locals(error)]
        finally:
            holds.clear(rule)
    world.cell("orders", run_id="last").run()
    passwords = {
        name: word for name, word in holds.presented().items() if name.startswith(("dpone_ingest", "dpone_pub"))
    }
    assert len(passwords) >= 3
    world.ch("SYSTEM FLUSH LOGS")
    seen = traces + [str(row) for row in world.ch("SELECT query, exception FROM system.query_log")]
    with psycopg.connect(**{**world.postgres.superuser, "dbname": world.ledger.dbname}) as connection:  # type: ignore[arg-type]
        for table in ("evidence", "attempt", "principal", "dispatch", "publication"):
            for (row,) in connection.execute(f"SELECT t::text FROM dpone.{table} AS t".encode()):
                seen.append(str(row))
        seen += [bytes(d).decode() for (d,) in connection.execute("SELECT document FROM dpone.evidence")]
        seen += [str(q) for (q,) in connection.execute("SELECT query FROM pg_stat_activity")]
    for name, word in passwords.items():
        assert not any(word in text for text in seen), name
    [name] = [n for n in passwords if n.startswith("dpone_pub")][:1]
    assert any(name in text for text in seen)  # the places looked at are those where it would be


def _locals(error: BaseException) -> str:
    """What a trace with locals would show, as error reporters print it."""
    shown = []
    trace = error.__traceback__
    while trace is not None:
        shown += [f"{name}={value!r}" for name, value in list(trace.tb_frame.f_locals.items())]
        trace = trace.tb_next
    chained = error.__cause__ or error.__context__
    return "\n".join(shown) + (_locals(chained) if chained is not None else "")
