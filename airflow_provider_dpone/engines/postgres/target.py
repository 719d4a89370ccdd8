"""A target table of loads as PostgreSQL's catalog shows it, and what would keep it from holding exactly the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_provider_dpone.contracts.enrolment import ColumnDesign
from airflow_provider_dpone.engines.postgres.control import PostgresSession
from airflow_provider_dpone.engines.postgres.session import statement
from airflow_provider_dpone.engines.postgres.target_types import PostgresType, target_type, type_system
from airflow_provider_dpone.errors import TargetUnsupported
from airflow_provider_dpone.transfer.convert import TypeSystem

_COLUMNS = (
    "name", "declared", "base", "is_array", "element_domain", "type_namespace", "type_name", "type_class", "extension",
    "not_null", "generated", "identity", "collation", "domains", "readable",
)  # fmt: skip


@dataclass(frozen=True)
class LoadTable:
    """A target table; comparable by value, so that it can be seen to be unchanged.

    :ivar columns: the columns a load writes, in the table's order; generated ones are left out.
    """

    schema: str
    name: str
    relation_id: str
    columns: tuple[ColumnDesign, ...]
    types: dict[str, PostgresType] = field(hash=False)
    features: tuple[str, ...]

    @property
    def shown(self) -> str:
        """How people write it."""
        return f"{self.schema}.{self.name}"

    @property
    def system(self) -> TypeSystem:
        """How its columns take values."""
        return type_system(self.types)


def describe_target(session: PostgresSession, schema: str, name: str, accepted: Sequence[str] = ()) -> LoadTable:
    """One target table with everything attached to it.

    :param accepted: features an administrator accepted by name.
    :raises TargetUnsupported: there is no such table, or replacing its rows would do more or less than that.
    """
    shown = f"{schema}.{name}"
    rows = session.query(statement("target_features.sql"), {"schema": schema, "name": name, "shown": shown})
    if not rows:
        raise TargetUnsupported(f"table {shown} does not exist; create it as the owner of the schema")
    oid, kind, persistence, _, row_security, features, encoding = rows[0]
    problems = []
    if kind != "r":
        problems.append("it is no plain table")
    if persistence != "p":
        problems.append("its rows do not survive a crash (UNLOGGED or temporary)")
    if row_security:
        problems.append("row security may hide rows from a delete")
    if encoding != "UTF8":
        problems.append(f"the database is encoded in {encoding}, not UTF8")
    problems += [
        f"{feature} (accept it by name when you enrol the schema, if it may see every row deleted and inserted)"
        for feature in features
        if feature not in accepted
    ]
    if problems:
        raise TargetUnsupported(f"{shown} cannot be replaced exactly: {'; '.join(problems)}", problems=problems)
    found = session.query(statement("columns.sql"), {"relation": oid})
    columns = [dict(zip(_COLUMNS, row, strict=True)) for row in found]
    written = [column for column in columns if not column["generated"]]
    if not written:
        raise TargetUnsupported(f"{shown} has no columns")
    return LoadTable(
        schema=schema,
        name=name,
        relation_id=oid,
        columns=tuple(
            ColumnDesign(
                name=column["name"],
                type=column["declared"],
                default_kind="",
                default_expression="",
                codec="",
                comment="",
            )
            for column in written
        ),
        types={
            column["name"]: target_type(
                column["base"],
                column["type_namespace"],
                column["type_name"],
                array=column["is_array"],
                nullable=not column["not_null"],
            )
            for column in written
        },
        features=tuple(features),
    )
