"""Moves a PostgreSQL table into a ClickHouse table inside this process: the real reader, encoder and engine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from chdb.session import Session

from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.contracts.enrolment import ColumnDesign
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.engines.clickhouse.aggregates import read_aggregates
from airflow_provider_dpone.engines.clickhouse.quoting import identifier, table
from airflow_provider_dpone.engines.postgres.session import PostgresParams
from airflow_provider_dpone.engines.postgres.snapshot import PostgresSnapshot, open_snapshot
from airflow_provider_dpone.engines.postgres.types import explain
from airflow_provider_dpone.transfer.convert import Conversion, plan_conversion
from airflow_provider_dpone.transfer.digest import content_of
from airflow_provider_dpone.transfer.meter import Meter
from airflow_provider_dpone.transfer.stream import StreamResult, stream_snapshot
from tests.servers import PostgresUnderTest

_INSERT_SETTINGS = "input_format_null_as_default = 0, async_insert = 0"


@dataclass(frozen=True)
class SourceDatabase:
    """A fresh database on the session's PostgreSQL server."""

    server: PostgresUnderTest
    dbname: str

    @classmethod
    def fresh(cls, server: PostgresUnderTest) -> SourceDatabase:
        return cls(server, server.fresh_database("transfer"))

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return self.server.connect(self.dbname)

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            for sql in statements:
                connection.execute(sql.encode())

    def params(self, user: str | None = None, password: str | None = None) -> PostgresParams:
        superuser = self.server.superuser
        return PostgresParams(
            host=self.server.host,
            port=self.server.port,
            dbname=self.dbname,
            user=user or superuser["user"],
            password=password if user else superuser["password"],
        )


class Engine:
    """The embedded ClickHouse engine as control plane and INSERT end point."""

    def __init__(self, path: Path) -> None:
        self.session = Session(str(path))
        self.session.query("CREATE DATABASE IF NOT EXISTS mart ENGINE = Atomic")

    def query(self, sql: str, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        assert params is None
        text = self.session.query(sql, "JSONCompact").bytes()
        return [tuple(row) for row in json.loads(text)["data"]] if text else []

    def command(self, sql: str) -> None:
        self.session.query(sql)

    def fresh(self) -> Engine:
        return self

    def create(self, name: str, columns: dict[str, str]) -> list[ColumnDesign]:
        listed = ", ".join(f"{identifier(column)} {kind}" for column, kind in columns.items())
        self.command(f"DROP TABLE IF EXISTS {table('mart', name)}")
        self.command(
            f"CREATE TABLE {table('mart', name)} ({listed}) ENGINE = MergeTree ORDER BY tuple() "
            "SETTINGS allow_nullable_key = 1"
        )
        rows = self.query(
            "SELECT name, type, default_kind, default_expression FROM system.columns "
            f"WHERE database = 'mart' AND table = '{name}' ORDER BY position"
        )
        return [
            ColumnDesign(name=n, type=t, default_kind=k, default_expression=e, codec="", comment="")
            for n, t, k, e in rows
        ]

    def sender(self, name: str, conversion: Conversion) -> Any:
        def send(body: Iterator[bytes]) -> None:
            columns = ", ".join(map(identifier, conversion.names))
            with tempfile.NamedTemporaryFile(suffix=".bin") as file:
                for chunk in body:
                    file.write(chunk)
                file.flush()
                self.command(
                    f"INSERT INTO {table('mart', name)} ({columns}) FROM INFILE '{file.name}' COMPRESSION 'none' "
                    f"SETTINGS {_INSERT_SETTINGS} FORMAT RowBinary"
                )

        return send

    def content(self, name: str, conversion: Conversion) -> Content:
        columns = ", ".join(map(identifier, conversion.names))
        [(rows, total)] = self.query(
            "SELECT toString(count()), toString(sum(reinterpretAsUInt256(SHA256(formatRow('RowBinary', "
            f"{columns}))))) FROM {table('mart', name)}"
        )
        return content_of(int(rows), int(total))

    def aggregates(self, name: str, conversion: Conversion) -> TableAggregates:
        return read_aggregates(self, "mart", name, conversion)  # type: ignore[arg-type]

    def values(self, name: str, expression: str, order: str = "1") -> list[Any]:
        return [
            row[0] if len(row) == 1 else row
            for row in self.query(f"SELECT {expression} FROM {table('mart', name)} ORDER BY {order}")
        ]


def meter(**ceilings: int) -> Meter:
    limits = {"max_source_bytes": "10 GiB", **ceilings}
    return Meter(SnapshotLimits(**limits).effective())  # type: ignore[arg-type]


def plan(snapshot: PostgresSnapshot, columns: list[ColumnDesign]) -> Conversion:
    return plan_conversion(snapshot.table, columns, explain)


def copy(
    params: PostgresParams, engine: Engine, source: str, columns: dict[str, str], target: str | None = None
) -> StreamResult:
    """Copy ``public.source`` completely and check digest and aggregates on both sides."""
    target = target or source
    designs = engine.create(target, columns)
    with open_snapshot(params, "public", source) as snapshot:
        conversion = plan(snapshot, designs)
        result = stream_snapshot(snapshot.batches(conversion), conversion, meter(), engine.sender(target, conversion))
        aggregates = snapshot.aggregates(conversion)
    assert engine.content(target, conversion) == result.content
    assert aggregates.difference(engine.aggregates(target, conversion)) is None
    return result
