"""Guards and activations in the ledger: enrolment, reservation, the current pointer, retirement."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, select, true

from airflow_provider_dpone.contracts.canonical import digest_bytes, digest_of
from airflow_provider_dpone.contracts.enrolment import Enrolment, SchemaEnrolment, TargetEnrolment, parse_enrolment
from airflow_provider_dpone.contracts.identity import GuardEpoch, guard_id
from airflow_provider_dpone.contracts.release import ActivationRequest, Deployment, PhysicalObservation, Release
from airflow_provider_dpone.contracts.states import ActivationState, AttemptState, Connector
from airflow_provider_dpone.errors import (
    ActivationMissing,
    ActivationRefused,
    ActivationStale,
    DocumentInvalid,
    GuardHeld,
    LedgerRule,
    ReleaseChanging,
    TargetUnsupported,
)
from airflow_provider_dpone.ledger.dialects.base import Audited
from airflow_provider_dpone.ledger.schema import (
    EvidenceKind,
    activation,
    activation_guard,
    attempt,
    evidence,
    guard,
)
from airflow_provider_dpone.ledger.transaction import Ledger, Tx, hexed, require_family


@dataclass(frozen=True)
class Guard:
    """A guard with its enrolment, parsed from the complete original."""

    guard_id: str
    connector: Connector
    service_id: str
    subject: str
    enrolment: Enrolment
    enrolment_sha256: str
    target_uuid: str | None
    """UUID of the table last published or enrolled under the name; null where the guard is no table."""
    epoch: int
    owner_sha256: str | None

    @property
    def table(self) -> TargetEnrolment:
        """The enrolment of a guard that is a table."""
        if not isinstance(self.enrolment, TargetEnrolment):
            raise TargetUnsupported(f"{self.subject} is enrolled as a schema, not as a table")
        return self.enrolment

    @property
    def carried(self) -> str:
        """UUID of the table last published or enrolled under the name of a guard that is a table."""
        return self.target_uuid or self.table.target_uuid

    @property
    def schema(self) -> SchemaEnrolment:
        """The enrolment of a guard that is a schema or database."""
        if not isinstance(self.enrolment, SchemaEnrolment):
            raise TargetUnsupported(f"{self.subject} is enrolled as a table, not as a schema")
        return self.enrolment


@dataclass(frozen=True)
class StoredActivation:
    """An activation with its release and the epochs it holds."""

    sha256: str
    request: ActivationRequest
    release_original: bytes
    state: ActivationState
    epochs: tuple[GuardEpoch, ...]

    @property
    def release(self) -> Release:
        """The release, parsed from its complete original."""
        return Release.parse(self.release_original)


def _original(connection: Connection, sha256: bytes) -> bytes:
    raw = connection.execute(
        select(evidence.c.document).where(evidence.c.evidence_sha256 == sha256)
    ).scalar_one_or_none()
    if raw is None or digest_bytes(digest_of(bytes(raw))) != sha256:
        raise DocumentInvalid("an original document is missing or does not match its digest")
    return bytes(raw)


def _guards(connection: Connection, *where: Any) -> list[Guard]:
    """Guards with the originals of their enrolments, in one statement."""
    rows = connection.execute(
        select(guard, evidence.c.document)
        .join(evidence, evidence.c.evidence_sha256 == guard.c.enrolment_sha256, isouter=True)
        .where(and_(true(), *where))
    ).mappings()
    return [_guard(row) for row in rows.all()]


def _guard(row: Any) -> Guard:
    raw = b"" if row["document"] is None else bytes(row["document"])
    if digest_bytes(digest_of(raw)) != bytes(row["enrolment_sha256"]):
        raise DocumentInvalid("the original of an enrolment is missing or does not match its digest")
    return Guard(
        guard_id=str(hexed(row["guard_id"])),
        connector=Connector(row["connector"]),
        service_id=row["service_id"],
        subject=row["subject"],
        enrolment=parse_enrolment(raw),
        enrolment_sha256=str(hexed(row["enrolment_sha256"])),
        target_uuid=None if row["target_uuid"] is None else str(row["target_uuid"]),
        epoch=row["epoch"],
        owner_sha256=hexed(row["owner_sha256"]),
    )


class CompositionActivationStore:
    """Durable guards and activations of one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    # --- enrolment (administrator) ---

    def enrol(self, enrolment: Enrolment) -> str:
        """Accept a target, or accept its present state again; return the guard's id.

        :raises GuardHeld: an attempt holds the guard; settle it first.
        """
        marker = enrolment.marker
        identity = guard_id(marker.connector, marker.service_id, enrolment.guard_subject())

        def change(tx: Tx) -> None:
            require_family(marker.family, tx.family, "an enrolment")
            sha256 = digest_bytes(tx.record(EvidenceKind.ENROLMENT, identity, enrolment))
            key = {"guard_id": digest_bytes(identity)}
            carried = uuid.UUID(enrolment.target_uuid) if isinstance(enrolment, TargetEnrolment) else None
            accepted = {"enrolment_sha256": sha256, "target_uuid": carried}
            row = tx.row(guard, **key)
            if row is None:
                tx.insert(
                    guard,
                    **key,
                    connector=marker.connector,
                    service_id=marker.service_id,
                    subject=enrolment.guard_subject(),
                    epoch=0,
                    admitted=0,
                    owner_sha256=None,
                    **accepted,
                )
            else:
                tx.move(guard, key, expect={"epoch": row["epoch"]}, to=accepted)

        try:
            self._ledger.write(change)
        except LedgerRule as error:
            if error.details.get("rule") == "guard_held":
                raise GuardHeld("an attempt holds this target; settle it before enrolling again") from error
            raise
        return identity

    def guard(self, identity: str) -> Guard | None:
        """A guard with its complete enrolment, read fresh."""
        found = self._ledger.read(lambda c: _guards(c, guard.c.guard_id == digest_bytes(identity)))
        return found[0] if found else None

    def guards(self) -> list[Guard]:
        """Every enrolled guard."""
        return self._ledger.read(_guards)

    # --- lifecycle ---

    def require_free(self, request: ActivationRequest, *, besides: Sequence[str]) -> None:
        """Refuse early when a guard of the request is owned by an activation that is not about to be retired.

        :raises ActivationRefused: names every such guard and its owner.
        """
        owned = [guard for guard in self.guards() if guard.guard_id in {r.guard_id for r in request.resources}]
        taken = [g for g in owned if g.owner_sha256 is not None and g.owner_sha256 not in besides]
        if taken:
            raise ActivationRefused("; ".join(self._owned_by(g) for g in taken))

    def _owned_by(self, taken: Guard) -> str:
        where = self.read_exact(str(taken.owner_sha256)).request.environment
        return (
            f"{taken.subject.partition('/')[2] or taken.subject} is owned by a release of environment {where!r}, and a "
            f"target has one owner: take it out of that release, or retire the release "
            f"(`dpone-airflow retire --environment {where}`)"
        )

    def prepare(
        self,
        request: ActivationRequest,
        release: Release,
        deployment: Deployment,
        observation: PhysicalObservation,
        replaced: Sequence[str] = (),
    ) -> StoredActivation:
        """Audit all originals, retire what is replaced, and reserve every guard, in one transaction: PREPARED.

        The number of statements does not depend on the ledger's history or the number of guards.

        :param replaced: every activation of the environment that is PREPARED, ACTIVE or RETIRING, as the caller
            compared them; they are compared again here, and retired, or all stay as they are.
        :raises ActivationStale: others are there now: another deployer was first.

        :raises ActivationRefused: a guard is owned by another activation or its enrolment changed.
        :raises LedgerMismatch: the audit found originals that do not agree with their rows.
        """
        sha256 = request.digest()
        mine = digest_bytes(sha256)

        def change(tx: Tx) -> None:
            require_family(request.family, tx.family, "a release")
            tx.audit()
            tx.record(EvidenceKind.RELEASE, request.release_id, release)
            tx.record(EvidenceKind.DEPLOYMENT, request.deployment_id, deployment)
            tx.record(EvidenceKind.OBSERVATION, sha256, observation)
            self._replace(tx, request, replaced)
            tx.insert(
                activation,
                activation_sha256=mine,
                occurrence_id=uuid.UUID(request.occurrence_id),
                environment=request.environment,
                document=request.wire(),
                state=int(ActivationState.PREPARED),
                release_sha256=digest_bytes(request.release_id),
            )
            rows = tx.rows(guard, "guard_id", [digest_bytes(r.guard_id) for r in request.resources])
            for resource in request.resources:
                row = rows.get(digest_bytes(resource.guard_id))
                if row is None or hexed(row["enrolment_sha256"]) != resource.enrolment_sha256:
                    raise ActivationRefused(
                        f"the enrolment of {resource.subject} changed while the release was prepared"
                    )
                if row["owner_sha256"] is not None:
                    raise ActivationRefused(
                        f"{resource.subject} was taken by another release meanwhile", owner=hexed(row["owner_sha256"])
                    )
            tx.move_all(guard, rows, to={"owner_sha256": mine}, plus_one="epoch", expect={"owner_sha256": None})
            tx.insert_all(
                activation_guard,
                [{"activation_sha256": mine, "guard_id": key, "epoch": row["epoch"] + 1} for key, row in rows.items()],
            )

        self._ledger.write(change)
        return self.read_exact(sha256)

    @staticmethod
    def _replace(tx: Tx, request: ActivationRequest, replaced: Sequence[str]) -> None:
        """Retire exactly what the caller compared; what was prepared and never current is cancelled."""
        moving = (ActivationState.PREPARED, ActivationState.ACTIVE, ActivationState.RETIRING)
        there = tx.connection.execute(
            select(activation.c.activation_sha256, activation.c.state).where(
                activation.c.environment == request.environment, activation.c.state.in_([int(s) for s in moving])
            )
        ).all()
        states = {str(hexed(sha256)): ActivationState(state) for sha256, state in there}
        current = [s for s, state in states.items() if state is not ActivationState.PREPARED]
        if set(states) != set(replaced) or current not in ([], [request.previous_activation_sha256]):
            raise ActivationStale(
                f"another deployer changed what is current in environment {request.environment!r} meanwhile; this "
                "one changed nothing. Look again"
            )
        if not replaced:
            return
        owners = [digest_bytes(sha256) for sha256 in replaced]
        unresolved = tx.connection.execute(
            select(attempt.c.attempt_sha256).where(
                attempt.c.activation_sha256.in_(owners),
                attempt.c.state.in_([int(AttemptState.RUNNING), int(AttemptState.COMMIT_UNKNOWN)]),
            )
        ).scalars()
        refuse_unresolved([str(hexed(sha256)) for sha256 in unresolved])
        for sha256, state in states.items():
            key = {"activation_sha256": digest_bytes(sha256)}
            steps = (
                [ActivationState.RETIRED] if state is ActivationState.PREPARED else [*moving, ActivationState.RETIRED]
            )
            for after in (step for step in steps if step > state):
                tx.move(activation, key, expect={"state": int(state)}, to={"state": int(after)})
                state = after
        for owner in owners:
            owned = tx.connection.execute(select(guard.c.guard_id).where(guard.c.owner_sha256 == owner)).scalars()
            rows = tx.rows(guard, "guard_id", [bytes(key) for key in owned])
            tx.move_all(guard, rows, to={"owner_sha256": None}, expect={"owner_sha256": owner})

    def while_prepared(self, activation_sha256: str, switch: Callable[[], None]) -> None:
        """Call ``switch`` under the ledger lock, so that nobody retires the PREPARED or ACTIVE activation meanwhile.

        :raises ActivationStale: another deployer retired it; ``switch`` was not called.
        """

        def change(tx: Tx) -> None:
            row = tx.row(activation, activation_sha256=digest_bytes(activation_sha256))
            state = None if row is None else ActivationState(row["state"])
            if state not in (ActivationState.PREPARED, ActivationState.ACTIVE):
                raise ActivationStale(
                    f"activation {activation_sha256[7:19]} is {state.name if state else 'not there'}: another deployer "
                    "was first; the pointer was not moved"
                )
            tx.verify()
            switch()

        self._ledger.write(change)

    def activate(self, activation_sha256: str) -> StoredActivation:
        """PREPARED -> ACTIVE: the activation becomes current in its environment."""
        return self._step(activation_sha256, ActivationState.PREPARED, ActivationState.ACTIVE)

    def begin_retirement(self, activation_sha256: str) -> StoredActivation:
        """ACTIVE -> RETIRING: nothing is admitted any more; admitted attempts may finish."""
        return self._step(activation_sha256, ActivationState.ACTIVE, ActivationState.RETIRING)

    def finalize_retirement(self, activation_sha256: str) -> StoredActivation:
        """RETIRING -> RETIRED and every guard free, epochs kept.

        :raises ActivationRefused: an attempt is RUNNING or COMMIT_UNKNOWN, or a gate is not CLOSED.
        :raises LedgerMismatch: an attempt of it does not agree with its originals and proofs; nothing was freed.
        """

        def change(tx: Tx) -> None:
            tx.audit(Audited(activation=digest_bytes(activation_sha256)))
            self._move(tx, activation_sha256, ActivationState.RETIRING, ActivationState.RETIRED)
            owner = digest_bytes(activation_sha256)
            owned = list(tx.connection.execute(select(guard.c.guard_id).where(guard.c.owner_sha256 == owner)).scalars())
            rows = tx.rows(guard, "guard_id", [bytes(key) for key in owned])
            tx.move_all(guard, rows, to={"owner_sha256": None}, expect={"owner_sha256": owner})

        try:
            self._ledger.write(change)
        except LedgerRule as error:
            if error.details.get("rule") == "activation_unresolved":
                open_attempts = self.unresolved(activation_sha256)
                raise ActivationRefused(
                    f"{len(open_attempts)} attempts of the release are not resolved; it is retiring and admits no new "
                    "ones. Wait for them or settle them, then do this again: "
                    + ", ".join(a[7:19] for a in open_attempts),
                    attempts=open_attempts,
                ) from error
            raise
        return self.read_exact(activation_sha256)

    def unresolved(self, activation_sha256: str) -> list[str]:
        """Attempts of an activation that are RUNNING or COMMIT_UNKNOWN."""
        states = [int(AttemptState.RUNNING), int(AttemptState.COMMIT_UNKNOWN)]
        query = select(attempt.c.attempt_sha256).where(
            attempt.c.activation_sha256 == digest_bytes(activation_sha256), attempt.c.state.in_(states)
        )
        return self._ledger.read(lambda c: [str(hexed(s)) for s in c.execute(query).scalars()])

    def _step(self, sha256: str, before: ActivationState, after: ActivationState) -> StoredActivation:
        self._ledger.write(lambda tx: self._move(tx, sha256, before, after))
        return self.read_exact(sha256)

    @staticmethod
    def _move(tx: Tx, sha256: str, before: ActivationState, after: ActivationState) -> None:
        tx.move(
            activation,
            {"activation_sha256": digest_bytes(sha256)},
            expect={"state": int(before)},
            to={"state": int(after)},
        )

    # --- reading ---

    def read_exact(self, activation_sha256: str) -> StoredActivation:
        """An activation from its complete originals."""
        found = self._select(activation.c.activation_sha256 == digest_bytes(activation_sha256))
        if not found:
            raise ActivationMissing(f"there is no activation {activation_sha256}")
        return found[0]

    def of_occurrence(self, occurrence_id: str) -> StoredActivation | None:
        """The activation of one occurrence, when there is one."""
        found = self._select(activation.c.occurrence_id == uuid.UUID(occurrence_id))
        return found[0] if found else None

    def in_states(self, environment: str, *states: ActivationState) -> list[StoredActivation]:
        """Activations of an environment in the given states, oldest first."""
        return self._select(
            (activation.c.environment == environment) & activation.c.state.in_([int(s) for s in states])
        )

    def in_force(self) -> list[StoredActivation]:
        """Activations of any environment that are ACTIVE or RETIRING."""
        return self._select(activation.c.state.in_([int(ActivationState.ACTIVE), int(ActivationState.RETIRING)]))

    def unfinished(self) -> list[StoredActivation]:
        """Activations of any environment that are PREPARED or RETIRING."""
        return self._select(activation.c.state.in_([int(ActivationState.PREPARED), int(ActivationState.RETIRING)]))

    def require_active(self, environment: str) -> StoredActivation:
        """The activation that is current in an environment.

        :raises ActivationMissing: none is ACTIVE. :raises ReleaseChanging: one is on its way in or out.
        """
        found = self.in_states(environment, ActivationState.ACTIVE)
        if not found:
            if self.in_states(environment, ActivationState.PREPARED, ActivationState.RETIRING):
                raise ReleaseChanging(f"the release of environment {environment!r} is being handed over; try again")
            raise ActivationMissing(
                f"no release is active in environment {environment!r}; run `dpone-airflow activate "
                "--dags-folder ...`, then clear the task"
            )
        return found[0]

    def _select(self, where: Any) -> list[StoredActivation]:
        def query(connection: Connection) -> list[StoredActivation]:
            rows = connection.execute(select(activation).where(where).order_by(activation.c.recorded_at)).mappings()
            return [_activation(connection, row) for row in rows.all()]

        return self._ledger.read(query)


