"""Every error this provider raises: one class per meaning, each with a stable code.

The message says what happened, where, and what to do. Details are structured and never carry a secret. Codes are
public API: they begin with ``DPONE_`` and do not change between releases.
"""

from __future__ import annotations

from typing import ClassVar


class DponeError(Exception):
    """Base of every error of this provider.

    :param message: one or two sentences for a person: what, where, what to do.
    :param details: structured facts (JSON values), without secrets.
    """

    code: ClassVar[str] = "DPONE_ERROR"
    #: True when a later try of the same task may succeed without anybody changing anything.
    retryable: bool = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Refused(DponeError):
    """The request was refused; nothing was reserved, created or changed by the refused step."""

    code = "DPONE_REFUSED"


# --- documents ------------------------------------------------------------------------------------------------


class DocumentInvalid(Refused):
    """Bytes that should be one of our documents are missing, altered, not canonical or out of range."""

    code = "DPONE_DOCUMENT_INVALID"


class LimitsInvalid(Refused):
    """A ceiling is missing, not positive, not a size, or contradicts another."""

    code = "DPONE_LIMITS_INVALID"


# --- values and types (transfer) ------------------------------------------------------------------------------


class TypeNotMapped(Refused):
    """A source or target column type has no exact mapping; see docs/types.md."""

    code = "DPONE_TYPE_NOT_MAPPED"


class DesignMismatch(Refused):
    """Source and target columns do not fit: missing, extra, ambiguous or nullable against not nullable."""

    code = "DPONE_DESIGN_MISMATCH"


class ValueNotExact(Refused):
    """A value cannot be held exactly by the target type; names column and value."""

    code = "DPONE_VALUE_NOT_EXACT"


class CeilingExceeded(Refused):
    """A ceiling (rows, source bytes, wire bytes, generation, retained or transient storage) was passed."""

    code = "DPONE_CEILING_EXCEEDED"


class CounterUnreadable(Refused):
    """A number a ceiling or a proof rests on could not be read; it is never taken as zero."""

    code = "DPONE_COUNTER_UNREADABLE"


class TooFewRows(Refused):
    """The source has fewer rows than the author's ``min_rows`` guard."""

    code = "DPONE_TOO_FEW_ROWS"


# --- servers --------------------------------------------------------------------------------------------------


class ServerRefused(DponeError):
    """A server answered a statement with an error code; ``details`` carries ``server_code``.

    :param passes: whether what the code says passes by itself, such as overload or a deadlock. Each engine knows its
        own codes: the same number means another thing elsewhere.
    """

    code = "DPONE_SERVER_REFUSED"

    def __init__(self, message: str, *, passes: bool, **details: object) -> None:
        super().__init__(message, **details)
        self.retryable = passes


class ServerUnreachable(DponeError):
    """A server could not be reached, and nothing was sent."""

    code = "DPONE_SERVER_UNREACHABLE"
    retryable = True


class AnswerLost(DponeError):
    """A statement was sent and no complete answer was read: its effect is unknown until observed."""

    code = "DPONE_ANSWER_LOST"
    retryable = True


class DriverFailed(DponeError):
    """A database driver gave up by itself: the server refused nothing and the connection is not lost.

    A statement's effect is unknown until observed; a retry would only repeat it.
    """

    code = "DPONE_DRIVER_FAILED"


class ViewIncomplete(DponeError):
    """A catalog view could not be proved complete, so nothing may be concluded from it."""

    code = "DPONE_VIEW_INCOMPLETE"
    retryable = True


# --- target ---------------------------------------------------------------------------------------------------


class TargetUnsupported(Refused):
    """The target has a feature that forbids an exact swap, such as a view, a mutation, or another engine."""

    code = "DPONE_TARGET_UNSUPPORTED"


class TargetChanged(Refused):
    """The target no longer carries the table of the last publication or its accepted design; re-enrol it."""

    code = "DPONE_TARGET_CHANGED"


class AmbientWriter(Refused):
    """A principal outside the enrolment's administrators can write the target."""

    code = "DPONE_AMBIENT_WRITER"


class TableNotKept(DponeError):
    """The server said it made a table but does not show the design it was given; the table was dropped again."""

    code = "DPONE_TABLE_NOT_KEPT"


class NotEnrolled(Refused):
    """The target or its database carries no marker of this ledger."""

    code = "DPONE_NOT_ENROLLED"


class EnrolledElsewhere(Refused):
    """The database carries the marker of another ledger."""

    code = "DPONE_ENROLLED_ELSEWHERE"


class ReconciliationFailed(Refused):
    """Source and generation differ in a count, an aggregate or the content digest."""

    code = "DPONE_RECONCILIATION_FAILED"


# --- ledger, admission, recovery ------------------------------------------------------------------------------


