"""Physical admission through Airflow connections: sources are resolved, helper names are compared where they are."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from airflow_provider_dpone.activation.physical import CompositionPhysicalAdmissionService
from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.engines.postgres.snapshot import PostgresSource
from airflow_provider_dpone.errors import ActivationRefused, DeclarationInvalid, TargetUnsupported
from airflow_provider_dpone.hooks.bindings import AirflowBackend
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.releases.builder import Producers, build_release
from airflow_provider_dpone.releases.plan import plan_composition_execution
from airflow_provider_dpone.releases.sources import build_composition_source_reader
from tests.snapshot_world import SnapshotWorld


@pytest.fixture
def mart(world: SnapshotWorld, monkeypatch: pytest.MonkeyPatch) -> SnapshotWorld:
    """Two enrolled tables behind Airflow connections."""
    for table in ("orders", "rates"):
        world.ch(f"CREATE TABLE {world.database}.{table} (id Int64) ENGINE = MergeTree ORDER BY id")
        world.enrol(table)
    server, source = world.clickhouse, world.source
    connections = {
        "dwh": {"conn_type": "clickhouse", "host": server.host, "port": server.http_port, "login": server.controller_user,
                "password": server.controller_password, "extra": json.dumps({"native_port": server.native_port})},
        "src": {"conn_type": "postgres", "host": source.host, "port": source.port, "login": source.user,
                "password": source.password, "schema": source.dbname},
    }  # fmt: skip
    for name, fields in connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))
    return world


def _admit(mart: SnapshotWorld, tmp_path: Any, *declarations: WorkloadDeclaration) -> Any:
    output = tmp_path / secrets.token_hex(4)
    release = build_release(Producers(declarations=declarations), output)
    sources = build_composition_source_reader().read_sources(output, expected_release_id=release.digest())
    service = CompositionPhysicalAdmissionService(backend=AirflowBackend())
    plan = plan_composition_execution(sources, family=Family.NONPRODUCTION, connector=service.backend.connector)
    ledger = mart.ledger.runtime()
    guards = CompositionActivationStore(ledger).guards()
    return service.admit(plan, service.seal(plan, "test"), guards, str(ledger.service_id))


def test_helper_names_are_compared_in_the_database_they_are_in(mart: SnapshotWorld, tmp_path: Any) -> None:
    other = f"other_{secrets.token_hex(4)}"
    mart.ch(f"CREATE DATABASE {other} ENGINE = Atomic")
    orders, rates = mart.declare("orders"), mart.declare("rates")
    beside = rates.model_copy(update={"writes": (f"{other}.orders",)})  # another table of the same name
    admitted = _admit(mart, tmp_path, orders, beside)
    assert sorted(w.relation for w in admitted.observation.writes) == sorted(
        [f"{mart.database}.orders", f"{mart.database}.rates", f"{other}.orders"]
    )
    both = [d.model_copy(update={"writes": (f"{other}.helper",)}) for d in (orders, rates)]
    with pytest.raises(ActivationRefused, match="write the one table"):
        _admit(mart, tmp_path, *both)
    with pytest.raises(ActivationRefused, match="write the one table"):
        _admit(mart, tmp_path, orders, rates.model_copy(update={"writes": (f"{mart.database}.orders",)}))
    with pytest.raises(ActivationRefused, match="does not exist"):
        _admit(mart, tmp_path, orders, rates.model_copy(update={"writes": ("nowhere.helper",)}))


def test_a_source_is_sealed_as_the_server_and_database_it_is(mart: SnapshotWorld, tmp_path: Any) -> None:
    admitted = _admit(mart, tmp_path, mart.declare("orders"))
    sealed = {b.conn_id: b for b in admitted.deployment.bindings}
    assert (sealed["src"].service_id, sealed["src"].database_id) == PostgresSource(mart.source).place()
    assert sealed["src"].connector.value == "postgres"
    mart.pg("CREATE TABLE t (id bigint NOT NULL)")
    described = PostgresSource(mart.source).describe("public", "t")
    assert (described.service_id, described.database_id) == PostgresSource(mart.source).place()
    assert admitted.deployment.digest() != digest_of(b"")


def test_a_connection_that_is_not_a_source_is_refused_by_name(
    mart: SnapshotWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = AirflowBackend()
    with pytest.raises(DeclarationInvalid, match="'dwh'"):
        backend.source("dwh")
    with pytest.raises(DeclarationInvalid, match="'nobody' is not defined"):
        backend.source("nobody")
    monkeypatch.setenv("AIRFLOW_CONN_ODD", json.dumps({"conn_type": "sqlite"}))
    with pytest.raises(TargetUnsupported, match="'odd'"):
        backend.place(mart.declare("orders").model_copy(update={"target_conn_id": "odd"}))
