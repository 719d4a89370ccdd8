"""The relations of one managed schema of PostgreSQL, read and tidied by the controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.session import quoted, statement
from airflow_provider_dpone.errors import ServerRefused

_KINDS: Final = {
    "r": "table", "p": "table", "v": "view", "m": "materialized_view", "f": "foreign_table", "S": "sequence",
}  # fmt: skip
_WORDS: Final = {"table": "TABLE", "view": "VIEW", "materialized_view": "MATERIALIZED VIEW"}
_DEPENDED_ON: Final = "2BP01"


class PostgresSchemaCatalog:
    """Sees and tidies one schema as the controller, which has the rights of its owner."""

    def __init__(self, control: PostgresControl, schema: str) -> None:
        self._control = control
        self._schema = schema

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
