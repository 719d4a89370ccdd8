"""The local stack: a PostgreSQL and a ClickHouse server over one directory, and Airflow settings that reach them.

A development stand-in of family ``nonproduction``. Starts and stops servers, makes databases and users on first use,
and installs the ledger into its own empty control database; enrols nothing.
"""

from __future__ import annotations

import json
import secrets
import shlex
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import clickhouse_driver
import psycopg
from psycopg import sql

from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.ledger.dialects.postgres import PostgresDialect
from airflow_provider_dpone.ledger.install import install
from airflow_provider_dpone.local.clickhouse.process import ClickHouseProcess
from airflow_provider_dpone.local.controller import controller_grants
from airflow_provider_dpone.local.postgres import PostgresServer
from airflow_provider_dpone.local.process import write_secret

TARGET_DATABASE = "mart"
CONTROLLER, READER = "dpone_controller", "reader"
#: database and the role that owns it
_DATABASES = {
    "dpone_control": "dpone_admin",
    "source": "source_admin",
    "airflow": "airflow",
    TARGET_DATABASE: "postgres",
}
_ROLES = (*_DATABASES.values(), "dpone_runtime", "source_reader", "mart_controller")
_CONNECT = {"dpone_control": "dpone_runtime", "source": "source_reader", TARGET_DATABASE: "source_reader"}
#: Managed schemas of the PostgreSQL target, each owned by a role that cannot log in.
SCHEMAS = {"mart": "mart_owner", "models": "models_owner"}


