"""The stores of one ledger, or of one connection of it when several things are read together. No rules of their own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_provider_dpone.ledger.activations import CompositionActivationStore
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
from airflow_provider_dpone.ledger.journal import LedgerJournal
from airflow_provider_dpone.ledger.publications import LedgerPublicationStore
from airflow_provider_dpone.ledger.transaction import Ledger


class Stores:
    """Attempts, activations, publications and journals.

    :param before_claim: asked last, just before a publication is claimed.
    """

    def __init__(self, ledger: Ledger, before_claim: Callable[[], None] = lambda: None) -> None:
        self._ledger = ledger
        self.attempts = CompositionAttemptStore(ledger)
        self.activations = CompositionActivationStore(ledger)
        self.publications = LedgerPublicationStore(ledger, before_claim)

    @property
    def family(self) -> str:
        """Authority family of the ledger; known once something was read."""
        return self._ledger.family

    @property
    def service_id(self) -> uuid.UUID | None:
        """The installation; known once something was read."""
        return self._ledger.service_id

    def verify(self) -> None:
        """The ledger is there, the pinned one, of our schema version."""
        self._ledger.read(lambda connection: None)

    def journal(self, attempt_sha256: str) -> LedgerJournal:
        """The journal of an attempt."""
        return LedgerJournal(self._ledger, attempt_sha256)

    @contextmanager
    def together(self) -> Iterator[Stores]:
        """The same stores, reading on one fresh connection."""
        with self._ledger.together() as ledger:
            yield Stores(ledger)
