"""What passes by itself is decided by each engine: the same number means another thing elsewhere."""

from __future__ import annotations

import psycopg
import pyodbc
import pytest

from airflow_provider_dpone.engines.clickhouse.wire import refused
from airflow_provider_dpone.engines.mssql.session import translated as mssql_translated
from airflow_provider_dpone.engines.postgres.session import PostgresParams
from airflow_provider_dpone.engines.postgres.session import translated as postgres_translated
from airflow_provider_dpone.errors import ServerRefused
from airflow_provider_dpone.ledger.dialects.base import Failure
from airflow_provider_dpone.ledger.dialects.mssql import MssqlDialect
from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams

MSSQL = MssqlParams(host="h", database="d", user="u")
PASSING = (1204, 1205, 1222, 3960, 701, 8645, 40613, 18401, 17142, 4060)


def odbc(number: int) -> pyodbc.Error:
    return pyodbc.Error(
        "42000", f"[42000] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]said so ({number}) (SQLExecDirectW)"
    )


def mssql(number: int) -> ServerRefused:
    with pytest.raises(ServerRefused) as caught, mssql_translated(MSSQL, "a statement"):
        raise odbc(number)
    return caught.value


def postgres(error: type[psycopg.Error]) -> ServerRefused:
    params = PostgresParams(host="h", dbname="d", user="u")
    with pytest.raises(ServerRefused) as caught, postgres_translated(params, "a statement"):
        raise error("said so")
    return caught.value


@pytest.mark.parametrize("number", PASSING)
def test_sql_server_says_what_passes(number: int) -> None:
    assert mssql(number).retryable


@pytest.mark.parametrize("number", [241, 209, 252, 159, 8152, 547, 18456])
def test_a_number_of_another_engine_does_not_pass_on_sql_server(number: int) -> None:
    assert not mssql(number).retryable


@pytest.mark.parametrize("code", [159, 202, 209, 210, 236, 241, 252, 394, 439])
def test_clickhouse_says_what_passes(code: int) -> None:
    assert refused("said so", code).retryable


@pytest.mark.parametrize("code", [1205, 1222, 701, 497, 60])
def test_a_number_of_another_engine_does_not_pass_on_clickhouse(code: int) -> None:
    assert not refused("said so", code).retryable


def test_postgresql_says_what_passes() -> None:
    assert postgres(psycopg.errors.DeadlockDetected).retryable
    assert not postgres(psycopg.errors.UndefinedTable).retryable


@pytest.mark.parametrize("number", PASSING)
def test_what_passes_on_sql_server_is_no_rule_of_the_ledger(number: int) -> None:
    failure, _ = MssqlDialect().classify(odbc(number))
    assert failure in (Failure.BUSY, Failure.UNREACHABLE)
