"""The gate: users exactly as issued, closed for good, whatever is under way when they are closed."""

from __future__ import annotations

import dataclasses
import secrets
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clickhouse_driver import Client

from airflow_provider_dpone.contracts.states import GateState, Purpose
from airflow_provider_dpone.engines.clickhouse.control import NativeControl, require_same_server
from airflow_provider_dpone.engines.clickhouse.rights import ingest_rights, publisher_rights, remover_rights
from airflow_provider_dpone.errors import (
    AnswerLost,
    DponeError,
    EnrolledElsewhere,
    Fenced,
    GateNotClosed,
    GateRefused,
    LedgerUnavailable,
    ServerRefused,
    ServerUnreachable,
    ViewIncomplete,
)
from tests.live_clickhouse.product import Journal, Login, Product


@pytest.fixture
def tables(product: Product) -> Iterator[str]:
    """A database with tables a (3 rows) and b (empty)."""
    with product.database() as database:
        for name in "ab":
            product.run(f"CREATE TABLE {database}.{name} (x Int64) ENGINE = MergeTree ORDER BY x")
        product.run(f"INSERT INTO {database}.a SELECT number FROM numbers(3)")
        yield database


def refused(call: Callable[[], object]) -> int:
    with pytest.raises(ServerRefused) as caught:
        call()
    return int(caught.value.details["server_code"])


def user_of(product: Product, name: str) -> list[tuple[Any, ...]]:
    return product.rows(f"SELECT toString(id), host_ip, host_names FROM system.users WHERE name = '{name}'")


