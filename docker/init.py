"""Sets the stack up once: databases, roles, ledger, login gate, enrolment, release. Every step looks first.

Passwords come from the environment; what Airflow needs of them goes into a volume only this stack mounts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

SETTINGS = Path("/run/dpone")
DAGS = "/opt/airflow/dags"
AIRFLOW_UID = 50000
HOSTS = {"postgres": "postgres", "mssql": "mssql", "clickhouse": "clickhouse"}
CONTROL, MART, TOTALS = "dpone_control", "mart", "totals"


def secret(name: str) -> str:
    """A password of the environment; only letters and digits, so that no quoting can go wrong."""
    value = os.environ[name]
    if not re.fullmatch(r"[A-Za-z0-9]{12,}", value):
        raise SystemExit(f"{name} must be letters and digits, at least 12; remove docker/.env and run docker/up")
    return value


# --- PostgreSQL: Airflow's metadata, and the source ---


def postgres(connect: dict[str, Any]) -> None:
    """Roles, databases and a small source table.

    :param connect: psycopg parameters of the superuser, without a database.
    """
    with psycopg.connect(**connect, dbname="postgres", autocommit=True) as connection:
        roles = {name for (name,) in connection.execute("SELECT rolname FROM pg_roles")}
        for role, variable in (("airflow", "AIRFLOW_DB_PASSWORD"), ("source_reader", "SOURCE_READER_PASSWORD")):
            if role not in roles:
                connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{secret(variable)}'".encode())
        connection.execute("ALTER ROLE source_reader SET default_transaction_read_only = on")
        databases = {name for (name,) in connection.execute("SELECT datname FROM pg_database")}
        for database, owner in (("airflow", "airflow"), ("erp", "postgres")):
            if database not in databases:
                connection.execute(f"CREATE DATABASE {database} OWNER {owner}".encode())
    with psycopg.connect(**connect, dbname="erp", autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS public.orders (id bigint PRIMARY KEY, customer text NOT NULL,"
            " amount numeric(12, 2) NOT NULL)"
        )
        connection.execute(
            "INSERT INTO public.orders SELECT n, 'customer ' || n, n * 1.25 FROM generate_series(1, 1000) AS n"
            " ON CONFLICT DO NOTHING"
        )
        connection.execute("GRANT SELECT ON public.orders TO source_reader")


# --- SQL Server: the control ledger's database, and a dedicated database for loads and dbt ---


def mssql(dsn: str) -> None:
    """Logins, databases, the login gate, and a target table.

    :param dsn: connection string of a sysadmin, without a database.
    """
    with session(dsn, "master") as run:
        for login, variable in (
            ("dpone_admin", "DPONE_ADMIN_PASSWORD"),
            ("dpone_runtime", "DPONE_RUNTIME_PASSWORD"),
            ("dpone_controller", "DPONE_CONTROLLER_PASSWORD"),
            ("mart_reader", "MART_READER_PASSWORD"),
        ):
            run(f"IF SUSER_ID(N'{login}') IS NULL CREATE LOGIN {login} WITH PASSWORD = N'{secret(variable)}';")
        for database, owner in ((CONTROL, "dpone_admin"), (MART, "dpone_controller")):
            run(f"IF DB_ID(N'{database}') IS NULL CREATE DATABASE {database};")
            run(f"ALTER AUTHORIZATION ON DATABASE::{database} TO {owner};")
        run(
            "IF EXISTS (SELECT 1 FROM sys.databases WHERE name = N'mart' AND is_read_committed_snapshot_on = 0)"
            " ALTER DATABASE mart SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE;"
        )
        run("ALTER DATABASE mart SET ALLOW_SNAPSHOT_ISOLATION ON;")  # it is the source of a snapshot as well
    with session(dsn, CONTROL) as run:
        run("IF USER_ID(N'dpone_runtime') IS NULL CREATE USER dpone_runtime FOR LOGIN dpone_runtime;")
        if run("SELECT OBJECT_ID(N'dpone_gate.gate')") == [(None,)]:
            for more in ((), ("--controller", "dpone_controller")):
                script = command("dpone-airflow", "render-login-gate", "--control-database", CONTROL, *more)
                for batch in re.split(r"^GO\s*$", script, flags=re.MULTILINE):
                    if batch.strip():
                        run(batch.strip())
    with session(dsn, MART) as run:
        for schema in (MART, TOTALS):
            run(f"IF SCHEMA_ID(N'{schema}') IS NULL EXEC (N'CREATE SCHEMA {schema} AUTHORIZATION dbo');")
        run("IF USER_ID(N'mart_reader') IS NULL CREATE USER mart_reader FOR LOGIN mart_reader;")
        run(f"GRANT SELECT ON SCHEMA::{TOTALS} TO mart_reader;")
        run(
            "IF OBJECT_ID(N'mart.orders') IS NULL CREATE TABLE mart.orders (id bigint NOT NULL PRIMARY KEY,"
            " customer nvarchar(max) NOT NULL, amount decimal(12, 2) NOT NULL);"
        )


@contextmanager
def session(dsn: str, database: str) -> Iterator[Any]:
    """A function that runs one batch and returns the rows of its last result."""
    import pyodbc

    from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch

    connection = pyodbc.connect(f"{dsn};Database={database}", autocommit=True, timeout=30)
    try:
        yield lambda sql: batch(connection, sql)
    finally:
        connection.close()


# --- ClickHouse: the snapshot target ---


def clickhouse(client: Any) -> None:
    """The controller with its rights, and a target table.

    :param client: a clickhouse-driver client of an administrator.
    """
    from airflow_provider_dpone.local.controller import controller_grants

    client.execute("CREATE DATABASE IF NOT EXISTS mart")
    client.execute(
        "CREATE USER IF NOT EXISTS dpone_controller IDENTIFIED WITH sha256_password BY "
        f"'{secret('DPONE_CONTROLLER_PASSWORD')}'"
    )
    for statement in controller_grants("dpone_controller", "mart.*"):
        client.execute(statement)
    client.execute(
        "CREATE TABLE IF NOT EXISTS mart.orders (id Int64, customer String, amount Decimal(12, 2))"
        " ENGINE = MergeTree ORDER BY id"
    )
    client.execute(  # what dbt computes may be NULL for all SQL Server knows
        "CREATE TABLE IF NOT EXISTS mart.order_totals (bucket Nullable(Int32), orders Nullable(Int64),"
        " amount Nullable(Decimal(20, 2))) ENGINE = MergeTree ORDER BY tuple()"
    )


# --- Airflow and our own command line ---


def connections(service_id: str | None = None) -> dict[str, dict[str, Any]]:
    """Every Airflow connection of the stack; the ledger's are pinned once it is installed."""
    pin = {"service_id": service_id} if service_id else {}

    def sql_server(login: str, password: str, database: str, **extra: Any) -> dict[str, Any]:
        extra = {"TrustServerCertificate": "yes", **extra}
        return {"conn_type": "mssql", "host": HOSTS["mssql"], "port": 1433, "login": login, "password": password,
                "schema": database, "extra": json.dumps(extra)}  # fmt: skip

    def snapshot(login: str, password: str) -> dict[str, Any]:
        return {"conn_type": "clickhouse", "host": HOSTS["clickhouse"], "port": 8123, "login": login,
                "password": password, "schema": "mart", "extra": json.dumps({"native_port": 9000})}  # fmt: skip

    gates = {"dpone_control_database": CONTROL}
    return {
        "dpone_control": sql_server("dpone_runtime", secret("DPONE_RUNTIME_PASSWORD"), CONTROL, **pin),
        "dpone_control_admin": sql_server("dpone_admin", secret("DPONE_ADMIN_PASSWORD"), CONTROL, **pin),
        "mart": sql_server("dpone_controller", secret("DPONE_CONTROLLER_PASSWORD"), MART, **gates),
        "mart_admin": sql_server("sa", secret("MSSQL_SA_PASSWORD"), MART, **gates),
        "totals": sql_server("mart_reader", secret("MART_READER_PASSWORD"), MART),
        "dwh": snapshot("dpone_controller", secret("DPONE_CONTROLLER_PASSWORD")),
        "dwh_admin": snapshot("default", secret("CLICKHOUSE_PASSWORD")),
        "erp": {"conn_type": "postgres", "host": HOSTS["postgres"], "port": 5432, "login": "source_reader",
                "password": secret("SOURCE_READER_PASSWORD"), "schema": "erp"},
    }  # fmt: skip


