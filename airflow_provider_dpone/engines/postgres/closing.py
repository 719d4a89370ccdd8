"""Closing one issued login on the server, step by step, with every answer kept as evidence.

The order is what makes it a proof. The gate row is moved to CLOSING first: whoever logs in holds a share lock on that
row for as long as its login lasts, and is visible all that time, so once the move has committed the sessions of that
name can only become fewer. Then the login is taken away, its sessions are ended and seen gone, what it owns is handed
over, and role and gate are finished in one transaction. A name that was never created gets a CLOSED gate row of its
own, so that a CREATE still under way fails as a whole.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from airflow_provider_dpone.contracts.states import Connector, GateState
from airflow_provider_dpone.engines.postgres.control import PostgresSession
from airflow_provider_dpone.engines.postgres.install import layout
from airflow_provider_dpone.engines.postgres.session import literal, quoted, statement
from airflow_provider_dpone.engines.sql.closing import TICK, Closing, ServerClosure
from airflow_provider_dpone.errors import ServerRefused, ViewIncomplete

#: Somebody else holds a lock, changed the same catalog row, or stands in the way as a deadlock.
_PASSING: Final = ("55P03", "40P01", "XX000", "40001", "23505")
#: Somebody reads what the role made, or something in another database depends on it.
_IN_USE: Final = ("55P03", "2BP01")


@dataclass(frozen=True)
class _Row:
    incarnation: str
    state: GateState
    role_oid: int | None


class PostgresClosing(Closing[PostgresSession]):
    """The closing of one name."""

    code_name = "SQLSTATE"
    passing = _PASSING

    def _round(self) -> ServerClosure:
        with self._control.fresh() as session:
            self._require_place(session)
            row = self._patiently(session, self._move_row)
            if row.role_oid is None:
                self._require_never_made(session)
            elif row.state is not GateState.CLOSED:
                self._patiently(session, lambda inner: self._take_login(inner, row))
        with self._control.fresh() as session, self._control.known() as known:
            started, control_seen = self._wait_until_quiet(session, row, known)
            if row.role_oid is not None and row.state is not GateState.CLOSED:
                self._patiently(session, lambda inner: self._finish(inner, row))
        with self._control.fresh() as session:
            seen_at, again = self._require_gone(session, row)
        if again != started:
            raise self._doubt("the server was restarted while the login was closed; closing again will see it whole")
        return ServerClosure(
            connector=Connector.POSTGRES,
            service_id=self._enrolment.marker.service_id,
            name=self._name,
            incarnation=row.incarnation,
            created=row.role_oid is not None,
            kept=False,
            steps=tuple(self._steps),
            started_at=started,
            seen_at=seen_at,
            control_seen=control_seen,
        )

    # --- steps ---

    def _require_place(self, session: PostgresSession) -> None:
        """The database is the enrolled one, and what refuses logins there is what was installed."""
        marker = self._enrolment.marker
        try:
            rows = session.query("SELECT m.sha256 FROM dpone_gate.marker AS m")
        except ServerRefused as error:
            raise self._doubt(f"database {marker.database} carries no marker any more") from error
        if [value for (value,) in rows] != [marker.digest()]:
            raise self._doubt(f"database {marker.database} is not the enrolled one any more; its marker differs")
        if layout(session) != self._enrolment.gate_layout:
            raise self._doubt("the login gate of the database is not what was installed, so no closing rests on it")

    def _move_row(self, session: PostgresSession) -> _Row:
        """The gate row, moved to CLOSING; a CLOSED row of its own when there is none."""
        name = {"name": self._name}
        found = session.query(
            "SELECT g.incarnation::text, g.state, g.role_oid FROM dpone_gate.gate AS g WHERE g.name = %(name)s", name
        )
        if not found:
            session.query(
                "INSERT INTO dpone_gate.gate (name, incarnation, guard, epoch, attempt, state) "
                "VALUES (%(name)s, %(incarnation)s, %(guard)s, %(epoch)s, %(attempt)s, 4)",
                {
                    **name,
                    "incarnation": self._incarnation,
                    "guard": self._key.guard_id,
                    "epoch": self._key.epoch,
                    "attempt": self._key.attempt_sha256,
                },
            )
            self._say("gate row: CLOSED, the name can never be created")
            return _Row(self._incarnation, GateState.CLOSED, None)
        row = _Row(found[0][0], GateState(found[0][1]), found[0][2])
        if row.state in (GateState.JOURNALED, GateState.READY):
            session.query("UPDATE dpone_gate.gate SET state = 3 WHERE name = %(name)s AND state IN (1, 2)", name)
            self._say(f"gate row: {row.state.name} to CLOSING")
        else:
            self._say(f"gate row: {row.state.name} already")
        return row

    def _require_never_made(self, session: PostgresSession) -> None:
        if session.query("SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %(name)s", {"name": self._name}):
            raise self._doubt("a role of that name exists without a gate; somebody else made it: look at it, drop it")

    def _take_login(self, session: PostgresSession, row: _Row) -> None:
        """No new login, whatever the gate: NOLOGIN and no password."""
        found = self._role(session)
        if found is None:
            self._say("role: gone already")
            return
        self._require_ours(found, row)
        session.query(f"ALTER ROLE {quoted(self._name)} NOLOGIN PASSWORD NULL")
        self._say("role: NOLOGIN, password removed")

    def _role(self, session: PostgresSession) -> int | None:
        rows = session.query("SELECT oid FROM pg_catalog.pg_roles WHERE rolname = %(name)s", {"name": self._name})
        return int(rows[0][0]) if rows else None

    def _require_ours(self, found: int, row: _Row) -> None:
        if found != row.role_oid:
            raise self._doubt(
                f"the role of that name is another one (oid {found}) than the one issued (oid {row.role_oid}); "
                "somebody made it anew: look at it, drop it, then settle again"
            )

    def _wait_until_quiet(self, session: PostgresSession, row: _Row, known: tuple[str, int]) -> tuple[datetime, str]:
        """Tell its sessions to end until none is shown; when the server started, and what proved the view complete."""
        while True:
            [(sessions, prepared, unattributed, shown, role, gate, _, started, _)] = session.query(
                statement("gate_quiet.sql"), {"name": self._name, "role": row.role_oid or 0, "known": known[1]}
            )
            if shown != 1:
                raise ViewIncomplete("pg_stat_activity does not show our own second session")
            if role is not None:
                self._require_ours(int(role[0]), row)
                if role[1] != "false":
                    raise self._doubt("the role can log in again; somebody altered it")
            if gate not in (GateState.CLOSING, GateState.CLOSED):
                raise self._doubt("the gate row is not CLOSING any more")
            if not (sessions or prepared or unattributed):
                self._say("seen quiet")
                return started, known[0]
            if prepared:
                raise self._doubt(
                    f"it left prepared transactions {prepared}; as administrator look at them and ROLLBACK PREPARED "
                    "(or COMMIT PREPARED), then settle again"
                )
            self._require_time(f"{sessions} session(s) and {unattributed} lock(s) without a session are left")
            self._end_sessions(session, row.role_oid or 0)
            time.sleep(TICK)

    def _end_sessions(self, session: PostgresSession, role_oid: int = 0) -> None:
        rows = session.query(
            "SELECT a.pid, pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity AS a "
            "WHERE a.usename = %(name)s OR a.usesysid = %(role)s::oid",
            {"name": self._name, "role": role_oid},
        )
        if rows:
            self._say(f"told {len(rows)} session(s) to end")

    def _finish(self, session: PostgresSession, row: _Row) -> None:
        """Hand over what it owns, drop it and close the gate row, in one transaction."""
        found = self._role(session)
        done = f"UPDATE dpone_gate.gate SET state = 4 WHERE name = {literal(self._name)} AND state = 3"  # noqa: S608
        if found is None:
            session.query(done)
            self._say("gate row: CLOSED; the role was gone")
            return
        self._require_ours(found, row)
        who, owner = quoted(self._name), quoted(self._enrolment.owner)
        try:
            session.script([*self._removal(), done])
            self._say("role: dropped, gate row: CLOSED")
            return
        except ServerRefused as error:
            session.query("ROLLBACK")
            code = error.details.get("server_code")
            if code not in _IN_USE:
                raise
        # Readers hold what it made, or objects in another database depend on it: the role stays, without a login and
        # without the owner's rights, and the owner has its rights over what it made.
        session.script(
            [
                f"SET LOCAL lock_timeout = {self._policy.lock_timeout}",
                f"REVOKE {owner} FROM {who}",
                f"GRANT {who} TO {owner} WITH INHERIT TRUE, SET FALSE",
                done,
            ]
        )
        self._say(f"role: kept without a login ({code}), its objects under the owner; gate row: CLOSED")

    def _require_gone(self, session: PostgresSession, row: _Row) -> tuple[datetime, datetime]:
        """On a fresh connection: gate CLOSED, no role that could log in, no session."""
        [(sessions, prepared, _, _, role, gate, marker, started, seen)] = session.query(
            statement("gate_quiet.sql"), {"name": self._name, "role": row.role_oid or 0, "known": 0}
        )
        if gate != GateState.CLOSED or marker != self._enrolment.marker.digest():
            raise self._doubt("the gate row is not CLOSED in the enrolled database")
        if role is not None and (row.role_oid is None or int(role[0]) != row.role_oid or role[1] != "false"):
            raise self._doubt("a role of that name can log in again; somebody made or altered it")
        if sessions or prepared:
            raise self._doubt(f"{sessions} session(s) came back")
        self._say("seen closed")
        return seen.astimezone(UTC), started

    def drop_kept(self) -> bool:
        """Drop a role whose gate is CLOSED and that is still there: kept for its readers, or made usable by hand.

        :returns: False when there is none, or readers still hold what it made.
        """
        with self._control.fresh() as session:
            self._require_place(session)
            rows = session.query(
                "SELECT g.role_oid FROM dpone_gate.gate AS g WHERE g.name = %(name)s AND g.state = 4",
                {"name": self._name},
            )
            found = self._role(session)
            if not rows or found is None:
                return False
            self._require_ours(found, _Row(self._incarnation, GateState.CLOSED, rows[0][0]))
            session.query(f"ALTER ROLE {quoted(self._name)} NOLOGIN PASSWORD NULL")
            self._end_sessions(session, found)
            try:
                session.script(self._removal())
            except ServerRefused as error:
                session.query("ROLLBACK")
                if error.details.get("server_code") not in _IN_USE:
                    raise
                return False
            return True

    def _removal(self) -> list[str]:
        """Hand over what it made, take back what it was given, and drop it."""
        who, owner = quoted(self._name), quoted(self._enrolment.owner)
        return [
            f"SET LOCAL lock_timeout = {self._policy.lock_timeout}",
            f"REASSIGN OWNED BY {who} TO {owner}",
            f"DROP OWNED BY {who}",
            f"DROP ROLE {who}",
        ]

    def _bounded(self, session: PostgresSession) -> None:
        session.query("ROLLBACK")
        session.query(f"SET lock_timeout = {self._policy.lock_timeout}")