class Background:
    """A call in a thread, with its outcome."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.outcome: object = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            self.outcome = call()
        except Exception as error:  # noqa: BLE001 - the outcome is what the test looks at
            self.outcome = error

    def join(self) -> object:
        self._thread.join(15)
        assert not self._thread.is_alive()
        return self.outcome


def test_an_ingest_user_can_insert_into_its_generation_and_nothing_else(product: Product, tables: str) -> None:
    gate = product.gate(Journal(), (tables, "b"))
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    product.send(issued, f"INSERT INTO {tables}.b FORMAT TSV", b"1\n2\n")
    assert product.rows(f"SELECT count() FROM {tables}.b") == [(2,)]
    for statement in (
        f"SELECT * FROM {tables}.b",
        f"INSERT INTO {tables}.a SELECT 1",
        f"TRUNCATE TABLE {tables}.b",
        f"DROP TABLE {tables}.b",
        f"ALTER TABLE {tables}.b DELETE WHERE 1",
        f"EXCHANGE TABLES {tables}.a AND {tables}.b",
        f"CREATE TABLE {tables}.c (x Int8) ENGINE = Memory",
    ):
        assert refused(lambda s=statement: product.send(issued, s)) == 497
    gate.close(issued.name)


def test_pinned_settings_cannot_be_changed(product: Product, tables: str) -> None:
    gate = product.gate(Journal())
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    for setting in ("async_insert=1", "input_format_null_as_default=1", "insert_deduplicate=1"):
        statement = f"INSERT INTO {tables}.b SETTINGS {setting} FORMAT TSV"
        assert refused(lambda s=statement: product.send(issued, s, b"1\n")) == 452
    gate.close(issued.name)


def test_a_publisher_has_one_statement(product: Product, tables: str) -> None:
    gate = product.gate(Journal())
    issued = gate.issue_once(Purpose.PUBLISHER, publisher_rights(tables, "a", "b"))
    exchange = f"EXCHANGE TABLES {tables}.a AND {tables}.b"
    product.send(issued, exchange)
    assert refused(lambda: product.send(issued, exchange)) == 201
    assert refused(lambda: product.send(issued, f"DROP TABLE {tables}.a")) == 201
    assert product.rows(f"SELECT count() FROM {tables}.b") == [(3,)]
    gate.close(issued.name)


def test_a_publisher_cannot_drop_a_table_that_holds_rows(product: Product, tables: str) -> None:
    gate = product.gate(Journal())
    issued = gate.issue_once(Purpose.PUBLISHER, publisher_rights(tables, "a", "b"))
    assert refused(lambda: product.send(issued, f"DROP TABLE {tables}.a SYNC")) == 359
    gate.close(issued.name)


def test_a_remover_can_drop_its_one_name(product: Product, tables: str) -> None:
    gate = product.gate(Journal())
    issued = gate.issue_once(Purpose.REMOVER, remover_rights(tables, "a"))
    product.send(issued, f"DROP TABLE {tables}.a SYNC")
    assert product.rows(f"EXISTS TABLE {tables}.a") == [(0,)]
    gate.close(issued.name)


def test_the_password_reaches_the_server_only_as_a_salted_hash(product: Product, tables: str) -> None:
    gate = product.gate(Journal())
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    gate.close(issued.name)
    product.run("SYSTEM FLUSH LOGS")
    found = product.rows(
        f"SELECT count(), countIf(position(query, '{issued.name}') > 0) FROM system.query_log "
        f"WHERE position(query, '{issued.password}') > 0 AND position(query, 'query_log') = 0"
    )
    assert found[0][0] == 0
    assert issued.password not in repr(issued)


def test_a_closed_user_cannot_log_in_and_leaves_nothing(product: Product, tables: str) -> None:
    journal = Journal()
    gate = product.gate(journal, (tables, "a"), (tables, "b"))
    issued = gate.issue_once(Purpose.PUBLISHER, publisher_rights(tables, "a", "b"))
    evidence = gate.close(issued.name)
    assert evidence is not None
    closure, quiet = evidence
    assert closure.principal_uuid == issued.principal_uuid
    assert closure.steps == ("revoke: ok", "drop: ok", "drop quota: ok", "fence: ok", "seen gone", "seen quiet")
    assert quiet.queries == 0
    assert journal.rows[issued.name].state is GateState.CLOSED
    assert refused(lambda: product.send(issued, "SELECT 1")) in (516, 192, 193)
    for what in ("users WHERE name", "grants WHERE user_name", "quotas WHERE name"):
        assert product.rows(f"SELECT count() FROM system.{what} = '{issued.name}'") == [(0,)]
    assert gate.close(issued.name) is None


def test_closing_resumes_in_a_process_that_knows_nothing_but_the_journal(product: Product, tables: str) -> None:
    journal = Journal()
    issued = product.gate(journal).issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    journal.fail_at = {"closed"}
    with pytest.raises(LedgerUnavailable):
        product.gate(journal).close(issued.name)
    assert user_of(product, issued.name) == []
    journal.fail_at = set()
    evidence = product.gate(journal).close(issued.name)
    assert evidence is not None
    assert evidence[0].steps[:2] == ("revoke: refused 192", "drop: refused 192")


def test_closing_on_the_server_needs_no_ledger(product: Product, tables: str) -> None:
    journal = Journal()
    gate = product.gate(journal)
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    journal.fail_at = {"closing", "closed"}
    gate.close_known()
    assert user_of(product, issued.name) == []
    assert gate.close_on_server(issued.name).tombstone_uuid is None
    assert user_of(product, issued.name) == []
    assert journal.rows[issued.name].state is GateState.READY


def test_an_issue_that_cannot_be_made_ready_is_closed_again(product: Product, tables: str) -> None:
    journal = Journal()
    journal.fail_at = {"ready"}
    with pytest.raises(LedgerUnavailable):
        product.gate(journal).issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    [row] = journal.rows.values()
    assert row.state is GateState.CLOSED
    assert user_of(product, row.name) == []


def test_an_issue_the_server_refuses_is_closed_without_a_tombstone(product: Product, tables: str) -> None:
    journal = Journal()
    product.run("DROP USER IF EXISTS dpone_weak", "CREATE USER dpone_weak IDENTIFIED WITH sha256_password BY 'x'")
    product.run("GRANT SHOW, SHOW USERS, SHOW ROLES, SYSTEM RELOAD USERS ON *.* TO dpone_weak")
    product.run("GRANT SELECT ON system.* TO dpone_weak")
    gate = product.gate(journal)
    gate._control = type(product.control)(lambda: product.server.client("dpone_weak", "x"))
    with pytest.raises(GateRefused) as caught:
        gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    assert caught.value.details["server_code"] == 497
    [row] = journal.rows.values()
    assert row.state is GateState.CLOSED
    assert user_of(product, row.name) == []
    product.run("DROP USER dpone_weak")


def test_another_server_behind_the_connection_is_never_taken_for_closed(product: Product, tables: str) -> None:
    journal = Journal()
    gate = product.gate(journal)
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    gate._service_id = str(uuid.uuid4())
    journal.rows[issued.name] = dataclasses.replace(journal.rows[issued.name], service_id=gate._service_id)
    with pytest.raises(GateNotClosed):
        gate.close(issued.name)
    assert journal.rows[issued.name].state is GateState.CLOSING
    product.gate(journal).close_known()
    product.run(f"DROP USER IF EXISTS {issued.name}")


def test_a_gate_left_journaled_is_closed_by_a_tombstone_that_stays(product: Product, tables: str) -> None:
    journal = Journal()
    gate = product.gate(journal)
    name = "dpone_ingest_" + uuid.uuid4().hex
    journal.journal(connector="clickhouse", service_id=product.service_id, name=name, purpose=Purpose.INGEST)  # type: ignore[arg-type]
    evidence = gate.close(name)
    assert evidence is not None
    assert evidence[0].principal_uuid is None
    [(found, host_ip, host_names)] = user_of(product, name)
    assert (found, host_ip, host_names) == (evidence[0].tombstone_uuid, [], [])
    with pytest.raises(ServerRefused) as caught:
        product.run(f"CREATE USER {name} IDENTIFIED WITH sha256_password BY 'late' HOST ANY")
    assert caught.value.details["server_code"] == 493
    assert gate.close_on_server(name).tombstone_uuid == found  # again: the same tombstone
    assert name not in gate.leftovers()
    assert gate.remove_leftover(name) is None
    product.run(f"DROP USER {name}")


def test_a_dropped_user_that_came_back_is_found_and_removed(product: Product, tables: str) -> None:
    gate = product.gate(Journal())
    name = "dpone_publisher_" + uuid.uuid4().hex
    product.run(f"CREATE USER {name} IDENTIFIED WITH sha256_password BY 'back' HOST ANY")
    product.run(f"GRANT INSERT ON {tables}.b TO {name}")
    assert name in gate.leftovers()
    removed = gate.remove_leftover(name)
    assert removed is not None
    assert user_of(product, name) == []


def test_a_name_that_could_not_be_journaled_is_never_created(product: Product, tables: str) -> None:
    journal = Journal()
    journal.fail_at = {"journal"}
    before = product.rows("SELECT count() FROM system.users")
    with pytest.raises(LedgerUnavailable):
        product.gate(journal).issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    assert product.rows("SELECT count() FROM system.users") == before


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("GRANT TRUNCATE ON {tables}.a TO {name}", "grants"),
        ("ALTER USER {name} SETTINGS async_insert = 1", "settings"),
        ("DROP QUOTA {name}", "budget"),
    ],
)
def test_a_user_the_server_shows_otherwise_than_issued_is_refused_and_closed(
    product: Product, tables: str, statement: str, named: str
) -> None:
    journal = Journal()
    gate = product.gate(journal)

    def meddle() -> None:
        product.run(statement.format(tables=tables, name=next(iter(journal.rows))))

    gate._control = product.meddled("is_partial_revoke", meddle, 1)
    with pytest.raises(GateRefused, match=named):
        gate.issue_once(Purpose.PUBLISHER, publisher_rights(tables, "a", "b"))
    [name] = journal.rows
    assert user_of(product, name) == []
    assert journal.rows[name].state is GateState.CLOSED


def test_a_user_that_is_there_again_right_after_its_drop_is_not_closed(product: Product, tables: str) -> None:
    journal = Journal()
    issued = product.gate(journal).issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    gate = product.gate(journal)
    back = f"CREATE USER {issued.name} IDENTIFIED WITH sha256_password BY 'back'"
    gate._control = product.meddled("groupArrayIf", lambda: product.run(back), 1)
    with pytest.raises(GateNotClosed, match="still there"):
        gate.close(issued.name)
    assert journal.rows[issued.name].state is GateState.CLOSING
    assert gate.close(issued.name) is not None


@pytest.mark.parametrize(("view", "position"), [("groupArrayIf", 1), ("asynchronous_inserts", 1)])
def test_a_view_that_does_not_show_what_must_be_there_is_not_believed(
    product: Product, tables: str, view: str, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller itself among the users, the observing statement among the running ones."""
    journal = Journal()
    gate = product.gate(journal)
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    query = NativeControl.query

    def hidden(self: NativeControl, sql: str, params: Any = None) -> list[tuple[Any, ...]]:
        rows = query(self, sql, params)
        return [(*row[:position], 0, *row[position + 1 :]) for row in rows] if view in sql else rows

    with monkeypatch.context() as patch:
        patch.setattr(NativeControl, "query", hidden)
        with pytest.raises(ViewIncomplete):
            gate.close(issued.name)
    assert journal.rows[issued.name].state is GateState.CLOSING
    assert gate.close(issued.name) is not None