class LedgerBusy(DponeError):
    """The ledger lock was not free within its bounded wait; nothing changed."""

    code = "DPONE_LEDGER_BUSY"
    retryable = True


class LedgerUnavailable(DponeError):
    """The control database could not be reached; nothing was committed."""

    code = "DPONE_LEDGER_UNAVAILABLE"
    retryable = True


class LedgerMismatch(Refused):
    """The control database is not the pinned, installed ledger (service id, schema version or layout differ)."""

    code = "DPONE_LEDGER_MISMATCH"


class FamilyForeign(LedgerMismatch):
    """A production document was brought to a nonproduction ledger, or the other way round."""

    code = "DPONE_FAMILY_FOREIGN"


class DriverTraced(Refused):
    """The driver manager traces statements or pools connections; passwords would be kept, sessions reused."""

    code = "DPONE_DRIVER_TRACED"


class LedgerExists(Refused):
    """Installation found tables of ours or legacy writable names, and refuses to adopt them."""

    code = "DPONE_LEDGER_EXISTS"


class LedgerRule(Refused):
    """The database refused a write that would break a promise; ``details`` names the rule."""

    code = "DPONE_LEDGER_RULE"


class CommitUnknown(DponeError):
    """A ledger commit was not acknowledged and its read-back was not exact; nothing may rest on it."""

    code = "DPONE_LEDGER_COMMIT_UNKNOWN"
    retryable = True


class AdmissionUnavailable(Refused):
    """The capabilities an activation needs were not all injected."""

    code = "DPONE_COMPOSITION_ADMISSION_UNAVAILABLE"


class ActivationCommitUnknown(DponeError):
    """The current pointer may have moved although its acknowledgement is missing; recovery is required."""

    code = "DPONE_COMPOSITION_ACTIVATION_COMMIT_UNKNOWN"


class ActivationMissing(Refused):
    """No activation is ACTIVE in this environment, or it does not contain this workload as declared."""

    code = "DPONE_NOT_IN_ACTIVE_RELEASE"


class ReleaseChanging(ActivationMissing):
    """The release of this environment is being handed over; a later try finds the one that is active then."""

    code = "DPONE_RELEASE_CHANGING"
    retryable = True


class ActivationRefused(Refused):
    """A release cannot be activated: colliding writes, unsupported cell, missing declaration, unresolved attempt."""

    code = "DPONE_ACTIVATION_REFUSED"


class ActivationStale(Refused):
    """What was prepared rests on something that changed since: predecessor, context, release, epochs or pointer."""

    code = "DPONE_ACTIVATION_STALE"


class TrustMissing(Refused):
    """The ledger has no trust policy for this environment, so nobody may sign a grant for it."""

    code = "DPONE_TRUST_MISSING"


class TrustChanged(Refused):
    """The trust policy in force is another than the one this was made against; nothing was recorded."""

    code = "DPONE_TRUST_CHANGED"


class TrustRefused(Refused):
    """A trust policy cannot be recorded: a production ledger, or its revocation epoch would decrease."""

    code = "DPONE_TRUST_REFUSED"


class GrantRefused(Refused):
    """A grant authorises nothing here; ``details`` carries ``reason``. Nothing was recorded or reserved."""

    code = "DPONE_GRANT_REFUSED"


class GrantConsumed(Refused):
    """A grant id, or the run a qualification is for, was registered before with something else."""

    code = "DPONE_GRANT_CONSUMED"


class GrantMissing(Refused):
    """The trust policy demands a grant, and no registered one admits this attempt now; nothing was reserved."""

    code = "DPONE_GRANT_MISSING"


class PhysicalConflict(Refused):
    """Bindings or names of a release are physically one place or one relation, or a claimed place is another."""

    code = "DPONE_PHYSICAL_CONFLICT"


class ManifestInvalid(Refused):
    """A transfer manifest cannot be read or says something it may not; names file and line."""

    code = "DPONE_MANIFEST_INVALID"


class ReleaseAltered(Refused):
    """A release directory is not, to the last byte, what its builder wrote, or is another release."""

    code = "DPONE_RELEASE_ALTERED"


class RunsActive(DponeError):
    """DAG runs of a release are still active; retirement waits for them."""

    code = "DPONE_RUNS_ACTIVE"
    retryable = True


class InstanceUnbound(Refused):
    """The operator runs outside a task instance the listener has bound."""

    code = "DPONE_INSTANCE_UNBOUND"


class AlreadyAdmitted(Refused):
    """This task instance was admitted before; an attempt is admitted once and gets one set of credentials."""

    code = "DPONE_ALREADY_ADMITTED"


class GuardHeld(DponeError):
    """Another attempt holds the guard; wait for it, or settle it."""

    code = "DPONE_GUARD_HELD"
    retryable = True


