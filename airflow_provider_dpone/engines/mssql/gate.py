"""The gate of one-time logins of SQL Server; see ``engines/sql/gate.py`` for what every such gate keeps.

Its identity is its SID: a tag the login trigger knows by built-in functions alone, then random bytes; the name is the
SID in hexadecimal, so that either tells the other. A closed login stays, disabled, with its password thrown away: a
missing or recreated SID could not prove closure. When the ledger is in the database of the gates, login and READY are
one transaction of the ledger.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import Connection

from airflow_provider_dpone.contracts.states import Connector, GateState
from airflow_provider_dpone.engines.mssql import scripts
from airflow_provider_dpone.engines.mssql.closing import MssqlClosing
from airflow_provider_dpone.engines.mssql.control import MssqlControl, MssqlSession, texts
from airflow_provider_dpone.engines.mssql.install import SID_TAG, require_reader
from airflow_provider_dpone.engines.mssql.policy import require_place
from airflow_provider_dpone.engines.mssql.rights import securable
from airflow_provider_dpone.engines.mssql.scripts import quoted
from airflow_provider_dpone.engines.mssql.session import translated
from airflow_provider_dpone.engines.sql.gate import OneTimeGate, Password
from airflow_provider_dpone.engines.sql.rights import WorkerRights
from airflow_provider_dpone.errors import GateRefused
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from airflow_provider_dpone.ledger.transaction import Ledger

_PREFIX: Final = "dpone_w_"


def sid_of(name: str) -> bytes:
    """The SID a name stands for.

    :raises ValueError: the name is none of ours.
    """
    sid = bytes.fromhex(name.removeprefix(_PREFIX))
    if name != f"{_PREFIX}{sid.hex()}" or len(sid) != 16 or not sid.startswith(SID_TAG):
        raise ValueError(f"{name} is not a name this gate issues")
    return sid


class MssqlGate(OneTimeGate):
    """Issues and closes the logins of one attempt on one dedicated database."""

    connector = Connector.MSSQL
    code_name = "error"
    ledger_batch: Callable[[Any, str], object] | None = None
    """Sends one batch on the ledger's connection, when the ledger is where the gates are; see :class:`OneTimeGate`."""

    def _identity(self) -> tuple[str, str]:
        sid = SID_TAG + self._randomness(12)
        return f"{_PREFIX}{sid.hex()}", str(uuid.UUID(bytes=sid))

    def _closing(self, name: str) -> MssqlClosing:
        incarnation = str(uuid.UUID(bytes=sid_of(name)))
        return MssqlClosing(self._control, self._enrolment, self._key, self._policy, name, incarnation)

    def _bring_up(self, name: str, incarnation: str, password: Password, rights: WorkerRights) -> None:
        send = self.ledger_batch
        if send is None:
            super()._bring_up(name, incarnation, password, rights)
            return
        control: MssqlControl = self._control
        with control.fresh() as session:
            self._require_installed(session)

        def within(connection: Any) -> None:
            self._checkpoint()
            for sql in self._creation(name, password, rights, control.control_database):
                with translated(control.params, "the creation of a login"):
                    send(connection, sql)

        self._journal.ready(name=name, principal_uuid=incarnation, within=within)
        self._require_as_meant(name, rights)

    def _create(self, name: str, incarnation: str, password: Password, rights: WorkerRights) -> None:
        with self._control.fresh() as session:
            self._require_installed(session)
            self._checkpoint()
            session.script(self._creation(name, password, rights, self._enrolment.marker.database))
        self._require_as_meant(name, rights)

    def _require_installed(self, session: MssqlSession) -> None:
        require_place(self._control, session, self._enrolment)
        require_reader(self._control)

    def _creation(self, name: str, password: Password, rights: WorkerRights, current: str) -> list[str]:
        """Every batch of the one transaction, to be run in database ``current``. The gate row refuses a closed name."""
        key, who, control = self._key, quoted(name), self._control.control_database
        target, schemas = self._enrolment.marker.database, self._enrolment.managed_schemas
        sid = sid_of(name)
        values = ", ".join(scripts.literal(value) for value in (sid, name, key.guard_id, key.epoch, key.attempt_sha256))
        user = f"CREATE USER {who} FOR LOGIN {who}"
        inside = [
            f"{user} WITH DEFAULT_SCHEMA = {quoted(schemas[0])}",
            *(f"GRANT {', '.join(grant.privileges)} ON {securable(grant)} TO {who}" for grant in rights.grants),
            *(f"ALTER ROLE {quoted(role)} ADD MEMBER {who}" for role in rights.member_of),
        ]
        return [
            f"INSERT INTO {quoted(control)}.dpone_gate.gate (sid, name, guard, epoch, attempt, made, state) "  # noqa: S608
            f"VALUES ({values}, 1, 1)",
            f"CREATE LOGIN {who} WITH PASSWORD = {scripts.literal(password.text)}, SID = {scripts.literal(sid)}, "
            f"DEFAULT_DATABASE = {quoted(target)}, CHECK_POLICY = ON, CHECK_EXPIRATION = OFF",
            *_in(target, current, inside),
            *(_in(control, current, [user]) if control != target else []),
        ]

    def _open(self, name: str) -> None:
        """The last step: from here on the login is let in."""
        with self._control.gates() as session:
            changed = session.change("UPDATE dpone_gate.gate SET state = 2 WHERE name = ? AND state = 1", name)
        if changed != 1:
            raise GateRefused(f"{name} was closed before it was opened; this attempt was settled by somebody else")
        key = self._key
        with self._control.gates() as session:  # on another connection: nothing rests on what only one has seen
            found = session.query(
                "SELECT g.state, g.guard, g.epoch, g.attempt FROM dpone_gate.gate AS g WHERE g.name = ?", name
            )
        if [tuple(row) for row in found] != [(GateState.READY, key.guard_id, key.epoch, key.attempt_sha256)]:
            raise GateRefused(f"{name} is not READY under its guard, epoch and attempt as another connection sees it")

    def _require_as_meant(self, name: str, rights: WorkerRights) -> None:
        """Compare all the catalogs have under the name with what was meant; nobody logs in as it to find out."""
        control: MssqlControl = self._control
        database, sid = self._enrolment.marker.database, sid_of(name).hex()
        with control.fresh() as session:
            found = {
                part: texts(session.query(sql.replace("[control]", quoted(control.control_database)), name))
                for part, sql in scripts.parts("gate_issued.sql").items()
            }
        grants = [
            ["database", database, "CONNECT", "false"],
            *(row for grant in rights.grants for row in grant.shown()),
        ]
        key = self._key
        checks = {
            "one enabled login of this SID": found["login"] == [[sid, "S", "False", database]],
            "no role of the server": found["server_role"] == [],
            "no right of the server but to connect": found["server_right"] in ([], [["CONNECT SQL", "GRANT"]]),
            "its user": found["database_user"] == [[sid, "S", self._enrolment.managed_schemas[0]]],
            "memberships": found["role"] == sorted([role] for role in rights.member_of),
            "grants": sorted(found["grant"]) == sorted(grants),
            "a journaled gate row": found["gate_row"]
            == [[sid, "1", key.guard_id, str(key.epoch), key.attempt_sha256, "True"]],
        }
        failed = [what for what, holds in checks.items() if not holds]
        if failed:
            raise GateRefused(
                f"the server shows {name} otherwise than it was issued: {', '.join(failed)}", checks=failed
            )


def ledger_batch(connection: Connection, sql: str) -> None:
    """Send one batch inside a ledger's transaction."""
    batch(connection.connection.dbapi_connection, sql)


def holds_gates(ledger: Ledger, control: MssqlControl) -> bool:
    """Whether the ledger's database is the one that holds the gates, by its broker's GUID and creation."""
    if ledger.dialect.name != Connector.MSSQL:
        return False
    ask = scripts.parts("gate_leftover.sql")["where"]
    with control.gates() as session:
        return texts(session.query(ask)) == texts(
            ledger.read(lambda connection: [tuple(row) for row in connection.exec_driver_sql(ask)])
        )


def leftover_names(control: MssqlControl) -> list[str]:
    """Issued logins that are enabled although their gates are CLOSED."""
    with control.gates() as session:
        rows = session.query(scripts.parts("gate_leftover.sql")["enabled"])
    return [str(name) for (name,) in rows]


def _in(database: str, current: str, statements: Sequence[str]) -> list[str]:
    """Statements that run in a database, from another one."""
    if database == current:
        return list(statements)
    return [f"EXEC {quoted(database)}.sys.sp_executesql {scripts.literal(text)}" for text in statements]
