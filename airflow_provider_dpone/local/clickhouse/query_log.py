"""system.query_log: rows queued in memory, written every second or when asked, kept over restarts."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from airflow_provider_dpone.local.clickhouse.engine import Engine
from airflow_provider_dpone.local.clickhouse.errors import ServerError

_COLUMNS = """
    type Enum8('QueryStart' = 1, 'QueryFinish' = 2, 'ExceptionBeforeStart' = 3, 'ExceptionWhileProcessing' = 4),
    event_date Date DEFAULT toDate(event_time), event_time DateTime, event_time_microseconds DateTime64(6),
    query_start_time DateTime, query_start_time_microseconds DateTime64(6), query_duration_ms UInt64,
    read_rows UInt64, read_bytes UInt64, written_rows UInt64, written_bytes UInt64,
    result_rows UInt64, result_bytes UInt64,
    current_database String, query String, query_kind LowCardinality(String), exception_code Int32, exception String,
    is_initial_query UInt8, user String, query_id String, address IPv6, port UInt16, initial_user String,
    initial_query_id String, initial_address IPv6, initial_port UInt16, interface UInt8, http_method UInt8,
    http_user_agent String, client_name String, log_comment String, Settings Map(String, String)"""
_FLUSH_SECONDS = 1.0


class QueryLog:
    """The log's writer. :meth:`flush` returns when everything added before it is readable."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        engine.rows("CREATE DATABASE IF NOT EXISTS _local")
        engine.rows(
            f"CREATE TABLE IF NOT EXISTS _local.query_log ({_COLUMNS}) "
            "ENGINE = MergeTree ORDER BY event_time_microseconds"
        )
        engine.rows("CREATE OR REPLACE VIEW system.query_log AS SELECT * FROM _local.query_log")
        threading.Thread(target=self._flush_forever, name="query-log", daemon=True).start()

    def add(self, row: dict[str, Any]) -> None:
        with self._lock:
            self._rows.append(row)

    def flush(self) -> None:
        with self._flushing:
            with self._lock:
                rows, self._rows = self._rows, []
            if rows:
                try:
                    self._write(rows)
                except ServerError:
                    with self._lock:
                        self._rows = rows + self._rows
                    raise

    def _write(self, rows: list[dict[str, Any]]) -> None:
        data = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()
        columns = ", ".join(rows[0])
        with self._engine.open("query-log", "", {"input_format_skip_unknown_fields": "0"}, {}) as session:
            text = f"INSERT INTO _local.query_log ({columns})"
            self._engine.insert(session, text, "JSONEachRow", [data])

    def _flush_forever(self) -> None:
        while True:
            time.sleep(_FLUSH_SECONDS)
            self.flush()
