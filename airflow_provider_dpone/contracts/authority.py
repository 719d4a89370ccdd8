"""Nonproduction authority: trust policies, grants signed under them, and what a registration binds. No I/O.

A policy is one revision of one environment: who may sign, what may be granted at most, and whether admission needs a
grant at all. A grant names the revision it is judged under; the signature covers exactly the canonical bytes of its
body. Times are UTC, whole seconds, and a window includes its begin and not its end.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum
from typing import Annotated, ClassVar, Final, Literal

import yaml
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field, StringConstraints, model_validator

from airflow_provider_dpone.contracts.canonical import (
    Counter,
    Digest,
    Document,
    Text,
    Uuid,
    digest_of,
    require_sorted_unique,
)
from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.errors import DocumentInvalid, GrantRefused

MAX_WORKLOADS: Final = 64
MAX_BUNDLE_BYTES: Final = 8 * 1024 * 1024
_DOCUMENT_BYTES: Final = 1024 * 1024
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"

Environment = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", strict=True)]
Instant = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", strict=True)]
PublicKey = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", strict=True)]
Signature = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$", strict=True)]
PhaseName = Literal["execution", "qualification"]


class AuthorityKind(IntEnum):
    """What an entry of the authority log is."""

    TRUST = 1
    GRANT = 2
    MEMBERSHIP = 3


class Phase(IntEnum):
    """What a grant is for: one qualification run, once; or the execution of an activation."""

    QUALIFICATION = 1
    EXECUTION = 2


def instant(moment: datetime) -> str:
    """A moment as documents write it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime(_TIME)


def moment(text: str) -> datetime:
    """The moment an instant names.

    :raises DocumentInvalid: no such day or time.
    """
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=UTC)
    except ValueError as error:
        raise DocumentInvalid(f"{text!r} is no moment") from error


class Ceilings(Document):
    """What one attempt, and all of them together, may use at most; the upper bounds are those of the family."""

    max_attempts: Annotated[Counter, Field(ge=1, le=128)]
    """Attempts of one activation, whichever grant admitted them."""
    max_rows: Annotated[Counter, Field(ge=1, le=100_000)]
    max_source_bytes: Annotated[Counter, Field(ge=1, le=2**30)]
    max_attempt_seconds: Annotated[Counter, Field(ge=1, le=3600)]

    def above(self, other: Ceilings) -> list[str]:
        """Names of the ceilings that are higher here than there."""
        return [name for name in type(self).model_fields if getattr(self, name) > getattr(other, name)]


class Signer(Document):
    """A public key and what it may sign for."""

    key_id: Digest
    """SHA-256 of the 32 bytes of the key."""
    public_key: PublicKey
    phases: Annotated[tuple[PhaseName, ...], Field(min_length=1, max_length=2)]

    @model_validator(mode="after")
    def _consistent(self) -> Signer:
        require_sorted_unique(self.phases, "phases")
        if self.key_id != digest_of(bytes.fromhex(self.public_key)):
            raise ValueError("key_id is not the digest of public_key")
        return self

    def __lt__(self, other: Signer) -> bool:
        return self.key_id < other.key_id


class TrustPolicy(Document):
    """One revision of an environment's trust."""

    max_bytes: ClassVar[int] = _DOCUMENT_BYTES
    schema_name: Literal["dpone.trust_policy.v1"] = Field(default="dpone.trust_policy.v1")
    family: Literal[Family.NONPRODUCTION]
    environment: Environment
    revision: Annotated[Counter, Field(ge=1, le=2**31 - 1)]
    previous_sha256: Digest | None
    """The revision this one replaces, by its bytes; null in the first."""
    revocation_epoch: Counter
    """Never decreases. Raised, it marks every earlier grant as revoked and not merely superseded."""
    grants_required: bool
    """Whether an attempt of this environment is admitted only under a registered grant."""
    signers: Annotated[tuple[Signer, ...], Field(max_length=256)]
    max_workloads: Annotated[Counter, Field(ge=1, le=MAX_WORKLOADS)]
    """Distinct workloads of one campaign and phase."""
    max_window_seconds: Annotated[Counter, Field(ge=1, le=86_400)]
    ceilings: Ceilings

    @model_validator(mode="after")
    def _consistent(self) -> TrustPolicy:
        require_sorted_unique(self.signers, "signers")
        if (self.revision == 1) != (self.previous_sha256 is None):
            raise ValueError("only the first revision replaces nothing, and it always does")
        return self


