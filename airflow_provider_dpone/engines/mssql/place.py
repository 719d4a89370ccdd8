"""Which physical database is behind a SQL Server connection, and which names are one relation in it.

No value of an instance is both unique and stable, so the place is the incarnation of the database: its GUID, recovery
fork, creation and broker. An in-place restore to an older point, a copy and a new database are each another place.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, Final

import pyodbc

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.enrolment import DatabaseMarker
from airflow_provider_dpone.engines.mssql.control import MssqlSession
from airflow_provider_dpone.engines.mssql.scripts import statement
from airflow_provider_dpone.engines.mssql.session import connect, translated
from airflow_provider_dpone.errors import EnrolledElsewhere, PhysicalConflict, TargetUnsupported
from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams

#: Longest identifier, in UTF-16 units; a longer one would be cut before it is compared.
_LONGEST: Final = 128
_HOLD: Final = """SET NOCOUNT ON;
DECLARE @rc int;
EXEC @rc = sys.sp_getapplock @Resource = ?, @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 0,
  @DbPrincipal = N'public';
SELECT @rc"""
_RELEASE: Final = """SET NOCOUNT ON;
EXEC sys.sp_releaseapplock @Resource = ?, @LockOwner = N'Session', @DbPrincipal = N'public';
SELECT 0"""
_FREE: Final = "SELECT APPLOCK_TEST(N'public', ?, N'Exclusive', N'Session')"
_MARKER: Final = """IF OBJECT_ID(N'dpone_gate.marker') IS NOT NULL
  SELECT CONVERT(nvarchar(max), document), sha256 FROM dpone_gate.marker"""


def place(params: MssqlParams) -> tuple[str, str, str | None]:
    """Incarnation, database GUID, and the ledger the database's marker names.

    :raises TargetUnsupported: its identity is not visible, or it is offline, read only, a snapshot, contained or
        replicated.
    :raises EnrolledElsewhere: the marker is altered.
    """
    with connect(params) as connection:
        rows = _rows(params, connection, statement("place.sql"))
        marked = _rows(params, connection, _MARKER)
    incarnation, database = _incarnation(params, rows)
    return incarnation, database, _ledger(params, marked)


def incarnation_of(session: MssqlSession, params: MssqlParams) -> str:
    """Incarnation of the database a session is in.

    :raises TargetUnsupported: as for :func:`place`.
    """
    return _incarnation(params, session.query(statement("place.sql")))[0]


def _incarnation(params: MssqlParams, rows: Sequence[Sequence[Any]]) -> tuple[str, str]:
    if len(rows) != 1 or any(value is None for value in rows[0][:5]):
        raise TargetUnsupported(
            f"the identity of database {params.place} is not visible to {params.user!r}; it needs VIEW ANY DATABASE"
        )
    *identity, state, read_only, snapshot_of, containment, replica = rows[0]
    refused = {
        "not online": state != 0,
        "read only": bool(read_only),
        "a database snapshot": snapshot_of is not None,
        "contained": containment != 0,
        "in an availability group": replica is not None,
    }
    if any(refused.values()):
        found = ", ".join(what for what, holds in refused.items() if holds)
        raise TargetUnsupported(f"database {params.place} is {found}; a target is an ordinary database that is online")
    tuple_text = "\n".join(["dpone.mssql_incarnation.v1", *(str(value).strip().lower() for value in identity)])
    return digest_of(tuple_text.encode()), str(identity[1]).strip().lower()


def equivalence(params: MssqlParams, relations: Sequence[tuple[str, str]]) -> list[int]:
    """One class number per schema and name, from one statement under the database's own collation.

    :raises TargetUnsupported: a name is too long or empty, so that the server would compare something else.
    """
    for schema, name in relations:
        for part in (schema, name):
            if not part or len(part.encode("utf-16-le")) // 2 > _LONGEST:
                raise TargetUnsupported(f"{schema}.{name}: a name has 1 to {_LONGEST} characters there")
    given = json.dumps([{"i": i, "s": schema, "r": name} for i, (schema, name) in enumerate(relations)])
    with connect(params) as connection:
        rows = _rows(params, connection, statement("equivalence.sql"), given)
    if [int(row[0]) for row in rows] != list(range(len(relations))):
        raise PhysicalConflict(f"the server compared {len(rows)} of {len(relations)} names")
    return [int(row[1]) for row in rows]


def same_place(one: MssqlParams, other: MssqlParams) -> bool:
    """Whether a lock taken through one connection is held through the other, and free when it is given back.

    :raises PhysicalConflict: the probe did not end, so nothing is known.
    """
    name = f"dpone-place-{secrets.token_hex(16)}"
    with connect(one) as holding, connect(other) as looking:
        [(taken,)] = _rows(one, holding, _HOLD, name)
        [(free,)] = _rows(other, looking, _FREE, name)
        _rows(one, holding, _RELEASE, name)
        [(freed,)] = _rows(other, looking, _FREE, name)
    if int(taken) < 0 or int(freed) != 1:
        raise PhysicalConflict(f"the probe through {one.place} and {other.place} did not end; nothing is known of them")
    return int(free) == 0


def _rows(params: MssqlParams, connection: pyodbc.Connection, sql: str, *values: Any) -> list[Any]:
    """Rows of the last result that has any; every result set is drained, where late errors show."""
    rows: list[Any] = []
    with translated(params, "a question about the place"):
        cursor = connection.cursor()
        cursor.execute(sql, *values)
        while True:
            if cursor.description is not None:
                rows = cursor.fetchall()
            if not cursor.nextset():
                return rows


def _ledger(params: MssqlParams, marked: Sequence[Any]) -> str | None:
    if not marked:
        return None
    raw = str(marked[0][0]).encode()
    if len(marked) != 1 or digest_of(raw) != marked[0][1]:
        raise EnrolledElsewhere(f"{params.place} does not hold exactly one unaltered marker; ask who wrote it")
    return DatabaseMarker.parse(raw).ledger_service_id
