"""Every wait ends, on real servers behind a proxy that falls silent with both its sockets open.

A silent peer is no closed connection and no dead machine: nothing but a deadline ends the wait. The deadlines here are
seconds instead of hours; ``docs/waits.md`` has the real ones. What the statement did is then observed, not assumed.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import clickhouse_driver
import pytest

from airflow_provider_dpone import waiting
from airflow_provider_dpone.contracts.states import Purpose
from airflow_provider_dpone.engines.clickhouse.control import NativeControl
from airflow_provider_dpone.engines.clickhouse.rights import GatePolicy
from airflow_provider_dpone.engines.clickhouse.wire import ClickHouseHttp
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.session import arrow_session, translated
from airflow_provider_dpone.errors import AnswerLost, CommitUnknown, LedgerUnavailable
from airflow_provider_dpone.hooks.clickhouse import DponeClickHouseHook
from airflow_provider_dpone.ledger.transaction import Ledger
from tests.cutting_proxy import CuttingProxy
from tests.schema_world import SchemaWorld
from tests.snapshot_world import SnapshotWorld

SOON = 2.0
LATE = 30.0


@contextmanager
def soon() -> Iterator[None]:
    """The block ends on its own, long before a person would look."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < LATE


@pytest.fixture
def orders(world: SnapshotWorld) -> SnapshotWorld:
    world.pg("CREATE TABLE orders (id bigint NOT NULL, name text)")
    world.pg("INSERT INTO orders SELECT i, 'name ' || i FROM generate_series(1, 1000) i")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64, name Nullable(String)) ENGINE = MergeTree ORDER BY id")
    world.activate("orders")
    return world


@pytest.fixture
def loaded(schema_world: SchemaWorld) -> SchemaWorld:
    schema_world.make_load("t", "id int NOT NULL, v text", "VALUES (1, 'new'), (2, 'new'), (3, NULL)")
    schema_world.sql("INSERT INTO mart.t VALUES (1, 'old'), (2, 'old')")
    return schema_world


# --- ClickHouse -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("marker", "state"), [(b"EXCHANGE", "PUBLISHED"), (b"INSERT", None)])
def test_silence_over_http_ends_and_the_outcome_is_observed(
    orders: SnapshotWorld, marker: bytes, state: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GatePolicy, "answer_within", SOON)
    with CuttingProxy(orders.clickhouse.host, orders.clickhouse.http_port) as proxy, soon():
        cell = orders.cell("orders", http_port=proxy.port)
        target = cell.world.target
        object.__setattr__(target, "http", replace(target.http, answer_within=SOON))
        proxy.silence_on(marker)
        if state is None:
            with pytest.raises(AnswerLost):
                cell.run()
        else:
            assert cell.run().state == state
        assert proxy.silenced == 1
    assert orders.exchanges() == (1 if state else 0)
    assert orders.ledger_counts()["open_guards"] == 0


def test_one_statement_is_waited_for_longer_than_it_may_run_and_not_for_ever() -> None:
    policy = GatePolicy()
    assert policy.settings(Purpose.PUBLISHER)["max_execution_time"] < policy.answer_within < 600
    assert waiting.STATEMENT < ClickHouseHttp("h", 1).answer_within < 86400


def test_silence_on_the_native_port_is_a_lost_answer(orders: SnapshotWorld) -> None:
    server = orders.clickhouse
    with CuttingProxy(server.host, server.native_port) as proxy, soon():
        control = NativeControl(
            lambda: clickhouse_driver.Client(
                server.host, proxy.port, user=server.controller_user, password=server.controller_password,
                send_receive_timeout=SOON,
            )
        )  # fmt: skip
        proxy.silence_on(b"SELECT 7")
        with pytest.raises(AnswerLost):
            control.query("SELECT 7")
        assert proxy.silenced == 1


def test_the_native_client_of_a_connection_looks_after_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_DWH", "clickhouse://u:p@127.0.0.1:8123/d")
    connection = DponeClickHouseHook(clickhouse_conn_id="dwh").get_conn().connection
    assert connection.tcp_keepalive == (waiting.IDLE, waiting.INTERVAL, waiting.COUNT)
    assert 0 < connection.send_receive_timeout <= 600


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


def test_silence_of_a_postgres_session_is_a_lost_answer(loaded: SchemaWorld) -> None:
    with CuttingProxy(loaded.postgres.host, loaded.postgres.port) as proxy, soon():
        control = PostgresControl(replace(loaded.params(proxy.port), answer_seconds=SOON))
        proxy.silence_on(b"SELECT 7")
        with control.fresh() as session, pytest.raises(AnswerLost):
            session.query("SELECT 7")
        assert proxy.silenced == 1


