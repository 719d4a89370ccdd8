"""Releases become active: refused before anything is reserved, drained before anything is handed over, acknowledged."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_provider_dpone.activation.cache import DeploymentCacheMaterializer
from airflow_provider_dpone.activation.coordinator import CompositionActivationCoordinator
from airflow_provider_dpone.contracts.canonical import digest_bytes, digest_of
from airflow_provider_dpone.contracts.enrolment import TargetEnrolment
from airflow_provider_dpone.contracts.identity import guard_id
from airflow_provider_dpone.contracts.states import ActivationState, AttemptState
from airflow_provider_dpone.engines.postgres.snapshot import PostgresSource
from airflow_provider_dpone.errors import (
    ActivationCommitUnknown,
    ActivationMissing,
    ActivationRefused,
    ActivationStale,
    AdmissionUnavailable,
    DponeError,
    GuardHeld,
    LedgerMismatch,
    PhysicalConflict,
    ReleaseAltered,
)
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from tests import ledger_database
from tests.attempt_process import AttemptProcess
from tests.cutting_proxy import CuttingProxy
from tests.ledger_history import ended_attempts, unruled
from tests.release_world import Releases, WorldBackend, coordinator
from tests.snapshot_world import SnapshotWorld

TABLES = (
    "evidence", "activation", "guard", "activation_guard", "attempt", "attempt_guard", "principal", "dispatch",
    "publication", "authority_log",
)  # fmt: skip


@pytest.fixture
def mart(world: SnapshotWorld) -> SnapshotWorld:
    """Two enrolled tables."""
    for table in ("orders", "rates"):
        world.pg(f"CREATE TABLE {table} (id bigint NOT NULL)")
        world.pg(f"INSERT INTO {table} VALUES (1)")
        world.ch(f"CREATE TABLE {world.database}.{table} (id Int64) ENGINE = MergeTree ORDER BY id")
        world.enrol(table)
    return world


@pytest.fixture
def releases(mart: SnapshotWorld, tmp_path: Path) -> Releases:
    return Releases(mart, tmp_path, WorldBackend(mart))


def _everything(mart: SnapshotWorld, folder: Path) -> tuple[Any, ...]:
    """Every row of the ledger and every pointer."""
    with mart.ledger.connect_admin() as connection:
        rows = tuple(
            tuple(
                sorted(map(repr, connection.execute(f"SELECT t.*::text FROM dpone.{table} AS t".encode()).fetchall()))
            )
            for table in TABLES
        )
    return rows, tuple(sorted((p.name, p.read_bytes()) for p in folder.rglob("current/*.json")))


def _activate(releases: Releases, *tables: str, **changes: Any) -> Any:
    built, release = releases.build(*(releases.world.declare(t).model_copy(update=changes) for t in tables))
    releases.world.declarations = {w.workload_id.removeprefix("dag."): w for w in release.workloads()}
    return releases.cache().materialize(built, environment="test", expected_release_id=release.digest()).activation


# --- the five operations ----------------------------------------------------------------------------------------


def test_without_its_capabilities_nothing_is_activated(releases: Releases) -> None:
    built, release = releases.build(releases.world.declare("orders"))
    for cache in (
        DeploymentCacheMaterializer(releases.folder / "a"),
        DeploymentCacheMaterializer(
            releases.folder / "b", composition_activation_coordinator=CompositionActivationCoordinator()
        ),
    ):
        with pytest.raises(AdmissionUnavailable):
            cache.materialize(built, environment="test", expected_release_id=release.digest())


def test_a_release_becomes_current_through_its_states_and_its_attempts_are_admitted(releases: Releases) -> None:
    mart = releases.world
    active = _activate(releases, "orders", "rates")
    assert active.state is ActivationState.ACTIVE
    pointer = releases.cache().current("test")
    assert pointer is not None
    assert (pointer.activation_sha256, pointer.release_id) == (active.sha256, active.request.release_id)
    assert mart.cell("orders").run().rows == 1
    found = coordinator(mart, releases.backend).require_active(
        projection_root=releases.cache().projection(pointer.deployment_id),
        activation_id=pointer.activation_id,
        environment="test",
        release_id=pointer.release_id,
        deployment_id=pointer.deployment_id,
        previous_deployment_id=None,
    )
    assert found == active


def test_the_same_release_is_activated_once(releases: Releases) -> None:
    first = _activate(releases, "orders")
    again = _activate(releases, "orders")
    assert again == first
    assert len(CompositionActivationStore(releases.world.ledger.runtime()).in_states("test", *ActivationState)) == 1


def test_a_predecessor_is_drained_first_and_epochs_grow(releases: Releases) -> None:
    mart = releases.world
    first = _activate(releases, "orders")
    hold = mart.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    worker = AttemptProcess(mart, "orders")
    mart.clickhouse.holds.wait(hold)
    try:
        before = _everything(mart, releases.folder)
        with pytest.raises(ActivationRefused, match="not resolved"):
            _activate(releases, "orders", "rates")
        assert _everything(mart, releases.folder) == before
    finally:
        mart.clickhouse.holds.clear(hold)
        ended = worker.result()
    assert ended["state"] == "PUBLISHED"
    second = _activate(releases, "orders", "rates")
    assert second.request.previous_activation_sha256 == first.sha256
    assert {e.guard_id: e.epoch for e in second.epochs}[first.epochs[0].guard_id] == first.epochs[0].epoch + 1
    store = CompositionActivationStore(mart.ledger.runtime())
    assert store.read_exact(first.sha256).state is ActivationState.RETIRED
    coordinator(mart, releases.backend).retire("test")
    with pytest.raises(ActivationMissing):
        mart.cell("orders", run_id="late").run()


def test_a_lost_switch_is_commit_unknown_and_activating_again_recovers(releases: Releases) -> None:
    mart = releases.world
    built, release = releases.build(mart.declare("orders"))
    with CuttingProxy(mart.ledger.host, mart.ledger.port) as proxy:
        step = CompositionActivationStore.activate

        def cut(store: CompositionActivationStore, sha256: str) -> Any:
            proxy.cut_on(b"COMMIT", forward=True)
            proxy.refuse_after_cut = True
            return step(store, sha256)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CompositionActivationStore, "activate", cut)
            with pytest.raises(ActivationCommitUnknown) as caught:
                releases.cache(mart.ledger.runtime(proxy.port)).materialize(
                    built, environment="test", expected_release_id=release.digest()
                )
    assert caught.value.details["state_may_have_changed"]
    assert caught.value.details["recovery_required"]
    assert releases.cache().current("test") is not None  # the pointer moved before the acknowledgement
    again = releases.cache().materialize(built, environment="test", expected_release_id=release.digest())
    assert again.activation.state is ActivationState.ACTIVE
    assert len(CompositionActivationStore(mart.ledger.runtime()).in_states("test", *ActivationState)) == 1


def test_killed_between_pointer_and_acknowledgement_the_same_occurrence_goes_on(releases: Releases) -> None:
    built, release = releases.build(releases.world.declare("orders"))

    def dies(*_: object, **__: object) -> Any:
        raise SystemExit(9)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompositionActivationCoordinator, "activate", dies)
        with pytest.raises(SystemExit):
            releases.cache().materialize(built, environment="test", expected_release_id=release.digest())
    pointer = releases.cache().current("test")
    made = releases.cache().materialize(built, environment="test", expected_release_id=release.digest())
    assert pointer == made.pointer
    assert made.activation.state is ActivationState.ACTIVE


def test_a_prepared_leftover_frees_its_guards_for_another_release(releases: Releases) -> None:
    cache, mart = releases.cache(), releases.world
    built, release = releases.build(mart.declare("orders"))
    projection, deployment = cache.seal(built, environment="test", expected_release_id=release.digest())
    coordinator(mart, releases.backend).prepare(
        projection_root=projection, activation_id=str(uuid.uuid4()), environment="test", release_id=release.digest(),
        deployment_id=deployment.digest(), previous_deployment_id=None,
    )  # fmt: skip
    assert _activate(releases, "orders", "rates").state is ActivationState.ACTIVE


# --- refusals: nothing changes ----------------------------------------------------------------------------------


def _refusals(releases: Releases) -> dict[str, tuple[type[DponeError], str, Any]]:
    mart, backend = releases.world, releases.backend
    orders = mart.declare("orders")
    alias = orders.model_copy(update={"workload_id": "dag.other", "target_conn_id": "alias"})

    def falsified(**changes: Any) -> Any:
        def run() -> Any:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in changes.items():
                    patch.setattr(backend, name, value)
                return _build_and_activate(releases, orders, alias)

        return run

    def unenrolled() -> Any:
        database = f"free_{uuid.uuid4().hex[:8]}"
        mart.ch(f"CREATE DATABASE {database}")
        mart.ch(f"CREATE TABLE {database}.orders (id Int64) ENGINE = MergeTree ORDER BY id")
        return orders.model_copy(update={"target_relation": f"{database}.orders"})

    def helper() -> Any:
        rates = mart.declare("rates").model_copy(update={"writes": (f"{mart.database}.orders",)})
        return _build_and_activate(releases, orders, rates)

    def stale_swap() -> Any:
        built, release = releases.build(orders)
        projection, deployment = releases.cache().seal(built, environment="test", expected_release_id=release.digest())
        return coordinator(mart, backend).prepare(
            projection_root=projection, activation_id=str(uuid.uuid4()), environment="test",
            release_id=release.digest(), deployment_id=deployment.digest(),
            previous_deployment_id=digest_of(b"somebody else's"),
        )  # fmt: skip

    def stale_context() -> Any:
        built, release = releases.build(orders)
        projection, deployment = releases.cache().seal(built, environment="test", expected_release_id=release.digest())
        backend._databases.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(backend.claims, "dwh", str(uuid.uuid4()))
            return coordinator(mart, backend).prepare(
                projection_root=projection, activation_id=str(uuid.uuid4()), environment="test",
                release_id=release.digest(), deployment_id=deployment.digest(), previous_deployment_id=None,
            )  # fmt: skip

    def moved_source() -> Any:
        """The source connection leads to another database than when the context was sealed."""
        built, release = releases.build(orders)
        projection, deployment = releases.cache().seal(built, environment="test", expected_release_id=release.digest())
        server, database = PostgresSource(mart.source).place()
        assert [(b.service_id, b.database_id) for b in deployment.bindings if b.conn_id == "src"] == [
            (server, database)
        ]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(backend.sources, "src", (server, f"{int(database) + 1}"))
            return coordinator(mart, backend).prepare(
                projection_root=projection, activation_id=str(uuid.uuid4()), environment="test",
                release_id=release.digest(), deployment_id=deployment.digest(), previous_deployment_id=None,
            )  # fmt: skip

    def tampered() -> Any:
        built, release = releases.build(orders)
        pack = next((built / "packs").glob("*.json"))
        pack.write_bytes(pack.read_bytes().replace(b"orders", b"0rders"))
        return releases.cache().materialize(built, environment="test", expected_release_id=release.digest())

    return {
        "alias of a database": (ActivationRefused, "one table", lambda: _build_and_activate(releases, orders, alias)),
        "helper name": (ActivationRefused, "write the one table", helper),
        "two claim to be one": (PhysicalConflict, "claim to be one", falsified(same=False)),
        "one claims to be two": (
            PhysicalConflict, "claims to be two", falsified(claims={"alias": str(uuid.uuid4())}),
        ),
        "unsupported cell": (
            ActivationRefused, "not a supported cell",
            lambda: _build_and_activate(releases, orders.model_copy(update={"kind": "load"})),
        ),
        "unknown kind of source": (
            ActivationRefused, "not a supported cell",
            lambda: _build_and_activate(releases, orders.model_copy(update={"source_conn_id": "alias"})),
        ),
        "missing byte budget": (
            ActivationRefused, "max_source_bytes",
            lambda: _build_and_activate(releases, orders.model_copy(update={"options": {}})),
        ),
        "unenrolled database": (ActivationRefused, "not enrolled", lambda: _build_and_activate(releases, unenrolled())),
        "no workload": (ActivationRefused, "no workload", lambda: _build_and_activate(releases)),
        "stale compare-and-swap": (ActivationStale, "is current", stale_swap),
        "stale context": (ActivationStale, "another server", stale_context),
        "moved source": (ActivationStale, "another server or database", moved_source),
        "tampered release": (ReleaseAltered, "altered", tampered),
    }  # fmt: skip


def _build_and_activate(releases: Releases, *declarations: Any) -> Any:
    built, release = releases.build(*declarations)
    return releases.cache().materialize(built, environment="test", expected_release_id=release.digest())


@pytest.mark.parametrize(
    "case",
    [
        "alias of a database", "helper name", "two claim to be one", "one claims to be two", "unsupported cell",
        "unknown kind of source", "missing byte budget", "unenrolled database", "no workload", "stale compare-and-swap", "stale context",
        "tampered release", "moved source",
    ],
)  # fmt: skip
def test_a_refusal_changes_nothing(releases: Releases, case: str) -> None:
    cases = _refusals(releases)
    error, words, run = cases[case]
    before = _everything(releases.world, releases.folder)
    with pytest.raises(error, match=words):
        run()
    assert _everything(releases.world, releases.folder) == before


def test_every_offending_workload_is_named(releases: Releases) -> None:
    mart = releases.world
    mart.ch(f"CREATE TABLE {mart.database}.free (id Int64) ENGINE = MergeTree ORDER BY id")
    bad = [
        mart.declare("orders").model_copy(update={"kind": "load"}),
        mart.declare("rates").model_copy(update={"options": {}}),
    ]
    with pytest.raises(ActivationRefused) as caught:
        _build_and_activate(releases, *bad)
    assert len(caught.value.details["problems"]) == 2  # type: ignore[arg-type]
    with pytest.raises(ActivationRefused, match=r"dag\.free.*not enrolled"):
        _build_and_activate(releases, mart.declare("orders"), mart.declare("free"))


def test_a_database_of_another_ledger_is_refused(releases: Releases) -> None:
    mart = releases.world
    mine = mart.ledger
    mart.ledger = ledger_database.create(mart.postgres.superuser)
    before = _everything(mart, releases.folder)
    with pytest.raises(ActivationRefused, match="one database has one ledger"):
        _build_and_activate(releases, mart.declare("orders"))
    assert _everything(mart, releases.folder) == before
    mart.ledger = mine


def _collation(collation: str) -> Any:
    """Names compared by an engine that has such a collation; the one used here knows bytes only."""
    engine = sqlite3.connect(":memory:", check_same_thread=False)
    engine.execute("CREATE TABLE named (i INTEGER, n TEXT)")

    def compare(relations: Sequence[str]) -> list[int]:
        engine.execute("DELETE FROM named")
        engine.executemany("INSERT INTO named VALUES (?, ?)", list(enumerate(relations)))
        rows = engine.execute(f"SELECT dense_rank() OVER (ORDER BY n COLLATE {collation}) FROM named ORDER BY i")
        return [int(rank) for (rank,) in rows]

    return compare


def test_names_are_compared_under_the_servers_own_collation(releases: Releases) -> None:
    mart = releases.world
    mart.ch(f"CREATE TABLE {mart.database}.Orders (id Int64) ENGINE = MergeTree ORDER BY id")
    mart.enrol("Orders")
    both = [mart.declare("orders"), mart.declare("Orders", source="public.orders")]
    releases.backend.compare = _collation("NOCASE")
    before = _everything(mart, releases.folder)
    with pytest.raises(ActivationRefused, match="the same as"):
        _build_and_activate(releases, *both)
    assert _everything(mart, releases.folder) == before
    releases.backend.compare = _collation("BINARY")
    assert _build_and_activate(releases, *both).activation.state is ActivationState.ACTIVE


def test_a_trailing_blank_is_another_name_only_where_the_server_says_so(releases: Releases) -> None:
    mart = releases.world
    rates = mart.declare("rates").model_copy(update={"writes": (f"{mart.database}.orders ",)})
    releases.backend.compare = _collation("RTRIM")
    with pytest.raises(ActivationRefused, match="one table"):
        _build_and_activate(releases, mart.declare("orders"), rates)
    releases.backend.compare = None  # ClickHouse: exact bytes
    assert _build_and_activate(releases, mart.declare("orders"), rates).activation.state is ActivationState.ACTIVE


# --- acknowledgement --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("receipt", ["native", "stale", "epochs", "constituent", "prepared"])
def test_only_the_typed_receipt_of_this_activation_acknowledges(releases: Releases, receipt: str) -> None:
    mart = releases.world
    built, release = releases.build(mart.declare("orders"), mart.declare("rates"))
    real = CompositionActivationCoordinator.activate
    other = {}

    def answer(self: CompositionActivationCoordinator, prepared: Any, *, projection_root: Path) -> Any:
        active = real(self, prepared, projection_root=projection_root)
        other["active"] = active
        if receipt == "native":
            return {"state": "ACTIVE", "release_id": release.digest()}
        if receipt == "prepared":
            return prepared
        request = active.request
        if receipt == "stale":
            changed = request.model_copy(update={"occurrence_id": str(uuid.uuid4())})
            return type(active)(active.sha256, changed, active.release_original, active.state, active.epochs)
        if receipt == "constituent":
            changed = request.model_copy(update={"workloads": request.workloads[:1]})
            return type(active)(active.sha256, changed, active.release_original, active.state, active.epochs)
        epochs = tuple(e.model_copy(update={"epoch": e.epoch + 1}) for e in active.epochs)
        return type(active)(active.sha256, request, active.release_original, active.state, epochs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompositionActivationCoordinator, "activate", answer)
        with pytest.raises(ActivationCommitUnknown) as caught:
            releases.cache().materialize(built, environment="test", expected_release_id=release.digest())
    assert caught.value.details["recovery_required"]
    again = releases.cache().materialize(built, environment="test", expected_release_id=release.digest())
    assert again.activation == other["active"]


def test_a_dag_that_does_not_load_is_no_release(releases: Releases) -> None:
    built, release = releases.build(releases.world.declare("orders"))
    cache = releases.cache()
    cache._loaded_dags = lambda folder: {"surprise"}
    before = _everything(releases.world, releases.folder)
    with pytest.raises(ActivationRefused, match="surprise"):
        cache.materialize(built, environment="test", expected_release_id=release.digest())
    assert _everything(releases.world, releases.folder) == before


def test_a_projection_that_was_altered_in_the_cache_is_not_acknowledged(releases: Releases) -> None:
    active = _activate(releases, "orders")
    cache = releases.cache()
    projection = cache.projection(active.request.deployment_id)
    (projection / "release" / "extra").write_text("x")
    with pytest.raises(ReleaseAltered, match="not of the release"):
        coordinator(releases.world, releases.backend).begin_retirement(active, projection_root=projection)
    os.remove(projection / "release" / "extra")
    (projection / "deployment.json").write_text("{}")
    with pytest.raises(ReleaseAltered, match="sealed context"):
        coordinator(releases.world, releases.backend).begin_retirement(active, projection_root=projection)


def test_a_stale_epoch_acknowledges_nothing(releases: Releases) -> None:
    first = _activate(releases, "orders")
    second = _activate(releases, "orders", "rates")
    before = _everything(releases.world, releases.folder)
    epochs = tuple(e.model_copy(update={"epoch": e.epoch + 7}) for e in second.epochs)
    stale = type(second)(second.sha256, second.request, second.release_original, second.state, epochs)
    with pytest.raises(ActivationStale, match="not the one in the ledger"):
        coordinator(releases.world, releases.backend).begin_retirement(
            stale, projection_root=releases.cache().projection(second.request.deployment_id)
        )
    with pytest.raises(ActivationStale):
        coordinator(releases.world, releases.backend).activate(
            first, projection_root=releases.cache().projection(first.request.deployment_id)
        )
    assert _everything(releases.world, releases.folder) == before


# --- audit ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "seen"),
    [
        ("UPDATE dpone.attempt SET run_id = 'other'", "attempt row differs"),
        ("UPDATE dpone.attempt SET outcome_sha256 = closed_sha256", "lacks a proof"),
        ("DELETE FROM dpone.attempt_guard", "guards of an attempt differ"),
        ("UPDATE dpone.activation SET environment = 'stage' WHERE state = 4", "activation row differs"),
        ("UPDATE dpone.principal SET state = 3", "open guard or gate"),
        ("UPDATE dpone.principal SET name = name || 'x' WHERE purpose = 'ingest'", "binds something else"),
    ],
)
def test_an_audit_of_all_originals_comes_before_any_epoch_moves(releases: Releases, damage: str, seen: str) -> None:
    mart = releases.world
    _activate(releases, "orders")
    mart.cell("orders").run()
    coordinator(mart, releases.backend).retire("test")
    with psycopg.connect(**{**mart.postgres.superuser, "dbname": mart.ledger.dbname}) as tampering:  # type: ignore[arg-type]
        for table in TABLES:
            tampering.execute(f"ALTER TABLE dpone.{table} DISABLE TRIGGER ALL".encode())
        tampering.execute("ALTER TABLE dpone.dispatch DROP CONSTRAINT fk_dispatch_principal")
        tampering.execute(damage.encode())
        for table in TABLES:
            tampering.execute(f"ALTER TABLE dpone.{table} ENABLE ALWAYS TRIGGER {table}_rule".encode())
            tampering.execute(f"ALTER TABLE dpone.{table} ENABLE ALWAYS TRIGGER {table}_truncate".encode())
    found = mart.ledger.runtime().as_it_is().read(mart.ledger.runtime().dialect.audit)
    assert any(seen in line for line in found), found


def test_an_audit_that_finds_something_stops_the_activation(releases: Releases) -> None:
    mart = releases.world
    _activate(releases, "orders")
    mart.cell("orders").run()
    coordinator(mart, releases.backend).retire("test")
    before = _everything(mart, releases.folder)
    with pytest.MonkeyPatch.context() as patch:
        dialect = type(mart.ledger.runtime().dialect)
        patch.setattr(dialect, "audit", lambda self, connection, looked_at: ["attempt row differs from its document x"])
        with pytest.raises(LedgerMismatch, match="do not agree"):
            _activate(releases, "orders")
    after = _everything(mart, releases.folder)
    assert after[0][1:] == before[0][1:]
    assert after[1] == before[1]


# --- handover under load ----------------------------------------------------------------------------------------


def test_twenty_handovers_while_attempts_run(releases: Releases) -> None:
    """Epochs strictly grow, no guard is owned twice, nothing is admitted to a retiring parent, admitted runs finish."""
    mart = releases.world
    _activate(releases, "orders")
    declaration = dict(mart.declarations)
    stop, results = threading.Event(), list[str]()

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                results.append(mart.cell("orders", run_id=f"run{number}").run().state)
            except (ActivationMissing, GuardHeld) as refused:
                results.append(refused.code)
            time.sleep(0.05)

    worker = threading.Thread(target=work)
    worker.start()
    switched, deadline = 0, time.monotonic() + 200
    built, release = {}, {}
    for side, tables in (("a", ("orders",)), ("b", ("orders", "rates"))):
        built[side], release[side] = releases.build(*(mart.declare(t) for t in tables))
    while switched < 20 and time.monotonic() < deadline:
        side = "b" if switched % 2 == 0 else "a"
        try:
            releases.cache().materialize(built[side], environment="test", expected_release_id=release[side].digest())
            switched += 1
        except ActivationRefused as refused:
            if "not resolved" not in str(refused):  # drained first: an attempt is at work
                raise
            time.sleep(0.02)
    stop.set()
    worker.join(60)
    assert switched == 20
    assert declaration == mart.declarations
    assert "PUBLISHED" in results
    with mart.ledger.connect_admin() as connection:
        epochs = [e for (e,) in connection.execute(
            "SELECT g.epoch FROM dpone.activation_guard g JOIN dpone.activation a USING (activation_sha256)"
            " WHERE g.guard_id = (SELECT guard_id FROM dpone.attempt_guard LIMIT 1) ORDER BY a.recorded_at"
        )]  # fmt: skip
        assert epochs == list(range(1, 22))
        wrong = connection.execute(
            "SELECT count(*) FROM dpone.attempt_guard x JOIN dpone.activation_guard y USING (guard_id, activation_sha256)"
            " WHERE x.epoch <> y.epoch"
        ).fetchone()
        assert wrong == (0,)
    ended = CompositionAttemptStore(mart.ledger.runtime()).latest(1000)
    assert {a.state for a in ended} == {AttemptState.SUCCEEDED}


def test_guards_are_reserved_in_statements_that_do_not_grow_with_history(releases: Releases) -> None:
    mart = releases.world
    counts = []
    for length in range(3):
        if length:
            for run in range(length * 2):
                mart.cell("orders", run_id=f"history{length}{run}").run()
            coordinator(mart, releases.backend).retire("test")
        _statements(mart, reset=True)
        _activate(releases, "orders")
        counts.append(_statements(mart))
    assert counts[1] == counts[2], counts


def _statements(mart: SnapshotWorld, *, reset: bool = False) -> int:
    """Rows the ledger database was asked for, as the number of committed and rolled back transactions' statements."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    global _seen
    if reset:
        _seen = 0
        if not event.contains(Engine, "before_cursor_execute", _count):
            event.listen(Engine, "before_cursor_execute", _count)
    return _seen


