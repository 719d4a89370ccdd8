"""Sequences that once broke a promise, or look as if they could: each ends known, closed and with one writer."""

from __future__ import annotations

import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import select

from airflow_provider_dpone.attempts.cells import snapshot
from airflow_provider_dpone.attempts.clickhouse import ClickHouseWorld, PublicationOutcomes
from airflow_provider_dpone.attempts.settle import Cause, Settler
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.proofs import Adjudication
from airflow_provider_dpone.contracts.states import AttemptState, PublicationState, Purpose
from airflow_provider_dpone.engines.clickhouse.observer import SnapshotCatalog
from airflow_provider_dpone.errors import (
    AdjudicationRefused,
    CeilingExceeded,
    DocumentInvalid,
    Fenced,
    GateNotClosed,
    LedgerRule,
    NotEnrolled,
    NotPublished,
    OutcomePending,
    PublicationUnknown,
    ReconciliationFailed,
    ReleaseChanging,
    RemovalRefused,
    ServerUnreachable,
    Stopped,
    TargetUnsupported,
)
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.journal import LedgerJournal
from airflow_provider_dpone.ledger.schema import publication
from tests.attempt_process import AttemptProcess
from tests.builders import instance_id
from tests.snapshot_world import SnapshotWorld


class TaskTimeout(BaseException):
    """As Airflow's own time-out: no Exception."""


@pytest.fixture
def orders(world: SnapshotWorld) -> Iterator[SnapshotWorld]:
    """An enrolled table whose old rows are 1..10 and whose source has 100 rows."""
    world.pg("CREATE TABLE orders (id bigint NOT NULL, name text)")
    world.pg("INSERT INTO orders SELECT i, 'name ' || i FROM generate_series(1, 100) i")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64, name Nullable(String)) ENGINE = MergeTree ORDER BY id")
    world.ch(f"INSERT INTO {world.database}.orders SELECT number + 1, 'old' FROM numbers(10)")
    world.activate("orders")
    yield world
    world.clickhouse.holds.clear()


def _settled(world: SnapshotWorld, **expected: int) -> None:
    names = ("running", "succeeded", "failed", "commit_unknown", "open_guards", "open_gates")
    assert world.ledger_counts() == dict.fromkeys(names, 0) | expected
    assert world.issued_users() == []


def _count(world: SnapshotWorld, table: str = "orders") -> int:
    return int(world.ch(f"SELECT count() FROM {world.database}.{table}")[0][0])


def _world(orders: SnapshotWorld, *, admin: bool = False) -> ClickHouseWorld:
    target = orders.target()
    return ClickHouseWorld(orders.ledger.admin() if admin else orders.ledger.runtime(), target, target.service_id())


def _killed(orders: SnapshotWorld, point: str, kind: str, prefix: str) -> None:
    """An attempt whose worker died while one of its requests stood at a hold point; the request goes on after it."""
    hold = orders.clickhouse.holds.set(point, kind=kind, user_prefix=prefix)
    worker = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    worker.kill()
    orders.clickhouse.holds.clear(hold)


def _signed(attempt: str, state: AttemptState) -> Adjudication:
    return Adjudication(
        attempt_sha256=attempt, state=state, decided_by="dba", statement="looked at both", decided_at="2026-01-01T00:00:00Z"
    )  # fmt: skip


# --- an older process of the same task --------------------------------------------------------------------------


def test_an_earlier_instance_that_starts_late_neither_fences_nor_outruns_its_successor(orders: SnapshotWorld) -> None:
    """C09: frozen before it asked for admission; its successor is at work, then done."""
    hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    successor = AttemptProcess(orders, "orders", try_number=2, task_instance_id=instance_id(2_000_000))
    orders.clickhouse.holds.wait(hold)
    with pytest.raises(Fenced):
        orders.cell("orders", try_number=1, task_instance_id=instance_id(1_000_000)).run()
    orders.clickhouse.holds.clear(hold)
    assert successor.result()["state"] == "PUBLISHED"
    with pytest.raises(Fenced):
        orders.cell("orders", try_number=1, task_instance_id=instance_id(1_000_000)).run()
    assert orders.exchanges() == 1
    _settled(orders, succeeded=1)
    recreated = orders.cell(
        "orders", try_number=1, task_instance_id=instance_id(3_000_000)
    ).run()  # a run deleted and made again
    assert (recreated.state, recreated.reused) == ("PUBLISHED", False)


