"""How much space a publication takes on the server: the new generation, the old target, the retained generations.

A number the server does not give, or a table that is not there, is an error; it is never zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_dpone.contracts.limits import LimitsDocument
from airflow_provider_dpone.contracts.ports import ClickHouseControl
from airflow_provider_dpone.errors import CeilingExceeded, CounterUnreadable

_SQL = """
SELECT name, total_bytes, (SELECT groupArray((table, bytes)) FROM (
    SELECT table, sum(bytes_on_disk) AS bytes FROM system.parts
    WHERE database = {database:String} AND has({tables:Array(String)}, table) GROUP BY table))
FROM system.tables WHERE database = {database:String} AND has({tables:Array(String)}, name)
"""


@dataclass(frozen=True)
class Storage:
    """Bytes on disk, outdated parts included."""

    generation: int
    old_target: int
    retained: int
    """Earlier generations still kept; the old target is counted apart."""

    @property
    def total(self) -> int:
        """All storage the publication holds at this moment."""
        return self.generation + self.old_target + self.retained

    def require_within(self, limits: LimitsDocument) -> None:
        """Refuse when a storage ceiling is passed.

        :raises CeilingExceeded: names the ceiling.
        """
        for name, value in (
            ("max_generation_bytes", self.generation),
            ("max_retained_bytes", self.old_target + self.retained),
            ("max_total_transient_bytes", self.total),
        ):
            limit = getattr(limits, name)
            if value > limit:
                kept = name != "max_generation_bytes"
                advice = "old generations count: drop some with a RetentionOperator, or " if kept else ""
                raise CeilingExceeded(
                    f"{name} is {limit:,}, but {value:,} bytes are used; {advice}raise the ceiling in `limits` and "
                    "activate again",
                    ceiling=name,
                    value=value,
                )


def read_storage(
    control: ClickHouseControl, database: str, target: str, generation: str, retained: Sequence[str] = ()
) -> Storage:
    """Read the storage counters.

    :param retained: names of earlier generations of the same target that are still kept.
    :raises CounterUnreadable: a table is missing or the server gives no number for it.
    """
    names = [generation, target, *retained]
    rows = control.query(_SQL, {"database": database, "tables": names})
    found = {str(name): (total, dict(parts)) for name, total, parts in rows}

    def size(name: str) -> int:
        total, parts = found.get(name, (None, {}))
        if total is None:
            raise CounterUnreadable(f"the server gives no size for {database}.{name}", table=name)
        return max(int(total), int(parts.get(name, 0)))

    return Storage(size(generation), size(target), sum(size(name) for name in retained))
