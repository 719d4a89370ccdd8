"""The relations of one managed schema of PostgreSQL, read and tidied by the controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from airflow_provider_dpone.contracts.enrolment import SchemaEnrolment
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.policy import require_enrolled
from airflow_provider_dpone.engines.postgres.rights import owner_rights
from airflow_provider_dpone.engines.postgres.session import quoted, statement
from airflow_provider_dpone.engines.sql.rights import Grant, WorkerRights
from airflow_provider_dpone.errors import ServerRefused

_KINDS: Final = {
    "r": "table", "p": "table", "v": "view", "m": "materialized_view", "f": "foreign_table", "S": "sequence",
}  # fmt: skip
_WORDS: Final = {"table": "TABLE", "view": "VIEW", "materialized_view": "MATERIALIZED VIEW"}
_DEPENDED_ON: Final = "2BP01"


class PostgresManagedSchema:
    """Sees and tidies one schema as the controller, which has the rights of its owner."""

    def __init__(self, control: PostgresControl, enrolment: SchemaEnrolment) -> None:
        self._control = control
        self._enrolment = enrolment
        self._schema = enrolment.managed_schemas[0]

    def look(self) -> None:
        """The schema is as enrolled and confined.

        :raises NotEnrolled, EnrolledElsewhere, TargetChanged, TargetUnsupported, AmbientWriter: it is not.
        """
        with self._control.fresh() as session:
            require_enrolled(session, self._enrolment)

    def rights(self, reads: Sequence[tuple[str, str]], sessions: int) -> WorkerRights:
        """The rights of the schema's owner here, and SELECT on these relations elsewhere."""
        own = owner_rights(self._schema, self._enrolment.owner)
        schemas = sorted({schema for schema, _ in reads})
        usage = tuple(Grant(("USAGE",), schema) for schema in schemas)
        return replace(
            own, connections=sessions, grants=(*own.grants, *usage, *(Grant(("SELECT",), *source) for source in reads))
        )

    def relations(self) -> dict[str, str]:
        """Name and kind of every relation; sequences a column owns are no relations of their own."""
        rows = self._control.query(statement("relations.sql"), {"schema": self._schema})
        return {str(name): _KINDS[kind] for name, kind in rows}

    def rows(self, names: Sequence[str]) -> dict[str, int]:
        """Rows of each relation, counted, all in one snapshot."""
        if not names:
            return {}
        counts = [f"(SELECT count(*) FROM {quoted(self._schema, name)})" for name in names]  # noqa: S608 - quoted
        [found] = self._control.query(f"SELECT {', '.join(counts)}")
        return dict(zip(names, (int(count) for count in found), strict=True))

    def outside_dependents(self) -> list[str]:
        """Views and foreign keys outside the schema that DROP ... CASCADE of a relation in it would take along."""
        rows = self._control.query(statement("relations_outside.sql"), {"schema": self._schema})
        return [str(described) for (described,) in rows]

    def rename(self, kind: str, name: str, new_name: str) -> None:
        """Rename a relation within the schema."""
        self._control.query(f"ALTER {_WORDS[kind]} {quoted(self._schema, name)} RENAME TO {quoted(new_name)}")

    def drop(self, kind: str, name: str) -> bool:
        """Drop a relation on which nothing depends."""
        try:
            self._control.query(f"DROP {_WORDS[kind]} {quoted(self._schema, name)}")
        except ServerRefused as refused:
            if refused.details.get("server_code") == _DEPENDED_ON:
                return False
            raise
        return True
