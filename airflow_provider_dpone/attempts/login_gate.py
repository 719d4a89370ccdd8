"""The login gate of SQL Server by its public name: one login per admitted attempt, by the attempt alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider_dpone.attempts.sql import SqlWorld
from airflow_provider_dpone.contracts.ports import IssuedCredential
from airflow_provider_dpone.contracts.proofs import GateClosure, SessionQuiescence
from airflow_provider_dpone.contracts.states import Purpose
from airflow_provider_dpone.engines.sql.rights import WorkerRights
from airflow_provider_dpone.errors import GateRefused
from airflow_provider_dpone.ledger.dialects.mssql import MssqlDialect
from airflow_provider_dpone.ledger.schema import SCHEMA
from airflow_provider_dpone.ledger.transaction import Ledger

if TYPE_CHECKING:
    import pyodbc

    from airflow_provider_dpone.engines.mssql.gate import MssqlGate
    from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams


class MssqlCompositionLoginGate:
    """Issues, closes and looks again at the logins of attempts on dedicated databases of one SQL Server.

    :param connect: opens an independent connection to the ledger each time: no pool, no retry, no tracing.
    :param controller: the controller's connection to the target database.
    :param expected_service_id: the one ledger this caller writes to.
    :param control_database: the database that holds the gates; when the ledger is in it, a login and its READY are one
        transaction of the ledger.
    :param control_schema: schema of the ledger's tables.
    """

    def __init__(
        self,
        connect: Callable[[], pyodbc.Connection],
        controller: MssqlParams,
        *,
        expected_service_id: uuid.UUID,
        control_database: str,
        control_schema: str = SCHEMA,
    ) -> None:
        from airflow_provider_dpone.engines.mssql.control import MssqlControl
        from airflow_provider_dpone.engines.mssql.load_target import MssqlTarget
        from airflow_provider_dpone.engines.mssql.rights import MssqlGatePolicy

        ledger = Ledger(connect, MssqlDialect(control_schema), expected_service_id)
        target = MssqlTarget(
            MssqlControl(controller, control_database, control_schema), MssqlGatePolicy(), ledger=ledger
        )
        self._world = SqlWorld(ledger, target, target.service_id())

    def issue_once(self, attempt: str) -> IssuedCredential:
        """Issue the attempt's one login with the rights of the bounded role; only this call gets its password.

        :raises Fenced: the attempt is fenced, not RUNNING, or does not hold its guard any more; nothing was made.
        :raises GateRefused: a login was journaled for it before, whatever became of it.
        """
        from airflow_provider_dpone.engines.mssql.install import WRITER_ROLE

        self._world.attempts.require_acting(attempt)
        if self._world.journal(attempt).principals():
            raise GateRefused(f"attempt {attempt} was given its one login before; a new attempt gets another")
        return self._gate(attempt).issue_once(Purpose.WORKER, WorkerRights(grants=(), member_of=(WRITER_ROLE,)))

    def close(self, attempt: str) -> list[tuple[GateClosure, SessionQuiescence]]:
        """Close every login of the attempt for good; the evidence of those this call closed.

        :raises GateNotClosed: one could not be proved closed; it stays CLOSING.
        """
        gate = self._gate(attempt)
        found = [gate.close(principal.name) for principal in self._world.journal(attempt).principals()]
        return [evidence for evidence in found if evidence is not None]

    def prove_quiescence(self, attempt: str) -> list[SessionQuiescence]:
        """Look again: nothing of the attempt's closed logins is on the server now.

        :raises GateNotClosed: something is, or a gate is not closed.
        """
        gate = self._gate(attempt)
        return [gate.prove_quiescence(principal.name) for principal in self._world.journal(attempt).principals()]

    def _gate(self, attempt: str) -> MssqlGate:
        from airflow_provider_dpone.engines.mssql.gate import MssqlGate

        gate = self._world.gate_of(attempt)
        assert isinstance(gate, MssqlGate)
        return gate
