"""What happened in one attempt, line by line, from the ledger's rows, for a person."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, select

from airflow_provider_dpone.contracts.canonical import digest_bytes, digest_of
from airflow_provider_dpone.contracts.proofs import Outcome
from airflow_provider_dpone.contracts.states import DispatchState, GateState, PublicationState
from airflow_provider_dpone.ledger.attempts import StoredAttempt
from airflow_provider_dpone.ledger.authority import AttemptAdmission
from airflow_provider_dpone.ledger.schema import EvidenceKind, attempt_guard, dispatch, evidence, principal, publication
from airflow_provider_dpone.ledger.transaction import Ledger, hexed


def history(ledger: Ledger, stored: StoredAttempt) -> list[str]:
    """Readable lines: identity, guards, gates, dispatches, publication, outcome."""
    where = stored.identity.coordinates
    mine = digest_bytes(stored.sha256)
    lines = [
        f"attempt     {stored.sha256}",
        f"workload    {stored.identity.workload_id} ({stored.identity.family})",
        f"task        {where.dag_id}.{where.task_id}[{where.map_index}] run {where.run_id} try {where.try_number}",
        f"state       {stored.state.name}{' (fenced)' if stored.fenced else ''} admitted {_when(stored.admitted_at)}",
    ]

    def query(connection: Connection) -> list[str]:
        found: list[str] = []
        for row in connection.execute(select(attempt_guard).where(attempt_guard.c.attempt_sha256 == mine)).mappings():
            held = "held" if row["is_open"] else "released"
            found.append(f"guard       {str(hexed(row['guard_id']))[7:19]} epoch {row['epoch']} {held}")
        admission = select(evidence.c.document).where(
            evidence.c.subject == mine, evidence.c.kind == int(EvidenceKind.ADMISSION)
        )
        for raw in connection.execute(admission).scalars():
            under = AttemptAdmission.parse(bytes(raw))
            found.append(
                f"grant       {under.grant_sha256[7:19]} under policy {under.trust_sha256[7:19]}, at most "
                f"{under.max_attempt_seconds} s"
            )
        gates = select(principal).where(principal.c.attempt_sha256 == mine).order_by(principal.c.journaled_at)
        for row in connection.execute(gates).mappings():
            when = _when(row["journaled_at"])
            found.append(f"gate        {row['name']} {GateState(row['state']).name} journaled {when}")
        sent = select(dispatch).where(dispatch.c.attempt_sha256 == mine).order_by(dispatch.c.claimed_at)
        for row in connection.execute(sent).mappings():
            state = " ".join((DispatchState(row["state"]).name, row["note"] or "")).strip()
            found.append(f"dispatch    {row['kind']} {row['dispatch_id']} {state} claimed {_when(row['claimed_at'])}")
        for row in connection.execute(select(publication).where(publication.c.attempt_sha256 == mine)).mappings():
            state = PublicationState(row["state"]).name
            found.append(
                f"publication {state} revision {row['revision']}: {row['generation_table']} carries B "
                f"{row['generation_uuid']}, target carried A {row['old_target_uuid']}"
            )
        ends = (
            select(evidence.c.kind, evidence.c.document)
            .where(
                evidence.c.subject == mine, evidence.c.kind.in_([int(EvidenceKind.OUTCOME), int(EvidenceKind.RECEIPT)])
            )
            .order_by(evidence.c.recorded_at)
        )
        for kind, raw in connection.execute(ends):
            if kind == EvidenceKind.OUTCOME:
                outcome = Outcome.parse(bytes(raw))
                code = f"{outcome.code}: " if outcome.code else ""
                why = code + outcome.reason.removeprefix(code)
                found.append(f"outcome     {outcome.state.name} observed {outcome.observed_at}: {why}")
            else:
                found.append(f"receipt     {digest_of(bytes(raw))} {bytes(raw).decode()}")
        return found

    return lines + ledger.read(query)


def _when(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds")
