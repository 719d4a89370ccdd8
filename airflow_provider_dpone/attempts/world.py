"""What an attempt works with: the ledger's stores and one target server, wired once per task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from airflow_provider_dpone.contracts.canonical import Document
from airflow_provider_dpone.contracts.ports import Gate
from airflow_provider_dpone.contracts.states import AttemptState
from airflow_provider_dpone.ledger.activations import Guard
from airflow_provider_dpone.ledger.attempts import StoredAttempt
from airflow_provider_dpone.ledger.journal import LedgerJournal
from airflow_provider_dpone.ledger.stores import Stores
from airflow_provider_dpone.ledger.transaction import Ledger

G = TypeVar("G", bound=Gate)


def utc_now() -> str:
    """Now, UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True)
class Observed:
    """How an attempt ended, as its target shows it."""

    state: AttemptState
    receipt: Document | None = None
    """Kept when the attempt SUCCEEDED."""
    publication_sha256: str | None = None
    """Digest of the last record of its publication, where the cell has one."""
    code: str | None = None
    reason: str | None = None
    """What was seen, when that says more than the error that ended the attempt."""


class Outcomes(Protocol):
    """Observes how attempts of one cell ended. Never copies, issues or sends anything."""

    def observe(self, stored: StoredAttempt, milliseconds: dict[str, int], done: Document | None) -> Observed:
        """Look at the target once all gates of the attempt are closed.

        :param done: the receipt of an attempt that itself did all it was admitted for, where its cell makes one.
        :raises OutcomePending: it cannot be observed now; the guards stay held.
        """
        ...

    def last_record(self, stored: StoredAttempt) -> str | None:
        """Digest of the last record of the attempt's publication, for an outcome that is not observed."""
        ...


class World(ABC, Generic[G]):
    """The ledger's stores and the gates on one target server, for one task.

    :param service_id: incarnation of the target server, as just proved.
    :param checkpoint: called before each step that issues or claims; raises to stop it.
    """

    def __init__(self, ledger: Ledger, service_id: str, checkpoint: Callable[[], None] = lambda: None) -> None:
        self.ledger = ledger
        self.service_id = service_id
        self.checkpoint = checkpoint
        self.gates: dict[str, G] = {}
        stores = Stores(ledger, checkpoint)
        self.stores = stores
        self.attempts, self.activations, self.publications = stores.attempts, stores.activations, stores.publications
        self.together = stores.together

    @abstractmethod
    def make_gate(self, attempt_sha256: str, held: Sequence[Guard]) -> G:
        """The gate of an attempt that holds these guards."""

    @abstractmethod
    def outcomes(self, stored: StoredAttempt) -> Outcomes:
        """Who observes how this attempt ended."""

    @abstractmethod
    def usable_names(self) -> list[str]:
        """Issued principals on the server that could log in."""

    @abstractmethod
    def is_stand_in(self) -> bool:
        """Whether the target is a local development server."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection this world holds open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def journal(self, attempt_sha256: str) -> LedgerJournal:
        """The journal of an attempt."""
        return LedgerJournal(self.ledger, attempt_sha256)

    def gate_of(self, attempt_sha256: str, held: Sequence[Guard] | None = None) -> G:
        """The gate of an attempt, made once: it remembers what this process issued.

        :param held: the guards the attempt holds, when the caller knows; otherwise they are read.
        """
        if attempt_sha256 not in self.gates:
            held = self._held(attempt_sha256) if held is None else held
            self.gates[attempt_sha256] = self.make_gate(attempt_sha256, held)
        return self.gates[attempt_sha256]

    def gates_made(self, attempt_sha256: str | None) -> list[G]:
        """The gate this process made for an attempt, if it did; asks nobody."""
        return [gate for sha256, gate in list(self.gates.items()) if sha256 == attempt_sha256]

    def _held(self, attempt_sha256: str) -> list[Guard]:
        with self.together() as ledger:
            epochs = ledger.attempts.read_exact(attempt_sha256).identity.guard_epochs
            found = [ledger.activations.guard(held.guard_id) for held in epochs]
        return [guard for guard in found if guard is not None]
