"""A target table of loads as SQL Server's catalog shows it, and what would keep it from holding exactly the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_provider_dpone.contracts.enrolment import ColumnDesign
from airflow_provider_dpone.engines.mssql import scripts
from airflow_provider_dpone.engines.mssql.control import MssqlSession
from airflow_provider_dpone.engines.mssql.json_rows import json_rows
from airflow_provider_dpone.engines.mssql.row_bytes import row_bytes
from airflow_provider_dpone.engines.mssql.scripts import statement
from airflow_provider_dpone.engines.mssql.target_types import MssqlType, target_type, type_system
from airflow_provider_dpone.engines.mssql.types import declared
from airflow_provider_dpone.errors import TargetUnsupported
from airflow_provider_dpone.transfer.convert import TypeSystem
from airflow_provider_dpone.transfer.rowbinary import EncodedRows
from airflow_provider_dpone.transfer.target_types import TargetType

_COLUMNS = (
    "name", "type_name", "user_type", "is_user_defined", "is_assembly_type", "max_length", "precision", "scale",
    "is_nullable", "is_identity", "is_computed", "is_hidden", "is_masked", "is_column_set", "encryption_type",
    "collation_name", "generated_always_type", "is_deterministic", "is_persisted", "readable", "unmasked",
)  # fmt: skip


@dataclass(frozen=True)
class LoadTable:
    """A target table; comparable by value, so that it can be seen to be unchanged.

    :ivar columns: the columns a load writes, in the table's order; computed ones and rowversions are left out.
    :ivar readers_wait: whether the author lets readers wait, so that the table may be truncated.
    """

    schema: str
    name: str
    relation_id: str
    columns: tuple[ColumnDesign, ...]
    types: dict[str, MssqlType] = field(hash=False)
    features: tuple[str, ...]
    readers_wait: bool

    @property
    def shown(self) -> str:
        """How people write it."""
        return f"{self.schema}.{self.name}"

    @property
    def system(self) -> TypeSystem:
        """How its columns take values."""
        return type_system(self.types, _encode)


def _encode(batch: pa.RecordBatch, types: Sequence[TargetType]) -> EncodedRows:
    """The rows of a batch as they are digested, and the document they are sent as."""
    digested = row_bytes(batch, types)
    return EncodedRows(digested.parts, digested.offsets, wire=json_rows(batch, types))


def relation_id(session: MssqlSession, schema: str, name: str) -> str | None:
    """The server's own number of a table or view; None when there is none."""
    rows = _ask(session, "relation", schema, name)
    return str(rows[0][0]) if rows else None


def describe_target(
    session: MssqlSession, schema: str, name: str, accepted: Sequence[str] = (), *, readers_wait: bool = False
) -> LoadTable:
    """One target table with everything attached to it.

    :param accepted: features an administrator accepted by name.
    :param readers_wait: the author lets readers wait until the load is committed.
    :raises TargetUnsupported: there is no such table, or replacing its rows would do more or less than that.
    """
    shown = f"{schema}.{name}"
    rows = _ask(session, "relation", schema, name)
    if not rows:
        raise TargetUnsupported(f"table {shown} does not exist; create it in the schema as the owner of the database")
    number, kind, versions = rows[0]
    problems = [] if kind == "U" else ["it is no plain table"]
    for part in ("special", "security"):
        problems += [str(what) for (what,) in _ask(session, part, schema, name, str(number))]
    if not versions and not readers_wait:
        problems.append(
            "readers would wait for the load: set READ_COMMITTED_SNAPSHOT ON for the database, or say "
            "readers_may_wait=True"
        )
    features = sorted(
        str(feature)
        for part in ("triggers", "references", "indexed_views")
        for (feature,) in _ask(session, part, schema, name, str(number))
    )
    problems += [
        f"{feature} (accept it by name when you enrol the database, if it may see every row deleted and inserted)"
        for feature in features
        if feature not in accepted
    ]
    columns = described_columns(session, str(number))
    problems += [problem for column in columns for problem in _column_problems(column)]
    if problems:
        raise TargetUnsupported(f"{shown} cannot be replaced exactly: {'; '.join(problems)}", problems=problems)
    written = [column for column in columns if not column["is_computed"] and column["type_name"] != "timestamp"]
    if not written:
        raise TargetUnsupported(f"{shown} has no columns that can be written")
    return LoadTable(
        schema=schema,
        name=name,
        relation_id=str(number),
        columns=tuple(
            ColumnDesign(
                name=column["name"],
                type=_declared(column),
                default_kind="",
                default_expression="",
                codec="",
                comment="",
            )
            for column in written
        ),
        types=types_of(written),
        features=tuple(features),
        readers_wait=readers_wait,
    )


def described_columns(session: MssqlSession, relation: str) -> list[dict[str, Any]]:
    """The columns of a relation as the catalog shows them."""
    return [dict(zip(_COLUMNS, row, strict=True)) for row in session.query(statement("columns.sql"), int(relation))]


def types_of(columns: Sequence[dict[str, Any]]) -> dict[str, MssqlType]:
    """The types of columns by their names."""
    return {
        column["name"]: target_type(
            column["type_name"] or column["user_type"],
            _declared(column),
            nullable=bool(column["is_nullable"]),
            collation=column["collation_name"] or "",
        )
        for column in columns
    }


def _declared(column: dict[str, Any]) -> str:
    base = column["type_name"] or column["user_type"]
    return declared(base, column["max_length"], column["precision"], column["scale"])


def _column_problems(column: dict[str, Any]) -> list[str]:
    name = column["name"]
    found = {
        f"column {name} is an identity, whose values the server makes; make it plain": column["is_identity"],
        f"column {name} is encrypted": column["encryption_type"] is not None,
        f"column {name} is a column set": column["is_column_set"],
        f"column {name} is a period column": column["generated_always_type"],
    }
    return [problem for problem, holds in found.items() if holds]


def _ask(session: MssqlSession, part: str, schema: str, name: str, relation: str = "0") -> list[tuple[Any, ...]]:
    sql = scripts.parts("target_features.sql")[part]
    for word, value in (("schema", schema), ("name", name), ("shown", f"{schema}.{name}")):
        sql = sql.replace("{" + word + "}", scripts.literal(value))
    return session.query(sql.replace("{relation}", str(int(relation))))
