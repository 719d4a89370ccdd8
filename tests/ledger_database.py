"""One ledger in a database of its own, with an administrator and a runtime role."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import psycopg

from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.ledger.dialects.postgres import PostgresDialect
from airflow_provider_dpone.ledger.install import install
from airflow_provider_dpone.ledger.transaction import Ledger


@dataclass
class LedgerDatabase:
    """Addresses and roles of one control database."""

    host: str
    port: int
    dbname: str
    admin_role: str
    admin_password: str
    runtime_role: str
    runtime_password: str
    commit_marker: bytes = b"COMMIT"
    engine: str = "postgres"
    exact: bool = True

    def dialect(self) -> PostgresDialect:
        return PostgresDialect()

    def as_admin(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements in autocommit as the ledger's administrator; the rows of the last."""
        with self.connect_admin() as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def connect_admin(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=self.host, port=self.port, dbname=self.dbname, user=self.admin_role, password=self.admin_password,
            autocommit=True, connect_timeout=5,
        )  # fmt: skip

    def connect_runtime(self, port: int | None = None) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=self.host, port=port or self.port, dbname=self.dbname, user=self.runtime_role,
            password=self.runtime_password, connect_timeout=5, sslmode="disable", gssencmode="disable",
        )  # fmt: skip

    def admin(self) -> Ledger:
        return Ledger(self.connect_admin, PostgresDialect())

    def runtime(self, port: int | None = None) -> Ledger:
        return Ledger(lambda: self.connect_runtime(port), PostgresDialect())


def create(superuser: dict[str, object], *, installed: bool = True) -> LedgerDatabase:
    """A fresh database with both roles; ``superuser`` are psycopg connection parameters."""
    tag = secrets.token_hex(4)
    database = LedgerDatabase(
        host=str(superuser["host"]),
        port=int(str(superuser["port"])),
        dbname=f"ledger_{tag}",
        admin_role=f"admin_{tag}",
        admin_password=secrets.token_urlsafe(12),
        runtime_role=f"runtime_{tag}",
        runtime_password=secrets.token_urlsafe(12),
    )
    with psycopg.connect(**superuser, autocommit=True) as connection:  # type: ignore[arg-type]
        for role, password in (
            (database.admin_role, database.admin_password),
            (database.runtime_role, database.runtime_password),
        ):
            connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'".encode())
        connection.execute(f"CREATE DATABASE {database.dbname} OWNER {database.admin_role}".encode())
    if installed:
        install(
            database.connect_admin, PostgresDialect(), family=Family.NONPRODUCTION, runtime_role=database.runtime_role
        )
    return database
