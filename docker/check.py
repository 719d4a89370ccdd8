"""Compares what a run of the stack left in its targets with its source, by SQL of its own; prints one JSON document.

Exit 1 when the run did not succeed, a target differs, or the ledger still holds something.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import psycopg

CONNECTIONS = Path("/run/dpone/connections.json")


def facts(rows: Any) -> list[str]:
    """Count, sum of ids, exact sum of amounts, sum of text lengths, as text."""
    [row] = rows
    return [str(value) for value in row]


def of_postgres(c: dict[str, Any]) -> list[str]:
    with psycopg.connect(host=c["host"], user=c["login"], password=c["password"], dbname=c["schema"]) as connection:
        return facts(connection.execute(
            "SELECT count(*), sum(id)::bigint, sum(amount)::numeric(20, 2), sum(length(customer)) FROM public.orders"
        ).fetchall())  # fmt: skip


def of_clickhouse(c: dict[str, Any]) -> list[str]:
    import clickhouse_driver

    client = clickhouse_driver.Client(c["host"], user=c["login"], password=c["password"])
    return facts(client.execute(
        "SELECT count(), sum(id), toDecimal128(sum(amount), 2), sum(lengthUTF8(customer)) FROM mart.orders"
    ))  # fmt: skip


def of_mssql(c: dict[str, Any]) -> list[str]:
    import pyodbc

    login = f"UID={c['login']};PWD={c['password']};Encrypt=yes;TrustServerCertificate=yes"
    dsn = f"Driver={{ODBC Driver 18 for SQL Server}};Server={c['host']};Database={c['schema']};{login}"
    with pyodbc.connect(dsn, autocommit=True) as connection:
        return facts(connection.execute(
            "SELECT COUNT_BIG(*), SUM(id), CAST(SUM(amount) AS decimal(20, 2)), SUM(LEN(customer)) FROM mart.orders"
        ).fetchall())  # fmt: skip


def held(c: dict[str, Any]) -> int:
    """Attempts the ledger still holds."""
    import pyodbc

    login = f"UID={c['login']};PWD={c['password']};Encrypt=yes;TrustServerCertificate=yes"
    dsn = f"Driver={{ODBC Driver 18 for SQL Server}};Server={c['host']};Database={c['schema']};{login}"
    with pyodbc.connect(dsn, autocommit=True) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM dpone.attempt WHERE state IN (1, 4)").fetchval())


def main(run: str, state: str) -> int:
    known = json.loads(CONNECTIONS.read_text())
    source = of_postgres(known["erp"])
    targets = {"clickhouse": of_clickhouse(known["dwh_admin"]), "mssql": of_mssql(known["mart_admin"])}
    still = held(known["dpone_control"])
    good = state == "success" and still == 0 and all(target == source for target in targets.values())
    print(json.dumps({"verdict": "PASS" if good else "FAIL", "run": run, "state": state, "source": source,
                      "targets": targets, "attempts_still_held": still}, indent=2))  # fmt: skip
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
