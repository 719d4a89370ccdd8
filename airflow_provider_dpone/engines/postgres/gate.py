"""The gate of one-time logins of PostgreSQL: issued in memory, closed for good, and proved closed.

The name is journaled in the ledger before the role exists and never used again. The role and its gate row come into
being in one transaction of the target database; the row is set READY last, and a login event trigger lets nobody in
before that or after it is moved on. The password lives only in the credential handed out: the server gets a SCRAM
verifier the client computed. ``VALID UNTIL`` is set and is no evidence of anything.

A closed login is dropped, not kept: its gate row stays for good and is what a late CREATE of the name fails on, in the
same transaction, so that no disabled roles pile up. Creates and closes; decides nothing about outcomes.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from airflow_provider_dpone.contracts.enrolment import SchemaEnrolment
from airflow_provider_dpone.contracts.ports import GateKey, IssuedCredential, PrincipalJournal
from airflow_provider_dpone.contracts.proofs import GateClosure, SessionQuiescence
from airflow_provider_dpone.contracts.states import Connector, GateState, Purpose
from airflow_provider_dpone.engines.postgres.closing import Closing, ServerClosure
from airflow_provider_dpone.engines.postgres.control import PostgresControl, PostgresSession
from airflow_provider_dpone.engines.postgres.install import layout
from airflow_provider_dpone.engines.postgres.rights import GatePolicy, WorkerRights
from airflow_provider_dpone.engines.postgres.session import literal, quoted, statement
from airflow_provider_dpone.errors import DponeError, GateNotClosed, GateRefused, ServerRefused


@dataclass(frozen=True)
class _Password:
    """A password that no printed frame shows."""

    text: str = field(repr=False)


class PostgresGate:
    """Issues and closes the logins of one attempt on one managed schema.

    :param control: sessions of the controller on the target database.
    :param enrolment: the accepted schema; its gate must be there as it was installed.
    :param key: guard, epoch and attempt under which gates are kept.
    :param journal: the attempt's journal in the ledger.
    :param checkpoint: called before each step of an issue; raises to stop it.
    """

    def __init__(
        self,
        control: PostgresControl,
        enrolment: SchemaEnrolment,
        key: GateKey,
        journal: PrincipalJournal,
        policy: GatePolicy,
        *,
        randomness: Callable[[int], bytes] = secrets.token_bytes,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        checkpoint: Callable[[], None] = lambda: None,
    ) -> None:
        self._control = control
        self._enrolment = enrolment
        self._key = key
        self._journal = journal
        self._policy = policy
        self._randomness = randomness
        self._clock = clock
        self._checkpoint = checkpoint
        self._issued: list[str] = []

    # --- issuing ----------------------------------------------------------------------------------------------

    def issue_once(self, purpose: Purpose, rights: WorkerRights) -> IssuedCredential:
        """Issue the attempt's one login with exactly these rights.

        :raises GateRefused: the server refused a step (a login of this attempt or guard is there already, for one) or
            shows something else than was meant; closed again.
        :raises GateNotClosed: issuing failed and closing could not be proved either; the gate stays open in the ledger.
        """
        name = f"dpone_w_{self._randomness(16).hex()}"
        incarnation = str(uuid.UUID(bytes=self._randomness(16), version=4))
        password = _Password(self._randomness(32).hex())
        self._checkpoint()
        self._journal.journal(
            connector=Connector.POSTGRES, service_id=self._enrolment.marker.service_id, name=name, purpose=purpose
        )
        self._issued.append(name)
        try:
            self._create(name, incarnation, password, rights)
            self._journal.ready(name=name, principal_uuid=incarnation)
            self._checkpoint()
            self._open(name)
        except BaseException as error:
            self.close(name)
            if isinstance(error, ServerRefused):
                self._checkpoint()  # refused because the task was stopped and its rights taken away
                code = error.details.get("server_code")
                raise GateRefused(
                    f"the server refused to issue {name} for {purpose.value} (SQLSTATE {code}): {error.message}",
                    server_code=code,
                ) from None
            raise
        return IssuedCredential(name=name, principal_uuid=incarnation, password=password.text)

    def _create(self, name: str, incarnation: str, password: _Password, rights: WorkerRights) -> None:
        with self._control.fresh() as session:
            self._require_installed(session)
            self._checkpoint()
            session.script(self._creation(session, name, incarnation, password, rights))
        with self._control.fresh() as session:
            self._require_as_meant(session, name, incarnation, rights)

    def _creation(
        self, session: PostgresSession, name: str, incarnation: str, password: _Password, rights: WorkerRights
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
            *(f"GRANT {', '.join(grant.privileges)} ON {grant.target()} TO {who}" for grant in rights.grants),
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

    # --- closing ----------------------------------------------------------------------------------------------

    def close(self, name: str) -> tuple[GateClosure, SessionQuiescence] | None:
        """Close a login for good, on the server and in the ledger; resumes wherever an earlier closing stopped.

        :returns: the evidence as it was recorded; None when the ledger has somebody else's already.
        :raises GateNotClosed: closing could not be proved; the gate stays CLOSING.
        """
        principal = self._journal.closing(name=name)
        if principal.state is GateState.CLOSED:
            return None
        if principal.service_id != self._enrolment.marker.service_id:
            raise GateNotClosed(
                f"{name} was issued on server {principal.service_id}, but the connection leads to "
                f"{self._enrolment.marker.service_id}; point it back, then settle again"
            )
        seen = self.close_on_server(name)
        if principal.principal_uuid not in (None, seen.incarnation):
            raise GateNotClosed(f"the gate row of {name} is another one than the ledger knows; a person must look")
        evidence = (seen.closure(), seen.quiescence())
        return evidence if self._journal.closed(name=name, evidence=evidence) else None

    def close_on_server(self, name: str, *, wait: float | None = None) -> ServerClosure:
        """Take every right away on the server and prove it; needs no ledger and may be repeated.

        :param wait: seconds to wait for locks and sessions; default is the policy's.
        """
        return self._closing(name).run(self._policy.quiet_timeout if wait is None else wait)

    def _closing(self, name: str) -> Closing:
        incarnation = str(uuid.UUID(bytes=self._randomness(16), version=4))
        return Closing(self._control, self._enrolment, self._key, self._policy, name, incarnation)

    def prove_quiescence(self, name: str) -> SessionQuiescence:
        """Look again at a closed login: nothing of it is on the server now.

        :raises GateNotClosed: something is, or the gate is not closed.
        """
        return self.close_on_server(name).quiescence()

    def close_known(self, wait: float | None = None) -> None:
        """Close every login this process issued, on the server alone; the ledger is written by whoever settles.

        :raises DponeError: one could not be proved closed; the others were closed all the same.
        """
        doubts: list[DponeError] = []
        for name in reversed(self._issued):
            try:
                self.close_on_server(name, wait=wait)
            except DponeError as doubt:
                doubts.append(doubt)
        if doubts:
            raise doubts[0]

    # --- leftovers --------------------------------------------------------------------------------------------

    def remove_leftover(self, name: str) -> str | None:
        """Drop a role that is still there although its gate is CLOSED; None when there is none, or not yet."""
        return name if self._closing(name).drop_kept() else None


def leftover_names(control: PostgresControl) -> list[str]:
    """Issued roles that exist although their gates are CLOSED: kept for readers of what they made, or usable again."""
    rows = control.query(
        "SELECT g.name::text FROM dpone_gate.gate AS g JOIN pg_catalog.pg_roles AS r ON r.rolname = g.name "
        "WHERE g.state = 4 ORDER BY 1"
    )
    return [str(name) for (name,) in rows]