class GrantedWorkload(Document):
    """A workload as pinned by the digest of its declaration."""

    workload_id: Text
    pack_sha256: Digest

    def __lt__(self, other: GrantedWorkload) -> bool:
        return self.workload_id < other.workload_id


class Grant(Document):
    """What is signed: who may do what, when, how much, under which revision of which environment."""

    max_bytes: ClassVar[int] = _DOCUMENT_BYTES
    schema_name: Literal["dpone.grant.v1"] = Field(default="dpone.grant.v1")
    family: Literal[Family.NONPRODUCTION]
    ledger_service_id: Uuid
    grant_id: Uuid
    phase: PhaseName
    environment: Environment
    campaign_id: Uuid
    subject: Text
    """execution: the activation's digest; qualification: the id of the one run it is for."""
    workloads: Annotated[tuple[GrantedWorkload, ...], Field(min_length=1, max_length=MAX_WORKLOADS)]
    ceilings: Ceilings
    trust_revision: Annotated[Counter, Field(ge=1, le=2**31 - 1)]
    trust_sha256: Digest
    revocation_epoch: Counter
    not_before: Instant
    not_after: Instant
    bundle_sha256: Digest
    """The originals the signer rests on, kept beside the grant byte for byte."""
    bundle_bytes: Annotated[Counter, Field(ge=2, le=MAX_BUNDLE_BYTES)]
    key_id: Digest

    @model_validator(mode="after")
    def _consistent(self) -> Grant:
        require_sorted_unique(self.workloads, "workloads")
        if not moment(self.not_before) < moment(self.not_after):
            raise ValueError("a grant ends before it begins")
        return self

    @property
    def phase_code(self) -> Phase:
        return Phase[self.phase.upper()]

    def entry(self) -> str:
        """Its key in the log: a grant id is registered at most once in each phase."""
        return digest_of(f"dpone.grant\n{self.phase}\n{self.grant_id}".encode())

    def subject_key(self) -> str:
        """What a qualification consumes once, or the activation an execution is bound to."""
        if self.phase == "execution":
            return self.subject
        return digest_of(f"dpone.qualification\n{self.environment}\n{self.subject}".encode())

    def sign(self, key: Ed25519PrivateKey) -> SignedGrant:
        """The grant with the signature over its canonical bytes.

        :raises GrantRefused: ``key`` is not the one the grant names.
        """
        if key_id(key.public_key()) != self.key_id:
            raise GrantRefused("the private key is not the one this grant names", reason="key")
        return SignedGrant(grant=self, signature=key.sign(self.wire()).hex())


class SignedGrant(Document):
    """A grant and its Ed25519 signature."""

    max_bytes: ClassVar[int] = _DOCUMENT_BYTES
    schema_name: Literal["dpone.signed_grant.v1"] = Field(default="dpone.signed_grant.v1")
    grant: Grant
    signature: Signature

    def require_signed_under(self, policy: TrustPolicy) -> None:
        """Judge the grant under the revision it names: signer, signature, phase, window and ceilings.

        Says nothing of the present: neither whether the revision is still in force, nor the clock.

        :raises GrantRefused: with the reason.
        """
        grant = self.grant
        if (grant.environment, grant.trust_revision, grant.trust_sha256, grant.revocation_epoch) != (
            policy.environment, policy.revision, policy.digest(), policy.revocation_epoch
        ):  # fmt: skip
            raise GrantRefused("the grant names another trust policy than the one it is judged under", reason="trust")
        signer = next((s for s in policy.signers if s.key_id == grant.key_id), None)
        if signer is None or grant.phase not in signer.phases:
            raise GrantRefused(
                f"key {grant.key_id[7:19]} may not sign {grant.phase} grants of {grant.environment}", reason="signer"
            )
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer.public_key)).verify(
                bytes.fromhex(self.signature), grant.wire()
            )
        except InvalidSignature as error:
            raise GrantRefused("the signature does not fit the bytes of the grant", reason="signature") from error
        if (moment(grant.not_after) - moment(grant.not_before)).total_seconds() > policy.max_window_seconds:
            raise GrantRefused(
                f"the grant is valid for longer than the {policy.max_window_seconds} s the policy allows",
                reason="window",
            )
        above = grant.ceilings.above(policy.ceilings)
        if above or len(grant.workloads) > policy.max_workloads:
            raise GrantRefused(
                f"the grant exceeds the policy in {', '.join(above) or 'max_workloads'}", reason="ceiling"
            )

    def require_current(self, policy: TrustPolicy, now: datetime) -> None:
        """Whether the grant authorises anything now.

        :param policy: the revision in force.
        :raises GrantRefused: revoked, superseded, not yet or no longer valid.
        """
        reason = self.standing(policy, now)
        if reason != "usable":
            raise GrantRefused(f"grant {self.grant.grant_id} is {reason.replace('_', ' ')}", reason=reason)

    def standing(self, policy: TrustPolicy, now: datetime) -> str:
        """``usable``, or why it is not: ``revoked``, ``superseded``, ``not_yet_valid``, ``expired``."""
        grant = self.grant
        if grant.revocation_epoch < policy.revocation_epoch:
            return "revoked"
        if grant.trust_sha256 != policy.digest():
            return "superseded"
        if now < moment(grant.not_before):
            return "not_yet_valid"
        return "usable" if now < moment(grant.not_after) else "expired"


