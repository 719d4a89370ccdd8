"""The ledger on a real database against its model: any order of steps is allowed exactly when the model says so."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from airflow_provider_dpone.contracts.states import (
    ActivationState,
    AttemptState,
    Connector,
    DispatchState,
    GateState,
    Purpose,
)
from airflow_provider_dpone.errors import DponeError
from airflow_provider_dpone.ledger import schema
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.journal import LedgerJournal
from airflow_provider_dpone.ledger.publications import LedgerPublicationStore
from airflow_provider_dpone.ledger.transaction import hexed
from tests import builders
from tests.ledger_database import LedgerDatabase
from tests.ledger_model import OPEN, LedgerModel, ModelAttempt, ModelPrincipal

EXAMPLES = int(os.environ.get("DPONE_MODEL_EXAMPLES", "12"))
TERMINAL = st.sampled_from([AttemptState.SUCCEEDED, AttemptState.FAILED])


class LedgerMachine(RuleBasedStateMachine):
    """Each rule tries one step on the ledger and on the model; both allow it or both refuse it."""

    database: ClassVar[LedgerDatabase]
    counter = itertools.count()
    steps = 0

    attempts: Bundle[str] = Bundle("attempts")
    principals: Bundle[str] = Bundle("principals")

    @initialize()
    def activate(self) -> None:
        number = next(self.counter)
        self.tables = [f"t{number}_{i}" for i in range(2)]
        self.active = builders.activate(
            self.database.admin(), self.database.runtime(), *self.tables, environment=f"e{number}"
        )
        self.ledger = self.active.ledger
        self.store = CompositionAttemptStore(self.ledger)
        self.publications = LedgerPublicationStore(self.ledger)
        self.model = LedgerModel()
        self.identities: dict[str, Any] = {}
        self.intents: dict[str, Any] = {}

    def _both(self, allowed: bool, step: Callable[[], Any]) -> bool:
        type(self).steps += 1
        refused: DponeError | None = None
        try:
            step()
        except DponeError as error:
            refused = error
        assert allowed == (refused is None), f"the model allows: {allowed}; the ledger refuses: {refused}"
        return allowed

    def _journal(self, attempt: str) -> LedgerJournal:
        return LedgerJournal(self.ledger, attempt)

    @rule(target=attempts, table=st.integers(0, 1), run=st.integers(0, 2))
    def admit(self, table: int, run: int) -> Any:
        name = self.tables[table]
        identity = self.active.attempt(name, run_id=f"run{run}")
        if not self._both(self.model.may_admit(name), lambda: self.store.admit_once(identity)):
            return multiple()
        sha256 = identity.digest()
        self.model.attempts[sha256], self.identities[sha256] = ModelAttempt(name), identity
        return sha256

    @rule(attempt=attempts)
    def admit_again(self, attempt: str) -> None:
        self._both(False, lambda: self.store.admit_once(self.identities[attempt]))

    @rule(attempt=attempts)
    def fence(self, attempt: str) -> None:
        self._both(True, lambda: self.store.fence(attempt))
        if self.model.attempts[attempt].state in OPEN:
            self.model.attempts[attempt].fenced = True

    @rule(target=principals, attempt=attempts, purpose=st.sampled_from([Purpose.INGEST, Purpose.PUBLISHER]))
    def journal(self, attempt: str, purpose: Purpose) -> Any:
        name = f"dpone_{purpose.value}_{uuid.uuid4().hex}"
        step = self._journal(attempt).journal
        if not self._both(
            self.model.acting(attempt),
            lambda: step(connector=Connector.CLICKHOUSE, service_id=builders.SERVICE, name=name, purpose=purpose),
        ):
            return multiple()
        self.model.principals[name] = ModelPrincipal(attempt, purpose)
        return name

    @rule(name=principals)
    def ready(self, name: str) -> None:
        journal = self._journal(self.model.principals[name].attempt)
        if self._both(self.model.may_ready(name), lambda: journal.ready(name=name, principal_uuid=builders.new_uuid())):
            self.model.principals[name].state = GateState.READY

    @rule(name=principals)
    def closing(self, name: str) -> None:
        found = self.model.principals[name]
        self._both(True, lambda: self._journal(found.attempt).closing(name=name))
        if found.state in (GateState.JOURNALED, GateState.READY):
            found.state = GateState.CLOSING

    @rule(name=principals)
    def closed(self, name: str) -> None:
        found = self.model.principals[name]
        allowed = found.state in (GateState.CLOSING, GateState.CLOSED)
        journal = self._journal(found.attempt)
        if self._both(allowed, lambda: journal.closed(name=name, evidence=builders.closure(name))):
            self.model.close(name)

    @rule(name=principals)
    def dispatch(self, name: str) -> None:
        found, dispatch = self.model.principals[name], builders.new_uuid()
        journal = self._journal(found.attempt)
        if self._both(
            self.model.may_dispatch(name),
            lambda: journal.claim_dispatch(dispatch_id=dispatch, name=name, kind="insert", statement="INSERT"),
        ):
            found.dispatches[dispatch] = DispatchState.CLAIMED

    @rule(name=principals, which=st.integers(0, 3))
    def answer(self, name: str, which: int) -> None:
        found = self.model.principals[name]
        if not found.dispatches:
            return
        dispatch = sorted(found.dispatches)[which % len(found.dispatches)]
        journal = self._journal(found.attempt)
        if self._both(
            found.dispatches[dispatch] is DispatchState.CLAIMED,
            lambda: journal.end_dispatch(dispatch_id=dispatch, state=DispatchState.ANSWERED, note="ok"),
        ):
            found.dispatches[dispatch] = DispatchState.ANSWERED

    @rule(name=principals)
    def prepare(self, name: str) -> None:
        attempt = self.model.principals[name].attempt
        found = self.model.attempts[attempt]
        made: list[Any] = []

        def seal_and_prepare() -> None:
            made.append(builders.intent(self.active, found.table, attempt, publisher=name))
            self.publications.persist_prepared(made[0])

        if self._both(self.model.may_prepare(attempt), seal_and_prepare):
            found.publisher, self.intents[attempt] = name, made[0]

    @rule(attempt=attempts)
    def claim(self, attempt: str) -> None:
        found = self.model.attempts[attempt]
        if attempt not in self.intents:
            return
        assert found.publisher is not None
        stored = self.publications.of_attempt(attempt)
        assert stored is not None
        publisher = self.model.principals[found.publisher]
        allowed = self.model.may_claim(attempt) and publisher.purpose is Purpose.PUBLISHER
        other = any(
            p.attempt == attempt and p.purpose is Purpose.PUBLISHER and p.state is GateState.READY
            for p in self.model.principals.values()
        )
        allowed = allowed or (self.model.may_claim(attempt) and other)
        if self._both(allowed, lambda: self.publications.claim(self.intents[attempt], stored.record)):
            found.claimed = True
            publisher.dispatches[self.intents[attempt].query_id()] = DispatchState.CLAIMED

    @rule(attempt=attempts, state=st.sampled_from([*list(AttemptState)[1:]]))
    def finalize(self, attempt: str, state: AttemptState) -> None:
        if self._both(
            self.model.may_end(attempt, AttemptState.RUNNING, state),
            lambda: builders.end(self.store, attempt, state),
        ):
            self.model.attempts[attempt].state = state

    @rule(attempt=attempts, state=TERMINAL)
    def reconcile(self, attempt: str, state: AttemptState) -> None:
        if self._both(
            self.model.may_end(attempt, AttemptState.COMMIT_UNKNOWN, state),
            lambda: builders.end(self.store, attempt, state, AttemptState.COMMIT_UNKNOWN),
        ):
            self.model.attempts[attempt].state = state

    @rule(sure=st.integers(0, 4))
    def retire(self, sure: int) -> None:
        if sure:  # rarely: afterwards nothing is admitted
            return
        if self._both(
            self.model.activation is ActivationState.ACTIVE,
            lambda: self.active.store.begin_retirement(self.active.stored.sha256),
        ):
            self.model.activation = ActivationState.RETIRING

    @rule()
    def end_retirement(self) -> None:
        if self._both(
            self.model.may_retire(), lambda: self.active.store.finalize_retirement(self.active.stored.sha256)
        ):
            self.model.activation = ActivationState.RETIRED

    @invariant()
    def the_ledger_is_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        with self.ledger.together() as ledger:
            attempts = ledger.read(
                lambda c: {
                    str(hexed(a)): (AttemptState(s), bool(f))
                    for a, s, f in c.execute(
                        select(schema.attempt.c.attempt_sha256, schema.attempt.c.state, schema.attempt.c.fenced)
                    )
                }
            )
            gates = ledger.read(
                lambda c: dict(c.execute(select(schema.principal.c.name, schema.principal.c.state)).all())
            )
            sent = ledger.read(
                lambda c: {
                    str(d): DispatchState(s)
                    for d, s in c.execute(select(schema.dispatch.c.dispatch_id, schema.dispatch.c.state))
                }
            )
        for sha256, found in self.model.attempts.items():
            assert attempts[sha256] == (found.state, found.fenced)
        for name, principal in self.model.principals.items():
            assert GateState(gates[name]) is principal.state
            for dispatch, state in principal.dispatches.items():
                assert sent[dispatch] is state


def test_any_order_of_steps_is_allowed_exactly_when_the_model_allows_it(
    ledger_database: LedgerDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    LedgerMachine.database, LedgerMachine.steps = ledger_database, 0
    run_state_machine_as_test(
        LedgerMachine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    with capsys.disabled():
        print(f"\n  {EXAMPLES} examples, {LedgerMachine.steps} steps compared")
    assert LedgerMachine.steps > EXAMPLES
    assert ledger_database.runtime().read(ledger_database.runtime().dialect.audit) == []
