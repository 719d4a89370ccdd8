"""The relations of one managed schema of a database, read and tidied by the controller, who owns it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from airflow_provider_dpone.contracts.enrolment import SchemaEnrolment
from airflow_provider_dpone.engines.mssql import scripts
from airflow_provider_dpone.engines.mssql.control import MssqlControl
from airflow_provider_dpone.engines.mssql.install import WRITER_ROLE
from airflow_provider_dpone.engines.mssql.policy import require_enrolled
from airflow_provider_dpone.engines.mssql.scripts import quoted
from airflow_provider_dpone.engines.sql.rights import Grant, WorkerRights
from airflow_provider_dpone.errors import TargetUnsupported

_KINDS: Final = {"U": "table", "V": "view", "SN": "synonym", "SO": "sequence"}


class MssqlManagedSchema:
    """Sees and tidies one schema as the controller."""

    def __init__(self, control: MssqlControl, enrolment: SchemaEnrolment, schema: str) -> None:
        self._control = control
        self._enrolment = enrolment
        self._schema = schema

    def look(self) -> None:
        """The database is as enrolled and confined.

        :raises NotEnrolled, EnrolledElsewhere, TargetChanged, TargetUnsupported, AmbientWriter: it is not.
        """
        with self._control.fresh() as session:
            require_enrolled(self._control, session, self._enrolment)

    def rights(self, reads: Sequence[tuple[str, str]], sessions: int) -> WorkerRights:
        """The bounded role, and SELECT on these relations elsewhere in the database."""
        managed = self._enrolment.managed_schemas
        grants = tuple(Grant(("SELECT",), *source) for source in reads if source[0] not in managed)
        return WorkerRights(grants=grants, member_of=(WRITER_ROLE,))

    def relations(self) -> dict[str, str]:
        """Name and kind of every relation."""
        rows = self._control.query(self._placed("relations"))
        return {str(name): _KINDS[str(kind).strip()] for name, kind in rows}

    def rows(self, names: Sequence[str]) -> dict[str, int]:
        """Rows of each relation, counted."""
        if not names:
            return {}
        counts = [f"(SELECT COUNT_BIG(*) FROM {quoted(self._schema, name)}) AS n{i}" for i, name in enumerate(names)]  # noqa: S608
        [found] = self._control.query(f"SELECT {', '.join(counts)}")
        return dict(zip(names, (int(count) for count in found), strict=True))

    def outside_dependents(self) -> list[str]:
        """Modules outside the schema that read a relation in it, which a drop of it would break."""
        return [str(described) for (described,) in self._control.query(self._placed("outside"))]

    def rename(self, kind: str, name: str, new_name: str) -> None:
        """Rename a relation within the schema."""
        if kind not in ("table", "view"):
            raise TargetUnsupported(f"{self._schema}.{name} is a {kind}; only tables and views are renamed")
        self._control.query(
            f"EXEC sp_rename {scripts.literal(quoted(self._schema, name))}, {scripts.literal(new_name)}, 'OBJECT'"
        )

    def drop(self, kind: str, name: str) -> bool:
        """Drop a relation on which nothing depends."""
        if self._control.query(self._placed("dependents").replace("{name}", scripts.literal(name))):
            return False
        self._control.query(f"DROP {kind.upper()} {quoted(self._schema, name)}")
        return True

    def _placed(self, part: str) -> str:
        return scripts.parts("relations.sql")[part].replace("{schema}", scripts.literal(self._schema))