# --- settlers beside one another --------------------------------------------------------------------------------


def test_two_settlers_of_one_unpublished_attempt_both_find_its_end(orders: SnapshotWorld) -> None:
    _killed(orders, "checked", "Insert", "dpone_ingest")
    mine, other = _world(orders), _world(orders)
    [stored] = mine.attempts.all_open()
    end = mine.attempts.end

    def late(*args: Any) -> Any:
        assert Settler(other).settle(stored, Cause("DPONE_FENCED", "the reaper")).state is AttemptState.FAILED
        return end(*args)

    mine.attempts.end = late  # type: ignore[method-assign]
    assert Settler(mine).settle(stored, Cause("DPONE_FENCED", "the retry")).state is AttemptState.FAILED
    _settled(orders, failed=1)


def test_two_settlers_of_one_published_attempt_both_find_it_published(orders: SnapshotWorld) -> None:
    _killed(orders, "effect_done", "Exchange", "dpone_publisher")
    mine, other = _world(orders), _world(orders)
    [stored] = mine.attempts.all_open()
    resolve = mine.publications.resolve

    def late(*args: Any) -> Any:
        assert Settler(other).settle(stored, Cause("DPONE_FENCED", "the reaper")).state is AttemptState.SUCCEEDED
        return resolve(*args)

    mine.publications.resolve = late  # type: ignore[method-assign]
    assert Settler(mine).settle(stored, Cause("DPONE_FENCED", "the retry")).state is AttemptState.SUCCEEDED
    assert orders.exchanges() == 1
    _settled(orders, succeeded=1)


def test_two_settlers_of_one_contradictory_attempt_both_find_it_unknown(orders: SnapshotWorld) -> None:
    _killed(orders, "effect_done", "Exchange", "dpone_publisher")
    [retained] = orders.generations()
    orders.ch(f"RENAME TABLE {orders.database}.{retained} TO {orders.database}.aside")
    mine, other = _world(orders), _world(orders)
    [stored] = mine.attempts.all_open()
    resolve = mine.publications.resolve

    def late(*args: Any) -> Any:
        Settler(other).settle(stored, Cause("DPONE_FENCED", "the reaper"))
        return resolve(*args)

    mine.publications.resolve = late  # type: ignore[method-assign]
    assert Settler(mine).settle(stored, Cause("DPONE_FENCED", "the retry")).state is AttemptState.COMMIT_UNKNOWN
    orders.ch(f"RENAME TABLE {orders.database}.aside TO {orders.database}.{retained}")
    assert Settler(_world(orders)).settle(stored, Cause("DPONE_FENCED", "repaired")).state is AttemptState.SUCCEEDED
    _settled(orders, succeeded=1)


# --- what a person decides --------------------------------------------------------------------------------------


def test_altered_generation_of_an_unclaimed_publication_can_be_adjudicated(orders: SnapshotWorld) -> None:
    """The generation vanished between preparing and claiming: nothing was sent, yet nothing can be observed either."""
    cell = orders.cell("orders")

    def vanish() -> None:
        [generation] = orders.generations()
        orders.ch(f"DROP TABLE {orders.database}.{generation} SYNC")
        raise Stopped("asked to stop")

    cell.world.publications._before_claim = vanish
    with pytest.raises(PublicationUnknown):
        cell.run()
    with pytest.raises(PublicationUnknown):
        orders.cell("orders", try_number=2).run()
    admin = _world(orders, admin=True)
    [stored] = admin.attempts.all_open()
    assert stored.state is AttemptState.COMMIT_UNKNOWN
    signed = _signed(stored.sha256, AttemptState.FAILED)
    ended = Settler(admin).resolve(stored.sha256, Cause("DPONE_ADJUDICATED", "by hand"), adjudication=signed)
    assert ended.state is AttemptState.FAILED
    assert orders.exchanges() == 0
    assert orders.cell("orders", try_number=3).run().state == "PUBLISHED"
    _settled(orders, failed=1, succeeded=1)


