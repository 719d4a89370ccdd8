"""Passwords of a campaign: written down as they are made, then looked for everywhere something could have kept them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from airflow_provider_dpone.engines.clickhouse import gate as clickhouse_gate
from airflow_provider_dpone.engines.sql import gate as sql_gate
from tests.servers import ClickHouseUnderTest, PostgresUnderTest


def record(place: Path) -> None:
    """Write down every password this process and its children make, one a line."""
    for module, name in ((clickhouse_gate, "_Password"), (sql_gate, "Password")):
        made: Any = getattr(module, name)

        def noted(text: str, made: Any = made) -> Any:
            with place.open("a") as file:
                file.write(text + "\n")
            return made(text)

        setattr(module, name, noted)


def texts(postgres: PostgresUnderTest, clickhouse: ClickHouseUnderTest, place: Path) -> None:
    """Write down what the servers would tell anybody who asks: every row of every database, statements and their errors."""
    with place.open("w") as file:
        clickhouse.execute("SYSTEM FLUSH LOGS")
        for row in clickhouse.execute("SELECT user, query, exception FROM system.query_log"):
            file.write(f"{row}\n")
        for view in ("users", "grants", "quotas", "processes"):
            for row in clickhouse.execute(f"SELECT * FROM system.{view}"):
                file.write(f"{row}\n")
        with postgres.connect() as connection:
            databases = [name for (name,) in connection.execute("SELECT datname FROM pg_database WHERE datallowconn")]
        for database in databases:
            with postgres.connect(database) as connection:
                _rows(connection, file)


def _rows(connection: psycopg.Connection[Any], file: Any) -> None:
    tables = connection.execute(
        # Relations that hold rows themselves: a partitioned table is read through its partitions, a foreign one elsewhere.
        "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'm') AND c.relispopulated AND c.relpersistence <> 't' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
        " UNION ALL SELECT 'pg_catalog.pg_stat_activity' UNION ALL SELECT 'pg_catalog.pg_roles'"
    ).fetchall()
    for (table,) in tables:
        for (row,) in connection.execute(f"SELECT t::text FROM ONLY {table} AS t".encode()):
            file.write(f"{row}\n")
        if table == "dpone.evidence":
            for (document,) in connection.execute("SELECT document FROM dpone.evidence"):
                file.write(f"{bytes(document).decode(errors='replace')}\n")


def found(passwords: Sequence[Path], names: Sequence[str], roots: Sequence[Path]) -> tuple[int, int, list[str]]:
    """How many passwords were made, how many files hold one of ``names``, and which files hold a password.

    The names are the check of the check: places that hold no name of a login would not hold its password either.
    """
    words = sorted({word for path in passwords if path.exists() for word in path.read_text().split()})
    pattern = passwords[0].parent / "words"
    pattern.write_text("\n".join(words))
    kept = [*(str(path) for path in passwords), str(pattern)]
    leaks = [name for name in _grep(pattern, roots) if name not in kept] if words else []
    pattern.write_text("\n".join(names))
    places = [name for name in _grep(pattern, roots) if name not in kept]
    pattern.unlink()
    return len(words), len(places), leaks


def _grep(patterns: Path, roots: Sequence[Path]) -> list[str]:
    """Files that hold a pattern. Servers merge files away while they are read: then all is read again, the merged ones too."""
    for _ in range(20):
        done = subprocess.run(
            ["grep", "-rlaFf", str(patterns), *map(str, roots)], capture_output=True, text=True, check=False
        )
        if done.returncode in (0, 1):
            break
        assert all(line.endswith("No such file or directory") for line in done.stderr.splitlines()), done.stderr
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()
