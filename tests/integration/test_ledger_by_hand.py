"""A ledger whose DDL people ran themselves, in a schema of their choice, used by its public names."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from airflow_provider_dpone.contracts.states import ActivationState, Family
from airflow_provider_dpone.errors import GuardHeld, LedgerExists, LedgerMismatch, LedgerUnavailable
from airflow_provider_dpone.ledger import postgres
from airflow_provider_dpone.ledger.dialects.mssql import batches
from airflow_provider_dpone.ledger.install import provision
from airflow_provider_dpone.ledger.transaction import Ledger
from tests import builders
from tests.ledger_database import LedgerDatabase
from tests.ledger_engines import LEDGERS, driver_errors

SCHEMA = "release_control"


@pytest.fixture(params=LEDGERS)
def database(request: pytest.FixtureRequest) -> LedgerDatabase:
    name = "empty_ledger_database" if request.param == "postgres" else "empty_mssql_ledger_database"
    return request.getfixturevalue(name)


@pytest.fixture
def names(database: LedgerDatabase, request: pytest.FixtureRequest) -> tuple[Any, Any, Any, Any]:
    """Renderer, dialect and both stores of the database under test."""
    if database.engine == "postgres":
        return (
            postgres.render_composition_postgres_schema, postgres.PostgresDialect,
            postgres.PostgresCompositionActivationStore, postgres.PostgresCompositionAttemptStore,
        )  # fmt: skip
    from airflow_provider_dpone.ledger import mssql
    from tests.stand_in import StandInDialect

    if database.under_test.stand_in:  # type: ignore[attr-defined]
        request.getfixturevalue("monkeypatch").setattr(mssql, "MssqlDialect", StandInDialect)
    return (
        mssql.render_composition_mssql_schema, mssql.MssqlDialect,
        mssql.MssqlCompositionActivationStore, mssql.MssqlCompositionAttemptStore,
    )  # fmt: skip


def _run(database: LedgerDatabase, script: str) -> None:
    for part in batches(script) if database.engine == "mssql" else [script]:
        database.as_admin(part)


def test_a_rendered_schema_is_installed_once_and_used_once_it_has_an_identity(
    database: LedgerDatabase, names: tuple[Any, Any, Any, Any]
) -> None:
    render, dialect, activations_of, attempts_of = names
    _run(database, render(SCHEMA))
    with pytest.raises(driver_errors(database.engine), match="ledger_exists"):
        _run(database, render(SCHEMA))
    with pytest.raises(LedgerMismatch, match="ledger install"):
        Ledger(database.connect_admin, dialect(SCHEMA)).read(lambda c: None)

    given: dict[str, Any] = {"family": Family.NONPRODUCTION, "runtime_role": database.runtime_role}
    service_id = provision(database.connect_admin, dialect(SCHEMA), **given)
    if database.engine == "mssql":
        database.after_installation()  # type: ignore[attr-defined]
    with pytest.raises(LedgerExists, match="identity"):
        provision(database.connect_admin, dialect(SCHEMA), **given)

    admin = Ledger(database.connect_admin, dialect(SCHEMA), service_id)
    admin.read(lambda c: None)
    pinned: dict[str, Any] = {"expected_service_id": service_id, "control_schema": SCHEMA}
    store = activations_of(database.connect_runtime, **pinned)
    enrolments = {"orders": builders.enrolment(admin, "orders")}
    request = builders.prepare_request(admin, activations_of(database.connect_admin, **pinned), enrolments)
    stored = store.activate(store.prepare(*request).sha256)
    assert stored.state is ActivationState.ACTIVE
    active = builders.Activated(admin, store, stored, enrolments)
    attempts = attempts_of(database.connect_runtime, **pinned)
    identity = active.attempt("orders")
    assert attempts.read_exact(attempts.admit_once(identity)).identity == identity
    with pytest.raises(GuardHeld):
        attempts.admit_once(active.attempt("orders", run_id="other"))
    foreign = attempts_of(database.connect_runtime, expected_service_id=uuid.uuid4(), control_schema=SCHEMA)
    with pytest.raises(LedgerMismatch, match="pinned"):
        foreign.all_open()


def test_a_rendered_schema_adopts_no_table_of_the_earlier_system(
    database: LedgerDatabase, names: tuple[Any, Any, Any, Any]
) -> None:
    render, dialect, *_ = names
    database.as_admin("CREATE TABLE proofs (a int)")
    with pytest.raises(driver_errors(database.engine), match="ledger_exists"):
        _run(database, render(SCHEMA))
    with pytest.raises((LedgerMismatch, LedgerUnavailable)):
        provision(
            database.connect_admin, dialect(SCHEMA), family=Family.NONPRODUCTION, runtime_role=database.runtime_role
        )
