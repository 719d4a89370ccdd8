"""The server's own content digest of a table: rows, and SHA-256 over each row's RowBinary summed modulo 2^256.

Independent of the order of rows and of how parts are merged; sees duplicates and NULLs. Settings that could cut,
filter, cache or sample the result are pinned in the statement.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_dpone.contracts.enrolment import TableDesign
from airflow_provider_dpone.contracts.ports import ClickHouseControl
from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.engines.clickhouse.quoting import PINNED, identifier, table


def stored_columns(design: TableDesign) -> tuple[str, ...]:
    """Names of the columns rows are written to, in order: all but the computed ones."""
    return tuple(c.name for c in design.columns if c.default_kind in ("", "DEFAULT"))


def content_sql(database: str, name: str, columns: Sequence[str]) -> str:
    """The statement that computes the digest of a table."""
    values = ", ".join(map(identifier, columns))
    row_sum = f"toString(sum(reinterpretAsUInt256(SHA256(formatRow('RowBinary', {values})))))"
    return f"SELECT toUInt64(count()), {row_sum} FROM {table(database, name)} SETTINGS {PINNED}"  # noqa: S608


def read_content(control: ClickHouseControl, database: str, name: str, columns: Sequence[str]) -> Content:
    """Digest a table on the server.

    :param columns: the columns in the order the digest of the stream has them.
    """
    [(rows, row_sum)] = control.query(content_sql(database, name, columns))
    return Content(rows=int(rows), row_sum=format(int(row_sum), "064x"))