class LocalStack:
    """The stack kept in ``directory``.

    ``up`` may be called at any time: it starts what does not run and leaves alone what does. Ports are kept.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory).resolve()
        self.postgres = PostgresServer(self.directory / "postgres")
        self.clickhouse = ClickHouseProcess(self.directory / "clickhouse")

    def up(self, pg_port: int = 0, ch_http_port: int = 0, ch_native_port: int = 0) -> None:
        """Start both servers and make databases, roles and users that are missing.

        :raises LocalStackFailed: a server does not start.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(2) as pool:
            starts = [
                pool.submit(self.postgres.start, pg_port),
                pool.submit(self.clickhouse.start, ch_http_port, ch_native_port),
            ]
        for start in starts:
            start.result()
        self._prepare_postgres()
        self._prepare_clickhouse()
        self._install_ledger()
        state = {"postgres": self.postgres.pid, "clickhouse": self.clickhouse.pid, "ports": self._ports()}
        write_secret(self.directory / "stack.json", json.dumps(state))

    def down(self) -> None:
        """Stop both servers; data, users and ports stay."""
        self.clickhouse.stop()
        self.postgres.stop()

    def status(self) -> dict[str, Any]:
        """What runs where: pid (None when it does not run) and ports of each server."""
        ports = self._ports() if self.clickhouse.known and self.postgres.port else {}
        return {
            "directory": str(self.directory),
            "running": self.postgres.pid is not None and self.clickhouse.pid is not None,
            "postgres": {"pid": self.postgres.pid, "host": "127.0.0.1", "port": ports.get("postgres")},
            "clickhouse": {
                "pid": self.clickhouse.pid,
                "host": "127.0.0.1",
                "http_port": ports.get("clickhouse_http"),
                "native_port": ports.get("clickhouse_native"),
                "control_port": ports.get("clickhouse_control"),
            },
        }

    def connections(self) -> dict[str, dict[str, Any]]:
        """Airflow connections by id, in the form of AIRFLOW_CONN_* JSON values. They hold passwords."""
        native = self.clickhouse.native_port

        pinned = (self.directory / "ledger_service_id").read_text()

        def postgres(role: str, database: str, **extra: Any) -> dict[str, Any]:
            return self._connection("postgres", role, self._password(role), self.postgres.port, database, extra)

        def clickhouse(user: str, password: str, port: int, **extra: Any) -> dict[str, Any]:
            return self._connection("dpone_clickhouse", user, password, port, schema=TARGET_DATABASE, extra=extra)

        admin = self.clickhouse.admin_user, self.clickhouse.admin_password
        controller = CONTROLLER, self._password(CONTROLLER)
        http = self.clickhouse.http_port
        return {
            "dpone_control": postgres("dpone_runtime", "dpone_control", service_id=pinned),
            "dpone_control_admin": postgres("dpone_admin", "dpone_control", service_id=pinned),
            "dpone_source": postgres("source_reader", "source"),
            "dpone_source_admin": postgres("source_admin", "source"),
            "dpone_mart": postgres("mart_controller", TARGET_DATABASE, dpone_stand_in=True),
            "dpone_mart_admin": self._connection(
                "postgres", "postgres", self.postgres.password, self.postgres.port, TARGET_DATABASE
            ),
            "dpone_clickhouse": clickhouse(*controller, http, native_port=native),
            "dpone_clickhouse_admin": clickhouse(*admin, http, native_port=native),
            "clickhouse_default": clickhouse(*admin, native),
        }

    def env(self) -> dict[str, str]:
        """Environment variables under which Airflow uses this stack. They hold passwords."""
        airflow = urllib.parse.quote(self._password("airflow"), safe="")
        metadata = f"postgresql+psycopg2://airflow:{airflow}@127.0.0.1:{self.postgres.port}/airflow"
        settings = {
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__PARALLELISM": "12",
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "CORE__TEST_CONNECTION": "Enabled",
            "API__HOST": "127.0.0.1",  # everybody who reaches it is an administrator
            "API__WORKERS": "1",
            "API_AUTH__JWT_SECRET": self._password("airflow_jwt"),
            "DATABASE__SQL_ALCHEMY_CONN": metadata,
            "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
            "WORKERS__EXECUTION_API_TIMEOUT": "30",
            "USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        return {
            "AIRFLOW_HOME": str(self.directory / "airflow"),
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in self.connections().items()},
        }

    def exports(self) -> str:
        """:meth:`env` as shell ``export`` lines."""
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in self.env().items())

    def _ports(self) -> dict[str, int]:
        return {
            "postgres": self.postgres.port,
            "clickhouse_http": self.clickhouse.http_port,
            "clickhouse_native": self.clickhouse.native_port,
            "clickhouse_control": self.clickhouse.control_port,
        }

    @staticmethod
    def _connection(
        kind: str, login: str, password: str, port: int, schema: str, extra: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return {
            "conn_type": kind,
            "host": "127.0.0.1",
            "port": port,
            "login": login,
            "password": password,
            "schema": schema,
            "extra": extra or {},
        }

    def _password(self, name: str) -> str:
        """The password of a role or user, made on first use; with characters that careless quoting breaks on."""
        path = self.directory / "secrets" / name
        if not path.exists():
            write_secret(path, secrets.token_urlsafe(18) + ("" if name.startswith("airflow") else ";{}']"))
        return path.read_text()

    def _prepare_postgres(self) -> None:
        with psycopg.connect(**self.postgres.parameters(), autocommit=True) as connection:
            roles = {name for (name,) in connection.execute("SELECT rolname FROM pg_roles")}
            for role in _ROLES:
                if role not in roles:
                    text = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
                    connection.execute(text.format(sql.Identifier(role), sql.Literal(self._password(role))))
            connection.execute("GRANT pg_read_all_data TO source_reader")
            connection.execute("ALTER ROLE source_reader SET default_transaction_read_only = on")
            databases = {name for (name,) in connection.execute("SELECT datname FROM pg_database")}
            for database, owner in _DATABASES.items():
                if database not in databases:
                    text = sql.SQL("CREATE DATABASE {} OWNER {}")
                    connection.execute(text.format(sql.Identifier(database), sql.Identifier(owner)))
                connection.execute(
                    sql.SQL("REVOKE CONNECT ON DATABASE {} FROM PUBLIC").format(sql.Identifier(database))
                )
            for database, role in _CONNECT.items():
                text = sql.SQL("GRANT CONNECT ON DATABASE {} TO {}")
                connection.execute(text.format(sql.Identifier(database), sql.Identifier(role)))
            connection.execute("ALTER ROLE mart_controller CREATEROLE")
            for owner in SCHEMAS.values():
                if owner not in roles:
                    connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(owner)))
        with psycopg.connect(**self.postgres.parameters(TARGET_DATABASE), autocommit=True) as connection:
            for schema, owner in SCHEMAS.items():
                text = sql.SQL("CREATE SCHEMA IF NOT EXISTS {} AUTHORIZATION {}")
                connection.execute(text.format(sql.Identifier(schema), sql.Identifier(owner)))

    def _install_ledger(self) -> None:
        """Install the ledger once, as the administrator, and keep its service id for the connections to pin."""
        path = self.directory / "ledger_service_id"
        if path.exists():
            return
        role, database = "dpone_admin", "dpone_control"
        parameters = {**self.postgres.parameters(database), "user": role, "password": self._password(role)}
        service_id = install(
            lambda: psycopg.connect(**parameters),
            PostgresDialect(),
            family=Family.NONPRODUCTION,
            runtime_role="dpone_runtime",
        )
        write_secret(path, str(service_id))

    def _prepare_clickhouse(self) -> None:
        server = self.clickhouse
        client = clickhouse_driver.Client(
            server.host, server.native_port, user=server.admin_user, password=server.admin_password
        )
        try:
            client.execute(f"CREATE DATABASE IF NOT EXISTS {TARGET_DATABASE}")
            users = {name for (name,) in client.execute("SELECT name FROM system.users")}
            for user in (CONTROLLER, READER):
                if user not in users:
                    password = self._password(user).replace("\\", "\\\\").replace("'", "\\'")
                    client.execute(f"CREATE USER {user} IDENTIFIED WITH sha256_password BY '{password}'")
            for statement in controller_grants(CONTROLLER, f"{TARGET_DATABASE}.*"):
                client.execute(statement)
            client.execute(f"GRANT SELECT ON *.* TO {READER}")
        finally:
            client.disconnect()