def write(name: str, content: object) -> None:
    """Keep a settings file that only Airflow's user reads."""
    path = SETTINGS / name
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(json.dumps(content))
    shutil.chown(new, AIRFLOW_UID, 0)
    new.replace(path)


def command(*arguments: str) -> str:
    """Run one of our commands, or Airflow's."""
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def steps() -> Iterator[tuple[str, ...]]:
    """The commands a person would type, in order."""
    if not (SETTINGS / "ledger.json").exists():
        yield ("dpone-airflow", "ledger", "install", "--control-conn-id", "dpone_control_admin",
               "--runtime-role", "dpone_runtime")  # fmt: skip
    yield ("dpone-airflow", "enroll", "--conn-id", "dwh_admin", "--administrator", "dpone_controller",
           "--table", "mart.orders", "--table", "mart.order_totals")  # fmt: skip
    yield ("dpone-airflow", "enroll", "--conn-id", "mart_admin", "--schema", MART, "--schema", TOTALS,
           "--controller", "dpone_controller", "--administrator", "sa")  # fmt: skip
    yield ("dpone-airflow", "activate", "--dags-folder", DAGS)


def main() -> None:
    """Everything, in the order in which it depends on each other."""
    import clickhouse_driver

    postgres({"host": HOSTS["postgres"], "user": "postgres", "password": secret("POSTGRES_PASSWORD")})
    mssql(
        "Driver={ODBC Driver 18 for SQL Server};Server=" + HOSTS["mssql"] + ",1433;UID=sa;"
        f"PWD={secret('MSSQL_SA_PASSWORD')};Encrypt=yes;TrustServerCertificate=yes"
    )
    clickhouse(clickhouse_driver.Client(HOSTS["clickhouse"], password=secret("CLICKHOUSE_PASSWORD")))
    known = SETTINGS / "ledger.json"
    write("connections.json", connections(json.loads(known.read_text()) if known.exists() else None))
    write("passwords.json", {"admin": secret("AIRFLOW_ADMIN_PASSWORD")})
    command("airflow", "db", "migrate")
    for step in steps():
        print(command(*step), end="")
        if step[1:3] == ("ledger", "install"):
            write("ledger.json", service_id())
            write("connections.json", connections(service_id()))
    shutil.chown("/opt/airflow/logs", AIRFLOW_UID, 0)


def service_id() -> str:
    """The installed ledger's id, from itself."""
    from airflow_provider_dpone.hooks.control import DponeControlHook

    ledger = DponeControlHook("dpone_control_admin").ledger()
    ledger.verify_layout()
    return str(ledger.service_id)


if __name__ == "__main__":
    main()