class Fenced(Refused):
    """The attempt was fenced by a later one: it may not issue, claim or publish any more."""

    code = "DPONE_FENCED"


class Stopped(DponeError):
    """The task was asked to stop; nothing was claimed after that."""

    code = "DPONE_STOPPED"
    retryable = True


class AlreadyClaimed(Refused):
    """Another caller claimed this publication; its publisher is left alone."""

    code = "DPONE_ALREADY_CLAIMED"


class ClaimUncertain(DponeError):
    """The claim's commit or read-back is in doubt; nothing was sent."""

    code = "DPONE_CLAIM_UNCERTAIN"
    retryable = True


class PublicationUnknown(DponeError):
    """Observation could not decide whether the swap happened; the guards stay held until it is settled."""

    code = "DPONE_COMMIT_UNKNOWN"


class AdjudicationRefused(Refused):
    """An administrator decides only an attempt that observation could not settle: one that is COMMIT_UNKNOWN."""

    code = "DPONE_ADJUDICATION_REFUSED"


class OutcomePending(DponeError):
    """Closing or observing failed for now; the attempt stays held and a later try looks again."""

    code = "DPONE_OUTCOME_PENDING"
    retryable = True


class NotPublished(DponeError):
    """The swap provably did not happen; the target is untouched and a new try may copy again."""

    code = "DPONE_NOT_PUBLISHED"
    retryable = True


class GateNotClosed(DponeError):
    """A principal could not be proved closed and quiet; its guard stays held."""

    code = "DPONE_GATE_NOT_CLOSED"
    retryable = True


class GateRefused(Refused):
    """A principal could not be issued or verified; it was closed again."""

    code = "DPONE_GATE_REFUSED"


# --- source ---------------------------------------------------------------------------------------------------


class SourceMissing(Refused):
    """The source relation does not exist, or its name cannot be read."""

    code = "DPONE_SOURCE_MISSING"


class SourceUnsupported(Refused):
    """The source relation cannot be read as one consistent, complete snapshot: a view, a foreign or temporary table."""

    code = "DPONE_SOURCE_UNSUPPORTED"


class SourceNotReadable(Refused):
    """The reading login may not see all columns and rows: a missing privilege, row security or masking."""

    code = "DPONE_SOURCE_NOT_READABLE"


class SourceChanged(Refused):
    """The source relation is no longer the one that was planned; plan again."""

    code = "DPONE_SOURCE_CHANGED"


# --- local stack ----------------------------------------------------------------------------------------------


class LocalStackFailed(DponeError):
    """A server of the local stack does not start or stop, is not there, or refused a statement; the message tells."""

    code = "DPONE_LOCAL_STACK_FAILED"


class RemovalRefused(DponeError):
    """A retained generation was not removed; it is back under its name and can be removed later."""

    code = "DPONE_REMOVAL_REFUSED"


class DeclarationInvalid(Refused):
    """An operator's parameter is malformed, templated where it must be literal, or of a kind that is not supported."""

    code = "DPONE_DECLARATION_INVALID"


class ConnectionInvalid(Refused):
    """A field of an Airflow connection is unknown or cannot be read; nothing was connected."""

    code = "DPONE_CONNECTION_INVALID"


# --- dbt ------------------------------------------------------------------------------------------------------


class DbtUnusable(Refused):
    """dbt, its adapter or a working directory for it is not there; the task's machine has to be set up."""

    code = "DPONE_DBT_UNUSABLE"


class DbtProjectInvalid(Refused):
    """The dbt project is not there, does not parse, or its selection is not one."""

    code = "DPONE_DBT_PROJECT_INVALID"


class DbtRelationOutside(Refused):
    """Nodes of the dbt project write outside the managed schema; names every one."""

    code = "DPONE_DBT_RELATION_OUTSIDE"


class DbtRelationRefused(Refused):
    """What the dbt project writes is unknown, collides, is too long, or would drop what others depend on."""

    code = "DPONE_DBT_RELATION_REFUSED"


class DbtModelFailed(DponeError):
    """A model, seed or snapshot failed; models that had finished before it are in place."""

    code = "DPONE_DBT_MODEL_FAILED"
    retryable = True


class DbtTestFailed(DponeError):
    """Everything that was due was built, and a test says the data is wrong."""

    code = "DPONE_DBT_TEST_FAILED"
    retryable = True


class DbtInterrupted(DponeError):
    """dbt ended without a complete account of its run: killed, stopped, or out of memory."""

    code = "DPONE_DBT_INTERRUPTED"
    retryable = True


class DbtTargetUnexpected(DponeError):
    """The managed schema is not what the run should have left, whatever dbt says: a relation is missing, for one."""

    code = "DPONE_DBT_TARGET_UNEXPECTED"
    retryable = True