def test_a_user_issued_on_another_server_is_never_closed_here(product: Product, tables: str) -> None:
    """The connection was pointed at another server meanwhile: "unknown user" there says nothing about the first one."""
    journal = Journal()
    gate = product.gate(journal)
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    there = dataclasses.replace(journal.rows[issued.name], service_id=str(uuid.uuid4()))
    journal.rows[issued.name] = there
    with pytest.raises(GateNotClosed, match="issued on server"):
        product.gate(journal).close(issued.name)
    assert journal.rows[issued.name].state is GateState.CLOSING
    assert len(user_of(product, issued.name)) == 1
    gate.close_known()


def test_a_user_that_became_usable_after_its_gate_was_closed_is_removed_by_whoever_issued_it(
    product: Product, tables: str
) -> None:
    journal = Journal()

    def settled(*, name: str, principal_uuid: str) -> None:
        journal._set(name, state=GateState.CLOSED)
        raise Fenced("settled by a later try")

    journal.ready = settled  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        product.gate(journal).issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    [name] = journal.rows
    assert user_of(product, name) == []


def test_a_look_the_server_refuses_keeps_the_gate_closing_for_a_later_try(product: Product, tables: str) -> None:
    journal = Journal()
    issued = product.gate(journal).issue_once(Purpose.INGEST, ingest_rights(tables, "b"))

    def overloaded() -> None:
        raise ServerRefused("memory limit", passes=True, server_code=241)

    gate = product.gate(journal)
    gate._control = product.meddled("system.users", overloaded, 1)
    with pytest.raises(GateNotClosed) as caught:
        gate.close(issued.name)
    assert caught.value.retryable
    assert journal.rows[issued.name].state is GateState.CLOSING
    assert gate.close(issued.name) is not None


