"""A ledger in the database that holds the gates: a login and its READY are one transaction of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from airflow_provider_dpone.attempts import login_gate
from airflow_provider_dpone.attempts.login_gate import MssqlCompositionLoginGate
from airflow_provider_dpone.contracts.states import GateState
from airflow_provider_dpone.engines.mssql.gate import MssqlGate
from airflow_provider_dpone.errors import DponeError, GateRefused
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.ledger.journal import LedgerJournal
from tests.live_mssql import target_stand_in
from tests.live_mssql.target_world import MssqlWorld
from tests.mssql_server import MssqlLedgerDatabase, MssqlServer
from tests.servers import PostgresUnderTest

pytestmark = pytest.mark.timeout(900)


@dataclass
class LedgerWorld(MssqlWorld):
    """Ledger, gates and the managed schema in one database, whose owner is the controller."""

    def __post_init__(self) -> None:
        ledger = self.here
        self.database, self.controller_password = ledger.dbname, ledger.admin_password
        if self.mssql.stand_in:
            with closing(self.mssql.connect()) as connection:
                batch(connection, f"ALTER SERVER ROLE sysadmin ADD MEMBER {ledger.admin_role}")
        self.sql(f"CREATE SCHEMA {self.schema}")
        self.install()

    @property
    def here(self) -> MssqlLedgerDatabase:
        ledger: object = self.ledger
        assert isinstance(ledger, MssqlLedgerDatabase)
        return ledger

    @property
    def controller(self) -> str:
        return self.here.admin_role

    @property
    def administrators(self) -> list[str]:
        """The ledger's role may write the ledger, which is in the same database here."""
        return sorted([*super().administrators, self.here.runtime_role])

    def public(self) -> MssqlCompositionLoginGate:
        known = self.here.admin()
        known.read(lambda connection: None)
        assert known.service_id is not None
        return MssqlCompositionLoginGate(
            self.here.connect_admin, self.control().params, expected_service_id=known.service_id,
            control_database=self.database,
        )  # fmt: skip


@pytest.fixture
def world(
    mssql_server: MssqlServer, postgres_server: PostgresUnderTest, mssql_ledger_database: MssqlLedgerDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[LedgerWorld]:  # fmt: skip
    if mssql_server.stand_in:
        target_stand_in.use(monkeypatch)
        monkeypatch.setattr(login_gate, "MssqlDialect", lambda schema: mssql_server.dialect())
    made = LedgerWorld(postgres_server, mssql_ledger_database, mssql=mssql_server)  # type: ignore[arg-type]
    yield made
    mssql_ledger_database.logins += [str(n) for (n,) in made.sql("SELECT name FROM dpone_gate.gate WHERE made = 1")]
    made.let_go()


def states(world: LedgerWorld, attempt: str) -> list[GateState]:
    return [p.state for p in LedgerJournal(world.here.admin(), attempt).principals()]


def logins(world: LedgerWorld) -> int:
    [(count,)] = world.sql(
        "SELECT COUNT(*) FROM sys.server_principals AS p JOIN dpone_gate.gate AS g ON g.name = p.name"
    )
    return int(count)


def test_a_login_and_its_ready_are_one_transaction(world: LedgerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = world.admit()
    with monkeypatch.context() as patch:
        creation = MssqlGate._creation

        def broken(self: MssqlGate, *given: object) -> list[str]:
            return [*creation(self, *given), "THROW 50001, N'the last statement fails', 1"]  # type: ignore[arg-type]

        patch.setattr(MssqlGate, "_creation", broken)
        with pytest.raises(DponeError):
            world.public().issue_once(attempt)
    assert logins(world) == 0  # taken back with the ledger's own move
    assert states(world, attempt) == [GateState.CLOSED]
    gate = world.public()
    with pytest.raises(GateRefused, match="before"):
        gate.issue_once(attempt)


def test_the_public_gate_issues_closes_and_looks_again(world: LedgerWorld) -> None:
    attempt = world.admit()
    gate = world.public()
    credential = gate.issue_once(attempt)
    world.login(credential).close()
    [(closure, quiet)] = gate.close(attempt)
    assert (closure.principal_uuid, quiet.sessions) == (credential.principal_uuid, 0)
    assert gate.close(attempt) == []
    assert [seen.name for seen in gate.prove_quiescence(attempt)] == [credential.name]
    assert world.roles() == []