def test_only_an_attempt_that_observation_cannot_settle_is_adjudicated(orders: SnapshotWorld) -> None:
    _killed(orders, "checked", "Insert", "dpone_ingest")
    admin = _world(orders, admin=True)
    [stored] = admin.attempts.all_open()
    signed = _signed(stored.sha256, AttemptState.SUCCEEDED)
    with pytest.raises(AdjudicationRefused):
        Settler(admin).resolve(stored.sha256, Cause("DPONE_ADJUDICATED", "by hand"), adjudication=signed)
    assert orders.ledger_counts()["running"] == 1
    assert Settler(admin).settle(stored, Cause("DPONE_FENCED", "test")).state is AttemptState.FAILED
    _settled(orders, failed=1)


def test_adjudication_cannot_contradict_what_was_observed(orders: SnapshotWorld) -> None:
    """The publication was proved PUBLISHED and only the attempt's end is missing."""
    _killed(orders, "effect_done", "Exchange", "dpone_publisher")
    [retained] = orders.generations()
    orders.ch(f"RENAME TABLE {orders.database}.{retained} TO {orders.database}.aside")
    admin = _world(orders, admin=True)
    [stored] = admin.attempts.all_open()
    settler = Settler(admin)
    assert settler.settle(stored, Cause("DPONE_FENCED", "test")).state is AttemptState.COMMIT_UNKNOWN
    orders.ch(f"RENAME TABLE {orders.database}.aside TO {orders.database}.{retained}")
    publication = admin.publications.of_attempt(stored.sha256)
    assert publication is not None
    record = PublicationOutcomes(admin)._publisher(publication).reconcile(publication.intent.digest())
    assert record.state is PublicationState.PUBLISHED
    signed = _signed(stored.sha256, AttemptState.FAILED)
    with pytest.raises(LedgerRule, match="attempt_publication"):
        settler.resolve(stored.sha256, Cause("DPONE_ADJUDICATED", "by hand"), adjudication=signed)
    assert settler.settle(stored, Cause("DPONE_FENCED", "test")).state is AttemptState.SUCCEEDED


# --- retention --------------------------------------------------------------------------------------------------


def test_removal_that_broke_off_after_its_rename_is_finished_by_the_next_one(orders: SnapshotWorld) -> None:
    orders.cell("orders", run_id="run1").run()
    orders.clickhouse.holds.set("answer", "cut", kind="Rename")
    with pytest.raises(Exception, match="DPONE_ANSWER_LOST"):
        orders.retention("orders", keep=0).run()
    [moved] = orders.generations()
    assert moved.startswith("dpone_r_")
    kept = orders.retention("orders", keep=1, run_id="run2").run()  # it is still the newest predecessor
    assert (kept.removed, kept.kept) == ((), (moved,))
    removed = orders.retention("orders", keep=0, run_id="run3").run()
    assert removed.removed == (moved,)
    assert orders.generations() == []
    assert _count(orders) == 100


def test_a_table_that_was_once_live_is_no_leftover_of_a_failed_attempt(orders: SnapshotWorld) -> None:
    """Somebody swapped the target with a failed attempt's generation by hand and accepted it: the old rows stay."""
    _killed(orders, "answer", "CreateTable", "")
    [generation] = orders.generations()
    live = orders.uuid_of("orders")
    world = _world(orders)
    [stored] = world.attempts.all_open()
    Settler(world).settle(stored, Cause("DPONE_FENCED", "test"))
    orders.ch(f"EXCHANGE TABLES {orders.database}.orders AND {orders.database}.{generation}")
    orders.enrol("orders")
    receipt = orders.retention("orders", keep=0, run_id="run2").run()
    assert (receipt.removed, receipt.kept) == ((), (generation,))
    assert orders.uuid_of(generation) == live
    assert _count(orders, generation) == 10


# --- stopped and timed out --------------------------------------------------------------------------------------


