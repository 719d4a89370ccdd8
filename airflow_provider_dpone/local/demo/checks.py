"""Looks at the demo's servers from outside: own SQL, no code of the publishing path. Says what is true."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import clickhouse_driver
import psycopg

_HEX: Final = re.compile(r"\\\\?x([0-9a-f]{16,})")


class Checker:
    """Independent observer of the source, the target server and the ledger."""

    def __init__(self, connections: dict[str, dict[str, Any]], superuser: dict[str, Any]) -> None:
        self._admin = connections["dpone_clickhouse_admin"]
        self._source = connections["dpone_source_admin"]
        self._superuser = superuser

    def clickhouse(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of one statement, as administrator."""
        admin = self._admin
        client = clickhouse_driver.Client(
            admin["host"], admin["extra"]["native_port"], user=admin["login"], password=admin["password"]
        )
        try:
            return list(client.execute(sql))
        finally:
            client.disconnect()

    def source_rows(self, table: str) -> int:
        """Rows of a source table now."""
        return int(self.postgres("source", f"SELECT count(*) FROM {table}")[0][0])

    def postgres(self, database: str, sql: str) -> list[tuple[Any, ...]]:
        """Rows of one statement, as superuser."""
        with psycopg.connect(**{**self._superuser, "dbname": database}) as connection:
            cursor = connection.execute(sql.encode())
            while cursor.nextset():
                pass
            return cursor.fetchall()

    def publication(self, receipt: dict[str, Any], source_table: str, seconds: float) -> dict[str, Any]:
        """One published table as the server shows it now, beside what its receipt says."""
        database, table = receipt["target"].split(".")
        generation = receipt["retained_table"].split(".")[1]
        columns = self.clickhouse(
            f"SELECT name FROM system.columns WHERE database = '{database}' AND table = '{table}' ORDER BY position"
        )
        names = ", ".join("`" + str(name).replace("`", "``") + "`" for (name,) in columns)
        [(rows, row_sum)] = self.clickhouse(
            f"SELECT count(), toString(sum(reinterpretAsUInt256(SHA256(formatRow('RowBinary', {names})))))"
            f" FROM `{database}`.`{table}`"
        )
        [(uuid,)] = self.clickhouse(
            f"SELECT toString(uuid) FROM system.tables WHERE database = '{database}' AND name = '{table}'"
        )
        return {
            "target": receipt["target"],
            "state": receipt["state"],
            "rows": int(rows),
            "source_rows": self.source_rows(source_table),
            "digest_equal": format(int(row_sum), "064x") == receipt["row_sum"],
            "exchange_count": self.exchanges(generation),
            "target_uuid_is_generation": str(uuid) == receipt["target_uuid"],
            "reused": receipt["reused"],
            "seconds": round(seconds, 1),
        }

    def load(self, receipt: dict[str, Any], source_table: str, seconds: float) -> dict[str, Any]:
        """One loaded table as its server shows it now, beside the source and what its receipt says."""
        content = (
            "SET TimeZone = 'UTC'; SET extra_float_digits = 1; "
            "SELECT count(*), sum(hashtextextended(t::text, 0)), sum(hashtextextended(t::text, 1)) FROM {} AS t"
        )
        [target] = self.postgres("mart", content.format(receipt["target"]))
        [source] = self.postgres("source", content.format(source_table))
        [(receipts,)] = self.postgres(
            "mart", f"SELECT count(*) FROM dpone_gate.receipt WHERE attempt = '{receipt['attempt_sha256']}'"
        )
        return {
            "target": receipt["target"],
            "state": "SUCCEEDED" if receipt["state"] == "LOADED" and receipts == 1 else receipt["state"],
            "rows": int(target[0]),
            "source_rows": int(source[0]),
            "digest_equal": target == source,
            "reused": receipt["reused"],
            "seconds": round(seconds, 1),
        }

    def built(self, rows: dict[str, int]) -> bool:
        """Whether every table a dbt receipt tells of has exactly these rows, counted here."""
        counted = {name: self.postgres("mart", f'SELECT count(*) FROM models."{name}"')[0][0] for name in rows}
        return bool(counted) and counted == rows

    def exchanges(self, generation: str) -> int:
        """EXCHANGE statements on a generation that had an effect, counted in the server's query log."""
        self.clickhouse("SYSTEM FLUSH LOGS")
        [(count,)] = self.clickhouse(
            "SELECT uniqExact(query_id) FROM system.query_log WHERE (type = 'QueryFinish' OR exception_code = 394)"
            f" AND query ILIKE 'EXCHANGE TABLES%' AND position(query, '{generation}') > 0"
        )
        return int(count)

    def ledger(self) -> dict[str, int]:
        """Attempts by state, and what is still open."""
        [row] = self.postgres(
            "dpone_control",
            "SELECT count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 2),"
            " count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4),"
            " (SELECT count(*) FROM dpone.attempt_guard WHERE is_open),"
            " (SELECT count(*) FROM dpone.principal WHERE state <> 4) FROM dpone.attempt",
        )
        names = ("running", "succeeded", "failed", "commit_unknown", "open_guards", "open_gates")
        return dict(zip(names, (int(value) for value in row), strict=True))

    # --- secrets ---

    def texts(self, airflow_home: Path, arguments: set[str]) -> Iterator[tuple[str, str]]:
        """Every place a password could have leaked to, as (place, text)."""
        for database in ("dpone_control", "airflow"):
            tables = self.postgres(
                database,
                "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables"
                " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
            )
            for (table,) in tables:
                for (row,) in self.postgres(database, f"SELECT t::text FROM {table} AS t"):
                    yield f"{database}.{table}", f"{row}\n{_decoded(str(row))}"
        for file in sorted(airflow_home.rglob("*")):
            if file.is_file() and (file.suffix in (".out", ".log") or "logs" in file.parts):
                yield f"file {file.name}", file.read_text(errors="replace")
        for (row,) in self.clickhouse("SELECT toString(tuple(*)) FROM system.query_log"):
            yield "query_log", str(row)
        for argument in arguments:
            yield "process arguments", argument


def _decoded(row: str) -> str:
    """Binary columns of a row as text."""
    return "\n".join(bytes.fromhex(h[: len(h) // 2 * 2]).decode(errors="replace") for h in _HEX.findall(row))


def find_secrets(passwords: dict[str, str], texts: Iterator[tuple[str, str]]) -> dict[str, int]:
    """How often any password, plain or in its Basic form, stands in a text; by place."""
    forms = set(passwords.values())
    forms |= {base64.b64encode(f"{name}:{word}".encode()).decode() for name, word in passwords.items()}
    found: dict[str, int] = {}
    for place, text in texts:
        hits = sum(form in text for form in forms)
        if hits:
            found[place] = found.get(place, 0) + hits
    return found


class ArgumentWatch:
    """Collects the command line of every process while the demo runs."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ArgumentWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                except OSError:
                    continue  # the process ended between the listing and the look