def test_no_frame_of_a_failed_issue_shows_the_password(product: Product, tables: str) -> None:
    """Tracebacks may be printed with local variables."""
    journal = Journal()
    journal.fail_at = {"ready"}
    gate = product.gate(journal)
    handed_out: list[str] = []

    def recorded(size: int) -> bytes:
        value = secrets.token_bytes(size)
        handed_out.append(value.hex())
        return value

    gate._randomness = recorded
    with pytest.raises(LedgerUnavailable) as caught:
        gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    password = handed_out[1]
    assert len(password) == 64
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__) if frame.f_code.co_name != "recorded"]
    assert any(frame.f_code.co_name == "issue_once" for frame in frames)
    for frame in frames:
        if not frame.f_code.co_filename.endswith("test_product_gate.py"):
            assert password not in repr(frame.f_locals)


# --- with hold points ---


def test_one_user_that_cannot_be_proved_quiet_does_not_keep_another_open(local: Product, tables: str) -> None:
    gate = local.gate(Journal(), (tables, "a"), (tables, "b"))
    other = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    busy = gate.issue_once(Purpose.PUBLISHER, publisher_rights(tables, "a", "b"))
    rule = local.server.holds.set("effect_done", kind="Exchange", user_prefix=busy.name)
    exchange = Background(lambda: local.send(busy, f"EXCHANGE TABLES {tables}.a AND {tables}.b"))
    local.server.holds.wait(rule)
    with pytest.raises(GateNotClosed):
        gate.close_known(wait=0.2)
    assert [user_of(local, user.name) for user in (other, busy)] == [[], []]
    local.server.holds.clear()
    exchange.join()
    gate.close_known()


