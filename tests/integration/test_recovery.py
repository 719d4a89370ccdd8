"""What a retry, a zombie, a lost answer or a killed worker can and cannot do. Real processes, real signals."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_provider_dpone.attempts.clickhouse import ClickHouseWorld
from airflow_provider_dpone.attempts.settle import Cause, Settler
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.proofs import Adjudication
from airflow_provider_dpone.contracts.states import AttemptState
from airflow_provider_dpone.errors import (
    CeilingExceeded,
    Fenced,
    GuardHeld,
    LedgerUnavailable,
    PublicationUnknown,
    Stopped,
    TargetChanged,
    TooFewRows,
    ValueNotExact,
)
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from tests.attempt_process import AttemptProcess
from tests.cutting_proxy import CuttingProxy
from tests.snapshot_world import SnapshotWorld


@pytest.fixture
def orders(world: SnapshotWorld) -> Iterator[SnapshotWorld]:
    """An enrolled table whose old rows are 1..10 and whose source has 1,000 rows."""
    world.pg("CREATE TABLE orders (id bigint NOT NULL, name text)")
    world.pg("INSERT INTO orders SELECT i, 'name ' || i FROM generate_series(1, 1000) i")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64, name Nullable(String)) ENGINE = MergeTree ORDER BY id")
    world.ch(f"INSERT INTO {world.database}.orders SELECT number + 1, 'old' FROM numbers(10)")
    world.activate("orders")
    yield world
    world.clickhouse.holds.clear()


def _settled(world: SnapshotWorld, **expected: int) -> None:
    """Nothing open, nothing held, no usable login; and these attempts."""
    counts = world.ledger_counts()
    assert counts == {
        "running": 0,
        "succeeded": 0,
        "failed": 0,
        "commit_unknown": 0,
        "open_guards": 0,
        "open_gates": 0,
    } | (expected)
    assert world.issued_users() == []


def _count(world: SnapshotWorld) -> int:
    return int(world.ch(f"SELECT count() FROM {world.database}.orders")[0][0])


@contextmanager
def _readers(world: SnapshotWorld) -> Iterator[dict[str, Any]]:
    """Poll the target all along: every read sees exactly the old rows or exactly the new ones."""
    seen: dict[str, Any] = {"polls": 0, "bad": []}
    stop = threading.Event()

    def poll() -> None:
        client = world.clickhouse.client()
        while not stop.is_set():
            try:
                [(rows, old)] = client.execute(f"SELECT count(), countIf(name = 'old') FROM {world.database}.orders")
                if (rows, old) not in ((10, 10), (1000, 0)):
                    seen["bad"].append((rows, old))
            except Exception as error:  # noqa: BLE001 - whatever a reader meets counts
                seen["bad"].append(repr(error))
            seen["polls"] += 1
        client.disconnect()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


# --- killed and frozen workers ---------------------------------------------------------------------------------


def test_killed_in_mid_load_leaves_the_old_table_and_the_retry_publishes(orders: SnapshotWorld) -> None:
    """B07, B17."""
    with _readers(orders) as seen:
        hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
        worker = AttemptProcess(orders, "orders")
        orders.clickhouse.holds.wait(hold)
        worker.kill()
        orders.clickhouse.holds.clear(hold)
        assert _count(orders) == 10
        assert orders.cell("orders", try_number=2).run().state == "PUBLISHED"
    assert seen["polls"] > 10
    assert seen["bad"] == []
    assert _count(orders) == 1000
    assert orders.exchanges() == 1
    _settled(orders, failed=1, succeeded=1)


def test_killed_after_the_exchange_the_retry_finds_it_published_and_copies_nothing(orders: SnapshotWorld) -> None:
    hold = orders.clickhouse.holds.set("effect_done", kind="Exchange", user_prefix="dpone_publisher")
    worker = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    worker.kill()
    orders.clickhouse.holds.clear(hold)
    receipt = orders.cell("orders", try_number=2).run()
    assert receipt.reused
    assert orders.exchanges() == 1
    assert orders.uuid_of("orders") == receipt.target_uuid
    _settled(orders, succeeded=1)


def test_killed_before_the_exchange_took_effect_it_never_does(orders: SnapshotWorld) -> None:
    """The request was authenticated and not yet registered when its worker died: closing the gate is a barrier."""
    hold = orders.clickhouse.holds.set("authenticated", kind="Exchange", user_prefix="dpone_publisher")
    worker = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    worker.kill()
    released = threading.Timer(1.5, orders.clickhouse.holds.clear, (hold,))
    released.start()
    receipt = orders.cell("orders", try_number=2).run()
    released.join()
    time.sleep(0.3)
    assert not receipt.reused
    assert orders.uuid_of("orders") == receipt.target_uuid
    assert orders.exchanges() == 1
    _settled(orders, failed=1, succeeded=1)


def test_lost_exchange_answer_is_observed_and_never_sent_again(orders: SnapshotWorld) -> None:
    """B11."""
    orders.clickhouse.holds.set("answer", "cut", kind="Exchange", user_prefix="dpone_publisher")
    receipt = orders.cell("orders").run()
    assert (receipt.state, receipt.reused) == ("PUBLISHED", False)
    assert orders.exchanges() == 1
    _settled(orders, succeeded=1)


@pytest.mark.parametrize(
    ("point", "kind", "prefix"),
    [
        ("answer", "CreateTable", ""),
        ("answer", "CreateUser", ""),
        ("answer", "Insert", "dpone_ingest"),
        ("answer", "DropUser", ""),
        ("answer", "Grant", ""),
        ("answer", "CreateQuota", ""),
    ],
)
def test_any_other_lost_answer_ends_published_once_or_untouched(
    orders: SnapshotWorld, point: str, kind: str, prefix: str
) -> None:
    """Whatever answer is lost, the try or its retry publishes exactly once and leaves nothing open."""
    orders.clickhouse.holds.set(point, "cut", kind=kind, user_prefix=prefix)
    worker = AttemptProcess(orders, "orders").result()
    if worker.get("state") != "PUBLISHED":
        assert _count(orders) == 10
        assert orders.cell("orders", try_number=2).run().state == "PUBLISHED"
    assert orders.exchanges() == 1
    assert _count(orders) == 1000
    counts = orders.ledger_counts()
    assert (counts["open_gates"], counts["open_guards"], counts["succeeded"]) == (0, 0, 1)
    assert orders.issued_users() == []


@pytest.mark.parametrize("point", ["authenticated", "registered", "checked"])
@pytest.mark.parametrize("kind", ["CreateUser", "Insert", "DropUser", "Exchange"])
def test_frozen_zombie_that_wakes_up_cannot_change_the_target(orders: SnapshotWorld, point: str, kind: str) -> None:
    """C09: a worker is frozen with one request in the server, its successor publishes, then both go on."""
    hold = orders.clickhouse.holds.set(point, kind=kind)
    zombie = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    zombie.freeze()
    release = threading.Timer(1.0, orders.clickhouse.holds.clear, (hold,))
    release.start()
    orders.pg("INSERT INTO orders VALUES (1001, 'new')")
    receipt = orders.cell("orders", try_number=2).run()
    release.join()
    zombie.wake()
    ended = zombie.result()
    assert orders.uuid_of("orders") == receipt.target_uuid
    assert "code" in ended or receipt.reused
    assert orders.exchanges() == 1
    counts = orders.ledger_counts()
    assert (counts["running"], counts["open_gates"], counts["open_guards"]) == (0, 0, 0)
    assert orders.issued_users() == []


def test_frozen_after_its_ingest_user_is_closed_it_can_create_no_publisher(orders: SnapshotWorld) -> None:
    """C22."""
    hold = orders.clickhouse.holds.set("answer", kind="Select", pattern="formatRow")
    zombie = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    zombie.freeze()
    orders.clickhouse.holds.clear(hold)
    receipt = orders.cell("orders", try_number=2).run()
    zombie.wake()
    assert zombie.result()["code"] in ("DPONE_FENCED", "DPONE_TARGET_CHANGED")
    assert orders.uuid_of("orders") == receipt.target_uuid
    assert orders.exchanges() == 1
    _settled(orders, failed=1, succeeded=1)


def test_late_create_user_of_a_settled_attempt_fails_against_its_tombstone(orders: SnapshotWorld) -> None:
    """C23: the CREATE USER is still under way in the server when its attempt is settled; it must never become usable."""
    hold = orders.clickhouse.holds.create_user_delayed()
    zombie = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    zombie.kill()
    receipt = orders.cell("orders", try_number=2).run()
    orders.clickhouse.holds.clear(hold)
    time.sleep(0.5)
    assert receipt.state == "PUBLISHED"
    assert orders.issued_users() == []
    _settled(orders, failed=1, succeeded=1)


def test_cleared_while_running_the_second_instance_fences_the_first(orders: SnapshotWorld) -> None:
    """C03, C13: the same coordinates under another instance."""
    hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    first = AttemptProcess(orders, "orders", try_number=1, max_tries=3)
    orders.clickhouse.holds.wait(hold)
    threading.Timer(1.0, orders.clickhouse.holds.clear, (hold,)).start()
    receipt = orders.cell("orders", try_number=2, max_tries=4).run()
    assert "code" in first.result()
    assert orders.uuid_of("orders") == receipt.target_uuid
    assert orders.exchanges() == 1
    _settled(orders, failed=1, succeeded=1)


# --- reuse or copy anew ----------------------------------------------------------------------------------------


def test_retry_after_a_success_the_scheduler_refused_reuses_it(orders: SnapshotWorld) -> None:
    """C06."""
    first = orders.cell("orders", try_number=1, max_tries=3).run()
    again = orders.cell("orders", try_number=2, max_tries=3).run()
    assert again.reused
    assert again.target_uuid == first.target_uuid
    assert orders.exchanges() == 1


def test_cleared_success_copies_anew(orders: SnapshotWorld) -> None:
    """C17."""
    first = orders.cell("orders", try_number=1, max_tries=3).run()
    again = orders.cell("orders", try_number=2, max_tries=4).run()
    assert not again.reused
    assert again.target_uuid != first.target_uuid
    assert orders.exchanges() == 2


def test_accepted_success_is_never_reused(orders: SnapshotWorld) -> None:
    first = orders.cell("orders", try_number=1).run()
    CompositionAttemptStore(orders.ledger.runtime()).acknowledge(first.attempt_sha256)
    assert not orders.cell("orders", try_number=2).run().reused


def test_other_rendered_values_are_never_reused(orders: SnapshotWorld) -> None:
    orders.cell("orders", try_number=1).run()
    assert not orders.cell("orders", try_number=2, min_rows=1).run().reused


def test_an_older_runs_publication_is_not_reported_as_current(orders: SnapshotWorld) -> None:
    """C21."""
    orders.cell("orders", run_id="run1", try_number=1).run()
    orders.cell("orders", run_id="run2", try_number=1).run()
    again = orders.cell("orders", run_id="run1", try_number=2).run()
    assert not again.reused
    assert orders.exchanges() == 3


# --- another run -----------------------------------------------------------------------------------------------


def test_another_run_waits_and_takes_over_only_what_airflow_reports_finished(orders: SnapshotWorld) -> None:
    hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    first = AttemptProcess(orders, "orders", run_id="run1")
    orders.clickhouse.holds.wait(hold)
    with pytest.raises(GuardHeld):
        orders.cell("orders", run_id="run2").run()
    assert orders.ledger_counts()["running"] == 1
    first.kill()
    orders.clickhouse.holds.clear(hold)
    assert orders.cell("orders", run_id="run2", finished=lambda c: c.run_id == "run1").run().state == "PUBLISHED"
    _settled(orders, failed=1, succeeded=1)


# --- unreachable -----------------------------------------------------------------------------------------------


def test_server_down_while_settling_keeps_the_guard_and_a_later_try_settles(orders: SnapshotWorld) -> None:
    hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    worker = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    worker.kill()
    local = orders.clickhouse.local
    assert local is not None
    stored = CompositionAttemptStore(orders.ledger.runtime()).all_open()[0]
    target = orders.target()
    world = ClickHouseWorld(orders.ledger.runtime(), target, target.service_id())
    local.kill()
    with pytest.raises(Exception, match="DPONE_"):
        Settler(world).settle(stored, Cause("DPONE_FENCED", "test"))
    counts = orders.ledger_counts()
    assert (counts["running"], counts["open_guards"]) == (1, 1)
    local.start()
    assert orders.cell("orders", try_number=2).run().state == "PUBLISHED"
    _settled(orders, failed=1, succeeded=1)


def test_ledger_lost_in_mid_attempt_closes_on_the_server_and_a_later_try_settles(orders: SnapshotWorld) -> None:
    with CuttingProxy(orders.ledger.host, orders.ledger.port) as proxy:
        hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
        worker = AttemptProcess(orders, "orders", ledger_port=proxy.port)
        orders.clickhouse.holds.wait(hold)
        proxy.refuse_after_cut, proxy.cuts = True, 1
        orders.clickhouse.holds.clear(hold)
        assert worker.result()["code"] == LedgerUnavailable.code
    assert orders.issued_users() == []
    assert _count(orders) == 10
    assert orders.cell("orders", try_number=2).run().state == "PUBLISHED"
    _settled(orders, failed=1, succeeded=1)


# --- refusals after admission ----------------------------------------------------------------------------------


def test_refusals_in_mid_stream_leave_the_target_untouched(orders: SnapshotWorld) -> None:
    orders.pg("INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series(1001, 60000) i")
    ceilings: list[dict[str, Any]] = [
        {"max_source_bytes": "1 MiB"},
        {"max_rows": 50_000},
        {"max_wire_bytes": "1 MiB"},
        {"max_generation_bytes": "10 KiB"},
        {"max_retained_bytes": "100 B"},
        {"max_total_transient_bytes": "10 KiB"},
    ]
    for number, ceiling in enumerate(ceilings):
        cell = orders.cell(
            "orders", run_id=str(number), limits=SnapshotLimits(**{"max_source_bytes": "1 GiB", **ceiling})
        )
        [name] = ceiling
        with pytest.raises(CeilingExceeded, match=name):
            cell.run()
    with pytest.raises(TooFewRows):
        orders.cell("orders", run_id="g", min_rows=100_000).run()
    assert _count(orders) == 10
    assert orders.exchanges() == 0
    _settled(orders, failed=7)


def test_value_outside_the_target_is_refused_naming_it(world: SnapshotWorld) -> None:
    world.pg("CREATE TABLE orders (id bigint NOT NULL)")
    world.pg("INSERT INTO orders VALUES (1), (1099511627776)")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int32) ENGINE = MergeTree ORDER BY id")
    world.activate("orders")
    with pytest.raises(ValueNotExact, match="1099511627776"):
        world.cell("orders").run()
    _settled(world, failed=1)


def test_stopped_in_mid_load_publishes_nothing(orders: SnapshotWorld) -> None:
    """C01."""
    stop = StopFlag()
    cell = orders.cell("orders", stop=stop)
    hold = orders.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")

    def on_kill() -> None:
        orders.clickhouse.holds.wait(hold)
        stop.set("SIGTERM")
        cell.kill()

    killer = threading.Thread(target=on_kill)
    killer.start()
    with pytest.raises(Stopped):
        cell.run()
    killer.join()
    orders.clickhouse.holds.clear()
    assert _count(orders) == 10
    assert orders.exchanges() == 0
    _settled(orders, failed=1)


def test_timeout_raised_as_base_exception_still_cleans_up(orders: SnapshotWorld) -> None:
    """C15."""

    class TaskTimeout(BaseException):
        """Like Airflow's own: not an Exception."""

    cell = orders.cell("orders")
    seal = cell._seal

    def timed_out(*arguments: Any) -> Any:
        seal(*arguments)
        raise TaskTimeout

    cell._seal = timed_out  # type: ignore[method-assign]
    with pytest.raises(TaskTimeout):
        cell.run()
    assert _count(orders) == 10
    _settled(orders, failed=1)