def test_stopped_while_a_user_is_being_created_ends_with_its_name_taken(orders: SnapshotWorld) -> None:
    """on_kill takes the name before CREATE USER arrives: the attempt still ends, as stopped."""
    stop = StopFlag()
    cell = orders.cell("orders", stop=stop)
    hold = orders.clickhouse.holds.set("authenticated", kind="CreateUser")
    seen: list[BaseException] = []

    def run() -> None:
        try:
            cell.run()
        except BaseException as error:  # noqa: BLE001 - looked at below
            seen.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    orders.clickhouse.holds.wait(hold)
    stop.set("SIGTERM")
    cell.kill()
    orders.clickhouse.holds.clear(hold)
    thread.join(30)
    assert [type(error) for error in seen] == [Stopped]
    _settled(orders, failed=1)


def test_time_out_right_after_admission_was_committed_still_ends_the_attempt(orders: SnapshotWorld) -> None:
    cell = orders.cell("orders")
    admit_once = cell.world.attempts.admit_once

    def admitted_then_timed_out(identity: Any) -> str:
        admit_once(identity)
        raise TaskTimeout

    cell.world.attempts.admit_once = admitted_then_timed_out  # type: ignore[method-assign]
    with pytest.raises(TaskTimeout):
        cell.run()
    _settled(orders, failed=1)


def test_time_out_in_the_middle_of_any_ledger_write_ends_known(orders: SnapshotWorld) -> None:
    """The write is committed, its read-back interrupted: what is in the ledger decides, never what was heard."""
    for number in range(1, 40):
        cell = orders.cell("orders", run_id=str(number))
        ledger, writes = cell.world.ledger, [0]
        read_back = ledger._read_back

        def interrupted(*args: Any, nth: int = number, seen: list[int] = writes, original: Any = read_back) -> None:
            seen[0] += 1
            if seen[0] == nth:
                raise TaskTimeout
            original(*args)

        ledger._read_back = interrupted  # type: ignore[method-assign]
        try:
            cell.run()
        except TaskTimeout:
            counts = orders.ledger_counts()
            assert (counts["running"], counts["open_guards"], counts["open_gates"]) == (0, 0, 0), number
            continue
        assert writes[0] < number
        break
    else:
        pytest.fail("an attempt does not end")
    assert number > 12
    assert orders.issued_users() == []
    assert orders.exchanges() == orders.ledger_counts()["succeeded"]


# --- another run in between -------------------------------------------------------------------------------------


def test_a_whole_other_run_between_preflight_and_admission_is_no_foreign_change(orders: SnapshotWorld) -> None:
    cell = orders.cell("orders", run_id="slow")
    admit_once = cell.world.attempts.admit_once

    def overtaken(identity: Any) -> str:
        orders.cell("orders", run_id="fast").run()
        return admit_once(identity)

    cell.world.attempts.admit_once = overtaken  # type: ignore[method-assign]
    assert cell.run().state == "PUBLISHED"
    assert orders.exchanges() == 2
    _settled(orders, succeeded=2)


def test_an_attempt_admitted_before_its_release_retires_may_finish_and_no_other_begins(orders: SnapshotWorld) -> None:
    hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    worker = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    store = CompositionActivationStore(orders.ledger.runtime())
    current = store.require_active("test")
    store.begin_retirement(current.sha256)
    with pytest.raises(ReleaseChanging) as caught:
        orders.cell("orders", run_id="other").run()
    assert caught.value.retryable
    orders.clickhouse.holds.clear(hold)
    assert worker.result()["state"] == "PUBLISHED"
    store.finalize_retirement(current.sha256)
    _settled(orders, succeeded=1)


def test_re_enrolment_is_refused_while_an_attempt_is_at_work(orders: SnapshotWorld) -> None:
    hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    worker = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    with pytest.raises(Exception, match="DPONE_GUARD_HELD"):
        orders.enrol("orders")
    orders.clickhouse.holds.clear(hold)
    assert worker.result()["state"] == "PUBLISHED"


def test_a_marker_taken_away_in_mid_attempt_sends_nothing(orders: SnapshotWorld) -> None:
    """One database has one ledger: it is compared at publication too."""
    cell = orders.cell("orders")
    cell.world.publications._before_claim = lambda: orders.ch(f"TRUNCATE TABLE {orders.database}.dpone_marker")
    with pytest.raises(NotPublished, match="DPONE_ENROLLED_ELSEWHERE"):
        cell.run()
    assert orders.exchanges() == 0
    _settled(orders, failed=1)


