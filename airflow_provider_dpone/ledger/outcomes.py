"""How an attempt ends in the ledger: its proof triplet, built from the journal as it is, and the one that is selected.

The database rebuilds every proof from its rows and takes no other; see ``dialects/*/documents.sql``.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table, select

from airflow_provider_dpone.contracts.canonical import Document, digest_bytes, digest_of
from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity
from airflow_provider_dpone.contracts.proofs import (
    Adjudication,
    AttemptProof,
    Established,
    Outcome,
    ProofAuthority,
    ProofDispatch,
    ProofKind,
)
from airflow_provider_dpone.contracts.states import (
    TERMINAL_ATTEMPTS,
    AttemptState,
    Connector,
    DispatchState,
    GateState,
    Purpose,
)
from airflow_provider_dpone.errors import DocumentInvalid, LedgerRule
from airflow_provider_dpone.ledger.schema import EvidenceKind, attempt, attempt_guard, dispatch, evidence, principal
from airflow_provider_dpone.ledger.transaction import Row, Tx, hexed

#: What an outcome rests on: what its producer saw, the receipt of the work, an administrator's decision.
Grounds = tuple[Outcome, Document | None, Adjudication | None]


def protect(tx: Tx, attempt_sha256: str, grounds: Grounds) -> str:
    """Keep the grounds of an outcome and the OUTCOME proof over them; the proof's digest."""
    outcome = grounds[0]
    kinds = (EvidenceKind.OUTCOME, EvidenceKind.RECEIPT, EvidenceKind.ADJUDICATION)
    kept = [tx.record(kind, attempt_sha256, ground) for kind, ground in zip(kinds, grounds, strict=True) if ground]
    return _prove(tx, attempt_sha256, ProofKind.OUTCOME, tuple(sorted(kept)), outcome.state)


def select_outcome(
    tx: Tx, attempt_sha256: str, before: AttemptState, state: AttemptState, outcome_evidence_sha256: str
) -> Row:
    """Move an attempt to the state its protected outcome names; the row afterwards.

    :raises LedgerRule: see :meth:`CompositionAttemptStore.finalize`.
    """
    key = {"attempt_sha256": digest_bytes(attempt_sha256)}
    selected = tx.row(evidence, evidence_sha256=digest_bytes(outcome_evidence_sha256))
    proof = None if selected is None else AttemptProof.parse(bytes(selected["document"]))
    if proof is None or (proof.kind, proof.attempt_sha256, proof.outcome_state) != (
        ProofKind.OUTCOME,
        attempt_sha256,
        state,
    ):
        raise LedgerRule(
            f"{outcome_evidence_sha256[:19]} is no protected outcome {state.name} of this attempt",
            rule="attempt_proofs",
        )
    to: Row = {"state": int(state), "outcome_sha256": digest_bytes(outcome_evidence_sha256)}
    if state in TERMINAL_ATTEMPTS:
        closed = _rows(tx, principal, attempt_sha256)
        if any(row["closure_sha256"] is None or row["quiescence_sha256"] is None for row in closed):
            raise LedgerRule("a gate of this attempt is not closed", rule="attempt_open_gates")
        for kind, column, original in (
            (ProofKind.CLOSED_GATES, "closed_sha256", "closure_sha256"),
            (ProofKind.QUIESCENCE, "quiescence_sha256", "quiescence_sha256"),
        ):
            rests = tuple(sorted({str(hexed(row[original])) for row in closed}))
            to[column] = digest_bytes(_prove(tx, attempt_sha256, kind, rests, None))
    tx.move(attempt, key, expect={"state": int(before)}, to=to)
    if state in TERMINAL_ATTEMPTS:
        for row in _rows(tx, attempt_guard, attempt_sha256):
            held = {**key, "guard_id": bytes(row["guard_id"])}
            tx.move(attempt_guard, held, expect={"is_open": True}, to={"is_open": False})
    return tx.row(attempt, **key) or {}


