"""Waits for a SQL Server that goes silent with its sockets open end, and what became of the statement is observed."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from airflow_provider_dpone.engines.mssql.control import open_session
from airflow_provider_dpone.errors import AnswerLost
from tests.cutting_proxy import CuttingProxy
from tests.live_mssql.target_world import MssqlWorld

pytestmark = pytest.mark.timeout(900)  # a stand-in takes a minute for what a server does in a second


def test_silence_of_a_session_is_a_lost_answer(mssql_world: MssqlWorld) -> None:
    with CuttingProxy(mssql_world.mssql.host, mssql_world.mssql.port) as proxy:
        params = replace(mssql_world.control(proxy.port).params, answer_seconds=20.0)
        with open_session(params) as session:
            session._params = replace(params, answer_seconds=2.0)
            proxy.silence_on("SELECT 7".encode("utf-16le"))
            started = time.monotonic()
            with pytest.raises(AnswerLost):
                session.query("SELECT 7")
            assert time.monotonic() - started < 30
        assert proxy.silenced == 1


def test_silence_after_the_commit_ends_and_the_receipt_decides(mssql_world: MssqlWorld) -> None:
    mssql_world.make_load(
        "t", "id int NOT NULL, v text", "VALUES (1, 'new'), (2, 'new')", "id int NOT NULL, v nvarchar(20)"
    )
    with CuttingProxy(mssql_world.mssql.host, mssql_world.mssql.port) as proxy:
        cell = mssql_world.cell("t", port=proxy.port)
        commit = cell._swap

        def silent(plan: object, staging: str, record: object, worker: object, writer: object) -> None:
            writer._params = replace(writer._params, answer_seconds=20.0)  # type: ignore[attr-defined]
            proxy.silence_on("COMMIT TRANSACTION;".encode("utf-16le"))
            commit(plan, staging, record, worker, writer)  # type: ignore[arg-type]

        cell._swap = silent  # type: ignore[method-assign, assignment]
        assert cell.run().state == "LOADED"
        assert proxy.silenced == 1
    assert mssql_world.receipts() == 1