def test_a_request_authenticated_before_the_drop_has_no_effect_after_it(local: Product, tables: str) -> None:
    gate = local.gate(Journal(), (tables, "b"))
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    rule = local.server.holds.set("authenticated", user_prefix=issued.name)
    insert = Background(lambda: local.send(issued, f"INSERT INTO {tables}.b FORMAT TSV", b"1\n"))
    local.server.holds.wait(rule)
    evidence = gate.close(issued.name)  # nothing is registered, so nothing is waited for
    assert evidence is not None
    local.server.holds.clear(rule)
    assert isinstance(insert.join(), DponeError)
    assert local.rows(f"SELECT count() FROM {tables}.b") == [(0,)]


def test_a_standing_insert_body_is_ended_before_the_gate_is_closed(local: Product, tables: str) -> None:
    gate = local.gate(Journal(), (tables, "b"), receive_timeout=2)
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    started, go_on = threading.Event(), threading.Event()

    def body() -> Iterator[bytes]:
        yield b"1\n" * 100_000
        started.set()
        go_on.wait(20)
        yield b"2\n"

    dispatch = local.http.dispatch(f"INSERT INTO {tables}.b FORMAT TSV", issued, query_id=str(uuid.uuid4()))
    insert = Background(lambda: dispatch.send(body()))
    assert started.wait(10)
    running = f"SELECT count() FROM system.processes WHERE user = '{issued.name}'"
    deadline = time.monotonic() + 10
    while local.rows(running) == [(0,)] and time.monotonic() < deadline:
        time.sleep(0.02)
    evidence = gate.close(issued.name)
    assert evidence is not None
    assert "kill: sent" in evidence[0].steps
    assert local.rows(running) == [(0,)]
    settled = local.rows(f"SELECT count() FROM {tables}.b")
    go_on.set()
    assert isinstance(insert.join(), DponeError)
    assert local.rows(f"SELECT count() FROM {tables}.b") == settled


def test_an_exchange_that_passed_its_check_is_waited_for(local: Product, tables: str) -> None:
    journal = Journal()
    gate = local.gate(journal, (tables, "a"), (tables, "b"))
    issued = gate.issue_once(Purpose.PUBLISHER, publisher_rights(tables, "a", "b"))
    rule = local.server.holds.set("checked", user_prefix=issued.name, kind="Exchange")
    exchange = Background(lambda: local.send(issued, f"EXCHANGE TABLES {tables}.a AND {tables}.b"))
    local.server.holds.wait(rule)
    with pytest.raises(GateNotClosed):
        gate.close_on_server(issued.name, wait=0.3)
    assert user_of(local, issued.name) == []  # gone, and yet not closed
    closing = Background(lambda: gate.close(issued.name))
    time.sleep(0.3)
    local.server.holds.clear(rule)
    assert not isinstance(closing.join(), Exception)
    exchange.join()
    assert journal.rows[issued.name].state is GateState.CLOSED
    assert local.rows(f"SELECT count() FROM {tables}.b") == [(3,)]  # it happened, before the gate was closed


