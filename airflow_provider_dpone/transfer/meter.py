"""Counts what flows and stops it at its ceilings, while it runs. The final, independent check is made elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from airflow_provider_dpone.contracts.limits import LimitsDocument
from airflow_provider_dpone.errors import CeilingExceeded, CounterUnreadable, TooFewRows


@dataclass(frozen=True)
class StorageNumbers:
    """Bytes on the target now. A number that could not be read is None, and stops the stream."""

    generation_bytes: int | None
    retained_bytes: int | None
    """The old target and all earlier generations."""


class Meter:
    """Counters of one stream against its six ceilings.

    :param poll: reads the storage numbers; called every ``poll_seconds`` or ``poll_bytes`` of wire bytes, whichever
        comes first, and once at the end. What it raises ends the stream.
    :param min_rows: fewer rows than this at the end refuse the snapshot; 0 takes an empty one.
    """

    def __init__(
        self,
        limits: LimitsDocument,
        *,
        min_rows: int = 0,
        poll: Callable[[], StorageNumbers] | None = None,
        poll_seconds: float = 1.0,
        poll_bytes: int = 64 * 2**20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.min_rows = min_rows
        self.rows = 0
        self.source_bytes = 0
        self.wire_bytes = 0
        self.storage: StorageNumbers | None = None
        self._poll = poll
        self._poll_seconds = poll_seconds
        self._poll_bytes = poll_bytes
        self._clock = clock
        self._polled_at = clock()
        self._polled_bytes = 0

    def read(self, rows: int, source_bytes: int) -> None:
        """Count a batch that was read. :raises CeilingExceeded: rows or source bytes are above their ceiling."""
        self.rows += rows
        self.source_bytes += source_bytes
        _check("rows", self.rows, self.limits.max_rows)
        _check("source_bytes", self.source_bytes, self.limits.max_source_bytes)

    def send(self, wire_bytes: int) -> None:
        """Count bytes about to be sent, and look at the storage when it is time.

        :raises CeilingExceeded: wire bytes or storage are above their ceiling.
        :raises CounterUnreadable: a storage number could not be read.
        """
        self.wire_bytes += wire_bytes
        _check("wire_bytes", self.wire_bytes, self.limits.max_wire_bytes)
        due = self._clock() - self._polled_at >= self._poll_seconds
        if due or self.wire_bytes - self._polled_bytes >= self._poll_bytes:
            self.look()

    def look(self) -> None:
        """Read the storage numbers now and compare them with their ceilings."""
        if self._poll is None:
            return
        numbers = self._poll()
        self._polled_at, self._polled_bytes = self._clock(), self.wire_bytes
        self.storage = numbers
        generation = _known("generation_bytes", numbers.generation_bytes)
        retained = _known("retained_bytes", numbers.retained_bytes)
        _check("generation_bytes", generation, self.limits.max_generation_bytes)
        _check("retained_bytes", retained, self.limits.max_retained_bytes)
        _check("total_transient_bytes", generation + retained, self.limits.max_total_transient_bytes)

    def finish(self) -> None:
        """The source has ended and the request has not: last chance to refuse.

        :raises TooFewRows: fewer rows than ``min_rows``.
        """
        if self.rows < self.min_rows:
            raise TooFewRows(
                f"the source has {self.rows} rows, min_rows is {self.min_rows}; nothing was published",
                rows=self.rows, min_rows=self.min_rows,
            )  # fmt: skip
        self.look()


def _known(name: str, value: int | None) -> int:
    if value is None or value < 0:
        raise CounterUnreadable(
            f"{name} could not be read while the stream ran; it is never taken as zero", counter=name
        )
    return value


_LARGER: Final = "If this table is meant to be that large, raise the ceiling in `limits` and activate again."
_KEPT: Final = (
    "Old generations count: drop some with a RetentionOperator, or raise the ceiling in `limits` and activate again."
)
_ADVICE: Final = {
    "rows": _LARGER,
    "source_bytes": _LARGER,
    "wire_bytes": _LARGER,
    "generation_bytes": _LARGER,
    "retained_bytes": _KEPT,
    "total_transient_bytes": _KEPT,
}


def _check(name: str, value: int, ceiling: int) -> None:
    if value > ceiling:
        raise CeilingExceeded(
            f"{name} reached {value:,}, the ceiling max_{name} is {ceiling:,}; nothing was published. {_ADVICE[name]}",
            counter=name, value=value, ceiling=ceiling,
        )  # fmt: skip
