"""What is not as it should be, over the whole ledger and the servers it writes to: read only, for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import select

from airflow_provider_dpone.attempts.world import World
from airflow_provider_dpone.contracts.states import ActivationState, AttemptState, GateState
from airflow_provider_dpone.errors import DocumentInvalid, DponeError, LedgerMismatch
from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore, StoredAttempt
from airflow_provider_dpone.ledger.authority import AuthorityStore
from airflow_provider_dpone.ledger.schema import attempt, principal
from airflow_provider_dpone.ledger.transaction import Ledger, hexed

#: An attempt that has been at work for longer than this is shown; it may be fine.
LONG: timedelta = timedelta(hours=6)


_RESTORE = (
    "somebody wrote past the rules of the ledger. Nothing may rest on it: restore the control database from a backup, "
    "or put back exactly what was there"
)


class Severity(StrEnum):
    """How bad a finding is."""

    BAD = "bad"
    """Something is wrong and stays so until somebody acts."""
    WAITING = "waiting"
    """Something is held until somebody or something settles it."""
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One thing to know, and what to do about it."""

    severity: Severity
    what: str
    where: str
    do: str


def examine(ledger: Ledger, world_behind: Callable[[str], World[Any]]) -> list[Finding]:
    """Everything found, worst first.

    :param world_behind: ledger and target behind a connection id.
    :raises LedgerUnavailable: the ledger itself cannot be read; then nothing is known.
    """
    found: list[Finding] = []
    found += _layout(ledger)
    ledger = ledger.as_it_is()
    for look in (_originals, _attempts, _gates, _activations, lambda known: _servers(known, world_behind)):
        try:
            found += look(ledger)
        except DocumentInvalid as error:  # somebody altered it; the audit names which, and the rest is still looked at
            found.append(Finding(Severity.BAD, f"cannot be read: {error.message}", "control database", _RESTORE))
    return sorted(found, key=lambda f: list(Severity).index(f.severity))


def _layout(ledger: Ledger) -> Iterator[Finding]:
    try:
        ledger.read(lambda connection: None)
    except LedgerMismatch as error:
        yield Finding(
            Severity.BAD,
            "the ledger is not as and where it was installed",
            "control database",
            f"nothing is read or written until it is: {error.message}",
        )


def _originals(ledger: Ledger) -> Iterator[Finding]:
    for line in [*ledger.read(ledger.dialect.audit), *AuthorityStore(ledger).audit()]:
        yield Finding(
            Severity.BAD,
            line.rpartition(" ")[0],
            line.rpartition(" ")[2][:12],
            _RESTORE,
        )


def _attempts(ledger: Ledger) -> Iterator[Finding]:
    for stored in CompositionAttemptStore(ledger).all_open():
        age = datetime.now(UTC) - stored.admitted_at
        where = f"{stored.sha256[7:19]} {stored.identity.workload_id}"
        if stored.state is AttemptState.COMMIT_UNKNOWN:
            yield Finding(Severity.BAD, "COMMIT_UNKNOWN: observation proved neither outcome", where, next_step(stored))
        elif stored.fenced:
            yield Finding(Severity.WAITING, "fenced and not settled yet", where, next_step(stored))
        elif age > LONG:
            yield Finding(Severity.NOTE, f"at work for {age}", where, next_step(stored))


def next_step(stored: StoredAttempt) -> str:
    """What to do about an attempt now, and what that will do."""
    short = stored.sha256[7:19]
    if stored.state is AttemptState.COMMIT_UNKNOWN:
        return (
            f"look with `dpone-airflow show {short}`; repair the target; `dpone-airflow reconcile {short}` observes it "
            f"again. If it still proves nothing, an administrator decides: `dpone-airflow adjudicate {short}`. Guards "
            "stay held until then"
        )
    if stored.state is AttemptState.RUNNING and stored.fenced:
        return (
            f"`dpone-airflow reconcile {short}`, the next try or the reaper goes on where settling stopped: closes its "
            "gates, observes, and ends it. When its server, database or gate is gone for good, an administrator says "
            f"so: `dpone-airflow establish {short}`"
        )
    if stored.state is AttemptState.RUNNING:
        return (
            f"nothing, if its task is at work. Otherwise `dpone-airflow reconcile {short}` fences it for good, closes "
            "its gates and observes; a task still at work stops with DPONE_FENCED"
        )
    return "nothing: it has ended and holds nothing"


def _gates(ledger: Ledger) -> Iterator[Finding]:
    open_gates = (
        select(principal.c.name, principal.c.state, attempt.c.attempt_sha256)
        .join(attempt, attempt.c.attempt_sha256 == principal.c.attempt_sha256)
        .where(
            principal.c.state != int(GateState.CLOSED),
            attempt.c.state.in_([int(AttemptState.SUCCEEDED), int(AttemptState.FAILED)]),
        )
    )
    for name, state, sha256 in ledger.read(lambda c: [tuple(row) for row in c.execute(open_gates)]):
        yield Finding(
            Severity.BAD,
            f"gate {GateState(state).name} of an attempt that has ended",
            f"{str(hexed(sha256))[7:19]} {name}",
            "the rules of the ledger make this impossible; restore the control database from a backup",
        )


def _activations(ledger: Ledger) -> Iterator[Finding]:
    store = CompositionActivationStore(ledger)
    for found in store.unfinished():
        if found.state is ActivationState.PREPARED:
            yield Finding(
                Severity.WAITING,
                "an activation was prepared and is not current",
                f"{found.sha256[7:19]} in {found.request.environment}",
                "activate the release again: it goes on from there; its guards are reserved until then",
            )
        else:
            waiting = ", ".join(a[7:19] for a in store.unresolved(found.sha256)) or "nothing"
            yield Finding(
                Severity.WAITING,
                "a release is retiring; it admits nothing",
                f"{found.sha256[7:19]} in {found.request.environment}",
                f"it waits for {waiting}; settle that, then `dpone-airflow retire` or activate again",
            )


def _servers(ledger: Ledger, world_behind: Callable[[str], World[Any]]) -> Iterator[Finding]:
    """Principals that could log in although their gates are CLOSED, per server a release in force writes to."""
    in_force = CompositionActivationStore(ledger).in_force()
    for conn_id in sorted({w.target_conn_id for activation in in_force for w in activation.release.workloads()}):
        try:
            with world_behind(conn_id) as world:
                usable = set(world.usable_names())
                known = principals(ledger, world.service_id, usable)
        except DponeError as error:
            yield Finding(Severity.WAITING, f"cannot be asked: {error}", conn_id, "repair it, then look again")
            continue
        for name in sorted(usable):
            state = known.get(name)
            if state is GateState.CLOSED:
                yield Finding(
                    Severity.BAD,
                    "a one-time principal is back although its gate is CLOSED",
                    f"{name} on {conn_id}",
                    "run the reaper: it removes it (a power loss can revert a removal); the ledger refuses its steps",
                )
            elif state is None:
                yield Finding(
                    Severity.NOTE,
                    "looks like a one-time principal and this ledger does not know it",
                    f"{name} on {conn_id}",
                    "another ledger's, or made by hand: ask who did; it is left alone",
                )


def principals(ledger: Ledger, service_id: str, names: set[str]) -> dict[str, GateState]:
    """States of the gates of these names on a server, as the ledger has them."""
    query = select(principal.c.name, principal.c.state).where(
        principal.c.service_id == service_id, principal.c.name.in_(sorted(names))
    )
    return ledger.read(lambda c: {str(name): GateState(state) for name, state in c.execute(query)})
