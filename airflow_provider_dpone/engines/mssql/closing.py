"""Closing one issued login on SQL Server, step by step, with every answer kept as evidence.

The order is what makes it a proof. The gate row is moved to CLOSING first: whoever logs in holds a lock on that row as
long as its login lasts, and is visible all that time, so once the move has committed the sessions of that SID can only
become fewer. Then the login is disabled and its password thrown away, its sessions are ended and seen gone, sessions
before transactions, its users are dropped, and the exact disabled SID is seen before the row is CLOSED. A name that was
never created gets a CLOSED row of its own, so that a CREATE still under way fails as a whole.
"""

from __future__ import annotations

import secrets
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from airflow_provider_dpone.contracts.states import Connector, GateState
from airflow_provider_dpone.engines.mssql import scripts
from airflow_provider_dpone.engines.mssql.control import MssqlSession
from airflow_provider_dpone.engines.mssql.policy import require_place
from airflow_provider_dpone.engines.mssql.scripts import quoted
from airflow_provider_dpone.engines.sql.closing import TICK, Closing, ServerClosure
from airflow_provider_dpone.errors import Refused, ServerRefused, ViewIncomplete

#: Lock time-out, deadlock.
_PASSING: Final = (1222, 1205)
#: KILL: no such session any more; it is rolling back already.
_ENDING: Final = (6106, 6120)


@dataclass(frozen=True)
class _Row:
    state: GateState
    made: bool


