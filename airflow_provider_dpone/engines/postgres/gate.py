"""The gate of one-time logins of PostgreSQL; see ``engines/sql/gate.py`` for what every such gate keeps.

The server gets a SCRAM verifier the client computed, never the password. ``VALID UNTIL`` is set and is no evidence of
anything. A closed login is dropped, not kept: its gate row stays for good and is what a late CREATE of the name fails
on, in the same transaction, so that no disabled roles pile up.
"""

from __future__ import annotations

import uuid
from datetime import UTC, timedelta

from airflow_provider_dpone.contracts.states import Connector
from airflow_provider_dpone.engines.postgres.closing import PostgresClosing
from airflow_provider_dpone.engines.postgres.control import PostgresControl, PostgresSession
from airflow_provider_dpone.engines.postgres.install import layout
from airflow_provider_dpone.engines.postgres.rights import securable
from airflow_provider_dpone.engines.postgres.session import literal, quoted, statement
from airflow_provider_dpone.engines.sql.gate import OneTimeGate, Password
from airflow_provider_dpone.engines.sql.rights import WorkerRights
from airflow_provider_dpone.errors import GateRefused


class PostgresGate(OneTimeGate):
    """Issues and closes the logins of one attempt on one managed schema."""

    connector = Connector.POSTGRES
    code_name = "SQLSTATE"

    def _identity(self) -> tuple[str, str]:
        return f"dpone_w_{self._randomness(16).hex()}", self._uuid()

    def _uuid(self) -> str:
        return str(uuid.UUID(bytes=self._randomness(16), version=4))

    def _create(self, name: str, incarnation: str, password: Password, rights: WorkerRights) -> None:
        with self._control.fresh() as session:
            self._require_installed(session)
            self._checkpoint()
            session.script(self._creation(session, name, incarnation, password, rights))
        with self._control.fresh() as session:
            self._require_as_meant(session, name, incarnation, rights)

    def _creation(
        self, session: PostgresSession, name: str, incarnation: str, password: Password, rights: WorkerRights
    ) -> list[str]:
        who, key, marker = quoted(name), self._key, self._enrolment.marker
        until = f"{(self._clock() + timedelta(seconds=self._policy.lifetime)).astimezone(UTC):%Y-%m-%d %H:%M:%S}+00"
        settings = self._policy.settings(rights)
        values = ", ".join(literal(value) for value in (name, incarnation, key.guard_id, key.epoch, key.attempt_sha256))
        return [
            f"SET LOCAL lock_timeout = {10 * self._policy.lock_timeout}",
            f"CREATE ROLE {who} LOGIN INHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS "
            f"CONNECTION LIMIT {self._policy.limit(rights)} VALID UNTIL {literal(until)} "
            f"PASSWORD {literal(session.scrambled(password.text, name))}",
            f"GRANT {who} TO CURRENT_USER WITH INHERIT TRUE, SET FALSE",
            *(f"ALTER ROLE {who} SET {quoted(key)} = {literal(value)}" for key, value in settings.items()),
            f"GRANT CONNECT ON DATABASE {quoted(marker.database)} TO {who}",
            *(f"GRANT {', '.join(grant.privileges)} ON {securable(grant)} TO {who}" for grant in rights.grants),
            *(f"GRANT {quoted(role)} TO {who} WITH INHERIT TRUE, SET FALSE" for role in rights.member_of),
            "INSERT INTO dpone_gate.gate (name, incarnation, guard, epoch, attempt, state, role_oid) "  # noqa: S608
            f"SELECT {values}, 1, r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = {literal(name)}",
        ]

    def _open(self, name: str) -> None:
        """The last step: from here on the login is let in."""
        with self._control.fresh() as session:
            rows = session.query(
                "UPDATE dpone_gate.gate SET state = 2 WHERE name = %(name)s AND state = 1 RETURNING 1", {"name": name}
            )
        if not rows:
            raise GateRefused(f"{name} was closed before it was opened; this attempt was settled by somebody else")

    def _require_installed(self, session: PostgresSession) -> None:
        """:raises GateRefused: another database, or the gate is not there as it was installed."""
        rows = session.query("SELECT m.sha256 FROM dpone_gate.marker AS m")
        if [value for (value,) in rows] != [self._enrolment.marker.digest()]:
            raise GateRefused(
                f"database {self._enrolment.marker.database} is not the enrolled one any more; its marker differs"
            )
        if layout(session) != self._enrolment.gate_layout:
            raise GateRefused(
                "the login gate is not what was installed (a function, trigger, table or right was altered); "
                "an administrator must look at schema dpone_gate and enrol again"
            )

    def _require_as_meant(self, session: PostgresSession, name: str, incarnation: str, rights: WorkerRights) -> None:
        """Compare all the catalog has under the name with what was meant; nobody logs in as it to find out."""
        found: dict[str, list[list[str]]] = {}
        for kind, fields in session.query(statement("gate_issued.sql"), {"name": name}):
            found.setdefault(str(kind), []).append([str(value) for value in fields])
        grants = [
            ["database", self._enrolment.marker.database, "CONNECT", "false"],
            *(row for grant in rights.grants for row in grant.shown()),
        ]
        key, limit = self._key, str(self._policy.limit(rights))
        attributes = ["true", "false", "false", "false", "false", "false", "true", limit, "true"]
        gate = [incarnation, "1", key.guard_id, str(key.epoch), key.attempt_sha256, "true"]
        checks = {
            "one role that may log in and nothing more": found.get("role") == [attributes],
            "a journaled gate row": found.get("gate") == [gate],
            "memberships": sorted(found.get("member of", []))
            == sorted([role, "false", "true", "false"] for role in rights.member_of),
            "no member but the controller": found.get("member", []) == [[self._enrolment.controller]],
            "grants": sorted(found.get("grant", [])) == sorted(grants),
            "settings": {row[0]: row[1] for row in found.get("setting", [])}
            == {name: value or '""' for name, value in self._policy.settings(rights).items()},
        }
        failed = [what for what, holds in checks.items() if not holds]
        if failed:
            raise GateRefused(
                f"the server shows {name} otherwise than it was issued: {', '.join(failed)}", checks=failed
            )

    def _closing(self, name: str) -> PostgresClosing:
        return PostgresClosing(self._control, self._enrolment, self._key, self._policy, name, self._uuid())


def leftover_names(control: PostgresControl) -> list[str]:
    """Issued roles that exist although their gates are CLOSED: kept for readers of what they made, or usable again."""
    rows = control.query(
        "SELECT g.name::text FROM dpone_gate.gate AS g JOIN pg_catalog.pg_roles AS r ON r.rolname = g.name "
        "WHERE g.state = 4 ORDER BY 1"
    )
    return [str(name) for (name,) in rows]
