"""One bulk load into a staging table over a session of its own: Arrow batches go into the protocol's bulk stream.

Measured against the other ways in docs/loads.md: it is the fastest that keeps every value; what it sends is digested by
the server afterwards either way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from airflow_provider_dpone.errors import AnswerLost, DponeError, ServerRefused
from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams, require_untraced

_NUMBER: Final = re.compile(r"(?:error|number|code)\D{0,12}(\d{3,6})", re.IGNORECASE)


def load(params: MssqlParams, table: str, schema: pa.Schema, body: Iterator[bytes]) -> int:
    """Load every message of ``body`` into a table; bytes of the messages.

    :param table: the quoted name. :param schema: of every batch; columns are mapped by name.
    :raises ServerRefused, AnswerLost: the load failed; what ``body`` raises comes out unchanged.
    """
    import mssql_python  # its native part is large: only where a load is sent

    require_untraced()
    mssql_python.pooling(enabled=False)
    sent = 0
    failure: list[BaseException] = []

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal sent
        try:
            for message in body:
                sent += len(message)
                yield pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        except BaseException as error:
            failure.append(error)
            raise

    try:
        with mssql_python.connect(_connection_string(params), autocommit=True) as connection:
            connection.cursor().bulkcopy_arrow(
                table, batches(), timeout=0, table_lock=True, keep_nulls=True, column_mappings=schema.names
            )
    except Exception as error:
        if failure:
            raise failure[0] from None
        raise _translated(params, error) from error
    return sent


def _translated(params: MssqlParams, error: Exception) -> DponeError:
    text = " ".join(str(error).split())[:400]
    found = _NUMBER.search(text)
    if found is not None:
        return ServerRefused(f"SQL Server {params.place} refused the bulk load: {text}", server_code=int(found[1]))
    return AnswerLost(f"the connection to SQL Server {params.place} was lost during the bulk load: {text}")


def _connection_string(params: MssqlParams) -> str:
    return ";".join(
        part for part in params.connection_string().split(";") if not part.lower().startswith(("driver=", "mars_"))
    )
