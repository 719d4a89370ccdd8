"""The staging table of a load, as the controller makes it, reads its content, and removes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.engines.postgres.aggregates import staged_aggregates
from airflow_provider_dpone.engines.postgres.control import PostgresControl, PostgresSession
from airflow_provider_dpone.engines.postgres.session import arrow_session, literal, quoted, translated
from airflow_provider_dpone.engines.postgres.target import LoadTable
from airflow_provider_dpone.engines.postgres.target_types import PostgresType
from airflow_provider_dpone.errors import ServerRefused, ValueNotExact
from airflow_provider_dpone.transfer.convert import Conversion
from airflow_provider_dpone.transfer.digest import DigestBuilder

#: Bytes of the header of an array, before its elements.
_ARRAY_HEADER: Final = 20
#: Somebody holds it, or dropped it meanwhile.
_IN_USE_OR_GONE: Final = ("55P03", "42P01")


def create_staging(session: PostgresSession, table: LoadTable, staging: str, owner: str) -> None:
    """Create it empty, owned like its target. UNLOGGED: a crash empties it, and the load's own count then refuses."""
    columns = ", ".join(f"{quoted(name)} {kind.staged}" for name, kind in table.types.items())
    session.script(
        [
            f"SET LOCAL ROLE {quoted(owner)}",
            f"CREATE UNLOGGED TABLE {quoted(table.schema, staging)} ({columns}) WITH (autovacuum_enabled = off)",
        ]
    )


def drop_staging(session: PostgresSession, schema: str, names: Sequence[str]) -> list[str]:
    """Drop these staging tables of a schema where they exist; the names of those that somebody still reads."""
    rows = session.query(
        "SELECT c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %(schema)s AND c.relkind = 'r' AND c.relname ~ '^dpone_s_[0-9a-f]{32}$' "
        "AND c.relname = ANY (%(names)s)",
        {"schema": schema, "names": list(names)},
    )
    read: list[str] = []
    for (name,) in rows:
        try:
            session.script(["SET LOCAL lock_timeout = '2s'", f"DROP TABLE {quoted(schema, name)}"])
        except ServerRefused as error:
            session.query("ROLLBACK")
            if error.details.get("server_code") not in _IN_USE_OR_GONE:
                raise
            read.append(str(name))
    return read


def _digests_sql(table: LoadTable, name: str, shown: Callable[[str, PostgresType], str]) -> str:
    """The digest of each row of a table of these columns, computed by the server from its own send functions."""
    values = ", ".join(f"pg_catalog.{kind.send}({shown(name, kind)})" for name, kind in table.types.items())
    # the elements of an array of byte strings are laid out as COPY lays out a row: length and bytes, NULL as -1
    row = f"pg_catalog.substr(pg_catalog.array_send(ARRAY[{values}]), {_ARRAY_HEADER + 1})"
    return f"SELECT pg_catalog.sha256({row}) FROM {quoted(table.schema, name)}"  # noqa: S608


def target_content(session: PostgresSession, table: LoadTable) -> Content:
    """Rows and content digest of the target, as the transaction sees it that is open on the session."""

    def shown(name: str, kind: PostgresType) -> str:
        return f"{quoted(name)}::text" if kind.family == "Carried" else quoted(name)

    builder = DigestBuilder()
    for digests in session.fetched(_digests_sql(table, table.name, shown)):
        builder.add_digests(np.frombuffer(digests, np.uint8))
    return builder.content()


def staging_content(control: PostgresControl, table: LoadTable, staging: str) -> Content:
    """Rows and content digest of the staging table."""
    select = _digests_sql(table, staging, lambda name, kind: quoted(name))
    builder = DigestBuilder()
    with (
        translated(control.params, "digesting the staging table"),
        arrow_session(control.params) as (connection, line),
        connection.cursor() as cursor,
    ):
        with line.within(control.params.answer_seconds):
            cursor.execute(select)
            batches = cursor.fetch_record_batch()
        for batch in line.each(control.params.answer_seconds, batches):
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
    relation = quoted(table.schema, staging)
    changed = {
        name: f"{quoted(name)}::{kind.text}::text IS DISTINCT FROM {quoted(name)}"
        for name, kind in table.types.items()
        if kind.family == "Carried"
    }
    if not changed:
        return
    with session.pinned():
        [found] = session.query(
            f"SELECT {', '.join(f'pg_catalog.bool_or({test})' for test in changed.values())} FROM {relation}"  # noqa: S608
        )
        for name, is_changed in zip(changed, found, strict=True):
            if not is_changed:
                continue
            column, kind = quoted(name), table.types[name].text
            [(value, becomes)] = session.query(
                f"SELECT pg_catalog.left({column}, 80), pg_catalog.left({column}::{kind}::text, 80) "  # noqa: S608
                f"FROM {relation} WHERE {changed[name]} LIMIT 1"
            )
            raise ValueNotExact(
                f"column {name!r}: the value {value} does not fit {kind} exactly: it would become {becomes}. Nothing "
                "was changed; correct the value or widen the target column.",
                column=name,
                value=value,
                target_type=kind,
            )


def size_of(session: PostgresSession, schema: str, name: str) -> int | None:
    """Bytes a table takes now, indexes and all; None when there is none."""
    relation = quoted(schema, name)
    [(size,)] = session.query(f"SELECT pg_catalog.pg_total_relation_size(pg_catalog.to_regclass({literal(relation)}))")
    return None if size is None else int(size)
