"""A source database on the SQL Server under test, copied into the embedded ClickHouse engine."""

from __future__ import annotations

import secrets
from contextlib import closing
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from airflow_provider_dpone.engines.mssql import snapshot
from airflow_provider_dpone.engines.mssql.scripts import statement
from airflow_provider_dpone.engines.mssql.snapshot import MssqlSource
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams
from airflow_provider_dpone.transfer.aggregates import PREFIX
from airflow_provider_dpone.transfer.convert import plan_conversion
from airflow_provider_dpone.transfer.stream import StreamResult, stream_snapshot
from tests.integration.transfer_support import Engine, meter
from tests.mssql_server import MssqlServer

_PASSED_ON = ("encrypt", "trustservercertificate")


@dataclass(frozen=True)
class MssqlSourceDatabase:
    server: MssqlServer
    dbname: str

    @classmethod
    def fresh(cls, server: MssqlServer) -> MssqlSourceDatabase:
        made = cls(server, f"source_{secrets.token_hex(4)}")
        server.create_database(made.dbname)
        if not server.stand_in:
            with closing(server.connect()) as connection:
                batch(connection, f"ALTER DATABASE {made.dbname} SET ALLOW_SNAPSHOT_ISOLATION ON")
        return made

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with closing(self.server.connect(database=self.dbname)) as connection:
            for sql in statements:
                rows = batch(connection, sql)
        return rows

    def params(self, **changes: Any) -> MssqlParams:
        keywords = self.server.keywords
        found: dict[str, Any] = {
            "host": self.server.host,
            "port": self.server.port,
            "database": self.dbname,
            "user": keywords["uid"],
            "password": keywords["pwd"],
            "driver": keywords["driver"],
            "options": tuple((name, keywords[name]) for name in _PASSED_ON if name in keywords),
        }
        return MssqlParams(**(found | changes))

    def source(self) -> MssqlSource:
        return MssqlSource(self.params())


def stand_in(server: MssqlServer, patch: pytest.MonkeyPatch, aggregates: ModuleType, catalog: ModuleType) -> None:
    """A stand-in has no graph tables, no row security, and no collation of UTF-8 bytes."""
    if server.stand_in:
        patch.setattr(catalog, "statement", _understood)
        patch.setattr(snapshot, "UTF16_UNITS", "DATALENGTH({v})")  # bytes of UTF-8 there, no fewer
        patch.setattr(aggregates, "BYTEWISE", "Latin1_General_100_BIN2")
        low, high = bytewise(aggregates)
        total = aggregates._TOTAL.format(v="CONVERT(varchar(max), {v})")
        patch.setitem(aggregates._SQL, aggregates.Shape.TEXT, (low, high, total))
        *_, total = aggregates._SQL[aggregates.Shape.BYTES]
        patch.setitem(aggregates._SQL, aggregates.Shape.BYTES, (f"MIN({HEX})", f"MAX({HEX})", total))


#: It writes bytes as characters where it converts them to text.
HEX = f"CAST(pg_catalog.encode(CAST(SUBSTRING({{v}}, 1, {PREFIX}) AS bytea), CAST('hex' AS text)) AS varchar(max))"


def bytewise(aggregates: ModuleType) -> tuple[str, str]:
    """Low and high of text where no collation is UTF-8, but the binary one of Unicode text orders by code points."""
    cut = f"CONVERT(nvarchar({2 * PREFIX + 1}), LEFT({{v}}, {2 * PREFIX}) + NCHAR(1)) COLLATE {{bytewise}}"
    assert aggregates._CUT in aggregates._SQL[aggregates.Shape.TEXT][0]
    return f"MIN({cut})", f"MAX({cut})"


def _understood(name: str) -> str:
    sql = statement(name).replace("t.is_node, t.is_edge", "0 AS is_node, 0 AS is_edge")
    policies = sql.find("(SELECT COUNT(*) FROM sys.security_predicates")
    return sql if policies < 0 else sql[:policies] + "0 AS row_filters," + sql[sql.index("AS row_filters,") + 15 :]


def copy(source: MssqlSource, engine: Engine, name: str, columns: dict[str, str]) -> StreamResult:
    """Copy ``dbo.name`` completely and check digest and aggregates on both sides."""
    designs = engine.create(name, columns)
    with source.open("dbo", name) as held:
        conversion = plan_conversion(held.table, designs, source.explain)
        result = stream_snapshot(held.batches(conversion), conversion, meter(), engine.sender(name, conversion))
        aggregates = held.aggregates(conversion)
    assert engine.content(name, conversion) == result.content
    difference = aggregates.difference(engine.aggregates(name, conversion))
    assert difference is None, difference
    return result