# --- names and numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two\nlines", "x" * 700])
def test_any_name_of_an_ambient_writer_leaves_a_known_state(orders: SnapshotWorld, name: str) -> None:
    hold = orders.clickhouse.holds.set("effect_done", kind="Exchange", user_prefix="dpone_publisher")
    worker = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    quoted = "`" + name.replace("\n", "\\n") + "`"
    orders.ch(f"CREATE USER {quoted} IDENTIFIED WITH sha256_password BY 'x'")
    orders.ch(f"GRANT INSERT ON {orders.database}.orders TO {quoted}")
    orders.clickhouse.holds.clear(hold)
    assert worker.result()["code"] == PublicationUnknown.code
    assert orders.ledger_counts()["commit_unknown"] == 1
    orders.ch(f"DROP USER {quoted}")
    assert orders.cell("orders", try_number=2).run().reused
    assert orders.exchanges() == 1
    _settled(orders, succeeded=1)


def test_bytes_on_the_wire_are_checked_at_the_end_with_their_framing(orders: SnapshotWorld) -> None:
    sent = orders.cell("orders", run_id="run1").run().wire_bytes
    limits = SnapshotLimits(max_source_bytes="1 GiB", max_wire_bytes=sent - 1)
    with pytest.raises(CeilingExceeded, match="max_wire_bytes"):
        orders.cell("orders", run_id="run2", limits=limits).run()
    assert orders.exchanges() == 1
    _settled(orders, succeeded=1, failed=1)


def test_names_of_our_own_tables_cannot_be_enrolled(orders: SnapshotWorld) -> None:
    receipt = orders.cell("orders").run()
    for name in (receipt.retained_table.split(".")[1], "dpone_marker"):
        with pytest.raises(TargetUnsupported, match="reserved"):
            orders.enrol(name)


# --- users that came back ---------------------------------------------------------------------------------------


def test_a_user_that_came_back_long_after_its_attempt_ended_is_swept_away(orders: SnapshotWorld) -> None:
    """A power loss can revert a DROP USER that was answered."""
    receipt = orders.cell("orders", run_id="run1").run()
    world = _world(orders)
    [closed, _] = world.journal(receipt.attempt_sha256).principals()
    foreign = f"dpone_ingest_{secrets.token_hex(16)}"
    for name in (closed.name, foreign):
        orders.ch(f"CREATE USER {name} IDENTIFIED WITH sha256_password BY 'back'")
    hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    worker = AttemptProcess(orders, "orders", run_id="run2")
    orders.clickhouse.holds.wait(hold)
    assert Settler(world).sweep() == [closed.name]
    orders.clickhouse.holds.clear(hold)
    assert worker.result()["state"] == "PUBLISHED"
    assert orders.issued_users() == [foreign]  # of another ledger perhaps: not ours to drop
    orders.ch(f"DROP USER {foreign}")


def test_the_loser_of_a_race_for_a_guard_knows_whom_to_wait_for(orders: SnapshotWorld) -> None:
    hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    cell = orders.cell("orders", run_id="slow")
    admit_once = cell.world.attempts.admit_once
    winner: list[AttemptProcess] = []

    def overtaken(identity: Any) -> str:
        winner.append(AttemptProcess(orders, "orders", run_id="fast"))
        orders.clickhouse.holds.wait(hold)
        return admit_once(identity)

    cell.world.attempts.admit_once = overtaken  # type: ignore[method-assign]
    with pytest.raises(Exception, match="DPONE_GUARD_HELD") as caught:
        cell.run()
    [stored] = CompositionAttemptStore(orders.ledger.runtime()).all_open()
    assert caught.value.details["attempt"] == stored.sha256  # type: ignore[attr-defined]
    orders.clickhouse.holds.clear(hold)
    assert winner[0].result()["state"] == "PUBLISHED"