def establish(tx: Tx, signed: Established) -> Row:
    """Close in the ledger what a person established outside, and end the attempt as COMMIT_UNKNOWN; its row."""
    sha256 = signed.attempt_sha256
    document = digest_bytes(tx.record(EvidenceKind.ESTABLISHED, sha256, signed))
    for row in _rows(tx, dispatch, sha256):
        if row["state"] == int(DispatchState.CLAIMED) and row["principal_name"] in signed.principals:
            _close_principal_of(tx, row)
            settled = {"state": int(DispatchState.SETTLED), "note": "established outside"}
            tx.move(dispatch, {"dispatch_id": row["dispatch_id"]}, expect={"state": row["state"]}, to=settled)
    for row in _rows(tx, principal, sha256):
        if row["name"] in signed.principals:
            _close_principal_of(tx, row)
            closed = {"state": int(GateState.CLOSED), "closure_sha256": document, "quiescence_sha256": document}
            tx.move(principal, _principal_key(row), expect={"state": int(GateState.CLOSING)}, to=closed)
    row = tx.row(attempt, attempt_sha256=digest_bytes(sha256)) or {}
    if row.get("state") == int(AttemptState.COMMIT_UNKNOWN):
        return row
    outcome = Outcome(
        attempt_sha256=sha256,
        state=AttemptState.COMMIT_UNKNOWN,
        code="DPONE_GATE_NOT_CLOSED",
        reason=f"established outside by {signed.established_by}: {signed.statement}"[:512],
        publication_sha256=None,
        observed_at=signed.established_at,
    )
    proof = protect(tx, sha256, (outcome, None, None))
    return select_outcome(tx, sha256, AttemptState.RUNNING, AttemptState.COMMIT_UNKNOWN, proof)


def _close_principal_of(tx: Tx, row: Row) -> None:
    """JOURNALED or READY -> CLOSING, for the principal a row names; nothing more can be claimed under it."""
    key = _principal_key(row)
    found = tx.row(principal, **key)
    if found is not None and found["state"] in (int(GateState.JOURNALED), int(GateState.READY)):
        tx.move(principal, key, expect={"state": found["state"]}, to={"state": int(GateState.CLOSING)})


def _principal_key(row: Row) -> Row:
    name = row["principal_name"] if "principal_name" in row else row["name"]
    return {"connector": row["connector"], "service_id": row["service_id"], "name": name}


def _rows(tx: Tx, table: Table, attempt_sha256: str) -> list[Row]:
    where = table.c.attempt_sha256 == digest_bytes(attempt_sha256)
    return [dict(row) for row in tx.connection.execute(select(table).where(where)).mappings()]


def _prove(tx: Tx, attempt_sha256: str, kind: ProofKind, rests: tuple[str, ...], state: AttemptState | None) -> str:
    """Keep one member of the triplet, over the journal as it is now; its digest."""
    row = tx.row(attempt, attempt_sha256=digest_bytes(attempt_sha256))
    if row is None:
        raise DocumentInvalid(f"there is no attempt {attempt_sha256}")
    identity = CompositionAttemptIdentity.parse(bytes(row["document"]))
    guards = "\n".join(f"{g.guard_id} {g.epoch}" for g in identity.guard_epochs)
    proof = AttemptProof(
        family=identity.family,
        kind=kind,
        attempt_sha256=attempt_sha256,
        activation_sha256=identity.activation_sha256,
        guard_epochs_sha256=digest_of(guards.encode()),
        authorities=tuple(sorted(_authority(r) for r in _rows(tx, principal, attempt_sha256))),
        dispatches=(
            tuple(sorted(_dispatch(r) for r in _rows(tx, dispatch, attempt_sha256)))
            if kind is ProofKind.CLOSED_GATES
            else None
        ),
        evidence_sha256=rests,
        outcome_state=state,
    )
    return tx.record(EvidenceKind.PROOF, attempt_sha256, proof)


def _authority(row: Any) -> ProofAuthority:
    return ProofAuthority(
        connector=Connector(row["connector"]),
        service_id=row["service_id"],
        name=row["name"],
        purpose=Purpose(row["purpose"]),
        principal_uuid=None if row["principal_uuid"] is None else str(row["principal_uuid"]).lower(),
    )


def _dispatch(row: Any) -> ProofDispatch:
    return ProofDispatch(
        dispatch_id=str(row["dispatch_id"]).lower(),
        name=row["principal_name"],
        kind=row["kind"],
        statement=row["statement"],
        state=DispatchState(row["state"]),
        note=row["note"],
    )
