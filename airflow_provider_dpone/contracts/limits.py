"""Ceilings of a snapshot, with human sizes ("20 GiB"), kept apart by what they count."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from airflow_provider_dpone.contracts.canonical import MAX_COUNTER, Counter, Document
from airflow_provider_dpone.errors import LimitsInvalid

_UNITS: Final = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"\s*(\d{1,19})(?:\.(\d{1,9}))?\s*([A-Za-z]*)\s*\Z", re.ASCII)
_FLOOR: Final = 64 * 2**20


def parse_size(size: int | str, name: str = "size") -> int:
    """Bytes of ``"20 GiB"``, ``"500 MB"``, ``"1.5 GiB"`` or a plain positive integer.

    :raises LimitsInvalid: not a size, not positive, not a whole number of bytes, or above 2^63 - 1.
    """
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise LimitsInvalid(f"{name} must be a number of bytes or a text such as '20 GiB', not {size!r}")
    if isinstance(size, int):
        value = size
    else:
        match = _SIZE.match(size)
        factor = _UNITS.get(match[3].lower()) if match else None
        if match is None or factor is None:
            raise LimitsInvalid(f"{name} {size!r} is not a size; write for example '20 GiB', '500 MB' or 1048576")
        fraction = match[2] or ""
        scaled = int(match[1] + fraction) * factor
        value, rest = divmod(scaled, 10 ** len(fraction))
        if rest:
            raise LimitsInvalid(f"{name} {size!r} is not a whole number of bytes")
    if not 0 < value <= MAX_COUNTER:
        raise LimitsInvalid(f"{name} must lie between 1 byte and 2^63 - 1 bytes, not {value}")
    return value


class LimitsDocument(Document):
    """The six effective ceilings, in rows and bytes, as an intent binds them."""

    schema_name: Literal["dpone.snapshot_limits.v1"] = Field(default="dpone.snapshot_limits.v1")
    max_rows: Annotated[Counter, Field(ge=1)]
    max_source_bytes: Annotated[Counter, Field(ge=1)]
    max_wire_bytes: Annotated[Counter, Field(ge=1)]
    max_generation_bytes: Annotated[Counter, Field(ge=1)]
    max_retained_bytes: Annotated[Counter, Field(ge=1)]
    max_total_transient_bytes: Annotated[Counter, Field(ge=1)]


@dataclass(frozen=True)
class SnapshotLimits:
    """Ceilings of one snapshot, as a DAG author writes them.

    :param max_source_bytes: required; Arrow bytes read from the source, cumulative.
    :param max_rows: rows; default 10 billion.
    :param max_wire_bytes: bytes sent to the target; default four times ``max_source_bytes``.
    :param max_generation_bytes: storage of the new generation on the target; default twice ``max_source_bytes``.
    :param max_retained_bytes: storage of the old target and all earlier generations; default ten times.
    :param max_total_transient_bytes: new generation, old target and retained generations together; default the sum.

    Derived byte ceilings are never below 64 MiB. Sizes are integers or texts such as ``"20 GiB"``.

    :raises LimitsInvalid: a ceiling is missing, not positive or not a size.
    """

    max_source_bytes: int | str
    max_rows: int = 10_000_000_000
    max_wire_bytes: int | str | None = None
    max_generation_bytes: int | str | None = None
    max_retained_bytes: int | str | None = None
    max_total_transient_bytes: int | str | None = None

    def __post_init__(self) -> None:
        self.effective()

    def effective(self) -> LimitsDocument:
        """All six ceilings as plain integers."""
        source = parse_size(self.max_source_bytes, "max_source_bytes")

        def size(value: int | str | None, name: str, default: int) -> int:
            return parse_size(value, name) if value is not None else min(max(default, _FLOOR), MAX_COUNTER)

        generation = size(self.max_generation_bytes, "max_generation_bytes", 2 * source)
        retained = size(self.max_retained_bytes, "max_retained_bytes", 10 * source)
        return LimitsDocument(
            max_rows=parse_size(self.max_rows, "max_rows"),
            max_source_bytes=source,
            max_wire_bytes=size(self.max_wire_bytes, "max_wire_bytes", 4 * source),
            max_generation_bytes=generation,
            max_retained_bytes=retained,
            max_total_transient_bytes=size(
                self.max_total_transient_bytes, "max_total_transient_bytes", generation + retained
            ),
        )
