"""The journal of one attempt's principals and dispatches: committed before anything exists or is sent."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from sqlalchemy import ColumnElement, Connection, select

from airflow_provider_dpone.contracts.canonical import Document, digest_bytes
from airflow_provider_dpone.contracts.ports import JournaledPrincipal
from airflow_provider_dpone.contracts.proofs import GateClosure, Quiescence
from airflow_provider_dpone.contracts.states import Connector, DispatchState, GateState, Purpose
from airflow_provider_dpone.errors import Fenced, LedgerRule
from airflow_provider_dpone.ledger.schema import EvidenceKind, dispatch, principal
from airflow_provider_dpone.ledger.transaction import Ledger, Row, Tx, hexed

_FENCED_RULES = {
    "attempt_fenced",
    "attempt_not_running",
    "guards_not_open",
    "dispatch_gate_not_ready",
    "evidence_not_acting",
    "dispatch_changed",  # only whoever settles the attempt moves a claimed dispatch of ours
}
_SETTLED = "this attempt was settled by a later try, the reaper or `dpone-airflow reconcile`; it stops here"


def raise_fenced(error: LedgerRule) -> None:
    """Turn the database's refusal of a fenced attempt into :class:`Fenced`."""
    if error.details.get("rule") in _FENCED_RULES:
        raise Fenced(_SETTLED) from error


