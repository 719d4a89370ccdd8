"""What both kinds of transfer manifests are made of."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from airflow_provider_dpone.contracts.limits import SnapshotLimits

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,250}$")]
Plain = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f{}]+$")]
Environment = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


def _named(ceilings: dict[str, int | str]) -> dict[str, int | str]:
    unknown = sorted(ceilings.keys() - CEILINGS)
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is not a ceiling; there are {', '.join(sorted(CEILINGS))}")
    if "max_source_bytes" not in ceilings:
        raise ValueError("max_source_bytes is required")
    return ceilings


#: Names of the ceilings.
CEILINGS: Final = frozenset(f.name for f in fields(SnapshotLimits))
#: Ceilings by name, as ``SnapshotLimits`` takes them.
Ceilings = Annotated[dict[str, int | str], AfterValidator(_named)]


class Endpoint(BaseModel):
    """A table behind an Airflow connection."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    conn_id: Plain
    table: Plain
    """``schema.table`` or ``database.table``; a whole table, never a query."""
