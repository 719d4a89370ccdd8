"""Two and three deployers of one environment, their ledger transactions in every order: one wins, the others change nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from sqlalchemy import text

from airflow_provider_dpone.contracts.states import ActivationState
from airflow_provider_dpone.errors import ActivationStale, LedgerRule
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from tests import builders
from tests.ledger_database import LedgerDatabase

pytestmark = pytest.mark.timeout(900)
#: Of the 5,775 orders of three deployers, each how manieth is tried.
STRIDE = int(os.environ.get("DPONE_DEPLOYERS_STRIDE", "240"))
IN_FORCE = (ActivationState.ACTIVE, ActivationState.RETIRING)
States = dict[str, ActivationState]


@dataclass
class Site:
    """One environment: its store, what is in it, and the pointer."""

    store: CompositionActivationStore
    environment: str
    enrolments: dict[str, object]
    database: LedgerDatabase
    pointer: str | None = None
    steps: int = 0

    def states(self) -> States:
        found = self.store.in_states(self.environment, *ActivationState)
        return {a.sha256: a.state for a in found}


@dataclass
class Deployer:
    """The ledger transactions of one activation, as coordinator and cache do them, one at a time."""

    site: Site
    refused: list[str] = field(default_factory=list)
    won: str | None = None

    def run(self) -> Iterator[None]:
        site, store = self.site, self.site.store
        in_force = store.in_states(site.environment, *IN_FORCE)
        stale = store.in_states(site.environment, ActivationState.PREPARED)
        yield
        admin = site.database.admin()
        admin.read(lambda c: None)
        request, *rest = builders.prepare_request(
            admin,
            CompositionActivationStore(admin),
            site.enrolments,
            environment=site.environment,  # type: ignore[arg-type]
        )
        request = request.model_copy(update={"previous_activation_sha256": in_force[-1].sha256 if in_force else None})
        before = site.states()
        replaced = [a.sha256 for a in (*in_force, *stale)]
        try:
            prepared = store.prepare(request, *rest, replaced)
        except ActivationStale:
            assert site.states() == before, "a refused deployer changed something"
            self.refused.append("prepare")
            return
        after = site.states()
        assert {s for s in before if before[s] is not after[s]} == set(replaced), "retired what it had not compared"
        yield
        pointed = site.pointer

        def switch() -> None:
            site.pointer = prepared.sha256

        try:
            store.while_prepared(prepared.sha256, switch)
        except ActivationStale:
            assert site.pointer == pointed
            self.refused.append("switch")
            return
        assert site.states()[prepared.sha256] in (ActivationState.PREPARED, ActivationState.ACTIVE)
        yield
        try:
            store.activate(prepared.sha256)
        except LedgerRule:
            self.refused.append("activate")
            return
        self.won = prepared.sha256


def _orders(deployers: int, steps: int) -> list[tuple[int, ...]]:
    """Every interleaving, but for the names of the deployers."""
    return [o for o in _merged([steps] * deployers) if list(dict.fromkeys(o)) == list(range(deployers))]


def _merged(left: list[int]) -> Iterator[tuple[int, ...]]:
    if not any(left):
        yield ()
        return
    for who in range(len(left)):
        if left[who]:
            rest = [n - (i == who) for i, n in enumerate(left)]
            for order in _merged(rest):
                yield (who, *order)


def _drive(site: Site, order: tuple[int, ...]) -> list[Deployer]:
    deployers = [Deployer(site) for _ in range(max(order) + 1)]
    courses = [d.run() for d in deployers]
    for who in order:
        next(courses[who], None)
        active = [s for s, state in site.states().items() if state is ActivationState.ACTIVE]
        assert len(active) <= 1
        site.steps += 1
    return deployers


def _site(database: LedgerDatabase, number: int, standing: bool) -> Site:
    admin = database.admin()
    admin.read(lambda c: None)
    name = f"e{number}"
    enrolments = {f"{name}_{t}": builders.enrolment(admin, f"{name}_{t}") for t in ("a",)}
    site = Site(CompositionActivationStore(database.runtime()), name, dict(enrolments), database)
    if standing:
        [first] = _drive(site, (0, 0, 0, 0))
        assert first.won == site.pointer
    return site


def test_two_deployers_in_every_order_of_their_transactions(ledger_database: LedgerDatabase) -> None:
    orders = _orders(2, 4)
    assert len(orders) == 35
    for number, order in enumerate(orders):
        site = _site(ledger_database, number, True)
        _judge(site, _drive(site, order), order)


def test_three_deployers_in_every_order_of_their_transactions(ledger_database: LedgerDatabase) -> None:
    """Every order of their transactions with DPONE_DEPLOYERS_STRIDE=1."""
    orders = _orders(3, 4)
    assert len(orders) == 5775
    for number, order in enumerate(orders[::STRIDE]):
        site = _site(ledger_database, number, False)
        _judge(site, _drive(site, order), order)


def _judge(site: Site, deployers: list[Deployer], order: tuple[int, ...]) -> None:
    states = site.states()
    winners = [d for d in deployers if d.won is not None and states[d.won] is ActivationState.ACTIVE]
    assert len(winners) == 1, f"{order}: {states}"
    assert site.pointer == winners[0].won, f"{order}: the pointer names {site.pointer and states[site.pointer]}"
    assert all(d.refused or d.won for d in deployers)
    assert set(states.values()) <= {ActivationState.ACTIVE, ActivationState.RETIRED}


def test_an_environment_has_one_active_release(ledger_database: LedgerDatabase) -> None:
    """The database refuses a second one, whatever a client does."""
    active = builders.activate(ledger_database.admin(), ledger_database.runtime(), "orders")
    other = builders.activate(ledger_database.admin(), ledger_database.runtime(), "rates", environment="other")
    other.store.begin_retirement(other.stored.sha256)
    other.store.finalize_retirement(other.stored.sha256)
    admin = ledger_database.admin()
    request = builders.prepare_request(admin, CompositionActivationStore(admin), other.enrolments, environment="third")
    prepared = other.store.prepare(*request)
    ledger_database.as_admin(
        "ALTER TABLE dpone.activation DISABLE TRIGGER activation_rule",
        f"UPDATE dpone.activation SET environment = 'test' WHERE activation_sha256 = '\\x{prepared.sha256[7:]}'",
        "ALTER TABLE dpone.activation ENABLE ALWAYS TRIGGER activation_rule",
    )
    with pytest.raises(LedgerRule, match="uq_activation_current"):
        admin.write(lambda tx: tx.connection.execute(text("UPDATE dpone.activation SET state = 2 WHERE state = 1")))
    assert active.store.require_active("test").sha256 == active.stored.sha256
