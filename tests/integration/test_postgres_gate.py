"""The login gate of PostgreSQL on a real server: who is let in, what it may do, and what closing proves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from airflow_provider_dpone.contracts.ports import IssuedCredential
from airflow_provider_dpone.contracts.states import GateState, Purpose
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.install import (
    layout,
    render_composition_postgres_login_gate,
    require_version,
)
from airflow_provider_dpone.engines.postgres.load_target import PostgresTarget
from airflow_provider_dpone.engines.postgres.policy import require_enrolled
from airflow_provider_dpone.engines.postgres.rights import GatePolicy
from airflow_provider_dpone.errors import (
    AmbientWriter,
    EnrolledElsewhere,
    Fenced,
    GateNotClosed,
    GateRefused,
    NotEnrolled,
    TargetChanged,
    TargetUnsupported,
)
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.journal import LedgerJournal
from tests import ledger_database
from tests.cutting_proxy import CuttingProxy
from tests.schema_world import SchemaWorld
from tests.servers import PostgresUnderTest, postgres_under_test

REFUSED = "42501"


@pytest.fixture
def world(schema_world: SchemaWorld) -> SchemaWorld:
    schema_world.enrol()
    return schema_world


def issue(world: SchemaWorld, attempt: str | None = None, **options: Any) -> tuple[Any, IssuedCredential]:
    gate = world.gate(attempt or world.admit(), **options)
    return gate, gate.issue_once(Purpose.WORKER, world.rights())


def state_of(world: SchemaWorld, attempt: str, name: str) -> GateState:
    [found] = [p for p in LedgerJournal(world.ledger.runtime(), attempt).principals() if p.name == name]
    return found.state


def drop_by_hand(world: SchemaWorld, credential: Any) -> None:
    world.sql(f"SET ROLE {world.controller}; DROP OWNED BY {credential.name}; DROP ROLE {credential.name}")


def refused_login(world: SchemaWorld, credential: Any, **options: Any) -> str:
    with pytest.raises(psycopg.OperationalError) as refused:
        world.login(credential, **options)
    return str(refused.value)


# --- issuing --------------------------------------------------------------------------------------------------


def test_worker_scope_is_bounded(world: SchemaWorld) -> None:
    world.sql("CREATE SCHEMA other; CREATE TABLE other.t (a int); CREATE TABLE public.p (a int)")
    elsewhere = world.postgres.fresh_database("closed")
    with world.postgres.connect() as connection:
        connection.execute(f"REVOKE CONNECT ON DATABASE {elsewhere} FROM PUBLIC".encode())
    world.sql(f"SET ROLE {world.owner}; CREATE TABLE mart.old (a int)")
    gate, credential = issue(world)
    with world.login(credential) as worker:
        worker.execute("CREATE TABLE mart.new (a int)")
        worker.execute("INSERT INTO mart.new VALUES (1)")
        worker.execute("UPDATE mart.new SET a = 2")
        worker.execute("DELETE FROM mart.new")
        worker.execute("DROP TABLE mart.new")
        worker.execute("ALTER TABLE mart.old ADD COLUMN b int")  # as a member of the owner
        for statement in (
            f"SET ROLE {world.owner}",
            f"SET SESSION AUTHORIZATION {world.controller}",
            "CREATE TABLE public.t (a int)",
            "CREATE TABLE other.u (a int)",
            "SELECT * FROM other.t",
            "INSERT INTO public.p VALUES (1)",
            "CREATE SCHEMA mine",
            "CREATE ROLE friend LOGIN",
            f"ALTER ROLE {credential.name} CREATEROLE",
            "UPDATE dpone_gate.gate SET state = 2",
            "SELECT * FROM dpone_gate.gate",
            "INSERT INTO dpone_gate.receipt VALUES ('a', 'b', 1, 'c', 'd', 'e', 'f', '1')",
            "DROP EVENT TRIGGER dpone_gate_login",
            "COPY mart.old FROM PROGRAM 'true'",
            "COPY mart.old TO '/tmp/never'",
            "SELECT pg_read_file('/etc/hostname')",
            "ALTER SYSTEM SET work_mem = '1MB'",
        ):
            with pytest.raises(psycopg.Error) as refused:
                worker.execute(statement.encode())
            assert refused.value.sqlstate == REFUSED, statement
    assert "permission denied" in refused_login(world, credential, options="-c event_triggers=off")
    assert "permission denied" in refused_login(world, credential, dbname=elsewhere)
    gate.close(credential.name)


def test_password_never_reaches_the_server(world: SchemaWorld) -> None:
    world.sql("ALTER SYSTEM SET log_statement = 'all'")
    world.sql("SELECT pg_reload_conf()")
    time.sleep(0.3)
    try:
        gate, credential = issue(world)
        with world.login(credential) as worker:
            worker.execute("SELECT 1")
            seen = world.sql("SELECT query FROM pg_stat_activity")
        gate.close(credential.name)
    finally:
        world.sql("ALTER SYSTEM RESET log_statement")
        world.sql("SELECT pg_reload_conf()")
    log = (world.postgres.server.directory / "log").read_text()
    assert credential.name in log, "the statements were logged"
    assert credential.password not in log
    assert credential.password not in str(seen)
    assert credential.password not in repr(credential)


def test_name_is_journaled_before_the_role_exists(world: SchemaWorld) -> None:
    attempt = world.admit()
    gate = world.gate(attempt)
    journaled: list[tuple[GateState, int]] = []
    create = gate._create

    def looked(name: str, *rest: Any) -> None:
        roles = world.sql("SELECT count(*) FROM pg_roles WHERE rolname = %s", name)[0][0]
        journaled.append((state_of(world, attempt, name), roles))
        create(name, *rest)

    gate._create = looked  # type: ignore[method-assign]
    gate.issue_once(Purpose.WORKER, world.rights())
    assert journaled == [(GateState.JOURNALED, 0)]


def test_login_is_refused_until_the_gate_is_ready(world: SchemaWorld) -> None:
    attempt = world.admit()
    gate = world.gate(attempt)
    seen: list[str] = []
    open_gate = gate._open
    passwords: list[str] = []
    created = gate._create

    def remember(name: str, incarnation: str, password: Any, rights: Any) -> None:
        passwords.append(password.text)
        created(name, incarnation, password, rights)

    def early(name: str) -> None:
        credential = IssuedCredential(name=name, principal_uuid="", password=passwords[0])
        seen.append(refused_login(world, credential))
        assert state_of(world, attempt, name) is GateState.READY, "the target's row is opened last"
        open_gate(name)

    gate._create, gate._open = remember, early  # type: ignore[method-assign]
    credential = gate.issue_once(Purpose.WORKER, world.rights())
    assert "the gate of this login is not open" in seen[0]
    world.login(credential).close()


def test_concurrent_issue_gives_one_credential(world: SchemaWorld) -> None:
    attempt = world.admit()
    results: list[IssuedCredential | Exception] = []
    barrier = threading.Barrier(2)

    def run() -> None:
        gate = world.gate(attempt)
        barrier.wait()
        try:
            results.append(gate.issue_once(Purpose.WORKER, world.rights()))
        except GateRefused as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    issued = [r for r in results if isinstance(r, IssuedCredential)]
    assert len(issued) == 1
    # one unique key of ours, or PostgreSQL's own catalog ("tuple concurrently updated"): whichever was met first
    [refused] = [r.details["server_code"] for r in results if isinstance(r, GateRefused)]
    assert refused in ("23505", "XX000")
    assert world.roles() == [issued[0].name]
    world.login(issued[0]).close()
    states = [p.state for p in LedgerJournal(world.ledger.runtime(), attempt).principals()]
    assert sorted(states) == [GateState.READY, GateState.CLOSED]


def test_second_login_of_an_attempt_is_refused_also_after_the_first_was_closed(world: SchemaWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    gate.close(credential.name)
    with pytest.raises(GateRefused) as refused:
        world.gate(attempt).issue_once(Purpose.WORKER, world.rights())
    assert refused.value.details["server_code"] == "23505"
    assert world.roles() == []


def test_fenced_attempt_gets_no_login(world: SchemaWorld) -> None:
    attempt = world.admit()
    CompositionAttemptStore(world.ledger.runtime()).fence(attempt)
    with pytest.raises(Fenced):
        issue(world, attempt)
    assert world.roles() == []
    assert world.sql("SELECT count(*) FROM dpone_gate.gate") == [(0,)]


def test_older_epoch_gets_no_login_in_the_target_either(world: SchemaWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt, epoch=7)
    gate.close(credential.name)
    other = "sha256:" + "1" * 64
    with pytest.raises(psycopg.DatabaseError, match="gate_stale_epoch") as refused:
        world.sql(
            "INSERT INTO dpone_gate.gate (name, incarnation, guard, epoch, attempt, state, role_oid) "
            "SELECT %s, gen_random_uuid(), guard, 6, %s, 1, 10 FROM dpone_gate.gate",
            "dpone_w_" + "0" * 32, other,
        )  # fmt: skip
    assert refused.value.sqlstate == "DP002"


# --- what is installed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alter", "restore"),
    [
        ("ALTER EVENT TRIGGER dpone_gate_login DISABLE", "ALTER EVENT TRIGGER dpone_gate_login ENABLE ALWAYS"),
        ("ALTER EVENT TRIGGER dpone_gate_login ENABLE", "ALTER EVENT TRIGGER dpone_gate_login ENABLE ALWAYS"),
        ("ALTER FUNCTION dpone_gate.login() SECURITY INVOKER", "ALTER FUNCTION dpone_gate.login() SECURITY DEFINER"),
        ("ALTER FUNCTION dpone_gate.login() RESET search_path", "ALTER FUNCTION dpone_gate.login() SET search_path = ''"),
        ("GRANT UPDATE ON dpone_gate.gate TO PUBLIC", "REVOKE UPDATE ON dpone_gate.gate FROM PUBLIC"),
        ("ALTER TABLE dpone_gate.gate DISABLE TRIGGER gate_rule", "ALTER TABLE dpone_gate.gate ENABLE ALWAYS TRIGGER gate_rule"),
        ("ALTER ROLE dpone_gate_owner LOGIN", "ALTER ROLE dpone_gate_owner NOLOGIN"),
    ],
)  # fmt: skip
def test_altered_barrier_refuses_issuing_and_proves_no_closing(world: SchemaWorld, alter: str, restore: str) -> None:
    gate, credential = issue(world)
    world.sql(alter)
    try:
        with pytest.raises(GateNotClosed, match="not what was installed"):
            gate.close_on_server(credential.name)
        with pytest.raises(GateRefused, match="not what was installed"), world.control().fresh() as session:
            gate._require_installed(session)
        assert world.guard is not None
        with pytest.raises(TargetChanged), world.control().fresh() as session:
            require_enrolled(session, world.guard.schema)
    finally:
        world.sql(restore)
    gate.close(credential.name)


def test_rendered_text_installs_what_enrolment_installs(world: SchemaWorld) -> None:
    other = world.postgres.fresh_database("rendered")
    text = render_composition_postgres_login_gate(database=other, controller=world.controller)
    with world.postgres.connect(other) as connection:
        connection.execute(text.encode())
    assert world.guard is not None
    control = PostgresControl(replace(world.admin_control().params, dbname=other))
    with control.fresh() as session:
        assert layout(session) == world.guard.schema.gate_layout


def test_other_logins_never_depend_on_the_gate_tables(world: SchemaWorld) -> None:
    _, credential = issue(world)
    world.sql("ALTER TABLE dpone_gate.gate RENAME TO away")
    try:
        world.control().query("SELECT 1")
        assert "does not exist" in refused_login(world, credential)
    finally:
        world.sql("ALTER TABLE dpone_gate.away RENAME TO gate")
    world.login(credential).close()


def test_server_without_login_triggers_is_refused() -> None:
    class Old:
        def query(self, statement: str, params: object = None) -> list[tuple[Any, ...]]:
            return [(160009,)]

    with pytest.raises(TargetUnsupported, match="PostgreSQL 17"):
        require_version(Old())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "alter", "restore"),
    [
        ("ambient_writer", "CREATE ROLE {r} LOGIN; GRANT INSERT ON mart.t TO {r}", "DROP OWNED BY {r}; DROP ROLE {r}"),
        ("ambient_writer", "CREATE ROLE {r} LOGIN; GRANT {o} TO {r} WITH INHERIT FALSE", "DROP ROLE {r}"),
        ("ambient_writer", "CREATE ROLE {r} LOGIN; GRANT CREATE ON SCHEMA mart TO {r}", "DROP OWNED BY {r}; DROP ROLE {r}"),
        ("ambient_writer", "CREATE ROLE {r} LOGIN; GRANT pg_write_all_data TO {r}", "DROP ROLE {r}"),
        ("foreign_owner", "CREATE ROLE {r}; ALTER TABLE mart.t OWNER TO {r}", "ALTER TABLE mart.t OWNER TO {o}; DROP ROLE {r}"),
        ("owner_role", "ALTER ROLE {o} LOGIN", "ALTER ROLE {o} NOLOGIN"),
        ("owner_member_of", "GRANT pg_read_all_data TO {o}", "REVOKE pg_read_all_data FROM {o}"),
        ("owner_elsewhere", "CREATE SCHEMA more AUTHORIZATION {o}", "DROP SCHEMA more"),
        ("public_connect", "GRANT CONNECT ON DATABASE {d} TO PUBLIC", "REVOKE CONNECT ON DATABASE {d} FROM PUBLIC"),
        ("public_create", "GRANT CREATE ON SCHEMA public TO PUBLIC", "REVOKE CREATE ON SCHEMA public FROM PUBLIC"),
        ("public_write", "CREATE TABLE public.w (); GRANT INSERT ON public.w TO PUBLIC", "DROP TABLE public.w"),
        ("definer_function", "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
         "DROP FUNCTION public.f()"),
        ("controller", "ALTER ROLE {c} NOCREATEROLE", "ALTER ROLE {c} CREATEROLE"),
        ("controller", "REVOKE ADMIN OPTION FOR {o} FROM {c}", "GRANT {o} TO {c} WITH ADMIN TRUE, INHERIT TRUE, SET TRUE"),
        ("schema_owner", "ALTER SCHEMA mart OWNER TO postgres", "ALTER SCHEMA mart OWNER TO {o}"),
    ],
)  # fmt: skip
def test_every_drift_refuses_with_its_own_reason(world: SchemaWorld, reason: str, alter: str, restore: str) -> None:
    world.sql(f"SET ROLE {world.owner}; CREATE TABLE mart.t (a int)")
    names = {"r": f"role_{world.tag}", "o": world.owner, "c": world.controller, "d": world.database}
    assert world.guard is not None

    def look() -> None:
        assert world.guard is not None
        with world.control().fresh() as session:
            require_enrolled(session, world.guard.schema)

    look()
    world.sql(alter.format(**names))
    try:
        with pytest.raises((TargetUnsupported, AmbientWriter)) as refused:
            look()
        assert f"login_database_policy_{reason}" in refused.value.details["reasons"]
        if reason == "ambient_writer":
            assert isinstance(refused.value, AmbientWriter)
    finally:
        world.sql(restore.format(**names))
    look()


def test_database_of_another_ledger_is_refused(world: SchemaWorld) -> None:
    other = SchemaWorld.__new__(SchemaWorld)
    other.__dict__.update(world.__dict__, ledger=ledger_database.create(world.postgres.superuser))
    with pytest.raises(EnrolledElsewhere):
        other.enrol()


def test_recreated_database_is_no_longer_enrolled_and_blocks_closing(world: SchemaWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    with world.postgres.connect() as connection:
        connection.execute(f"DROP DATABASE {world.database}".encode())
        connection.execute(f"CREATE DATABASE {world.database}".encode())
        connection.execute(f"GRANT CONNECT ON DATABASE {world.database} TO {world.controller}".encode())
    assert world.guard is not None
    with pytest.raises(NotEnrolled), world.control().fresh() as session:
        require_enrolled(session, world.guard.schema)
    with pytest.raises(GateNotClosed, match="no marker"):
        gate.close(credential.name)
    assert state_of(world, attempt, credential.name) is GateState.CLOSING


def test_copied_database_carries_a_marker_that_names_another(world: SchemaWorld) -> None:
    copy = f"copy_{world.tag}"
    with world.postgres.connect() as connection:
        connection.execute(f"CREATE DATABASE {copy} TEMPLATE {world.database}".encode())
    world.database, enrolled = copy, world.database
    with pytest.raises(EnrolledElsewhere, match=enrolled):
        world.enrol()


# --- closing ----------------------------------------------------------------------------------------------------


def test_gate_never_goes_back(world: SchemaWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    evidence = gate.close(credential.name)
    assert evidence is not None
    assert world.gate(attempt).close(credential.name) is None, "the evidence is recorded once"
    assert state_of(world, attempt, credential.name) is GateState.CLOSED
    for statement in (
        "UPDATE dpone_gate.gate SET state = 2", "UPDATE dpone_gate.gate SET state = 3",
        "UPDATE dpone_gate.gate SET attempt = 'x'", "DELETE FROM dpone_gate.gate", "TRUNCATE dpone_gate.gate",
    ):  # fmt: skip
        with pytest.raises(psycopg.DatabaseError) as refused:
            world.sql(statement)
        assert refused.value.sqlstate == "DP002"
    assert "password authentication failed" in refused_login(world, credential)
    again = world.gate(attempt).prove_quiescence(credential.name)
    assert again.sessions == 0


def test_login_enabled_again_by_hand_is_still_refused_and_is_no_closing(world: SchemaWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    world.sql("UPDATE dpone_gate.gate SET state = 3")
    assert "the gate of this login is not open" in refused_login(world, credential), "while it can log in"
    wait = gate._closing(credential.name)
    with world.control().fresh() as session:
        row = wait._move_row(session)
        wait._take_login(session, row)
        world.sql(f"ALTER ROLE {credential.name} LOGIN PASSWORD '{credential.password}'")
        assert "the gate of this login is not open" in refused_login(world, credential)
        with pytest.raises(GateNotClosed, match="can log in again"), world.control().known() as known:
            wait._wait_until_quiet(session, row, known)
    gate.close(credential.name)
    assert world.roles() == []


def test_role_made_anew_under_the_name_blocks_closing(world: SchemaWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    drop_by_hand(world, credential)
    world.sql(f"CREATE ROLE {credential.name} LOGIN PASSWORD '{credential.password}'")
    world.sql(f"GRANT CONNECT ON DATABASE {world.database} TO {credential.name}")
    assert "the gate of this login is not open" in refused_login(world, credential), "READY is for the issued role"
    with pytest.raises(GateNotClosed, match="somebody made it anew"):
        gate.close(credential.name)
    assert state_of(world, attempt, credential.name) is GateState.CLOSING
    world.sql(f"DROP OWNED BY {credential.name}; DROP ROLE {credential.name}")
    assert gate.close(credential.name) is not None


def test_role_dropped_by_hand_is_proved_closed_by_its_number(world: SchemaWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    drop_by_hand(world, credential)
    evidence = gate.close(credential.name)
    assert evidence is not None
    assert "gate row: CLOSED; the role was gone" in evidence[0].steps


@contextmanager
def login_held_in_its_trigger(world: SchemaWorld, credential: IssuedCredential) -> Iterator[list[str]]:
    """A login that has passed our trigger and has not ended: a second trigger makes it wait. What became of it."""
    world.sql(
        "CREATE FUNCTION public.hold() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF left(session_user, 8) = 'dpone_w_' THEN PERFORM pg_advisory_xact_lock(4711); END IF; END $$"
    )
    world.sql("CREATE EVENT TRIGGER zz_hold ON login EXECUTE FUNCTION public.hold()")
    outcome: list[str] = []

    def run() -> None:
        try:
            world.login(credential).close()
            outcome.append("in")
        except psycopg.OperationalError as error:
            outcome.append(str(error))

    with world.postgres.connect(world.database) as holder:
        holder.execute("SELECT pg_advisory_lock(4711)")
        thread = threading.Thread(target=run)
        thread.start()
        deadline = time.monotonic() + 10
        while not world.sql("SELECT 1 FROM pg_stat_activity WHERE usename = %s", credential.name):
            assert time.monotonic() < deadline, "a login is visible while its trigger runs"
            time.sleep(0.02)
        try:
            yield outcome
        finally:
            holder.execute("SELECT pg_advisory_unlock(4711)")
            thread.join()
            world.sql("DROP EVENT TRIGGER zz_hold")


def test_login_inside_its_trigger_is_seen_and_ended_before_anything_is_called_closed(world: SchemaWorld) -> None:
    gate, credential = issue(world)
    with login_held_in_its_trigger(world, credential) as outcome:
        with pytest.raises(psycopg.errors.LockNotAvailable):  # the share lock of the login is held
            world.sql("SET lock_timeout = '200ms'; UPDATE dpone_gate.gate SET state = 3")
        evidence = gate.close(credential.name)
        assert evidence is not None
        steps = evidence[0].steps
        assert steps[0] == "waited: SQLSTATE 55P03"
        assert steps.index("told 1 session(s) to end") < steps.index("gate row: READY to CLOSING")
        assert world.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", credential.name) == [(0,)]
    assert outcome != ["in"]
    assert "terminating connection" in outcome[0]


def test_locked_gate_row_refuses_logins_at_once_and_leaves_others_alone(world: SchemaWorld) -> None:
    _, credential = issue(world)
    with world.postgres.connect(world.database) as holder, holder.transaction():
        holder.execute("SELECT 1 FROM dpone_gate.gate FOR UPDATE")
        started = time.monotonic()
        assert "could not obtain lock" in refused_login(world, credential)
        assert time.monotonic() - started < 5
        world.control().query("SELECT 1")
    world.login(credential).close()


def test_parallel_logins_while_closing_leave_nothing_behind(world: SchemaWorld) -> None:
    gate, credential = issue(world)
    stop = threading.Event()
    came_in: list[float] = []

    def hammer() -> None:
        while not stop.is_set():
            try:
                with world.login(credential):
                    came_in.append(time.monotonic())
            except psycopg.Error:
                time.sleep(0.01)

    threads = [threading.Thread(target=hammer) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    gate.close(credential.name)
    closed = time.monotonic()
    time.sleep(0.5)
    stop.set()
    for thread in threads:
        thread.join()
    assert came_in, "logins did come in before"
    assert max(came_in) < closed
    assert world.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", credential.name) == [(0,)]


def test_running_command_and_open_transaction_end_without_effect(world: SchemaWorld) -> None:
    world.sql(f"SET ROLE {world.owner}; CREATE TABLE mart.t (a int)")
    gate, credential = issue(world)
    worker, sleeper = world.login(credential), world.login(credential)
    worker.execute("BEGIN")
    worker.execute("INSERT INTO mart.t VALUES (1)")
    failed: list[str | None] = []

    def sleep() -> None:
        try:
            sleeper.execute("SELECT pg_sleep(60)")
        except psycopg.Error as error:
            failed.append(error.sqlstate)

    thread = threading.Thread(target=sleep)
    thread.start()
    while not world.sql("SELECT 1 FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)' AND state = 'active'"):
        time.sleep(0.02)
    started = time.monotonic()
    gate.close(credential.name)
    assert time.monotonic() - started < 10
    thread.join()
    assert failed == ["57P01"]
    with pytest.raises(psycopg.OperationalError):
        worker.execute("COMMIT")
    assert world.sql("SELECT count(*) FROM mart.t") == [(0,)]


def test_long_transaction_that_holds_the_fence_does_not_hold_the_closer(world: SchemaWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    assert world.guard is not None
    assert world.activation is not None
    worker = world.login(credential)
    worker.execute("BEGIN")
    worker.execute(
        "SELECT dpone_gate.fence(%s, %s, %s, true)",
        (world.guard.guard_id, world.activation.epochs[0].epoch, attempt),
    )
    started = time.monotonic()
    gate.close(credential.name)
    assert time.monotonic() - started < 5
    with pytest.raises(psycopg.OperationalError):
        worker.execute("COMMIT")


def test_worker_that_changes_its_own_password_is_closed_all_the_same(world: SchemaWorld) -> None:
    gate, credential = issue(world)
    worker = world.login(credential)
    worker.execute("BEGIN")
    worker.execute(f"ALTER ROLE {credential.name} PASSWORD 'mine'".encode())
    assert gate.close(credential.name) is not None
    assert world.roles() == []


def test_closing_touches_no_other_session(world: SchemaWorld) -> None:
    gate, credential = issue(world)
    with world.postgres.connect(world.database) as other:
        other.execute("BEGIN")
        other.execute("CREATE TABLE public.mine (a int)")
        gate.close(credential.name)
        other.execute("COMMIT")
    assert world.sql("SELECT count(*) FROM public.mine") == [(0,)]


def test_objects_of_a_worker_belong_to_the_owner_after_closing(world: SchemaWorld) -> None:
    gate, credential = issue(world)
    with world.login(credential) as worker:
        worker.execute("CREATE TABLE mart.made (a int)")
    gate.close(credential.name)
    assert world.sql("SELECT tableowner FROM pg_tables WHERE tablename = 'made'") == [(world.owner,)]
    assert world.roles() == []


def test_reader_of_what_a_worker_made_does_not_hold_its_gate_open(world: SchemaWorld) -> None:
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    with world.login(credential) as worker:
        worker.execute("CREATE TABLE mart.made (a int)")
    with world.postgres.connect(world.database) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM mart.made")
        evidence = gate.close(credential.name)
        assert evidence is not None
        assert world.roles() == [credential.name], "kept without a login while it is read"
        assert world.sql("SELECT rolcanlogin FROM pg_roles WHERE rolname = %s", credential.name) == [(False,)]
        target = PostgresTarget(world.control(), GatePolicy())
        assert target.leftover_names() == [credential.name]
        assert gate.remove_leftover(credential.name) is None
        with world.control().fresh() as session:  # the owner, and so the next worker, has all rights over it
            session.query("SET lock_timeout = '200ms'")
            session.query(f"SET ROLE {world.owner}")
            session.query("INSERT INTO mart.made VALUES (1)")
        assert world.guard is not None
        with world.control().fresh() as session:
            require_enrolled(session, world.guard.schema)
    assert gate.remove_leftover(credential.name) == credential.name
    assert world.roles() == []
    assert world.sql("SELECT tableowner FROM pg_tables WHERE tablename = 'made'") == [(world.owner,)]


# --- lost answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forward", [True, False])
def test_lost_answer_of_the_creation_is_closed(world: SchemaWorld, forward: bool) -> None:
    attempt = world.admit()
    with CuttingProxy(world.postgres.host, world.postgres.port) as proxy:
        proxy.cut_on(b"CREATE ROLE", forward=forward)
        with pytest.raises(Exception, match="lost"):
            issue(world, attempt, port=proxy.port)
    [principal] = LedgerJournal(world.ledger.runtime(), attempt).principals()
    assert principal.state is GateState.CLOSED
    assert world.gate_state(principal.name) == GateState.CLOSED
    assert world.roles() == []


def test_creation_that_arrives_after_closing_fails_as_a_whole(world: SchemaWorld) -> None:
    attempt = world.admit()
    with CuttingProxy(world.postgres.host, world.postgres.port) as proxy:
        proxy.late = 2.0
        proxy.cut_on(b"CREATE ROLE", forward=True)
        with pytest.raises(Exception, match="lost"):
            issue(world, attempt, port=proxy.port)
        [principal] = LedgerJournal(world.ledger.runtime(), attempt).principals()
        assert principal.state is GateState.CLOSED
        time.sleep(2.5)
    assert world.sql("SELECT count(*) FROM pg_roles WHERE rolname = %s", principal.name) == [(0,)]
    assert world.gate_state(principal.name) == GateState.CLOSED


@pytest.mark.parametrize("forward", [True, False])
def test_lost_journal_answer_creates_no_login(world: SchemaWorld, forward: bool) -> None:
    attempt = world.admit()
    with CuttingProxy(world.postgres.host, world.postgres.port) as proxy:
        proxy.cut_on(b"INSERT INTO dpone.principal", forward=forward)
        with pytest.raises(Exception, match="DPONE_LEDGER"):
            issue(world, attempt, ledger_port=proxy.port)
    assert world.roles() == []
    assert world.sql("SELECT count(*) FROM dpone_gate.gate WHERE state <> 4") == [(0,)]


def test_lost_answer_of_opening_gives_no_password_out_and_closes(world: SchemaWorld) -> None:
    attempt = world.admit()
    with CuttingProxy(world.postgres.host, world.postgres.port) as proxy:
        proxy.cut_on(b"SET state = 2", forward=True)
        with pytest.raises(Exception, match="lost"):
            issue(world, attempt, port=proxy.port)
    [principal] = LedgerJournal(world.ledger.runtime(), attempt).principals()
    assert principal.state is GateState.CLOSED
    assert world.roles() == []


@pytest.mark.parametrize("marker", [b"SET state = 3", b"NOLOGIN PASSWORD", b"DROP ROLE"])
@pytest.mark.parametrize("forward", [True, False])
def test_lost_answer_of_a_closing_step_is_done_again(world: SchemaWorld, marker: bytes, forward: bool) -> None:
    attempt = world.admit()
    with CuttingProxy(world.postgres.host, world.postgres.port) as proxy:
        gate, credential = issue(world, attempt, port=proxy.port)
        proxy.cut_on(marker, forward=forward)
        evidence = gate.close(credential.name)
        assert proxy.cuts == 1
    assert evidence is not None
    assert "round 1: DPONE_ANSWER_LOST" in evidence[0].steps
    assert world.roles() == []


# --- a server of its own ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresUnderTest]:
    """A server with prepared transactions, which may be killed."""
    with postgres_under_test(tmp_path_factory.mktemp("own")) as server:
        with server.connect() as connection:
            connection.execute("ALTER SYSTEM SET max_prepared_transactions = 5")
        server.server.stop()
        server.server.start()
        yield server


@pytest.fixture
def own_world(own_server: PostgresUnderTest) -> SchemaWorld:
    world = SchemaWorld(own_server, ledger_database.create(own_server.superuser))
    world.enrol()
    return world


def test_prepared_transaction_blocks_closing_until_an_administrator_ends_it(own_world: SchemaWorld) -> None:
    world = own_world
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    with world.login(credential) as worker:
        worker.execute("BEGIN")
        worker.execute("CREATE TABLE mart.later (a int)")
        worker.execute("PREPARE TRANSACTION 'left over'")
    with pytest.raises(GateNotClosed, match="left over"):
        gate.close(credential.name)
    assert state_of(world, attempt, credential.name) is GateState.CLOSING
    world.sql("ROLLBACK PREPARED 'left over'")
    assert gate.close(credential.name) is not None


def test_crash_of_the_server_between_closing_steps_is_survived(own_world: SchemaWorld) -> None:
    world = own_world
    attempt = world.admit()
    gate, credential = issue(world, attempt)
    worker = world.login(credential)
    worker.execute("BEGIN")
    worker.execute("CREATE TABLE mart.t (a int)")
    closing = gate._closing(credential.name)
    with world.control().fresh() as session:
        closing._take_login(session, closing._move_row(session))
    world.postgres.server.kill()
    world.postgres.server.start()
    evidence = world.gate(attempt).close(credential.name)
    assert evidence is not None
    assert "gate row: CLOSING already" in evidence[0].steps
    assert world.sql("SELECT to_regclass('mart.t')") == [(None,)]
