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


#: Rows, sum of ids, exact sum of amounts and sum of text lengths of the table; then of what dbt adds up in ten buckets.
ORDERS = "SELECT count(*), sum(id)::bigint, sum(amount)::numeric(20, 2), sum(length(customer)) FROM public.orders"
TOTALS = "SELECT count(DISTINCT id % 10), count(*), sum(amount)::numeric(20, 2) FROM public.orders"


def facts(rows: Any) -> list[str]:
    """One row as text."""
    [row] = rows
    return [str(value) for value in row]


def of_postgres(c: dict[str, Any], sql: str) -> list[str]:
    with psycopg.connect(host=c["host"], user=c["login"], password=c["password"], dbname=c["schema"]) as connection:
        return facts(connection.execute(sql.encode()).fetchall())


def of_clickhouse(c: dict[str, Any], sql: str) -> list[str]:
    import clickhouse_driver

    client = clickhouse_driver.Client(c["host"], user=c["login"], password=c["password"])
    return facts(client.execute(sql))


def of_mssql(c: dict[str, Any], sql: str) -> list[str]:
    import pyodbc

    login = f"UID={c['login']};PWD={c['password']};Encrypt=yes;TrustServerCertificate=yes"
    dsn = f"Driver={{ODBC Driver 18 for SQL Server}};Server={c['host']};Database={c['schema']};{login}"
    with pyodbc.connect(dsn, autocommit=True) as connection:
        return facts(connection.execute(sql).fetchall())


def held(c: dict[str, Any]) -> int:
    """Attempts the ledger still holds."""
    [count] = of_mssql(c, "SELECT COUNT(*) FROM dpone.attempt WHERE state IN (1, 4)")
    return int(count)


def main(run: str, state: str) -> int:
    known = json.loads(CONNECTIONS.read_text())
    source = {name: of_postgres(known["erp"], sql) for name, sql in (("orders", ORDERS), ("totals", TOTALS))}
    clickhouse, mssql = known["dwh_admin"], known["mart_admin"]
    targets = {
        "orders": {
            "clickhouse": of_clickhouse(
                clickhouse,
                "SELECT count(), sum(id), toDecimal128(sum(amount), 2), sum(lengthUTF8(customer)) FROM mart.orders",
            ),
            "mssql": of_mssql(
                mssql,
                "SELECT COUNT_BIG(*), SUM(id), CAST(SUM(amount) AS decimal(20, 2)), SUM(LEN(customer))"
                " FROM mart.orders",
            ),
        },
        "totals": {
            "clickhouse": of_clickhouse(
                clickhouse, "SELECT count(), sum(orders), toDecimal128(sum(amount), 2) FROM mart.order_totals"
            ),
            "mssql": of_mssql(
                mssql, "SELECT COUNT_BIG(*), SUM(orders), CAST(SUM(amount) AS decimal(20, 2)) FROM totals.order_totals"
            ),
        },
    }
    still = held(known["dpone_control"])
    equal = all(found == source[name] for name, places in targets.items() for found in places.values())
    good = state == "success" and still == 0 and equal
    print(json.dumps({"verdict": "PASS" if good else "FAIL", "run": run, "state": state, "source": source,
                      "targets": targets, "attempts_still_held": still}, indent=2))  # fmt: skip
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