def test_a_publication_names_the_closure_the_ledger_has(orders: SnapshotWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another settler closes the publisher between this one's look at the server and its own record of it."""
    other, overtaken = _world(orders), list[str]()
    closed = LedgerJournal.closed

    def late(self: LedgerJournal, *, name: str, evidence: Any) -> bool:
        if name.startswith("dpone_publisher") and not overtaken:
            overtaken.append(name)
            other.gate_of(self._attempt).close(name)
        return closed(self, name=name, evidence=evidence)

    monkeypatch.setattr(LedgerJournal, "closed", late)
    attempt = orders.cell("orders").run().attempt_sha256
    publication = other.publications.of_attempt(attempt)
    [publisher] = [p for p in other.journal(attempt).principals() if p.name in overtaken]
    assert publication is not None
    assert publication.record.closure is not None
    assert publication.record.closure.closed_gates_sha256 == publisher.closure_sha256
    assert publication.record.closure.quiescence_sha256 == publisher.quiescence_sha256


# --- doubt stays held -------------------------------------------------------------------------------------------


def test_an_outcome_that_cannot_be_looked_at_now_stays_pending_and_held(
    orders: SnapshotWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    _killed(orders, "effect_done", "Exchange", "dpone_publisher")

    def away(self: SnapshotCatalog, intent: Any) -> Any:
        raise ServerUnreachable("away")

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotCatalog, "observe", away)
        with pytest.raises(OutcomePending) as caught:
            orders.cell("orders", try_number=2).run()
    assert caught.value.retryable
    counts = orders.ledger_counts()
    assert (counts["running"], counts["commit_unknown"], counts["open_guards"]) == (1, 0, 1)
    assert orders.cell("orders", try_number=3).run().reused
    _settled(orders, succeeded=1)


def test_an_attempt_that_cannot_be_settled_is_fenced_all_the_same(orders: SnapshotWorld) -> None:
    """Its process may live: from now on the ledger gives it nothing."""
    _killed(orders, "checked", "Insert", "dpone_ingest")
    reachable = _world(orders)
    [stored] = reachable.attempts.all_open()
    cut_off = ClickHouseWorld(orders.ledger.runtime(), orders.target(native_port=1), reachable.service_id)
    with pytest.raises(GateNotClosed):
        Settler(cut_off).settle(stored, Cause("DPONE_FENCED", "test"))
    assert reachable.attempts.read_exact(stored.sha256).fenced
    with pytest.raises(Fenced):
        reachable.gate_of(stored.sha256).issue_once(Purpose.INGEST, [])
    assert Settler(reachable).settle(stored, Cause("DPONE_FENCED", "test")).state is AttemptState.FAILED
    _settled(orders, failed=1)


def test_an_exchange_that_takes_effect_while_it_is_settled_is_found_published(orders: SnapshotWorld) -> None:
    """Its answer is lost before its effect: only what is seen after the closing decides."""
    hold = orders.clickhouse.holds.set("checked", "detach", kind="Exchange", user_prefix="dpone_publisher")
    late = threading.Thread(
        target=lambda: (orders.clickhouse.holds.wait(hold), time.sleep(1.0), orders.clickhouse.holds.clear(hold))
    )
    late.start()
    assert orders.cell("orders").run().state == "PUBLISHED"
    late.join()
    assert orders.exchanges() == 1
    _settled(orders, succeeded=1)


def test_an_exchange_that_arrives_while_its_publisher_is_closed_is_found_published(
    orders: SnapshotWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is late by all the time there is until the closing: what was seen before would say it never happened."""
    cell = orders.cell("orders")
    late: list[Callable[[], str]] = []
    exchange, close = snapshot.ClickHouseExchangeExecutor.exchange, cell.world.authority.close_publisher

    def lost(self: Any, intent: Any) -> str:
        late.append(lambda: exchange(self, intent))
        return "the answer was lost"

    def closing(intent: Any) -> Any:
        while late:
            late.pop()()
        return close(intent)

    monkeypatch.setattr(snapshot.ClickHouseExchangeExecutor, "exchange", lost)
    monkeypatch.setattr(cell.world.authority, "close_publisher", closing)
    assert cell.run().state == "PUBLISHED"
    assert orders.exchanges() == 1
    revisions = orders.ledger.runtime().read(lambda c: c.execute(select(publication.c.revision)).scalars().all())
    assert list(revisions) == [3]  # prepared, claimed, published: at no time in doubt
    _settled(orders, succeeded=1)


# --- each check by itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("blind", ["digest", "aggregates"])
def test_a_generation_that_is_not_the_source_is_seen_in_two_independent_ways(
    orders: SnapshotWorld, monkeypatch: pytest.MonkeyPatch, blind: str
) -> None:
    """A row too many, with one of both comparisons made to see nothing."""
    cell = orders.cell("orders")
    seal = cell._seal

    def tampered(admissible: Any, conversion: Any, generation: str, retained: Any, copied: Any) -> Any:
        orders.ch(f"INSERT INTO {orders.database}.{generation} VALUES (0, 'tampered')")
        if blind == "digest":
            sealed = snapshot.read_sealed
            monkeypatch.setattr(snapshot, "read_sealed", lambda *args: (copied.result.content, sealed(*args)[1]))
        else:
            monkeypatch.setattr(snapshot, "read_aggregates", lambda *args: copied.source_aggregates)
        return seal(admissible, conversion, generation, retained, copied)

    cell._seal = tampered  # type: ignore[method-assign]
    with pytest.raises(ReconciliationFailed):
        cell.run()
    assert orders.exchanges() == 0
    _settled(orders, failed=1)


def test_a_connection_that_leads_to_another_server_is_refused_before_admission(orders: SnapshotWorld) -> None:
    cell = orders.cell("orders")
    cell.world.service_id = str(uuid.uuid4())
    with pytest.raises(NotEnrolled, match="is enrolled on"):
        cell.run()
    _settled(orders)


def test_what_authorises_a_publication_is_read_again_when_it_is_prepared(orders: SnapshotWorld) -> None:
    receipt = orders.cell("orders").run()
    world = _world(orders)
    stored = world.attempts.read_exact(receipt.attempt_sha256)
    publication = world.publications.of_attempt(stored.sha256)
    assert publication is not None
    generation = publication.intent.generation_sha256
    with pytest.raises(Fenced, match="SUCCEEDED"):
        world.authority.open_generation(stored.identity, generation)
    with pytest.raises(Fenced, match="SUCCEEDED"):
        world.authority.require_current(publication.intent)
    with pytest.raises(Fenced, match="holds its guards no more"):
        world.authority.require_retained(publication.intent)
    other = orders.cell("orders", run_id="run2")
    other.world.publications._before_claim = lambda: (
        world.authority.open_generation(  # another attempt's generation
            world.attempts.all_open()[0].identity, generation
        )
        and None
    )
    with pytest.raises(DocumentInvalid, match="belongs to another attempt"):
        other.run()
    _settled(orders, succeeded=1, failed=1)


def test_a_table_put_under_the_name_before_its_removal_is_renamed_back(orders: SnapshotWorld) -> None:
    retained = orders.cell("orders", run_id="run1").run().retained_table.split(".")[1]
    cell = orders.retention("orders", keep=0, run_id="run2")
    remove = cell._remove

    def replaced(*args: Any) -> None:
        orders.ch(f"RENAME TABLE {orders.database}.{retained} TO {orders.database}.aside")
        orders.ch(f"CREATE TABLE {orders.database}.{retained} (x Int8) ENGINE = MergeTree ORDER BY x")
        remove(*args)

    cell._remove = replaced  # type: ignore[method-assign]
    with pytest.raises(RemovalRefused, match="renamed back"):
        cell.run()
    assert orders.ch(f"SELECT count() FROM {orders.database}.{retained}") == [(0,)]
    assert _count(orders, "aside") == 10


def test_a_stop_just_before_the_claim_sends_nothing(orders: SnapshotWorld) -> None:
    """The claim is the last to ask."""
    stop = StopFlag()
    cell = orders.cell("orders", stop=stop)
    prepare = cell.world.publications.persist_prepared

    def stopped(intent: Any) -> Any:
        record = prepare(intent)
        stop.set("SIGTERM")
        return record

    cell.world.publications.persist_prepared = stopped  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        cell.run()
    assert orders.exchanges() == 0
    _settled(orders, failed=1)
