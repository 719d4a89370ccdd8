"""Profile ``gate``: one-time logins of SQL Server, issued once, bounded, closed for good and proved quiet."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import Any

import psycopg
import pyodbc
import pytest

from airflow_provider_dpone.contracts.canonical import digest_bytes
from airflow_provider_dpone.contracts.ports import IssuedCredential
from airflow_provider_dpone.contracts.proofs import Adjudication
from airflow_provider_dpone.contracts.states import AttemptState, GateState, Purpose
from airflow_provider_dpone.engines.mssql.install import READER, require_reader
from airflow_provider_dpone.engines.mssql.rights import MssqlGatePolicy
from airflow_provider_dpone.errors import DponeError, GateNotClosed, GateRefused, LedgerRule, ServerRefused
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.dialects.mssql.diagnostics import diagnose
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.ledger.journal import LedgerJournal
from tests import builders
from tests.cutting_proxy import CuttingProxy
from tests.live_mssql.target_world import MssqlWorld

pytestmark = pytest.mark.timeout(900)
SHORT = MssqlGatePolicy(quiet_timeout=2.0)
REFUSED_LOGIN = 17892
RULE = 51000


@pytest.fixture
def world(mssql_world: MssqlWorld) -> MssqlWorld:
    mssql_world.enrol()
    return mssql_world


def issue(world: MssqlWorld, attempt: str | None = None, **options: Any) -> tuple[Any, IssuedCredential]:
    gate = world.gate(attempt or world.admit(), **options)
    return gate, gate.issue_once(Purpose.WORKER, world.rights())


def states(world: MssqlWorld, attempt: str) -> list[GateState]:
    return sorted(p.state for p in LedgerJournal(world.ledger.runtime(), attempt).principals())


def number_of(action: Any, *arguments: Any) -> int | None:
    """The server's number of a refusal."""
    with pytest.raises(pyodbc.Error) as refused:
        action(*arguments)
    return diagnose(refused.value).number


def logins(world: MssqlWorld) -> int:
    [(count,)] = world.sql(
        "SELECT COUNT(*) FROM sys.server_principals AS p JOIN dpone_gate.gate AS g ON g.name = p.name"
    )
    return int(count)


@pytest.mark.case("G1")
@pytest.mark.needs("LOGON triggers", "EXECUTE AS")
def test_the_installed_barrier_is_exact(world: MssqlWorld) -> None:
    [(disabled, trigger)] = world.sql(
        "SELECT (SELECT is_disabled FROM sys.server_principals WHERE name = N'dpone_gate_reader'), "
        "(SELECT is_disabled FROM sys.server_triggers WHERE name = N'dpone_login_gate')"
    )
    assert (disabled, trigger) == (True, False)
    require_reader(world.control())
    for alter, restore in (
        ("DISABLE TRIGGER dpone_login_gate ON ALL SERVER", "ENABLE TRIGGER dpone_login_gate ON ALL SERVER"),
        (f"REVOKE SELECT ON dpone_gate.gate FROM {READER}", f"GRANT SELECT ON dpone_gate.gate TO {READER}"),
        ("GRANT UPDATE ON dpone_gate.gate TO public", "REVOKE UPDATE ON dpone_gate.gate FROM public"),
    ):
        world.sql(alter)
        with pytest.raises(DponeError):
            issue(world)
        world.sql(restore)
        attempt = CompositionAttemptStore(world.ledger.runtime()).all_open()[0].sha256
        builders.end(CompositionAttemptStore(world.ledger.runtime()), attempt, AttemptState.FAILED)
    gate, credential = issue(world)
    gate.close(credential.name)