class MssqlClosing(Closing[MssqlSession]):
    """The closing of one name."""

    code_name = "error"
    passing = _PASSING

    @property
    def _sid(self) -> bytes:
        return uuid.UUID(self._incarnation).bytes

    def _round(self) -> ServerClosure:
        with self._control.fresh() as session:
            self._require_place(session)
            with self._control.gates_beside(session) as gates:
                row = self._patiently(gates, self._move_row)
                if row.made and row.state is not GateState.CLOSED:
                    self._take_login(gates)
                elif not row.made:
                    self._require_never_made(gates)
                with self._control.known() as known:
                    started = self._wait_until_quiet(session, row, known)
                    if row.made and row.state is not GateState.CLOSED:
                        self._patiently(session, self._drop_users)
                if row.made and row.state is not GateState.CLOSED:
                    self._require_disabled(gates)
                    self._patiently(gates, self._close_row)
        with self._control.fresh() as session:
            seen_at, again = self._require_gone(session, row)
        if again != started:
            raise self._doubt("the server was restarted while the login was closed; closing again will see it whole")
        return ServerClosure(
            connector=Connector.MSSQL,
            service_id=self._enrolment.marker.service_id,
            name=self._name,
            incarnation=self._incarnation,
            created=row.made,
            kept=row.made,
            steps=tuple(self._steps),
            started_at=started,
            seen_at=seen_at,
            control_seen=known[0],
        )

    # --- steps ---

    def _ask(self, session: MssqlSession, part: str, **more: str | int) -> list[tuple[Any, ...]]:
        """One part of ``gate_quiet.sql`` about this login."""
        sql = scripts.parts("gate_quiet.sql")[part].replace("[control]", quoted(self._control.control_database))
        values: dict[str, str | int | bytes] = {"sid": self._sid, "name": self._name, **more}
        for word, value in values.items():
            sql = sql.replace("{" + word + "}", scripts.literal(value))
        return session.query(sql)

    def _require_place(self, session: MssqlSession) -> None:
        """The database is the enrolled one, and what refuses logins there is what was installed."""
        try:
            require_place(self._control, session, self._enrolment)
        except Refused as error:
            raise self._doubt(error.message) from error

    def _move_row(self, session: MssqlSession) -> _Row:
        """The gate row, moved to CLOSING; a CLOSED row of its own when there is none."""
        rows = session.query("SELECT g.state, g.made FROM dpone_gate.gate AS g WHERE g.name = ?", self._name)
        if not rows:
            key = self._key
            session.query(
                "INSERT INTO dpone_gate.gate (sid, name, guard, epoch, attempt, made, state) VALUES ("  # noqa: S608
                + ", ".join(
                    scripts.literal(value)
                    for value in (self._sid, self._name, key.guard_id, key.epoch, key.attempt_sha256)
                )
                + ", 0, 4)"
            )
            self._say("gate row: CLOSED, the name can never be created")
            return _Row(GateState.CLOSED, False)
        row = _Row(GateState(rows[0][0]), bool(rows[0][1]))
        if row.state in (GateState.JOURNALED, GateState.READY):
            session.query("UPDATE dpone_gate.gate SET state = 3 WHERE name = ? AND state IN (1, 2)", self._name)
            self._say(f"gate row: {row.state.name} to CLOSING")
        else:
            self._say(f"gate row: {row.state.name} already")
        return row

    def _close_row(self, session: MssqlSession) -> None:
        session.query("UPDATE dpone_gate.gate SET state = 4 WHERE name = ? AND state = 3", self._name)
        self._say("gate row: CLOSED")

    def _require_never_made(self, session: MssqlSession) -> None:
        if self._ask(session, "login"):
            raise self._doubt("a login of that name or SID exists without a gate; look at it, drop it, settle again")

    def _require_ours(self, session: MssqlSession) -> bool:
        """The one login under name and SID; whether it is disabled."""
        rows = self._ask(session, "login")
        if [tuple(row[:3]) for row in rows] != [(self._name, self._sid.hex(), "S")]:
            found = "; ".join(f"{name} with SID {sid}" for name, sid, *_ in rows) or "nothing"
            raise self._doubt(
                f"the login is not there as it was issued (found: {found}); somebody dropped it or made it anew, and "
                "a missing SID proves nothing. An administrator must look and adjudicate"
            )
        return bool(rows[0][3])

    def _require_disabled(self, session: MssqlSession) -> None:
        if not self._require_ours(session):
            raise self._doubt("the login was enabled again; somebody altered it")

    def _take_login(self, session: MssqlSession) -> None:
        """No new login, whatever the gate: disabled, and the password thrown away."""
        self._require_ours(session)
        who = quoted(self._name)
        session.query(f"ALTER LOGIN {who} DISABLE")
        session.query(f"ALTER LOGIN {who} WITH PASSWORD = {scripts.literal('Dp1_' + secrets.token_hex(32))}")
        self._say("login: disabled, password thrown away")

    def _wait_until_quiet(self, session: MssqlSession, row: _Row, known: tuple[str, int]) -> datetime:
        """End its sessions until none is shown, sessions before transactions; when the server was started."""
        while True:
            [(shown, system)] = self._ask(session, "known", known=known[1], program=known[0])
            if shown != 1 or system < 1:
                raise ViewIncomplete("sys.dm_exec_sessions does not show our own second session and the system's")
            sessions = self._ask(session, "sessions")
            whose = [str(who) for (who,) in self._ask(session, "transactions")] if not sessions else []
            [(orphans,)] = self._ask(session, "locks")
            if row.made and row.state is not GateState.CLOSED:
                self._require_disabled(session)
            if not (sessions or whose or orphans):
                self._say("seen quiet")
                return self._moment(session)[0]
            left = [f"{len(sessions)} session(s)"] if sessions else []
            left += [f"a transaction of {who}" if who != "none" else "a transaction without a session" for who in whose]
            left += [f"{orphans} lock(s) without a session"] if orphans else []
            self._end_sessions(session)  # before the time is up or not: the next closing finds less
            self._require_time(f"there is still {', '.join(left)} in the database")
            time.sleep(TICK)

    def _end_sessions(self, session: MssqlSession) -> None:
        found = self._ask(session, "sessions")
        for number, since in found:
            try:
                self._ask(session, "kill", spid=int(number), since=str(since))
            except ServerRefused as error:
                if error.details.get("server_code") not in _ENDING:
                    raise
        if found:
            self._say(f"told {len(found)} session(s) to end")

    def _drop_users(self, session: MssqlSession) -> None:
        """Its rights go with its users; what it made belongs to the owner of the schema already."""
        places = {str(place) for (place,) in self._ask(session, "users")}
        drop = f"DROP USER {quoted(self._name)}"
        if "target" in places:
            session.query(drop)
        if "control" in places and self._control.control_database != self._enrolment.marker.database:
            database = quoted(self._control.control_database)
            session.query(f"EXEC {database}.sys.sp_executesql {scripts.literal(drop)}")
        self._say("users: dropped")

    def _require_gone(self, session: MssqlSession, row: _Row) -> tuple[datetime, datetime]:
        """On a fresh connection: gate CLOSED, the exact login disabled, no user, no session."""
        gate = self._ask(session, "gate")
        if [(int(state), bool(made)) for state, made in gate] != [(GateState.CLOSED, row.made)]:
            raise self._doubt("the gate row is not CLOSED")
        found = self._ask(session, "login")
        if found and (not row.made or not self._require_ours(session)):
            raise self._doubt("a login of that name can log in; somebody made or enabled it")
        if not found and row.made and row.state is not GateState.CLOSED:
            raise self._doubt("the login is gone; a missing SID proves nothing")
        if self._ask(session, "users"):
            raise self._doubt("a user of the login is left")
        if self._ask(session, "sessions"):
            raise self._doubt("sessions came back")
        self._say("seen closed")
        started, seen = self._moment(session)
        return seen, started

    def _moment(self, session: MssqlSession) -> tuple[datetime, datetime]:
        [(started, seen)] = self._ask(session, "moment")
        return started.replace(tzinfo=UTC), seen.replace(tzinfo=UTC)

    def drop_kept(self) -> bool:
        """Disable a login that somebody enabled again although its gate is CLOSED; False when there is none."""
        with self._control.fresh() as session:
            self._require_place(session)
            gate = self._ask(session, "gate")
            found = self._ask(session, "login")
            if not gate or int(gate[0][0]) != GateState.CLOSED or not found or self._require_ours(session):
                return False
            self._take_login(session)
            self._end_sessions(session)
        return True

    def _bounded(self, session: MssqlSession) -> None:
        session.query(f"IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; SET LOCK_TIMEOUT {self._policy.lock_timeout}")
