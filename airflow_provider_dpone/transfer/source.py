"""What a snapshot needs of a source database, whichever engine it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from airflow_provider_dpone.contracts.columns import SourceTable, TableAggregates, ValueKind
from airflow_provider_dpone.transfer.convert import Conversion


class Snapshot(Protocol):
    """One consistent, read-only view of one relation, open as long as its ``with`` block."""

    table: SourceTable
    snapshot_id: str
    taken_at: datetime

    def aggregates(self, conversion: Conversion) -> TableAggregates:
        """Aggregates of the planned columns in this snapshot, computed by the server."""
        ...

    def batches(self, conversion: Conversion) -> Iterator[pa.RecordBatch]:
        """All rows as Arrow batches with exactly the planned columns, in target order.

        May be iterated in another thread than :meth:`aggregates` runs in.
        """
        ...

    def cancel(self) -> None:
        """Make whatever runs in this snapshot fail soon. Safe from any thread."""
        ...


class Source(Protocol):
    """A source database as an attempt sees it."""

    def place(self) -> tuple[str, str]:
        """Server incarnation and database identity, as every :class:`SourceTable` of it carries them."""
        ...

    def primary_key(self, namespace: str, name: str) -> tuple[str, ...]:
        """The columns of a relation's primary key, in order; empty without one."""
        ...

    def describe(self, namespace: str, name: str) -> SourceTable:
        """Everything that matters about one relation; refuses what cannot be read whole and exactly."""
        ...

    def open(self, namespace: str, name: str, expected: SourceTable | None = None) -> AbstractContextManager[Snapshot]:
        """Take one snapshot of one relation; refuses when it is not as ``expected``."""
        ...

    def explain(self, kind: ValueKind, raw: object) -> str | None:
        """The source's name for a raw value its driver delivers in a changed form."""
        ...