@pytest.mark.case("G2")
@pytest.mark.needs("rights of a database", "EXECUTE AS")
def test_a_worker_is_bounded(world: MssqlWorld) -> None:
    gate, credential = issue(world)
    with closing(world.login(credential)) as worker:
        for statement in (
            "CREATE TABLE mart.new (a int)", "INSERT INTO mart.new VALUES (1)", "UPDATE mart.new SET a = 2",
            "DELETE FROM mart.new", "DROP TABLE mart.new",
        ):  # fmt: skip
            batch(worker, statement)
        for statement in (
            "CREATE TABLE dbo.t (a int)", "UPDATE dpone_gate.gate SET state = 2", "SELECT * FROM dpone_gate.gate",
            f"ALTER SERVER ROLE sysadmin ADD MEMBER [{credential.name}]", "EXECUTE AS LOGIN = 'sa'", "CREATE SCHEMA mine",
            "INSERT INTO dpone_gate.receipt (attempt, guard, epoch, relation, document, name, transaction_id) "
            "VALUES (N'a', N'b', 1, N'c', 0x, N'd', 1)",
            "DISABLE TRIGGER dpone_login_gate ON ALL SERVER", "CREATE LOGIN friend WITH PASSWORD = N'Dp1_friend'",
        ):  # fmt: skip
            assert number_of(batch, worker, statement) in (229, 262, 1088, 2760, 15151, 15247, 15406), statement
    gate.close(credential.name)