def refuse_unresolved(attempts: Sequence[str]) -> None:
    """:raises ActivationRefused: there are any."""
    if attempts:
        raise ActivationRefused(
            f"{len(attempts)} attempts of the active release are not resolved; wait for them or settle them: "
            + ", ".join(a[7:19] for a in attempts),
            attempts=list(attempts),
        )


def _activation(connection: Connection, row: Any) -> StoredActivation:
    raw = bytes(row["document"])
    request = ActivationRequest.parse(raw)
    release = _original(connection, bytes(row["release_sha256"]))
    held = connection.execute(
        select(activation_guard.c.guard_id, activation_guard.c.epoch).where(
            activation_guard.c.activation_sha256 == row["activation_sha256"]
        )
    ).all()
    epochs = tuple(sorted(GuardEpoch(guard_id=str(hexed(g)), epoch=e) for g, e in held))
    if {e.guard_id for e in epochs} != {r.guard_id for r in request.resources}:
        raise DocumentInvalid("an activation's guards do not match its request")
    if request.release_id != digest_of(release) or digest_bytes(digest_of(raw)) != bytes(row["activation_sha256"]):
        raise DocumentInvalid("an activation's bytes do not match its keys")
    return StoredActivation(request.digest(), request, release, ActivationState(row["state"]), epochs)