def test_the_server_ends_a_statement_of_the_controller_before_the_client_stops_waiting(loaded: SchemaWorld) -> None:
    params = loaded.params()
    with PostgresControl(params).fresh() as session:
        [(limit,)] = session.query("SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'")
    assert 0 < limit / 1000 < params.answer_seconds


def test_silence_while_arrow_rows_are_read_is_a_lost_answer(loaded: SchemaWorld) -> None:
    """The driver keeps its socket to itself; the wait is ended all the same."""
    loaded.source_sql("INSERT INTO t SELECT i, repeat('x', 200000) FROM generate_series(10, 310) AS i")
    with CuttingProxy(loaded.postgres.host, loaded.postgres.port) as proxy, soon():
        cell = loaded.cell("t", source_port=proxy.port)
        cell._work.source.params = replace(cell._work.source.params, answer_seconds=SOON)  # type: ignore[attr-defined]
        proxy.silence_on(b' AS "v"', after=20_000_000)
        with pytest.raises(AnswerLost, match="reading the source"):
            cell.run()
        assert proxy.silenced == 1
    assert loaded.ledger_counts()["open_guards"] == 0
    assert loaded.rows("t") == [(1, "old"), (2, "old")]


def test_silence_before_the_first_arrow_row_is_a_lost_answer(loaded: SchemaWorld) -> None:
    with CuttingProxy(loaded.postgres.host, loaded.postgres.port) as proxy, soon():
        params = replace(loaded.params(proxy.port), answer_seconds=SOON)
        proxy.silence_on(b"digest")
        with (
            pytest.raises(AnswerLost),
            translated(params, "a test"),
            arrow_session(params) as (session, line),
            session.cursor() as cursor,
            line.within(SOON),
        ):
            cursor.execute("SELECT 'digest'")
        assert line.cuts == 1


@pytest.mark.parametrize(("marker", "rows"), [(b"dpone_gate.conclude", 3), (b"DELETE FROM", 2)])
def test_silence_of_the_workers_transaction_ends_and_the_outcome_is_observed(
    loaded: SchemaWorld, marker: bytes, rows: int
) -> None:
    with CuttingProxy(loaded.postgres.host, loaded.postgres.port) as proxy, soon():
        cell = loaded.cell("t", port=proxy.port)
        control = cell.world.target.control
        control.params = replace(control.params, answer_seconds=5.0)
        proxy.silence_on(marker)
        if rows == 3:
            assert cell.run().state == "LOADED"
        else:
            with pytest.raises(AnswerLost):
                cell.run()
        assert proxy.silenced == 1
    assert len(loaded.rows("t")) == rows
    assert loaded.receipts() == (1 if rows == 3 else 0)
    assert loaded.ledger_counts()["open_guards"] == 0


# --- the ledger -----------------------------------------------------------------------------------------------------


def test_silence_of_the_ledger_ends_in_doubt_or_unavailable_and_a_later_try_settles(
    loaded: SchemaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "longest", SOON)
    with CuttingProxy(loaded.postgres.host, loaded.postgres.port) as proxy, soon():
        cell = loaded.cell("t", ledger_port=proxy.port)
        proxy.silence_on(b"INSERT INTO dpone.attempt")
        with pytest.raises((LedgerUnavailable, CommitUnknown)):
            cell.run()
        assert proxy.silenced == 1
    assert loaded.cell("t", try_number=2).run().rows == 3
    assert loaded.ledger_counts()["open_guards"] == 0


# --- how the sockets are found --------------------------------------------------------------------------------------


def test_only_the_sockets_of_the_connection_are_cut_and_each_looks_after_its_peer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        before = socket.create_connection(one.getsockname())
        with waiting.opening(one.getsockname()[1]) as line:
            mine, theirs = (socket.create_connection(s.getsockname()) for s in (one, other))
        with before, mine, theirs:
            assert mine.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert not before.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            with line.within(0.3):
                assert mine.recv(1) == b""  # would wait for ever
            for kept in (before, theirs):
                kept.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    kept.recv(1)


def test_a_descriptor_that_became_another_socket_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with waiting.opening(server.getsockname()[1]) as line:
            gone = socket.create_connection(server.getsockname())
        number = gone.fileno()
        gone.close()
        with socket.create_connection(server.getsockname()) as new:
            assert new.fileno() == number
            line.cut()
            new.settimeout(0.2)
            with pytest.raises(TimeoutError):
                new.recv(1)


def test_deadlines_work_in_a_forked_process() -> None:
    """Airflow forks its task processes; threads do not come along."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with waiting.opening() as line:
            sock = socket.create_connection(server.getsockname())
        with sock, line.within(60):
            child = os.fork()
            if child == 0:
                signal.alarm(10)  # the parent's own deadline would end the wait as well, much later
                try:
                    with line.within(0.3):
                        os._exit(0 if sock.recv(1) == b"" else 1)
                finally:
                    os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