@pytest.mark.case("G3")
@pytest.mark.needs("LOGON triggers")
def test_a_gate_never_goes_back(world: MssqlWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    world.login(credential).close()
    closure, _ = gate.close(credential.name)
    assert gate.close(credential.name) is None
    for state in (1, 2, 3):
        with pytest.raises(ServerRefused) as refused:
            world.sql(f"UPDATE dpone_gate.gate SET state = {state}")
        assert refused.value.details["server_code"] == RULE
    assert number_of(world.login, credential) in (18456, 18470)
    world.sql(f"ALTER LOGIN [{credential.name}] WITH PASSWORD = N'{credential.password}'")
    world.sql(f"ALTER LOGIN [{credential.name}] ENABLE")
    assert number_of(world.login, credential) == REFUSED_LOGIN
    assert world.target().leftover_names() == [credential.name]
    assert gate.remove_leftover(credential.name) == credential.name
    with pytest.raises(GateRefused):
        issue(world, attempt)
    assert closure.principal_uuid == credential.principal_uuid
    assert logins(world) == 1


@pytest.mark.case("G4")
def test_stale_repeated_and_retiring_owners_get_no_login(world: MssqlWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt, epoch=7)
    gate.close(credential.name)
    with pytest.raises(ServerRefused, match="gate_stale_epoch"):  # an older epoch, whatever the ledger says
        world.sql(
            "INSERT INTO dpone_gate.gate (sid, name, guard, epoch, attempt, made, state) SELECT "
            "0x64706F6E000000000000000000000000, N'dpone_w_64706f6e000000000000000000000000', guard, 6, N'other', 1, 1 "
            "FROM dpone_gate.gate"
        )
    with pytest.raises(GateRefused):  # the same attempt again
        issue(world, attempt)
    store = CompositionAttemptStore(world.ledger.runtime())
    builders.end(store, attempt, AttemptState.FAILED)
    assert world.activation is not None
    CompositionActivationStore(world.ledger.runtime()).begin_retirement(world.activation.sha256)
    with pytest.raises(DponeError):
        world.admit(run_id="late")
    assert logins(world) == 1


@pytest.mark.case("G5")
def test_a_recreated_database_blocks(world: MssqlWorld) -> None:
    gate, credential = issue(world)
    batch_alone(world, f"DROP DATABASE {world.database}", f"CREATE DATABASE {world.database}")
    world.sql(f"ALTER AUTHORIZATION ON DATABASE::{world.database} TO {world.controller}")
    world.sql("CREATE SCHEMA mart")
    with pytest.raises(GateNotClosed):
        gate.close(credential.name)
    world.install()
    with pytest.raises(DponeError):
        world.look()
    with pytest.raises(GateNotClosed):
        gate.close(credential.name)
    world.sql(f"DROP LOGIN [{credential.name}]")


def batch_alone(world: MssqlWorld, *statements: str) -> None:
    """As sysadmin outside of the target database, with no other session of ours in it."""
    world.let_go()
    with closing(world.mssql.connect()) as connection:
        for statement in statements:
            batch(connection, statement)


@pytest.mark.case("G6")
@pytest.mark.needs("owners of schemas and roles", "CONTROL on a schema")
def test_every_drift_of_owners_and_roles_has_its_own_reason(world: MssqlWorld) -> None:
    assert world.guard is not None
    world.sql("CREATE USER somebody WITHOUT LOGIN")
    world.sql("CREATE TABLE mart.t (a int)")
    for reason, alter, restore in (
        ("object_ownership", "ALTER AUTHORIZATION ON SCHEMA::mart TO somebody", "ALTER AUTHORIZATION ON SCHEMA::mart TO dbo"),
        ("object_ownership", "ALTER AUTHORIZATION ON mart.t TO somebody", "ALTER AUTHORIZATION ON mart.t TO SCHEMA OWNER"),
        ("role_ownership", "ALTER AUTHORIZATION ON ROLE::dpone_writer TO somebody", "ALTER AUTHORIZATION ON ROLE::dpone_writer TO dbo"),
        ("role_grants", "GRANT CONTROL ON SCHEMA::mart TO dpone_writer", "REVOKE CONTROL ON SCHEMA::mart FROM dpone_writer"),
        ("membership", "ALTER ROLE db_owner ADD MEMBER somebody", "ALTER ROLE db_owner DROP MEMBER somebody"),
        ("ambient_grant", "GRANT UPDATE ON mart.t TO somebody", "REVOKE UPDATE ON mart.t FROM somebody"),
        ("unmanaged_scope", "CREATE TABLE dbo.stray (a int)", "DROP TABLE dbo.stray"),
        ("unsupported_object", "EXEC (N'CREATE PROCEDURE mart.p AS SELECT 1')", "DROP PROCEDURE mart.p"),
        ("authentication", "GRANT CONNECT TO guest", "REVOKE CONNECT FROM guest"),
        ("database_owner", f"ALTER AUTHORIZATION ON DATABASE::{world.database} TO sa",
         f"ALTER AUTHORIZATION ON DATABASE::{world.database} TO {world.controller}"),
        ("database_option", "ALTER DATABASE CURRENT SET DELAYED_DURABILITY = FORCED", "ALTER DATABASE CURRENT SET DELAYED_DURABILITY = DISABLED"),
    ):  # fmt: skip
        world.sql(alter)
        with pytest.raises(DponeError) as refused:
            world.look()
        assert f"login_database_policy_{reason}" in refused.value.details["reasons"], reason
        world.sql(restore)
    world.sql("DROP USER somebody")
    world.look()


@pytest.mark.case("G7")
def test_concurrent_issue_gives_one_credential(world: MssqlWorld) -> None:
    attempt = world.admit()
    results: list[IssuedCredential | DponeError] = []
    barrier = threading.Barrier(2)

    def run() -> None:
        gate = world.gate(attempt)
        barrier.wait()
        try:
            results.append(gate.issue_once(Purpose.WORKER, world.rights()))
        except DponeError as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [issued] = [r for r in results if isinstance(r, IssuedCredential)]
    [refused] = [r for r in results if isinstance(r, DponeError)]
    assert isinstance(refused, GateRefused), refused
    assert world.roles() == [issued.name]
    assert states(world, attempt) == [GateState.READY, GateState.CLOSED]


@pytest.mark.case("G8")
@pytest.mark.needs("the SID of a login")
def test_a_missing_or_recreated_sid_proves_nothing(world: MssqlWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt, policy=SHORT)
    sid = credential.principal_uuid.replace("-", "")
    world.sql(f"DROP USER [{credential.name}]")
    for again in ("", f", SID = 0x{sid[:-2]}00", f", SID = 0x{sid}"):
        world.sql(f"DROP LOGIN [{credential.name}]")
        with pytest.raises(GateNotClosed):
            gate.close(credential.name)
        if again != f", SID = 0x{sid}":
            world.sql(f"CREATE LOGIN [{credential.name}] WITH PASSWORD = N'Dp1_another'{again}")
            with pytest.raises(GateNotClosed):
                gate.close(credential.name)
        else:
            world.sql(f"CREATE LOGIN [{credential.name}] WITH PASSWORD = N'Dp1_another'{again}")
    assert states(world, attempt) == [GateState.CLOSING]
    assert world.gate_state(credential.name) == GateState.CLOSING


@pytest.mark.case("G9")
def test_a_lost_admission_answer_is_no_permit(world: MssqlWorld) -> None:
    world.activate(world.declare("work"))
    with CuttingProxy(world.postgres.host, world.postgres.port) as proxy:
        proxy.cut_on(b"COMMIT", forward=True)
        proxy.refuse_after_cut = True
        runtime = world.ledger.runtime
        world.ledger.runtime = lambda port=None: runtime(proxy.port)  # type: ignore[method-assign, assignment]
        with pytest.raises(DponeError, match="DPONE_LEDGER"):
            world.admit()
        world.ledger.runtime = runtime  # type: ignore[method-assign]
    [stored] = CompositionAttemptStore(world.ledger.runtime()).all_open()
    assert stored.state is AttemptState.RUNNING
    with pytest.raises(DponeError):  # nobody else is admitted to act for it
        world.admit()
    assert logins(world) == 0


@pytest.mark.case("G10")
def test_a_lost_journal_answer_creates_no_login(world: MssqlWorld) -> None:
    attempt = world.admit()
    with CuttingProxy(world.postgres.host, world.postgres.port) as proxy:
        proxy.cut_on(b"INSERT INTO dpone.principal", forward=True)
        proxy.refuse_after_cut = True
        with pytest.raises(DponeError, match="DPONE_LEDGER"):
            issue(world, attempt, ledger_port=proxy.port)
    assert logins(world) == 0
    for principal in LedgerJournal(world.ledger.runtime(), attempt).principals():
        world.gate(attempt).close(principal.name)
        assert world.gate_state(principal.name) == GateState.CLOSED  # the name can never be created
    assert logins(world) == 0
    assert set(states(world, attempt)) <= {GateState.CLOSED}


@pytest.mark.case("G11")
def test_a_lost_ready_answer_closes_the_login_and_gives_no_password_out(world: MssqlWorld) -> None:
    attempt = world.admit()
    with CuttingProxy(world.mssql.host, world.mssql.port) as proxy:
        proxy.cut_on("SET state = 2".encode("utf-16le"), forward=True)
        with pytest.raises(DponeError, match="lost"):
            issue(world, attempt, port=proxy.port)
        assert proxy.cuts == 1
    assert states(world, attempt) == [GateState.CLOSED]
    assert logins(world) == 1
    assert world.roles() == []


@pytest.mark.case("G12")
@pytest.mark.needs("LOGON triggers")
def test_a_locked_row_and_closing_refuse_logins(world: MssqlWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt, policy=SHORT)
    with closing(world.login(credential)) as kept:
        with closing(world.mssql.connect(database=world.database)) as holder:
            batch(holder, "BEGIN TRANSACTION; UPDATE dpone_gate.gate WITH (ROWLOCK, XLOCK) SET state = state")
            started = time.monotonic()
            assert number_of(world.login, credential) == REFUSED_LOGIN
            assert time.monotonic() - started < 1.5
            batch(holder, "ROLLBACK TRANSACTION")
        world.sql("UPDATE dpone_gate.gate SET state = 3 WHERE state = 2")
        numbers: list[int | None] = []
        threads = [
            threading.Thread(target=lambda: numbers.append(number_of(world.login, credential))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert numbers == [REFUSED_LOGIN] * 8
        assert batch(kept, "SELECT SUSER_SNAME()") == [(credential.name,)]  # it is what closing must end
        gate.close(credential.name)
        with pytest.raises(pyodbc.Error):
            batch(kept, "SELECT 1")
    assert states(world, attempt) == [GateState.CLOSED]


@pytest.mark.case("G13")
@pytest.mark.needs("rights of a database", "WAITFOR", "transactions as the server shows them")
def test_a_running_command_and_an_open_transaction_end_without_effect(world: MssqlWorld) -> None:
    world.sql("CREATE TABLE mart.t (a int)")
    gate, credential = issue(world)
    ended: list[bool] = []

    def wait() -> None:
        with closing(world.login(credential)) as connection:
            try:
                batch(connection, "WAITFOR DELAY '00:01:00'")
            except pyodbc.Error:
                ended.append(True)

    waiting = threading.Thread(target=wait)
    with closing(world.login(credential)) as writer:
        batch(writer, "BEGIN TRANSACTION; INSERT INTO mart.t VALUES (1)")
        waiting.start()
        time.sleep(1)
        _, quiet = gate.close(credential.name)
        waiting.join(30)
        assert ended == [True]
        assert quiet.sessions == 0
        assert world.sql("SELECT a FROM mart.t") == []
        with pytest.raises(pyodbc.Error):
            batch(writer, "COMMIT TRANSACTION")
    gate.prove_quiescence(credential.name)


@pytest.mark.case("G14")
@pytest.mark.needs("transactions as the server shows them")
def test_a_foreign_transaction_in_the_database_blocks(world: MssqlWorld) -> None:
    world.sql("CREATE TABLE mart.t (a int)")
    gate, credential = issue(world, policy=SHORT)
    with closing(world.mssql.connect(database=world.database)) as foreign:
        batch(foreign, "BEGIN TRANSACTION; INSERT INTO mart.t VALUES (1)")
        with pytest.raises(GateNotClosed, match="a transaction of session"):
            gate.close(credential.name)
        batch(foreign, "ROLLBACK TRANSACTION")
    gate.close(credential.name)


@pytest.mark.case("G15")
def test_lost_proof_bytes_block_the_next_admission(world: MssqlWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    gate.close(credential.name)
    store = CompositionAttemptStore(world.ledger.runtime())
    builders.end(store, attempt, AttemptState.FAILED)
    assert world.activation is not None
    activations = CompositionActivationStore(world.ledger.runtime())
    activations.begin_retirement(world.activation.sha256)
    activations.finalize_retirement(world.activation.sha256)  # nobody holds the guard any more
    [(proof,)] = on_ledger(
        world, "SELECT outcome_sha256 FROM dpone.attempt WHERE attempt_sha256 = %s", digest_bytes(attempt)
    )
    [(epochs,)] = on_ledger(world, "SELECT sum(epoch)::bigint FROM dpone.guard")
    for statement in (
        "ALTER TABLE dpone.evidence DISABLE TRIGGER ALL",  # as only a superuser can
        f"DELETE FROM dpone.evidence WHERE evidence_sha256 = '\\x{bytes(proof).hex()}'",
        "ALTER TABLE dpone.evidence ENABLE TRIGGER ALL",
        "ALTER TABLE dpone.evidence ENABLE ALWAYS TRIGGER evidence_rule",
        "ALTER TABLE dpone.evidence ENABLE ALWAYS TRIGGER evidence_truncate",
    ):
        on_ledger(world, statement)
    with pytest.raises(DponeError, match="do not agree"):
        world.activate(world.declare("work"))
    assert on_ledger(world, "SELECT sum(epoch)::bigint FROM dpone.guard") == [(epochs,)]


def on_ledger(world: MssqlWorld, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """As superuser in the control database."""
    with psycopg.connect(**{**world.postgres.superuser, "dbname": world.ledger.dbname}, autocommit=True) as connection:  # type: ignore[arg-type]
        cursor = connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []


@pytest.mark.case("G16")
def test_an_unknown_commit_needs_an_explicit_reconcile(world: MssqlWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    gate.close(credential.name)
    store = CompositionAttemptStore(world.ledger.runtime())
    builders.end(store, attempt, AttemptState.COMMIT_UNKNOWN)
    with pytest.raises(DponeError):
        world.admit(run_id="next")
    assert world.activation is not None
    activations = CompositionActivationStore(world.ledger.runtime())
    activations.begin_retirement(world.activation.sha256)
    with pytest.raises(DponeError):
        activations.finalize_retirement(world.activation.sha256)
    signed = Adjudication(
        attempt_sha256=attempt, state=AttemptState.SUCCEEDED, decided_by="dba", statement="read the receipt back",
        decided_at=builders.NOW,
    )  # fmt: skip
    admin = CompositionAttemptStore(world.ledger.admin())
    done = admin.end(
        attempt, AttemptState.COMMIT_UNKNOWN, builders.outcome(attempt, AttemptState.SUCCEEDED), None, signed
    )
    assert done.state is AttemptState.SUCCEEDED
    [(outcomes,)] = on_ledger(world, "SELECT count(*) FROM dpone.evidence WHERE kind = (SELECT kind FROM dpone.evidence e "
                              "WHERE e.evidence_sha256 = (SELECT outcome_sha256 FROM dpone.attempt))")  # fmt: skip
    assert outcomes >= 2
    with pytest.raises(LedgerRule):
        admin.end(attempt, AttemptState.COMMIT_UNKNOWN, builders.outcome(attempt, AttemptState.FAILED), None, signed)
    activations.finalize_retirement(world.activation.sha256)
