"""Nonproduction authority in the ledger: trust revisions, registered grants, and what a grant admits.

Trust decides only inside the transaction that holds the ledger lock, read there from the complete original, and the
transaction is identified again after reading. A grant is judged under the revision it names, for ever; it authorises
something only while that revision is in force, inside its window and below its ceilings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar

from pydantic import Field
from sqlalchemy import Connection, func, select

from airflow_provider_dpone.contracts.authority import (
    MAX_BUNDLE_BYTES,
    AuthorityKind,
    Grant,
    Membership,
    Phase,
    SignedGrant,
    TrustPolicy,
)
from airflow_provider_dpone.contracts.canonical import Counter, Digest, Document, digest_bytes, digest_of
from airflow_provider_dpone.contracts.identity import CompositionAttemptIdentity
from airflow_provider_dpone.contracts.release import ActivationRequest, Release
from airflow_provider_dpone.contracts.states import ActivationState, Family
from airflow_provider_dpone.errors import (
    DocumentInvalid,
    GrantConsumed,
    GrantMissing,
    GrantRefused,
    LedgerRule,
    TrustChanged,
    TrustMissing,
    TrustRefused,
)
from airflow_provider_dpone.ledger.authority_audit import disagreements
from airflow_provider_dpone.ledger.authority_log import (
    StoredGrant,
    append,
    grants_in,
    memberships_in,
    rows,
    trust_in,
)
from airflow_provider_dpone.ledger.schema import EvidenceKind, activation, attempt, authority_log, evidence
from airflow_provider_dpone.ledger.transaction import Ledger, Tx

T = TypeVar("T")
Clock = Callable[[], datetime]
PAGE: Final = 100
_MOVED: Final = "another trust policy came into force meanwhile; look with `dpone-airflow authority trust show`"


def utc_clock() -> datetime:
    return datetime.now(UTC)


class AttemptAdmission(Document):
    """Under which grant an attempt was admitted, and what that grant lets it use."""

    schema_name: Literal["dpone.attempt_admission.v1"] = Field(default="dpone.attempt_admission.v1")
    attempt_sha256: Digest
    grant_entry_sha256: Digest
    grant_sha256: Digest
    trust_sha256: Digest
    max_attempt_seconds: Counter


def admit_under_grant(
    tx: Tx, identity: CompositionAttemptIdentity, environment: str, now: datetime
) -> AttemptAdmission | None:
    """The grant that admits this attempt, when the environment's policy demands one; decides under the ledger lock.

    :returns: what admitted it, to be recorded with the attempt; None when no grant is demanded.
    :raises GrantMissing: one is demanded and none admits it; says why each registered one does not.
    """
    policy = trust_in(tx, environment)
    if policy is None or not policy.grants_required or identity.family is not Family.NONPRODUCTION:
        return None
    subject = digest_bytes(identity.activation_sha256)
    found = grants_in(tx.connection, authority_log.c.phase == int(Phase.EXECUTION), authority_log.c.subject == subject)
    used = tx.connection.execute(
        select(func.count()).select_from(attempt).where(attempt.c.activation_sha256 == subject)
    ).scalar_one()
    reasons = []
    for stored in reversed(found):
        reason = _inadmissible(tx.connection, stored.signed, policy, identity, used, now)
        if reason is None:
            return AttemptAdmission(
                attempt_sha256=identity.digest(),
                grant_entry_sha256=stored.entry,
                grant_sha256=stored.signed.digest(),
                trust_sha256=policy.digest(),
                max_attempt_seconds=stored.grant.ceilings.max_attempt_seconds,
            )
        reasons.append(f"{stored.grant.grant_id}: {reason}")
    raise GrantMissing(
        f"the trust policy of {environment} demands a grant for {identity.workload_id}, and "
        + (f"none of those registered admits it ({'; '.join(reasons[:5])})" if reasons else "none is registered")
        + "; sign one and register it (`dpone-airflow authority grant`), then clear the task",
        reasons=reasons,
    )


def _inadmissible(
    connection: Connection, signed: SignedGrant, policy: TrustPolicy, identity: CompositionAttemptIdentity,
    used: int, now: datetime,
) -> str | None:  # fmt: skip
    """Why a grant does not admit an attempt now, or None."""
    standing = signed.standing(policy, now)
    if standing != "usable":
        return standing
    signed.require_signed_under(policy)
    pinned = {w.workload_id: w for w in signed.grant.workloads}
    workload = pinned.get(identity.workload_id)
    if workload is None or workload.pack_sha256 != identity.pack_sha256:
        return "another_workload"
    if workload.digest() not in memberships_in(connection, signed.grant):
        raise DocumentInvalid(f"the membership of {identity.workload_id} in a registered grant is missing")
    return None if used < signed.grant.ceilings.max_attempts else "attempts_used_up"


class AuthorityStore:
    """Trust and grants of one ledger.

    :param clock: the present moment, for windows.
    """

    def __init__(self, ledger: Ledger, clock: Clock = utc_clock) -> None:
        self._ledger = ledger
        self._clock = clock

    # --- trust ---

    def set_trust(self, policy: TrustPolicy, *, dry_run: bool = False) -> TrustPolicy:
        """Append a revision: the policy in force must be, byte for byte, the one this names as previous.

        :raises TrustChanged: another is in force.
        :raises TrustRefused: a ledger of another family, or the revocation epoch would decrease.
        """

        def change(tx: Tx) -> TrustPolicy:
            self._require_family(TrustRefused)
            current = trust_in(tx, policy.environment)
            if (None if current is None else current.digest()) != policy.previous_sha256:
                raise TrustChanged(_MOVED, current=None if current is None else current.digest())
            if policy.revision != (1 if current is None else current.revision + 1):
                raise TrustChanged(f"revision {policy.revision} does not follow the one in force")
            if current is not None and policy.revocation_epoch < current.revocation_epoch:
                raise TrustRefused("the revocation epoch never decreases")
            if not dry_run:
                append(tx, AuthorityKind.TRUST, policy, policy.revision)
            return policy

        return self._write(change)

    def trust(self, environment: str) -> TrustPolicy:
        """The trust policy in force.

        :raises TrustMissing: none was ever set.
        """
        found = self._ledger.write(lambda tx: trust_in(tx, environment))
        if found is None:
            raise TrustMissing(
                f"environment {environment!r} has no trust policy; set one with `dpone-airflow authority trust set`"
            )
        return found

    def trust_history(self, environment: str | None = None) -> list[TrustPolicy]:
        """Every revision, oldest first."""
        where = [authority_log.c.environment == environment] if environment else []
        kind = authority_log.c.kind == int(AuthorityKind.TRUST)
        found = self._ledger.read(lambda c: [document for _, document in rows(c, kind, *where)])
        return [p for p in found if isinstance(p, TrustPolicy)]

    # --- grants ---

    def register(self, signed: SignedGrant, bundle: bytes, *, dry_run: bool = False) -> StoredGrant:
        """Keep a grant with its bundle and memberships, in one transaction; the same again is the same record.

        :raises TrustChanged, TrustMissing: the policy it names is not in force.
        :raises GrantRefused: signature, signer, window, ceilings, workloads, bundle, ledger or activation do not fit.
        :raises GrantConsumed: its id, or the run it qualifies, was registered before with something else.
        """
        grant = signed.grant
        if len(bundle) > MAX_BUNDLE_BYTES or (digest_of(bundle), len(bundle)) != (
            grant.bundle_sha256,
            grant.bundle_bytes,
        ):
            raise GrantRefused("the bundle is not the one this grant was signed with", reason="bundle")

        def change(tx: Tx) -> StoredGrant | None:
            self._require_family(GrantRefused)
            known = grants_in(tx.connection, authority_log.c.entry_sha256 == digest_bytes(grant.entry()))
            if known:
                if known[0].signed != signed:
                    raise GrantConsumed(f"grant id {grant.grant_id} was registered before with other content")
                return known[0]
            policy = trust_in(tx, grant.environment)
            if policy is None:
                raise TrustMissing(f"environment {grant.environment!r} has no trust policy")
            if str(self._ledger.service_id) != grant.ledger_service_id:
                raise GrantRefused("the grant was signed for another ledger", reason="ledger")
            signed.require_current(policy, self._clock())
            signed.require_signed_under(policy)
            if grant.phase == "execution":
                _require_workloads(tx, grant)
            new = self._new_members(tx, grant, policy)
            if not dry_run:
                tx.keep(EvidenceKind.GRANT_BUNDLE, grant.entry(), bundle)
                append(tx, AuthorityKind.GRANT, signed, grant.trust_revision)
                for membership in new:
                    append(tx, AuthorityKind.MEMBERSHIP, membership, grant.trust_revision)
            return None

        found = self._write(change)
        return found or (StoredGrant(grant.entry(), signed, self._clock()) if dry_run else self.grant(grant.entry()))

    def grant(self, entry: str) -> StoredGrant:
        """A registered grant from its complete original. History; authorises nobody.

        :raises GrantRefused: there is none.
        """
        found = self._ledger.read(lambda c: grants_in(c, authority_log.c.entry_sha256 == digest_bytes(entry)))
        if not found:
            raise GrantRefused("no such grant is registered", reason="unknown")
        return found[0]

    def grants(self, environment: str | None = None) -> list[StoredGrant]:
        """Every registered grant, oldest first."""
        where = [authority_log.c.environment == environment] if environment else []
        return self._ledger.read(lambda c: grants_in(c, *where))

    def bundle(self, stored: StoredGrant) -> bytes:
        """The bundle of a registered grant, byte for byte.

        :raises DocumentInvalid: it is missing or altered.
        """
        query = select(evidence.c.document).where(
            evidence.c.evidence_sha256 == digest_bytes(stored.grant.bundle_sha256)
        )
        raw = self._ledger.read(lambda c: c.execute(query).scalar_one_or_none())
        if raw is None or digest_of(bytes(raw)) != stored.grant.bundle_sha256:
            raise DocumentInvalid("the bundle of a registered grant is missing or altered")
        return bytes(raw)

    def audit(self, page: int = PAGE) -> list[str]:
        """What does not agree in the whole authority log, one line each; reads ``page`` entries at a time."""
        return self._ledger.read(lambda c: list(disagreements(c, page)))

    def _new_members(self, tx: Tx, grant: Grant, policy: TrustPolicy) -> Sequence[Membership]:
        """Memberships this grant adds to its campaign and phase.

        :raises GrantRefused: there would be more than the policy allows.
        """
        known = memberships_in(tx.connection, grant)
        wanted = [
            Membership(
                environment=grant.environment,
                campaign_id=grant.campaign_id,
                phase=grant.phase,
                workload=workload,
                grant_entry_sha256=grant.entry(),
            )
            for workload in grant.workloads
        ]
        new = [m for m in wanted if m.subject_key() not in known]
        if len(known) + len(new) > policy.max_workloads:
            raise GrantRefused(
                f"campaign {grant.campaign_id} would have {len(known) + len(new)} workloads; the policy allows "
                f"{policy.max_workloads}",
                reason="ceiling",
            )
        return new

    def _require_family(self, error: type[TrustRefused] | type[GrantRefused]) -> None:
        if self._ledger.family != Family.NONPRODUCTION:
            raise error("trust and grants of this kind exist in nonproduction ledgers only", reason="family")

    def _write(self, change: Callable[[Tx], T]) -> T:
        try:
            return self._ledger.write(change)
        except LedgerRule as error:
            rule = str(error.details.get("rule"))
            if rule in ("authority_trust_revision", "authority_trust_moved", "uq_authority_trust"):
                raise TrustChanged(_MOVED) from error
            if rule == "uq_authority_qualification":
                raise GrantConsumed("this qualification run was registered before under another grant") from error
            if rule == "authority_activation":
                raise GrantRefused("the activation is neither prepared nor active here", reason="activation") from error
            raise


def _require_workloads(tx: Tx, grant: Grant) -> None:
    """The activation contains every granted workload exactly as pinned, and declares no more than the grant allows.

    :raises GrantRefused: names what does not fit.
    """
    row = tx.row(activation, activation_sha256=digest_bytes(grant.subject))
    if row is None or row["environment"] != grant.environment or row["state"] > int(ActivationState.ACTIVE):
        raise GrantRefused("the activation is neither prepared nor active here", reason="activation")
    request = ActivationRequest.parse(row["document"])
    original = tx.row(evidence, evidence_sha256=row["release_sha256"])
    release = Release.parse(original["document"] if original else b"")
    pinned = {w.workload_id: w.pack_sha256 for w in request.workloads}
    declared = {w.workload_id: w for w in release.workloads()}
    for workload in grant.workloads:
        if pinned.get(workload.workload_id) != workload.pack_sha256:
            raise GrantRefused(f"{workload.workload_id} is not in the activation as granted", reason="workload")
        options = declared[workload.workload_id].options
        for name in ("max_rows", "max_source_bytes"):
            limit, allowed = options.get(name), getattr(grant.ceilings, name)
            if isinstance(limit, int) and limit > allowed:
                raise GrantRefused(
                    f"{workload.workload_id} declares {name} {limit}; the grant allows {allowed}", reason="ceiling"
                )