_seen = 0


def _count(*_: object) -> None:
    global _seen
    _seen += 1


def test_a_thousand_workloads_are_admitted(releases: Releases, capsys: pytest.CaptureFixture[str]) -> None:
    """A thousand guards in one activation beside ten thousand ended attempts; times are told, not asserted."""
    mart, count = releases.world, 1000
    admin = mart.ledger.admin()
    first = mart.enrol("orders")
    guard = CompositionActivationStore(admin).guard(first)
    assert guard is not None
    subjects = [f"t{number}" for number in range(count)]
    with psycopg.connect(**{**mart.postgres.superuser, "dbname": mart.ledger.dbname}) as connection:  # type: ignore[arg-type]
        _enrol_many(connection, guard.table, subjects)
        ended_attempts(connection, mart.ledger, 10_000)
    built, release = releases.build(*(mart.declare(name) for name in subjects))
    started = time.monotonic()
    made = releases.cache().materialize(built, environment="test", expected_release_id=release.digest())
    activated = time.monotonic() - started
    assert len(made.activation.epochs) == count
    started = time.monotonic()
    assert mart.ledger.runtime().read(mart.ledger.runtime().dialect.audit) == []
    audited = time.monotonic() - started
    with capsys.disabled():
        print(f"\n  {count} workloads active in {activated:.1f} s; audit over 10,000 ended attempts {audited:.1f} s")


def _enrol_many(connection: psycopg.Connection[Any], like: TargetEnrolment, tables: Sequence[str]) -> None:
    """Enrolments of tables that need not exist for admission, in one go."""
    enrolments = [like.model_copy(update={"target_table": table}) for table in tables]
    rows = [(e, guard_id(e.marker.connector, e.marker.service_id, e.guard_subject())) for e in enrolments]
    with unruled(connection), connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO dpone.evidence (evidence_sha256, kind, subject, document) VALUES (%s, 1, %s, %s)",
            [(digest_bytes(e.digest()), digest_bytes(g), e.wire()) for e, g in rows],
        )
        cursor.executemany(
            "INSERT INTO dpone.guard (guard_id, connector, service_id, subject, enrolment_sha256, target_uuid, epoch)"
            " VALUES (%s, %s, %s, %s, %s, %s, 0)",
            [
                (
                    digest_bytes(g),
                    e.marker.connector,
                    e.marker.service_id,
                    e.guard_subject(),
                    digest_bytes(e.digest()),
                    e.target_uuid,
                )
                for e, g in rows
            ],
        )
