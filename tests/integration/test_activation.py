"""Enrolment and activation: who may own what, refused before anything is reserved, handed over only when drained."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_dpone.activation.coordinator import (
    Bindings,
    CompositionActivationCoordinator,
    ResolvedTarget,
    build_release,
)
from airflow_provider_dpone.contracts.naming import split_table
from airflow_provider_dpone.contracts.release import Release, WorkloadDeclaration
from airflow_provider_dpone.contracts.states import ActivationState, Connector
from airflow_provider_dpone.errors import (
    ActivationCommitUnknown,
    ActivationMissing,
    ActivationRefused,
    AdmissionUnavailable,
    AmbientWriter,
    DesignMismatch,
    EnrolledElsewhere,
    NotEnrolled,
    TargetChanged,
)
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.transaction import Ledger
from tests import ledger_database
from tests.attempt_process import AttemptProcess
from tests.cutting_proxy import CuttingProxy
from tests.snapshot_world import SnapshotWorld


@pytest.fixture
def mart(world: SnapshotWorld) -> SnapshotWorld:
    """Two tables, not enrolled."""
    for table in ("orders", "rates"):
        world.pg(f"CREATE TABLE {table} (id bigint NOT NULL)")
        world.pg(f"INSERT INTO {table} VALUES (1)")
        world.ch(f"CREATE TABLE {world.database}.{table} (id Int64) ENGINE = MergeTree ORDER BY id")
    return world


def _coordinator(
    world: SnapshotWorld, ledger: Ledger | None = None, source: str = "postgres"
) -> CompositionActivationCoordinator:
    def resolve(declaration: WorkloadDeclaration) -> ResolvedTarget:
        database, table = split_table(declaration.target_relation)
        [(server, uuid)] = world.ch(
            f"SELECT toString(serverUUID()), toString(uuid) FROM system.databases WHERE name = '{database}'"
        )
        return ResolvedTarget(Connector.CLICKHOUSE, server, f"{uuid}/{table}", (table,))

    return CompositionActivationCoordinator(
        ledger=ledger or world.ledger.runtime(), bindings=Bindings(lambda conn_id: source, resolve)
    )


def _release(world: SnapshotWorld, *tables: str, **changes: Any) -> Release:
    return build_release([world.declare(t).model_copy(update=changes) for t in tables])


def _ledger_rows(world: SnapshotWorld) -> tuple[int, int]:
    """Activations, and guards that somebody owns."""
    with world.ledger.connect_admin() as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM dpone.activation), (SELECT count(*) FROM dpone.guard WHERE owner_sha256 IS NOT NULL)"
        ).fetchone()
    assert row is not None
    return row  # type: ignore[return-value]


# --- enrolment -------------------------------------------------------------------------------------------------


def test_one_database_has_one_ledger(mart: SnapshotWorld) -> None:
    mart.enrol("orders")
    mart.ledger = ledger_database.create(mart.postgres.superuser)
    with pytest.raises(EnrolledElsewhere):
        mart.enrol("rates")


def test_an_altered_or_removed_marker_stops_the_runtime(mart: SnapshotWorld) -> None:
    mart.activate("orders")
    mart.ch(f"RENAME TABLE {mart.database}.dpone_marker TO {mart.database}.hidden")
    with pytest.raises(NotEnrolled):
        mart.cell("orders").run()
    mart.ch(f"CREATE TABLE {mart.database}.dpone_marker AS {mart.database}.hidden")
    mart.ch(f"INSERT INTO {mart.database}.dpone_marker VALUES ('{{}}', 'sha256:0')")
    with pytest.raises(EnrolledElsewhere):
        mart.cell("orders").run()
    assert mart.ledger_counts()["open_guards"] == 0


def test_another_writer_is_refused_at_enrolment_and_at_admission(mart: SnapshotWorld) -> None:
    user = f"writer_{mart.database}"
    mart.activate("orders")
    mart.ch(f"CREATE USER {user} IDENTIFIED WITH sha256_password BY 'x'")
    mart.ch(f"GRANT INSERT ON {mart.database}.orders TO {user}")
    try:
        with pytest.raises(AmbientWriter, match=user):
            mart.cell("orders").run()
        with pytest.raises(AmbientWriter, match=user):
            mart.enrol("orders")
    finally:
        mart.ch(f"DROP USER {user}")
    assert mart.cell("orders", run_id="later").run().rows == 1


def test_a_changed_design_is_refused_until_it_is_accepted(mart: SnapshotWorld) -> None:
    mart.pg("ALTER TABLE orders ADD COLUMN note text")
    mart.ch(f"ALTER TABLE {mart.database}.orders ADD COLUMN note Nullable(String)")
    mart.activate("orders")
    mart.ch(f"ALTER TABLE {mart.database}.orders MODIFY COLUMN note Nullable(FixedString(8))")
    with pytest.raises(TargetChanged, match="design"):
        mart.cell("orders").run()
    mart.enrol("orders")
    assert mart.cell("orders", run_id="later").run().rows == 1


def test_null_into_a_not_nullable_column_with_a_default_is_refused_at_preflight(world: SnapshotWorld) -> None:
    """A15: neither '' nor the default; a default in the target is a side effect of its own."""
    world.pg("CREATE TABLE orders (id bigint, name text)")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64, name String) ENGINE = MergeTree ORDER BY id")
    world.activate("orders")
    with pytest.raises(DesignMismatch, match="NULL"):
        world.cell("orders").run()
    assert world.ledger_counts()["failed"] == 0


# --- activation ------------------------------------------------------------------------------------------------


def test_without_its_capabilities_nothing_is_activated(mart: SnapshotWorld) -> None:
    with pytest.raises(AdmissionUnavailable):
        CompositionActivationCoordinator().activate(_release(mart, "orders"), "test")


def test_the_same_release_is_activated_once(mart: SnapshotWorld) -> None:
    mart.enrol("orders")
    coordinator = _coordinator(mart)
    first = coordinator.activate(_release(mart, "orders"), "test")
    assert first.state is ActivationState.ACTIVE
    assert coordinator.activate(_release(mart, "orders"), "test") == first
    assert _ledger_rows(mart) == (1, 1)


def test_everything_unsupported_refuses_the_whole_release_before_anything_is_reserved(mart: SnapshotWorld) -> None:
    """Each offending workload is named."""
    mart.enrol("orders")
    with pytest.raises(ActivationRefused, match=r"rates.*not enrolled") as caught:
        _coordinator(mart).activate(_release(mart, "orders", "rates"), "test")
    assert len(caught.value.details["problems"]) == 1  # type: ignore[arg-type]
    with pytest.raises(ActivationRefused, match="no supported cell"):
        _coordinator(mart, source="mysql").activate(_release(mart, "orders"), "test")
    with pytest.raises(ActivationRefused, match="no supported cell"):
        _coordinator(mart).activate(_release(mart, "orders", kind="load"), "test")
    with pytest.raises(ActivationRefused, match="no workload"):
        _coordinator(mart).activate(build_release([]), "test")
    assert _ledger_rows(mart) == (0, 0)


def test_two_snapshots_into_one_physical_table_are_refused_whatever_they_call_it(mart: SnapshotWorld) -> None:
    mart.enrol("orders")
    one = mart.declare("orders")
    other = one.model_copy(update={"workload_id": "dag.other", "target_conn_id": "alias"})
    with pytest.raises(ActivationRefused, match="one table"):
        _coordinator(mart).activate(build_release([one, other]), "test")


def test_a_predecessor_is_drained_first_and_epochs_grow(mart: SnapshotWorld) -> None:
    for table in ("orders", "rates"):
        mart.enrol(table)
    coordinator = _coordinator(mart)
    first = coordinator.activate(_release(mart, "orders"), "test")
    mart.declarations = {"orders": mart.declare("orders")}
    hold = mart.clickhouse.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
    worker = AttemptProcess(mart, "orders")
    mart.clickhouse.holds.wait(hold)
    with pytest.raises(ActivationRefused, match="not resolved"):
        coordinator.activate(_release(mart, "orders", "rates"), "test")
    mart.clickhouse.holds.clear(hold)
    assert worker.result()["state"] == "PUBLISHED"
    second = coordinator.activate(_release(mart, "orders", "rates"), "test")
    assert second.request.previous_activation_sha256 == first.sha256
    assert {e.guard_id: e.epoch for e in second.epochs}[first.epochs[0].guard_id] == first.epochs[0].epoch + 1
    store = CompositionActivationStore(mart.ledger.runtime())
    assert store.read_exact(first.sha256).state is ActivationState.RETIRED
    _coordinator(mart).retire("test")
    with pytest.raises(ActivationMissing):
        mart.cell("orders", run_id="late").run()


def test_a_lost_switch_is_commit_unknown_and_activating_again_recovers(mart: SnapshotWorld) -> None:
    mart.enrol("orders")
    with CuttingProxy(mart.ledger.host, mart.ledger.port) as proxy:
        coordinator = _coordinator(mart, mart.ledger.runtime(proxy.port))
        step = CompositionActivationStore.activate

        def cut(store: CompositionActivationStore, sha256: str) -> Any:
            proxy.cut_on(b"COMMIT", forward=True)
            proxy.refuse_after_cut = True
            return step(store, sha256)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CompositionActivationStore, "activate", cut)
            with pytest.raises(ActivationCommitUnknown) as caught:
                coordinator.activate(_release(mart, "orders"), "test")
    assert caught.value.details["state_may_have_changed"]
    assert caught.value.details["recovery_required"]
    again = _coordinator(mart).activate(_release(mart, "orders"), "test")
    assert again.state is ActivationState.ACTIVE
    assert _ledger_rows(mart)[1] == 1


def test_a_prepared_leftover_frees_its_guards_for_the_next_activation(mart: SnapshotWorld) -> None:
    mart.enrol("orders")
    coordinator = _coordinator(mart)
    release = _release(mart, "orders")
    CompositionActivationStore(mart.ledger.runtime()).prepare(coordinator.plan(release, "test"), release)
    assert coordinator.activate(release, "test").state is ActivationState.ACTIVE
    assert _ledger_rows(mart)[1] == 1


def test_planning_alone_changes_nothing(mart: SnapshotWorld) -> None:
    mart.enrol("orders")
    assert len(_coordinator(mart).plan(_release(mart, "orders"), "test").workloads) == 1
    assert _ledger_rows(mart) == (0, 0)