class Membership(Document):
    """A workload of a campaign and phase, and the grant that brought it in."""

    max_bytes: ClassVar[int] = _DOCUMENT_BYTES
    schema_name: Literal["dpone.grant_membership.v1"] = Field(default="dpone.grant_membership.v1")
    environment: Environment
    campaign_id: Uuid
    phase: PhaseName
    workload: GrantedWorkload
    grant_entry_sha256: Digest

    def subject_key(self) -> str:
        """The workload as the log keys it."""
        return self.workload.digest()

    def entry(self) -> str:
        """Its key in the log: a workload is a member of a campaign and phase once."""
        parts = ("dpone.membership", self.environment, self.campaign_id, self.phase, self.subject_key())
        return digest_of("\n".join(parts).encode())


def key_id(key: Ed25519PublicKey) -> str:
    """How documents name a public key."""
    return digest_of(key.public_bytes_raw())


def public_key(pem: bytes) -> Ed25519PublicKey:
    """A public key from its PEM form.

    :raises DocumentInvalid: not a PEM Ed25519 public key.
    """
    try:
        key = serialization.load_pem_public_key(pem)
    except ValueError as error:
        raise DocumentInvalid("not a PEM public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise DocumentInvalid("the public key is not an Ed25519 key")
    return key


def private_key(pem: bytes) -> Ed25519PrivateKey:
    """A private key from its unencrypted PEM form; never kept, never written.

    :raises DocumentInvalid: not a PEM Ed25519 private key, or encrypted.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise DocumentInvalid("not an unencrypted PEM private key") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise DocumentInvalid("the private key is not an Ed25519 key")
    return key


def policy_from(raw: bytes, *, environment: str, previous: TrustPolicy | None) -> TrustPolicy:
    """The trust policy that a person's YAML or JSON describes, as the successor of another.

    Members are those of :class:`TrustPolicy` without what follows from the predecessor; a signer is ``key`` (its public
    key in PEM form) and ``phases``. What is left out stays as it was; only ``revocation_epoch`` may be in a first one.

    :raises DocumentInvalid: not YAML, or names the member that does not fit.
    """
    try:
        given = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise DocumentInvalid("the policy is no YAML or JSON") from error
    if not isinstance(given, dict):
        raise DocumentInvalid("the policy is not a mapping of members")
    members: dict[str, object] = {"revocation_epoch": 0} if previous is None else dict(previous)
    if "signers" in given:
        given["signers"] = tuple(sorted(_signer(one) for one in given["signers"] or ()))
    if "ceilings" in given:
        given["ceilings"] = Ceilings.of(**given["ceilings"])
    derived = {"schema_name", "family", "environment", "revision", "previous_sha256"} & set(given)
    if derived:
        raise DocumentInvalid(f"{', '.join(sorted(derived))}: not given, but derived from the policy in force")
    return TrustPolicy.of(
        **members
        | given
        | {
            "family": Family.NONPRODUCTION,
            "environment": environment,
            "revision": 1 if previous is None else previous.revision + 1,
            "previous_sha256": None if previous is None else previous.digest(),
        }
    )


def _signer(given: object) -> Signer:
    if not isinstance(given, dict) or set(given) != {"key", "phases"}:
        raise DocumentInvalid("a signer has `key` and `phases`")
    key = public_key(str(given["key"]).encode())
    return Signer.of(key_id=key_id(key), public_key=key.public_bytes_raw().hex(), phases=tuple(sorted(given["phases"])))