def test_an_exchange_that_did_not_pass_its_check_before_the_drop_is_refused(local: Product, tables: str) -> None:
    gate = local.gate(Journal())
    issued = gate.issue_once(Purpose.PUBLISHER, publisher_rights(tables, "a", "b"))
    rule = local.server.holds.set("registered", user_prefix=issued.name, kind="Exchange")
    exchange = Background(lambda: local.send(issued, f"EXCHANGE TABLES {tables}.a AND {tables}.b"))
    local.server.holds.wait(rule)
    closing = Background(lambda: gate.close(issued.name))
    time.sleep(0.3)
    local.server.holds.clear(rule)
    assert not isinstance(closing.join(), Exception)
    assert isinstance(exchange.join(), ServerRefused)
    assert local.rows(f"SELECT count() FROM {tables}.b") == [(0,)]


@pytest.mark.parametrize(("point", "kind"), [("answer", "DropUser"), ("registered", "DropUser"), ("answer", "System")])
def test_a_lost_answer_while_closing_is_asked_again_not_believed(
    local: Product, tables: str, point: str, kind: str
) -> None:
    gate = local.gate(Journal())
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    local.server.holds.set(point, "cut", kind=kind)
    evidence = gate.close(issued.name)
    assert evidence is not None
    assert any(step.endswith(": lost") for step in evidence[0].steps)
    assert evidence[0].steps[-3:] == ("fence: ok", "seen gone", "seen quiet")
    assert user_of(local, issued.name) == []


def test_a_create_whose_answer_was_lost_is_dropped_and_its_name_kept(local: Product, tables: str) -> None:
    journal = Journal()
    local.server.holds.set("answer", "cut", kind="CreateUser", user_prefix=local.server.controller_user)
    with pytest.raises(AnswerLost):
        local.gate(journal).issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    [row] = journal.rows.values()
    assert row.state is GateState.CLOSED
    [(found, host_ip, _)] = user_of(local, row.name)
    closure = journal.evidence[row.name][0]
    assert host_ip == []
    assert closure.tombstone_uuid == found != closure.principal_uuid  # type: ignore[attr-defined]
    local.run(f"DROP USER {row.name}")


def test_a_create_that_lands_late_fails_against_the_tombstone(local: Product, tables: str) -> None:
    journal = Journal()
    rule = local.server.holds.create_user_delayed(local.server.controller_user)
    with pytest.raises(AnswerLost):
        local.gate(journal).issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    [row] = journal.rows.values()
    assert row.state is GateState.CLOSED
    before = user_of(local, row.name)
    local.server.holds.clear(rule)
    time.sleep(0.3)
    assert user_of(local, row.name) == before
    assert before[0][1] == []
    local.run(f"DROP USER {row.name}")


def test_a_restart_while_closing_is_observed_again(local: Product, tables: str) -> None:
    journal = Journal()
    gate = local.gate(journal)
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    process = local.server.local
    assert process is not None
    rule = local.server.holds.set("answer", kind="DropUser")
    closing = Background(lambda: gate.close(issued.name))
    local.server.holds.wait(rule)
    process.kill()
    process.start()
    outcome = closing.join()
    if isinstance(outcome, GateNotClosed | ServerUnreachable):  # it was away too long: a later try goes on
        outcome = gate.close(issued.name)
    assert not isinstance(outcome, Exception)
    assert journal.rows[issued.name].state is GateState.CLOSED
    assert user_of(local, issued.name) == []