# --- somebody else changes the target --------------------------------------------------------------------------


def test_tables_exchanged_back_by_hand_are_noticed_and_nothing_is_dropped(orders: SnapshotWorld) -> None:
    receipt = orders.cell("orders", run_id="run1").run()
    orders.ch(f"EXCHANGE TABLES {orders.database}.orders AND {receipt.retained_table}")
    with pytest.raises(TargetChanged):
        orders.cell("orders", run_id="run2").run()
    assert _count(orders) == 10
    orders.enrol("orders")
    assert orders.cell("orders", run_id="run3").run().rows == 1000


def test_contradictory_tables_are_commit_unknown_until_an_administrator_decides(orders: SnapshotWorld) -> None:
    hold = orders.clickhouse.holds.set("effect_done", kind="Exchange", user_prefix="dpone_publisher")
    worker = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    worker.kill()
    orders.clickhouse.holds.clear(hold)
    time.sleep(0.3)
    [(name,)] = orders.ch(
        f"SELECT name FROM system.tables WHERE database = '{orders.database}' AND name LIKE 'dpone_g_%'"
    )
    orders.ch(f"DROP TABLE {orders.database}.{name} SYNC")
    with pytest.raises(PublicationUnknown):
        orders.cell("orders", try_number=2).run()
    assert orders.ledger_counts()["commit_unknown"] == 1
    assert orders.ledger_counts()["open_guards"] == 1
    with pytest.raises(PublicationUnknown):
        orders.cell("orders", try_number=3).run()
    admin = orders.ledger.admin()
    target = orders.target()
    [stored] = CompositionAttemptStore(admin).all_open()
    signed = Adjudication(
        attempt_sha256=stored.sha256, state=AttemptState.FAILED, decided_by="dba",
        statement="the retained table was dropped by hand; the target carries the new rows", decided_at="2026-01-01T00:00:00Z",
    )  # fmt: skip
    world = ClickHouseWorld(admin, target, target.service_id())
    ended = Settler(world).resolve(stored.sha256, Cause("DPONE_ADJUDICATED", "by hand"), adjudication=signed)
    assert ended.state is AttemptState.FAILED
    with pytest.raises(TargetChanged):
        orders.cell("orders", try_number=4).run()


def test_fenced_attempt_refuses_its_own_steps(orders: SnapshotWorld) -> None:
    hold = orders.clickhouse.holds.set("answer", kind="CreateTable", pattern="dpone_g_")
    zombie = AttemptProcess(orders, "orders")
    orders.clickhouse.holds.wait(hold)
    store = CompositionAttemptStore(orders.ledger.runtime())
    [stored] = store.all_open()
    store.fence(stored.sha256)
    orders.clickhouse.holds.clear(hold)
    assert zombie.result()["code"] == Fenced.code
    assert _count(orders) == 10
    _settled(orders, failed=1)
