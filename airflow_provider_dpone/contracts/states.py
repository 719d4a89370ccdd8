"""Closed vocabularies and state machines, as tables of allowed moves.

The integer codes are what the ledger stores; the database enforces the same moves in its triggers.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Family(StrEnum):
    """Authority family; stamped into every document, never convertible."""

    PRODUCTION = "production"
    NONPRODUCTION = "nonproduction"


class Connector(StrEnum):
    """A kind of server."""

    CLICKHOUSE = "clickhouse"
    MSSQL = "mssql"
    POSTGRES = "postgres"


class Purpose(StrEnum):
    """What an issued principal is for."""

    INGEST = "ingest"
    PUBLISHER = "publisher"
    REMOVER = "remover"
    WORKER = "worker"


class ActivationState(IntEnum):
    PREPARED = 1
    ACTIVE = 2
    RETIRING = 3
    RETIRED = 4


class AttemptState(IntEnum):
    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3
    COMMIT_UNKNOWN = 4


class GateState(IntEnum):
    JOURNALED = 1
    READY = 2
    CLOSING = 3
    CLOSED = 4


class DispatchState(IntEnum):
    CLAIMED = 1
    ANSWERED = 2
    """The server's answer, success or error, was read completely."""
    SETTLED = 3
    """No answer was read; the closed gate proves that the statement has no further effect."""


class PublicationState(IntEnum):
    PREPARED = 1
    EXCHANGE_INTENT = 2
    PUBLISHED = 3
    NOT_PUBLISHED = 4
    COMMIT_UNKNOWN = 5


ACTIVATION_MOVES = {
    ActivationState.PREPARED: {ActivationState.ACTIVE, ActivationState.RETIRED},  # the latter cancels it
    ActivationState.ACTIVE: {ActivationState.RETIRING},
    ActivationState.RETIRING: {ActivationState.RETIRED},
    ActivationState.RETIRED: set[ActivationState](),
}
ATTEMPT_MOVES = {
    AttemptState.RUNNING: {AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.COMMIT_UNKNOWN},
    AttemptState.COMMIT_UNKNOWN: {AttemptState.SUCCEEDED, AttemptState.FAILED},
    AttemptState.SUCCEEDED: set[AttemptState](),
    AttemptState.FAILED: set[AttemptState](),
}
GATE_MOVES = {
    GateState.JOURNALED: {GateState.READY, GateState.CLOSING},
    GateState.READY: {GateState.CLOSING},
    GateState.CLOSING: {GateState.CLOSED},
    GateState.CLOSED: set[GateState](),
}
PUBLICATION_MOVES = {
    PublicationState.PREPARED: {PublicationState.EXCHANGE_INTENT, PublicationState.NOT_PUBLISHED},
    PublicationState.EXCHANGE_INTENT: {
        PublicationState.PUBLISHED,
        PublicationState.NOT_PUBLISHED,
        PublicationState.COMMIT_UNKNOWN,
    },
    PublicationState.COMMIT_UNKNOWN: {
        PublicationState.PUBLISHED,
        PublicationState.NOT_PUBLISHED,
        PublicationState.COMMIT_UNKNOWN,
    },
    PublicationState.PUBLISHED: set[PublicationState](),
    PublicationState.NOT_PUBLISHED: set[PublicationState](),
}
#: Smallest and largest revision each publication state can carry (None: no upper bound).
PUBLICATION_REVISIONS: dict[PublicationState, tuple[int, int | None]] = {
    PublicationState.PREPARED: (1, 1),
    PublicationState.EXCHANGE_INTENT: (2, 2),
    PublicationState.PUBLISHED: (3, None),
    PublicationState.NOT_PUBLISHED: (2, None),
    PublicationState.COMMIT_UNKNOWN: (3, None),
}
TERMINAL_PUBLICATIONS = frozenset({PublicationState.PUBLISHED, PublicationState.NOT_PUBLISHED})
TERMINAL_ATTEMPTS = frozenset({AttemptState.SUCCEEDED, AttemptState.FAILED})
