"""Attempts in the ledger: admitted once, fenced for good, resolved by a complete proof triplet."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, and_, select, true

from airflow_provider_dpone.contracts.canonical import Document, digest_bytes, digest_of
from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity
from airflow_provider_dpone.contracts.proofs import Adjudication, Established, Mark, Outcome
from airflow_provider_dpone.contracts.states import (
    TERMINAL_ATTEMPTS,
    ActivationState,
    AttemptState,
    DispatchState,
    GateState,
)
from airflow_provider_dpone.errors import (
    ActivationMissing,
    AlreadyAdmitted,
    DocumentInvalid,
    Fenced,
    GuardHeld,
    LedgerRule,
    ReleaseChanging,
)
from airflow_provider_dpone.ledger.authority import Clock, admit_under_grant, utc_clock
from airflow_provider_dpone.ledger.dialects.base import Audited
from airflow_provider_dpone.ledger.journal import raise_fenced
from airflow_provider_dpone.ledger.outcomes import establish, protect, select_outcome
from airflow_provider_dpone.ledger.schema import (
    EvidenceKind,
    activation,
    attempt,
    attempt_guard,
    dispatch,
    evidence,
    guard,
    principal,
)
from airflow_provider_dpone.ledger.transaction import Ledger, Row, Tx, hexed, require_family


@dataclass(frozen=True)
class StoredAttempt:
    """An attempt as the ledger has it, its document parsed from its complete original bytes."""

    sha256: str
    identity: CompositionAttemptIdentity
    state: AttemptState
    fenced: bool
    acknowledged: bool
    outcome_sha256: str | None
    admitted_at: datetime


def _stored(row: Any) -> StoredAttempt:
    identity = CompositionAttemptIdentity.parse(bytes(row["document"]))
    sha256 = digest_of(bytes(row["document"]))
    if digest_bytes(sha256) != bytes(row["attempt_sha256"]):
        raise DocumentInvalid("an attempt's bytes do not match its key")
    return StoredAttempt(
        sha256,
        identity,
        AttemptState(row["state"]),
        row["fenced"],
        row["acknowledged"],
        hexed(row["outcome_sha256"]),
        row["admitted_at"],
    )


class CompositionAttemptStore:
    """Durable attempts of one ledger.

    :param clock: the present moment, for the windows of grants.
    """

    def __init__(self, ledger: Ledger, clock: Clock = utc_clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self.granted_seconds: dict[str, int] = {}
        """Of attempts admitted here under a grant: how long each may work."""

    def admit_once(self, identity: CompositionAttemptIdentity) -> str:
        """Reserve every guard for this attempt, in one transaction, read back; return the attempt's digest.

        :raises AlreadyAdmitted: this task instance was admitted before.
        :raises Fenced: a later instance of the same task was admitted.
        :raises GuardHeld: another attempt is RUNNING or COMMIT_UNKNOWN on a guard.
        :raises ActivationMissing: the activation is not ACTIVE, or does not contain the workload as pinned.
        :raises GrantMissing: the environment's trust policy demands a grant and none admits this attempt.
        :raises FamilyForeign: the identity is of another family than the ledger.
        :raises LedgerMismatch: an earlier attempt on a guard does not agree with its originals and proofs.
        """
        sha256 = identity.digest()

        def change(tx: Tx) -> None:
            environment = self._check_activation(tx, identity)
            admission = admit_under_grant(tx, identity, environment, self._clock())
            guards = {
                held.guard_id: tx.row(guard, guard_id=digest_bytes(held.guard_id)) for held in identity.guard_epochs
            }
            for held in identity.guard_epochs:
                row = guards[held.guard_id]
                if (
                    row is None
                    or row["epoch"] != held.epoch
                    or hexed(row["owner_sha256"]) != identity.activation_sha256
                ):
                    raise ActivationMissing(f"guard {held.guard_id[:19]} is not held under epoch {held.epoch}")
            for other in self._rows(tx.connection, *_of_task(*identity.coordinates.task())):
                if identity.coordinates.superseded_by(other.identity.coordinates):
                    raise Fenced("a later instance of this task was admitted; this one stops here")
            tx.audit(Audited(guards=tuple(key for key in map(digest_bytes, guards))))
            tx.insert(
                attempt,
                attempt_sha256=digest_bytes(sha256),
                activation_sha256=digest_bytes(identity.activation_sha256),
                scheduler_key=digest_bytes(identity.scheduler_key()),
                document=identity.wire(),
                workload_id=identity.workload_id,
                dag_id=identity.coordinates.dag_id,
                run_id=identity.coordinates.run_id,
                task_id=identity.coordinates.task_id,
                map_index=identity.coordinates.map_index,
                try_number=identity.coordinates.try_number,
                task_instance_id=identity.coordinates.task_instance_id,
                state=int(AttemptState.RUNNING),
                fenced=False,
                acknowledged=False,
            )
            for guard_id, row in guards.items():
                assert row is not None
                count, key = row["admitted"], {"guard_id": digest_bytes(guard_id)}
                tx.move(guard, key, expect={"admitted": count}, to={"admitted": count + 1})
                tx.insert(
                    attempt_guard,
                    attempt_sha256=digest_bytes(sha256),
                    activation_sha256=digest_bytes(identity.activation_sha256),
                    guard_id=digest_bytes(guard_id),
                    epoch=row["epoch"],
                    ordinal=count + 1,
                    is_open=True,
                )
            if admission is not None:
                tx.record(EvidenceKind.ADMISSION, sha256, admission)
                self.granted_seconds[sha256] = admission.max_attempt_seconds

        try:
            self._ledger.write(change)
        except LedgerRule as error:
            rule = str(error.details.get("rule"))
            if rule in ("uq_attempt_scheduler", "attempt_pkey"):
                raise AlreadyAdmitted("this task instance was admitted before; clear the task to try again") from error
            if rule == "uq_attempt_guard_open":
                holders = self.open_on([held.guard_id for held in identity.guard_epochs])
                details = {"attempt": holders[0].sha256} if holders else {}
                raise GuardHeld("another attempt holds this target; it must be settled first", **details) from error
            if rule == "activation_not_active":
                raise ReleaseChanging("the release of this task is not ACTIVE any more") from error
            raise
        return sha256

    @staticmethod
    def _check_activation(tx: Tx, identity: CompositionAttemptIdentity) -> str:
        """The environment of the activation the attempt is admitted under."""
        require_family(identity.family, tx.family, "an attempt")
        row = tx.row(activation, activation_sha256=digest_bytes(identity.activation_sha256))
        if row is None or row["state"] != int(ActivationState.ACTIVE):
            raise ReleaseChanging("the release of this task is not ACTIVE any more")
        if digest_of(row["document"]) != identity.activation_sha256:
            raise DocumentInvalid("an activation's bytes do not match its key")
        # the digest proves them to be the very bytes that were parsed strictly when the activation was prepared
        request = json.loads(row["document"])
        require_family(identity.family, request["family"], "an attempt")
        found = [w for w in request["workloads"] if w["workload_id"] == identity.workload_id]
        if not found:
            raise ActivationMissing(f"{identity.workload_id} is not in the active release")
        pinned = [found[0][name] for name in ("pack_sha256", "cell", "constituent", "guard_id")]
        guards = [held.guard_id for held in identity.guard_epochs]
        if pinned != [identity.pack_sha256, identity.cell, identity.constituent, *guards]:
            raise ActivationMissing(f"{identity.workload_id} differs from its declaration in the active release")
        return str(row["environment"])

    def read_exact(self, attempt_sha256: str) -> StoredAttempt:
        """The attempt and its complete original. Audits durable state; authorises nobody."""
        found = self._ledger.read(lambda c: self._rows(c, attempt.c.attempt_sha256 == digest_bytes(attempt_sha256)))
        if not found:
            raise DocumentInvalid(f"there is no attempt {attempt_sha256}")
        return found[0]

    def find(self, beginning: str) -> StoredAttempt:
        """The one attempt whose digest begins with these hexadecimal digits.

        :raises DocumentInvalid: none does, or more than one.
        """
        wanted = beginning.removeprefix("sha256:").lower()
        found = [a for a in self._ledger.read(self._rows) if a.sha256[7:].startswith(wanted)]
        if not found:
            raise DocumentInvalid(
                f"no attempt begins with {beginning!r}; `dpone-airflow attempts --last 20` lists the latest, and a "
                "task log names its own (admitted as attempt ...)"
            )
        if len(found) > 1:
            raise DocumentInvalid(f"{len(found)} attempts begin with {beginning!r}; give more of the digest")
        return found[0]

    @staticmethod
    def _rows(connection: Connection, *where: Any) -> list[StoredAttempt]:
        rows = connection.execute(
            select(attempt).where(and_(true(), *where)).order_by(attempt.c.admitted_at)
        ).mappings()
        return [_stored(row) for row in rows]

    def open_on(self, guard_ids: Sequence[str]) -> list[StoredAttempt]:
        """Attempts that hold any of these guards now."""
        held = select(attempt_guard.c.attempt_sha256).where(
            attempt_guard.c.is_open, attempt_guard.c.guard_id.in_([digest_bytes(g) for g in guard_ids])
        )
        return self._ledger.read(lambda c: self._rows(c, attempt.c.attempt_sha256.in_(held)))

    def all_open(self) -> list[StoredAttempt]:
        """Every attempt that is RUNNING or COMMIT_UNKNOWN."""
        return self._ledger.read(
            lambda c: self._rows(c, attempt.c.state.in_([int(AttemptState.RUNNING), int(AttemptState.COMMIT_UNKNOWN)]))
        )

    def latest(self, count: int) -> list[StoredAttempt]:
        """The attempts admitted last, whatever became of them, oldest first."""
        newest = select(attempt.c.attempt_sha256).order_by(attempt.c.admitted_at.desc()).limit(count)
        return self._ledger.read(lambda c: self._rows(c, attempt.c.attempt_sha256.in_(newest)))

    def of_task(self, dag_id: str, run_id: str, task_id: str, map_index: int) -> list[StoredAttempt]:
        """Every attempt of one task of one run, oldest first."""
        return self._ledger.read(lambda c: self._rows(c, *_of_task(dag_id, run_id, task_id, map_index)))

    def ended_on(self, guard_id: str) -> list[StoredAttempt]:
        """Attempts on a guard that are SUCCEEDED or FAILED, oldest first."""
        return self._ledger.read(lambda c: self._rows(c, *_ended_on(guard_id)))

    def digests_ended_on(self, guard_id: str) -> list[str]:
        """Digests of the attempts on a guard that are SUCCEEDED or FAILED."""
        query = select(attempt.c.attempt_sha256).where(*_ended_on(guard_id))
        return self._ledger.read(lambda c: [str(hexed(sha256)) for sha256 in c.execute(query).scalars()])

    def fence(self, attempt_sha256: str) -> None:
        """From here on the database refuses every principal, READY, dispatch, claim and publication of it."""
        open_states = (AttemptState.RUNNING, AttemptState.COMMIT_UNKNOWN)
        self._mark(attempt_sha256, "fenced", EvidenceKind.FENCE, open_states)

    def acknowledge(self, attempt_sha256: str) -> None:
        """Record that the scheduler accepted the success of this try; a later retry may not reuse it."""
        self._mark(attempt_sha256, "acknowledged", EvidenceKind.ACKNOWLEDGEMENT, (AttemptState.SUCCEEDED,))

    def _mark(
        self,
        attempt_sha256: str,
        mark: Literal["fenced", "acknowledged"],
        kind: EvidenceKind,
        states: Sequence[AttemptState],
    ) -> None:
        """Set a flag together with its original; an attempt in another state is left as it is."""

        def change(tx: Tx) -> None:
            key = {"attempt_sha256": digest_bytes(attempt_sha256)}
            row = tx.row(attempt, **key)
            if row is not None and not row[mark] and AttemptState(row["state"]) in states:
                tx.record(kind, attempt_sha256, Mark(attempt_sha256=attempt_sha256, mark=mark))
                tx.move(attempt, key, expect={"state": row["state"]}, to={mark: True})

        self._ledger.write(change)

    def require_acting(self, attempt_sha256: str) -> None:
        """Refuse early when the attempt was fenced or is no longer RUNNING (the database refuses it anyway)."""
        stored = self.read_exact(attempt_sha256)
        if stored.fenced:
            raise Fenced("a later try fenced this attempt; it stops here and changes nothing more")
        if stored.state is not AttemptState.RUNNING:
            raise Fenced(f"this attempt is {stored.state.name}; it stops here and changes nothing more")

    # --- the end of an attempt; see ledger/outcomes.py ---

    def protect_outcome(
        self,
        attempt_sha256: str,
        outcome: Outcome,
        receipt: Document | None = None,
        adjudication: Adjudication | None = None,
    ) -> str:
        """Keep how an attempt ended and what that rests on, bound to its journal; the digest of that OUTCOME proof.

        It decides nothing until :meth:`finalize` or :meth:`reconcile_unknown` selects it.
        """
        return self._ledger.write(lambda tx: protect(tx, attempt_sha256, (outcome, receipt, adjudication)))

    def finalize(self, attempt_sha256: str, *, state: AttemptState, outcome_evidence_sha256: str) -> StoredAttempt:
        """RUNNING -> ``state``, with a protected outcome. SUCCEEDED and FAILED also release the guards.

        :param outcome_evidence_sha256: digest of the OUTCOME proof; its inner ``evidence_sha256`` names what its
            producer saw.
        :raises LedgerRule: the proof is not of this attempt and state, or SUCCEEDED has no receipt of the work; a gate,
            dispatch or publication is still unresolved.
        """
        before = AttemptState.RUNNING
        return self._ended(lambda tx: select_outcome(tx, attempt_sha256, before, state, outcome_evidence_sha256))

    def reconcile_unknown(
        self, attempt_sha256: str, *, state: AttemptState, outcome_evidence_sha256: str
    ) -> StoredAttempt:
        """COMMIT_UNKNOWN -> SUCCEEDED or FAILED, by a new observation or an administrator's adjudication.

        :raises LedgerRule: as :meth:`finalize`.
        """
        before = AttemptState.COMMIT_UNKNOWN
        return self._ended(lambda tx: select_outcome(tx, attempt_sha256, before, state, outcome_evidence_sha256))

    def end(
        self,
        attempt_sha256: str,
        before: AttemptState,
        outcome: Outcome,
        receipt: Document | None = None,
        adjudication: Adjudication | None = None,
    ) -> StoredAttempt:
        """Protect an outcome and select it, in one transaction."""

        def change(tx: Tx) -> Row:
            proof = protect(tx, attempt_sha256, (outcome, receipt, adjudication))
            return select_outcome(tx, attempt_sha256, before, outcome.state, proof)

        return self._ended(change)

    def establish(self, signed: Established) -> StoredAttempt:
        """End an attempt whose gates cannot be closed as COMMIT_UNKNOWN, by an administrator's document.

        :raises LedgerRule: the caller is no administrator, or the attempt or its gates moved meanwhile.
        """
        return self._ended(lambda tx: establish(tx, signed))

    def _ended(self, change: Callable[[Tx], Row]) -> StoredAttempt:
        return self._ledger.write(lambda tx: _stored(change(tx)))

    def originals(self, subject: str, kind: EvidenceKind) -> list[bytes]:
        """Complete original documents about a subject, oldest first."""
        query = (
            select(evidence.c.document, evidence.c.evidence_sha256)
            .where(evidence.c.subject == digest_bytes(subject), evidence.c.kind == int(kind))
            .order_by(evidence.c.recorded_at)
        )
        found = self._ledger.read(lambda c: [(bytes(r[0]), bytes(r[1])) for r in c.execute(query)])
        for document, key in found:
            if digest_bytes(digest_of(document)) != key:
                raise DocumentInvalid("evidence bytes do not match their key")
        return [document for document, _ in found]

    def record(self, subject: str, *documents: tuple[EvidenceKind, Document]) -> list[str]:
        """Keep evidence documents about a subject, in one transaction, read back; their digests in order.

        :raises Fenced: they are findings of an attempt that may not act any more.
        """
        try:
            return self._ledger.write(lambda tx: [tx.record(kind, subject, document) for kind, document in documents])
        except LedgerRule as error:
            raise_fenced(error)
            raise


def _ended_on(guard_id: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    made = select(attempt_guard.c.attempt_sha256).where(attempt_guard.c.guard_id == digest_bytes(guard_id))
    return attempt.c.attempt_sha256.in_(made), attempt.c.state.in_([int(s) for s in TERMINAL_ATTEMPTS])


def _of_task(dag_id: str, run_id: str, task_id: str, map_index: int) -> tuple[Any, ...]:
    found = attempt.c.dag_id == dag_id, attempt.c.run_id == run_id, attempt.c.task_id == task_id
    return (*found, attempt.c.map_index == map_index)


def open_gates(connection: Connection) -> int:
    """Gates that are not CLOSED, over the whole ledger."""
    return len(connection.execute(select(principal.c.name).where(principal.c.state != int(GateState.CLOSED))).all())


def open_dispatches(connection: Connection) -> int:
    """Dispatches without a terminal, over the whole ledger."""
    claimed = select(dispatch.c.dispatch_id).where(dispatch.c.state == int(DispatchState.CLAIMED))
    return len(connection.execute(claimed).all())
