"""What a one-time login may do, in words every SQL server shares; how an engine says them is beside its gate."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Grant:
    """Privileges on one object of a schema, or on the schema itself when ``name`` is None."""

    privileges: tuple[str, ...]
    schema: str
    name: str | None = None

    def shown(self) -> list[list[str]]:
        """The rows the catalog shows for it: kind, place, privilege, whether it may be passed on."""
        where = self.schema if self.name is None else f"{self.schema}.{self.name}"
        kind = "schema" if self.name is None else "table"
        return [[kind, where, privilege, "false"] for privilege in self.privileges]


@dataclass(frozen=True)
class WorkerRights:
    """Everything a worker may do besides connecting to the one database.

    :ivar member_of: roles whose rights it has without being able to become them.
    :ivar settings: session settings it starts with, besides the gate's own (PostgreSQL).
    :ivar connections: sessions it may have at once; None leaves that to the gate's policy (PostgreSQL).
    """

    grants: tuple[Grant, ...]
    member_of: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    connections: int | None = None
