"""The server's own content digest of a table: rows, and SHA-256 over each row's RowBinary summed modulo 2^256.

Independent of the order of rows and of how parts are merged; sees duplicates and NULLs. Settings that could cut,
filter, cache or sample the result are pinned in the statement. A statement reads one set of parts, whatever is inserted
or merged meanwhile, and says which.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_dpone.contracts.enrolment import TableDesign
from airflow_provider_dpone.contracts.ports import ClickHouseControl
from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.engines.clickhouse.catalog import parts_digest
from airflow_provider_dpone.engines.clickhouse.quoting import PINNED, identifier, table
from airflow_provider_dpone.errors import ViewIncomplete


def stored_columns(design: TableDesign) -> tuple[str, ...]:
    """Names of the columns rows are written to, in order: all but the computed ones."""
    return tuple(c.name for c in design.columns if c.default_kind in ("", "DEFAULT"))


def content_sql(database: str, name: str, columns: Sequence[str]) -> str:
    """The statement that computes the digest of a table."""
    values = ", ".join(map(identifier, columns))
    row_sum = f"toString(sum(reinterpretAsUInt256(SHA256(formatRow('RowBinary', {values})))))"
    return (
        f"SELECT toUInt64(count()), {row_sum}, groupUniqArray(toString(_part)) "  # noqa: S608
        f"FROM {table(database, name)} SETTINGS {PINNED}"
    )


def read_content(control: ClickHouseControl, database: str, name: str, columns: Sequence[str]) -> Content:
    """Digest a table on the server.

    :param columns: the columns in the order the digest of the stream has them.
    """
    return _digested(control, database, name, columns)[0]


def read_sealed(control: ClickHouseControl, database: str, name: str, columns: Sequence[str]) -> tuple[Content, str]:
    """Digest a table, and the very parts that were digested: their hashes, merged away meanwhile or not.

    :raises ViewIncomplete: the server forgot a part before it was asked for its hash.
    """
    content, parts = _digested(control, database, name, columns)
    hashes = control.query(
        "SELECT hash_of_all_files, rows FROM system.parts "
        "WHERE database = {database:String} AND table = {table:String} AND has({parts:Array(String)}, name)",
        {"database": database, "table": name, "parts": parts or [""]},
    )
    if len(hashes) != len(parts) or sum(int(rows) for _, rows in hashes) != content.rows:
        raise ViewIncomplete(
            f"{database}.{name} was digested in {len(parts)} parts with {content.rows} rows, of which the server "
            f"shows {len(hashes)} with {sum(int(rows) for _, rows in hashes)} rows now; nothing was published"
        )
    return content, parts_digest((str(part), int(rows)) for part, rows in hashes)


def _digested(
    control: ClickHouseControl, database: str, name: str, columns: Sequence[str]
) -> tuple[Content, list[str]]:
    [(rows, row_sum, parts)] = control.query(content_sql(database, name, columns))
    return Content(rows=int(rows), row_sum=format(int(row_sum), "064x")), [str(part) for part in parts]
