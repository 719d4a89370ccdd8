"""The staging table of a load, as the controller makes it, reads its content, and removes it."""

from __future__ import annotations

from contextlib import closing

import adbc_driver_postgresql.dbapi as adbc
import numpy as np

from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.engines.postgres.aggregates import staged_aggregates
from airflow_provider_dpone.engines.postgres.control import PostgresControl, PostgresSession
from airflow_provider_dpone.engines.postgres.session import literal, quoted, translated
from airflow_provider_dpone.engines.postgres.target import LoadTable
from airflow_provider_dpone.errors import ValueNotExact
from airflow_provider_dpone.transfer.convert import Conversion
from airflow_provider_dpone.transfer.digest import DigestBuilder

#: Bytes of the header of an array, before its elements.
_ARRAY_HEADER = 20


def create_staging(session: PostgresSession, table: LoadTable, staging: str, owner: str) -> None:
    """Create it empty, owned like its target. UNLOGGED: a crash empties it, and the load's own count then refuses."""
    columns = ", ".join(f"{quoted(name)} {kind.staged}" for name, kind in table.types.items())
    session.script(
        [
            f"SET LOCAL ROLE {quoted(owner)}",
            f"CREATE UNLOGGED TABLE {quoted(table.schema, staging)} ({columns}) WITH (autovacuum_enabled = off)",
        ]
    )


def drop_staging(session: PostgresSession, schema: str, only: str | None = None) -> list[str]:
    """Drop the staging tables of a schema, or one of them; their names.

    :raises ServerRefused: somebody reads one and does not let go within two seconds.
    """
    rows = session.query(
        "SELECT c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %(schema)s AND c.relkind = 'r' AND c.relname ~ '^dpone_s_[0-9a-f]{32}$' "
        "AND c.relname = COALESCE(%(only)s, c.relname)",
        {"schema": schema, "only": only},
    )
    names = [str(name) for (name,) in rows]
    if names:
        tables = ", ".join(quoted(schema, name) for name in names)
        session.script(["SET LOCAL lock_timeout = '2s'", f"DROP TABLE {tables}"])
    return names


def staging_content(control: PostgresControl, table: LoadTable, staging: str) -> Content:
    """Rows and content digest, each row's digest computed by the server from its own send functions."""
    values = ", ".join(f"pg_catalog.{kind.send}({quoted(name)})" for name, kind in table.types.items())
    # the elements of an array of byte strings are laid out as COPY lays out a row: length and bytes, NULL as -1
    row = f"pg_catalog.substr(pg_catalog.array_send(ARRAY[{values}]), {_ARRAY_HEADER + 1})"
    select = f"SELECT pg_catalog.sha256({row}) FROM {quoted(table.schema, staging)}"  # noqa: S608
    builder = DigestBuilder()
    with (
        translated(control.params, "digesting the staging table"),
        closing(adbc.connect(control.params.conninfo())) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(select)
        for batch in cursor.fetch_record_batch():
            digests = batch.column(0)
            assert digests.null_count == 0
            raw = np.frombuffer(digests.buffers()[2] or b"", np.uint8)
            builder.add_digests(raw[32 * digests.offset : 32 * (digests.offset + len(digests))])
    return builder.content()


def staging_aggregates(session: PostgresSession, conversion: Conversion, schema: str, staging: str) -> TableAggregates:
    """Aggregates of the staging table, computed by the server."""
    with session.pinned():
        return staged_aggregates(lambda sql: session.query(sql)[0], conversion, schema, staging)


def require_carried_exactly(session: PostgresSession, table: LoadTable, staging: str) -> None:
    """Values carried as text mean the same in the target's type: cast to it, they give the same text.

    :raises ValueNotExact: one does not; names column and value.
    """
    carried = {name: kind for name, kind in table.types.items() if kind.family == "Carried"}
    relation = quoted(table.schema, staging)
    with session.pinned():
        for name, kind in carried.items():
            column = quoted(name)
            odd = session.query(
                f"SELECT pg_catalog.left({column}, 80), pg_catalog.left({column}::{kind.text}::text, 80) "  # noqa: S608
                f"FROM {relation} WHERE {column}::{kind.text}::text IS DISTINCT FROM {column} LIMIT 1"
            )
            if odd:
                raise ValueNotExact(
                    f"column {name!r}: the value {odd[0][0]} does not fit {kind.text} exactly: it would become "
                    f"{odd[0][1]}. Nothing was changed; correct the value or widen the target column.",
                    column=name,
                    value=odd[0][0],
                    target_type=kind.text,
                )


def size_of(session: PostgresSession, schema: str, name: str) -> int | None:
    """Bytes a table takes now, indexes and all; None when there is none."""
    relation = quoted(schema, name)
    [(size,)] = session.query(f"SELECT pg_catalog.pg_total_relation_size(pg_catalog.to_regclass({literal(relation)}))")
    return None if size is None else int(size)