def test_a_restart_between_absence_and_quiet_is_noticed(local: Product, tables: str) -> None:
    gate = local.gate(Journal())
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    process = local.server.local
    assert process is not None

    def restart() -> None:
        time.sleep(4)  # longer than two starts may seem one
        process.kill()
        process.start()

    gate._control = local.meddled("asynchronous_inserts", restart, times=1)
    evidence = gate.close(issued.name)
    assert evidence is not None
    assert "the server was restarted: observing again" in evidence[0].steps
    assert evidence[0].steps[-2:] == ("seen gone", "seen quiet")


def test_an_unreachable_server_keeps_the_gate_closing(product: Product, tables: str) -> None:
    journal = Journal()
    gate = product.gate(journal)
    issued = gate.issue_once(Purpose.INGEST, ingest_rights(tables, "b"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    away = product.gate(journal)
    away._control = type(product.control)(lambda: Client("127.0.0.1", port, connect_timeout=1))
    with pytest.raises(GateNotClosed):
        away.close(issued.name)
    assert journal.rows[issued.name].state is GateState.CLOSING
    gate.close(issued.name)


def test_both_ends_are_proved_to_be_one_server(product: Product) -> None:
    login = Login(product.server.controller_user, product.server.controller_password)
    with product.control as control:
        assert require_same_server(control, product.http, login, query_id=str(uuid.uuid4())) == product.service_id

    class Elsewhere(type(product.http)):  # type: ignore[misc]
        def server_uuid(self, login: Login, *, query_id: str) -> str:
            return str(uuid.uuid4())

    with product.control as control, pytest.raises(EnrolledElsewhere):
        require_same_server(control, Elsewhere("127.0.0.1", 1), login, query_id="q")


@pytest.mark.parametrize("purpose", [Purpose.INGEST, Purpose.PUBLISHER, Purpose.REMOVER])
def test_every_single_field_the_server_shows_of_an_issued_user_is_compared(
    product: Product, tables: str, purpose: Purpose
) -> None:
    """One field otherwise, one row more or one row less is enough: each part of the comparison refuses by itself."""
    journal = Journal()
    gate = product.gate(journal)
    rights = {
        Purpose.INGEST: ingest_rights(tables, "b"),
        Purpose.PUBLISHER: publisher_rights(tables, "a", "b"),
        Purpose.REMOVER: remover_rights(tables, "b"),
    }[purpose]
    shown: list[list[Any]] = []
    verified = gate._verified

    def look(name: str, purpose: Purpose, rights: Any, rows: Any) -> str:
        shown.extend([kind, list(fields)] for kind, fields in rows)
        return verified(name, purpose, rights, rows)

    gate._verified = look  # type: ignore[method-assign]
    credential = gate.issue_once(purpose, rights)
    kinds = {kind for kind, _ in shown}
    assert kinds == {"user", "grant", "setting"} | (set() if purpose is Purpose.INGEST else {"quota", "limit"})

    def refused(rows: Any) -> None:
        with pytest.raises(GateRefused, match="otherwise than it was issued"):
            verified(credential.name, purpose, rights, rows)

    for at, (kind, fields) in enumerate(shown):
        for field, value in enumerate(fields):
            if (kind, field) in {("user", 0), ("quota", 0)}:  # its UUID, which is what is asked for; the quota's key
                continue
            other = [*fields[:field], f"{value}x" if value else "x", *fields[field + 1 :]]
            if (kind, field) in {("user", 2), ("user", 3)}:
                other[field] = "203.0.113.7" if field == 2 else "elsewhere"
                if field == 2 and not product.gate(journal)._policy.hosts:
                    continue  # any address is what was meant
            refused([*shown[:at], [kind, other], *shown[at + 1 :]])
        refused([*shown[:at], *shown[at + 1 :]])
        if not (kind == "setting" or (purpose is Purpose.INGEST and kind in ("quota", "limit"))):
            refused([*shown, [kind, fields]])
    refused([*shown, ["role", ["somebody"]]])
    assert verified(credential.name, purpose, rights, shown) == credential.principal_uuid
    gate.close(credential.name)