class LedgerJournal:
    """:class:`airflow_provider_dpone.contracts.ports.PrincipalJournal` over the ledger, for one attempt."""

    def __init__(self, ledger: Ledger, attempt_sha256: str) -> None:
        self._ledger = ledger
        self._attempt = attempt_sha256

    def journal(self, *, connector: Connector, service_id: str, name: str, purpose: Purpose) -> None:
        """Commit the name before it exists on the server.

        :raises Fenced: the attempt is fenced or not RUNNING.
        """
        self._acting(
            lambda tx: tx.insert(
                principal,
                connector=str(connector),
                service_id=service_id,
                name=name,
                attempt_sha256=digest_bytes(self._attempt),
                purpose=str(purpose),
                state=int(GateState.JOURNALED),
            )
        )

    def ready(self, *, name: str, principal_uuid: str, within: Callable[[Connection], None] | None = None) -> None:
        """JOURNALED -> READY with the UUID the server gave, or will have.

        :param within: creates the principal, where ledger and target are one server: called in the same transaction
            once the ledger took the move, so that either both are there or neither.

        :raises Fenced: the attempt was fenced meanwhile.
        """

        def change(tx: Tx) -> None:
            key = self._key(tx, name)
            row = tx.row(principal, **key)
            if row is not None and row["state"] in (int(GateState.CLOSING), int(GateState.CLOSED)):
                raise Fenced(_SETTLED)
            tx.move(
                principal,
                key,
                expect={"state": int(GateState.JOURNALED)},
                to={"state": int(GateState.READY), "principal_uuid": uuid.UUID(principal_uuid)},
            )
            if within is not None:
                within(tx.connection)

        self._acting(change)

    def closing(self, *, name: str) -> JournaledPrincipal:
        """JOURNALED or READY -> CLOSING; nothing more can be claimed under it. Idempotent, never refused by a fence.

        :returns: the principal as it is now, with everything that was claimed under it.
        """

        def change(tx: Tx) -> JournaledPrincipal:
            key = self._key(tx, name)
            row = tx.row(principal, **key)
            if row is not None and row["state"] in (int(GateState.JOURNALED), int(GateState.READY)):
                tx.move(principal, key, expect={"state": row["state"]}, to={"state": int(GateState.CLOSING)})
            [found] = self._principals(tx.connection, principal.c.name == name)
            return found

        return self._ledger.write(change)

    def closed(self, *, name: str, evidence: Sequence[Document]) -> bool:
        """CLOSING -> CLOSED with the originals of closure and quiescence; settles what was still claimed.

        :returns: False when another settler had closed it: its evidence stands, this one is not recorded.
        """
        closure = next(d for d in evidence if isinstance(d, GateClosure))
        quiet = next(d for d in evidence if isinstance(d, Quiescence))

        def change(tx: Tx) -> bool:
            key = self._key(tx, name)
            row = tx.row(principal, **key)
            if row is not None and row["state"] == int(GateState.CLOSED):
                return False
            claimed = tx.connection.execute(
                select(dispatch.c.dispatch_id).where(
                    dispatch.c.principal_name == name,
                    dispatch.c.attempt_sha256 == digest_bytes(self._attempt),
                    dispatch.c.state == int(DispatchState.CLAIMED),
                )
            ).scalars()
            for dispatch_id in list(claimed):
                tx.move(
                    dispatch,
                    {"dispatch_id": dispatch_id},
                    expect={"state": int(DispatchState.CLAIMED)},
                    to={"state": int(DispatchState.SETTLED), "note": "by the closed gate"},
                )
            tx.move(
                principal,
                key,
                expect={"state": int(GateState.CLOSING)},
                to={
                    "state": int(GateState.CLOSED),
                    "closure_sha256": digest_bytes(tx.record(EvidenceKind.GATE_CLOSURE, self._attempt, closure)),
                    "quiescence_sha256": digest_bytes(tx.record(EvidenceKind.QUIESCENCE, self._attempt, quiet)),
                },
            )
            return True

        return self._ledger.write(change)

    def principals(self) -> list[JournaledPrincipal]:
        """Every principal of the attempt, in the order journaled."""
        return self._ledger.read(self._principals)

    def _principals(self, connection: Connection, *where: ColumnElement[bool]) -> list[JournaledPrincipal]:
        mine = digest_bytes(self._attempt)
        rows = connection.execute(
            select(principal).where(principal.c.attempt_sha256 == mine, *where).order_by(principal.c.journaled_at)
        ).mappings()
        sent = connection.execute(
            select(dispatch.c.principal_name, dispatch.c.dispatch_id).where(dispatch.c.attempt_sha256 == mine)
        ).all()
        return [
            JournaledPrincipal(
                connector=Connector(row["connector"]),
                service_id=row["service_id"],
                name=row["name"],
                purpose=Purpose(row["purpose"]),
                attempt_sha256=self._attempt,
                state=GateState(row["state"]),
                principal_uuid=None if row["principal_uuid"] is None else str(row["principal_uuid"]),
                dispatch_ids=tuple(str(d) for name, d in sent if name == row["name"]),
                closure_sha256=hexed(row["closure_sha256"]),
                quiescence_sha256=hexed(row["quiescence_sha256"]),
            )
            for row in rows
        ]

    def claim_dispatch(self, *, dispatch_id: str, name: str, kind: str, statement: str) -> None:
        """Commit the claim of one statement before a byte of it is sent.

        :raises Fenced: the attempt is fenced, or the principal's gate is not READY any more.
        """
        self._acting(
            lambda tx: insert_claim(
                tx, self._attempt, dispatch_id=dispatch_id, name=name, kind=kind, statement=statement
            )
        )

    def end_dispatch(self, *, dispatch_id: str, state: DispatchState, note: str) -> None:
        """The server's complete answer was read.

        :raises Fenced: somebody else settled the dispatch meanwhile.
        """

        def change(tx: Tx) -> None:
            key = {"dispatch_id": uuid.UUID(dispatch_id)}
            tx.move(
                dispatch,
                key,
                expect={"state": int(DispatchState.CLAIMED)},
                to={"state": int(state), "note": note[:512]},
            )

        self._acting(change)

    def _acting(self, change: Callable[[Tx], None]) -> None:
        try:
            self._ledger.write(change)
        except LedgerRule as error:
            raise_fenced(error)
            raise

    def _key(self, tx: Tx, name: str) -> Row:
        row = (
            tx.connection.execute(
                select(principal.c.connector, principal.c.service_id, principal.c.name).where(
                    principal.c.name == name, principal.c.attempt_sha256 == digest_bytes(self._attempt)
                )
            )
            .mappings()
            .one_or_none()
        )
        if row is None:
            raise LedgerRule(f"{name} is not a principal of this attempt", rule="principal_missing")
        return dict(row)


def closed_principals(ledger: Ledger, service_id: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Those of the names whose gates are CLOSED in this ledger, each with its attempt."""
    query = select(principal.c.name, principal.c.attempt_sha256).where(
        principal.c.service_id == service_id,
        principal.c.name.in_(list(names)),
        principal.c.state == int(GateState.CLOSED),
    )
    return ledger.read(lambda c: [(str(name), str(hexed(attempt))) for name, attempt in c.execute(query)])


def insert_claim(tx: Tx, attempt_sha256: str, *, dispatch_id: str, name: str, kind: str, statement: str) -> None:
    """Add one CLAIMED dispatch inside an open ledger transaction."""
    row = tx.connection.execute(
        select(principal.c.connector, principal.c.service_id).where(
            principal.c.name == name, principal.c.attempt_sha256 == digest_bytes(attempt_sha256)
        )
    ).one_or_none()
    if row is None:
        raise LedgerRule(f"{name} is not a principal of this attempt", rule="principal_missing")
    tx.insert(
        dispatch,
        dispatch_id=uuid.UUID(dispatch_id),
        attempt_sha256=digest_bytes(attempt_sha256),
        connector=row[0],
        service_id=row[1],
        principal_name=name,
        kind=kind,
        statement=statement[:4096],
        state=int(DispatchState.CLAIMED),
    )
