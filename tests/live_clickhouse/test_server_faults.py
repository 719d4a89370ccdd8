"""The faults a closing must survive, made on the wire and by restarts: they need no hold point, so any server has them."""

from __future__ import annotations

import threading
import time

import pytest
from clickhouse_driver import Client

from airflow_provider_dpone.contracts.states import GateState, Purpose
from airflow_provider_dpone.engines.clickhouse.control import NativeControl
from airflow_provider_dpone.engines.clickhouse.rights import ingest_rights
from airflow_provider_dpone.errors import AnswerLost
from tests.cutting_proxy import CuttingProxy
from tests.live_clickhouse.http_requests import PartialRequest, call, eventually, make_user, two_tables, uuids
from tests.live_clickhouse.product import Journal, Product
from tests.live_clickhouse.test_server_barrier import FULL, running
from tests.servers import ClickHouseUnderTest


def _through(product: Product, proxy: CuttingProxy) -> NativeControl:
    """The controller, its sessions through a proxy."""
    server = product.server
    login = {"user": server.controller_user, "password": server.controller_password}
    return NativeControl(lambda: Client(server.host, proxy.port, **login))


def _user(product: Product, name: str) -> list[tuple[object, ...]]:
    return product.rows(f"SELECT toString(id), host_ip, host_names FROM system.users WHERE name = '{name}'")


def test_a_request_whose_text_is_still_on_its_way_has_no_effect_after_drop_user(
    clickhouse_server: ClickHouseUnderTest,
) -> None:
    """Its headers were authenticated; its statement arrives when the user is gone."""
    server = clickhouse_server
    with two_tables(server) as tables:
        before = uuids(server, tables)
        name, password = make_user(server, f"{FULL} ON {tables.a}", f"{FULL} ON {tables.b}")
        swap = f"EXCHANGE TABLES {tables.a} AND {tables.b}".encode()
        request = PartialRequest(server, "", len(swap), name, password)
        request.send(swap[:10])
        time.sleep(0.5)
        assert running(server, name) == 0
        server.execute(f"REVOKE ALL ON *.* FROM {name}")
        server.execute(f"DROP USER {name}")
        server.execute("SYSTEM RELOAD USERS")
        request.send(swap[10:])
        assert request.code() not in (0, -1)
        assert uuids(server, tables) == before
        request.close()


def test_an_exchange_racing_drop_user_happens_before_it_is_quiet_or_never(
    clickhouse_server: ClickHouseUnderTest,
) -> None:
    server = clickhouse_server
    for turn in range(30):
        with two_tables(server) as tables:
            name, password = make_user(server, f"{FULL} ON {tables.a}", f"{FULL} ON {tables.b}")
            swap = f"EXCHANGE TABLES {tables.a} AND {tables.b}"
            sender = threading.Thread(target=call, args=(server, swap), kwargs={"user": name, "password": password})
            sender.start()
            time.sleep(turn * 0.0005)
            server.execute(f"DROP USER {name}")
            eventually(lambda user=name: not running(server, user))
            quiet = uuids(server, tables)
            sender.join(30)
            assert uuids(server, tables) == quiet


def test_a_drop_user_whose_answer_was_lost_is_asked_again(product: Product) -> None:
    with product.database() as database, CuttingProxy(product.server.host, product.server.native_port) as proxy:
        gate = product.gate(Journal())
        issued = gate.issue_once(Purpose.INGEST, ingest_rights(database, "b"))
        gate._control = _through(product, proxy)
        proxy.cut_on(b"DROP USER", forward=True)
        evidence = gate.close(issued.name)
        assert proxy.cuts == 1
        assert evidence is not None
        assert any(step.endswith(": lost") for step in evidence[0].steps)
        assert evidence[0].steps[-3:] == ("fence: ok", "seen gone", "seen quiet")
        assert _user(product, issued.name) == []


def test_a_create_user_that_arrives_late_fails_against_the_tombstone(product: Product) -> None:
    with product.database() as database, CuttingProxy(product.server.host, product.server.native_port) as proxy:
        journal = Journal()
        gate = product.gate(journal)
        gate._control = _through(product, proxy)
        proxy.late = 6.0
        proxy.cut_on(b"CREATE USER", forward=True)
        with pytest.raises(AnswerLost):
            gate.issue_once(Purpose.INGEST, ingest_rights(database, "b"))
        [row] = journal.rows.values()
        assert row.state is GateState.CLOSED
        before = _user(product, row.name)
        assert [(ip, names) for _, ip, names in before] == [([], [])]
        time.sleep(6.5)
        assert proxy.cuts == 1
        assert _user(product, row.name) == before
        product.run(f"DROP USER {row.name}")


def test_a_quota_does_not_outlive_a_restart(restartable: Product) -> None:
    """Why a restart since the issue cancels a publication: the budget of one statement begins anew."""
    server = restartable.server
    name, password = make_user(server)
    server.execute(f"CREATE QUOTA {name} FOR INTERVAL 100 YEAR MAX queries = 1 TO {name}")
    codes = [call(server, "SELECT 1", user=name, password=password).code for _ in range(2)]
    assert codes == [0, 201]
    restartable.restart()
    codes = [call(server, "SELECT 1", user=name, password=password).code for _ in range(2)]
    assert codes == [0, 201]
    server.execute(f"DROP USER {name}")
    server.execute(f"DROP QUOTA {name}")


def test_a_server_restarted_in_the_middle_of_a_closing_is_observed_again(restartable: Product) -> None:
    with restartable.database() as database:
        gate = restartable.gate(Journal())
        issued = gate.issue_once(Purpose.INGEST, ingest_rights(database, "b"))

        def restart() -> None:
            time.sleep(4)  # longer than two starts may seem one
            restartable.restart()

        gate._control = restartable.meddled("asynchronous_inserts", restart, times=1)
        evidence = gate.close(issued.name)
        assert evidence is not None
        assert "the server was restarted: observing again" in evidence[0].steps
        assert evidence[0].steps[-2:] == ("seen gone", "seen quiet")
