"""Closing one issued user on the server, step by step, with every answer kept as evidence.

The order is what makes it a proof: rights away, user dropped (or its name taken by a tombstone), access fence, absence
seen on a fresh connection, then nothing of it running. Needs no ledger. An unanswered step is never believed: the round
is repeated until every step of one round was answered.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_dpone.contracts.ports import ClickHouseControl
from airflow_provider_dpone.contracts.proofs import GateClosure, QuiescenceObservation
from airflow_provider_dpone.contracts.states import Connector
from airflow_provider_dpone.engines.clickhouse.catalog import ServerStart, start_from
from airflow_provider_dpone.engines.clickhouse.quoting import identifier, literal, load
from airflow_provider_dpone.errors import AnswerLost, GateNotClosed, ServerRefused, ServerUnreachable, ViewIncomplete

_UNKNOWN_USER: Final = 192
_NOT_GRANTED: Final = 497
_USER_EXISTS: Final = 493
_ROUNDS: Final = 5


@dataclass(frozen=True)
class ServerClosure:
    """What closing on the server showed; complete without the ledger."""

    name: str
    principal_uuid: str | None
    tombstone_uuid: str | None
    steps: tuple[str, ...]
    start: ServerStart
    control_seen: str

    def closure(self) -> GateClosure:
        """The evidence that the gate is closed."""
        return GateClosure(
            connector=Connector.CLICKHOUSE,
            service_id=self.start.service_id,
            name=self.name,
            principal_uuid=self.principal_uuid,
            tombstone_uuid=self.tombstone_uuid,
            steps=self.steps,
            server_started_at=self.start.started_at.isoformat(timespec="seconds"),
            server_uptime_seconds=self.start.uptime,
            closed_at=self.start.seen_at.isoformat(),
        )

    def quiescence(self) -> QuiescenceObservation:
        """The evidence that nothing of the user is left running or waiting."""
        return QuiescenceObservation(
            connector=Connector.CLICKHOUSE,
            service_id=self.start.service_id,
            name=self.name,
            queries=0,
            pending_inserts=0,
            unfinished_mutations=0,
            control_seen=self.control_seen,
            observed_at=self.start.seen_at.isoformat(),
        )


@dataclass
class Closing:
    """The closing of one name.

    :ivar uuid: UUID of the user, when known.
    :ivar created: True when CREATE USER was answered with success, False when it was answered with a refusal, None when
        its answer is unknown: then the name gets a tombstone, so that a CREATE still under way fails.
    :ivar dispatches: query ids sent under the user.
    :ivar tables: ``database.table`` names on which nothing may be left pending.
    """

    fresh: Callable[[], ClickHouseControl]
    service_id: str
    name: str
    uuid: str | None
    created: bool | None
    dispatches: Sequence[str]
    tables: Sequence[str]
    randomness: Callable[[int], bytes]

    def __post_init__(self) -> None:
        self._steps: list[str] = []
        self._tombstone: str | None = None

    def run(self, wait: float) -> ServerClosure:
        """Close and prove it, in rounds.

        :param wait: seconds to wait for statements still running.
        :raises GateNotClosed: not proved within a bounded number of rounds, or something contradicts it.
        """
        last: Exception | None = None
        for attempt in range(_ROUNDS):
            if attempt:
                time.sleep(0.1 * 2**attempt)
            try:
                found = self._round(wait)
            except (AnswerLost, ServerUnreachable) as error:
                self._steps.append(f"round {attempt + 1}: {error.code}")
                last = error
                continue
            except ServerRefused as error:
                raise GateNotClosed(
                    f"the server refused a look at {self.name} (code {error.details.get('server_code')}); its guard "
                    "stays held and a later try resumes",
                    steps=self._steps,
                ) from error
            if found is not None:
                return found
        raise GateNotClosed(
            f"{self.name} could not be proved closed in {_ROUNDS} rounds; its guard stays held and a later try resumes",
            steps=self._steps,
        ) from last

    def _round(self, wait: float) -> ServerClosure | None:
        with self.fresh() as control:
            answered = self._take_away(control)
        if not answered:
            return None
        with self.fresh() as control:
            before = self._require_gone(control)
            control_seen, after = self._wait_until_quiet(control, wait)
        if not before.same_run(after):
            self._steps.append("the server was restarted: observing again")
            return None
        return ServerClosure(self.name, self.uuid, self._tombstone, tuple(self._steps), after, control_seen)

    def _take_away(self, control: ClickHouseControl) -> bool:
        """Take rights and user (or the name) away; True when every step of this round was answered."""
        if self.created is None:
            done = self._take_name(control)
        elif self.created:
            done = self._drop(control)
        else:
            done = True  # the only CREATE of this name was refused
        return done and self._do(control, "fence", "SYSTEM RELOAD USERS") == "ok"

    def _drop(self, control: ClickHouseControl) -> bool:
        who = identifier(self.name)
        outcomes = [
            # refused when somebody gave it a right the controller does not hold; dropping takes that away too
            self._do(control, "revoke", f"REVOKE ALL ON *.* FROM {who}", _UNKNOWN_USER, _NOT_GRANTED),
            self._do(control, "drop", f"DROP USER {who}", _UNKNOWN_USER),
            self._do(control, "drop quota", f"DROP QUOTA IF EXISTS {who}"),
        ]
        return "lost" not in outcomes

    def _take_name(self, control: ClickHouseControl) -> bool:
        """Put a tombstone under the name; a user that arrived there before is dropped first."""
        for _ in range(3):
            secret = hashlib.sha256(self.randomness(32)).hexdigest()
            outcome = self._do(
                control,
                "tombstone",
                f"CREATE USER {identifier(self.name)} IDENTIFIED WITH sha256_hash BY '{secret}' "
                f"SALT '{self.randomness(16).hex()}' HOST NONE DEFAULT ROLE NONE GRANTEES NONE",
                _USER_EXISTS,
            )
            if outcome != f"refused {_USER_EXISTS}":
                return outcome == "ok"
            found, _ = self._users(control)
            if found and found[0][2]:
                self._steps.append("tombstone: there already")
                return True
            if found:
                self.uuid = found[0][1]
                self._steps.append(f"the user had arrived: {self.uuid}")
            if not self._drop(control):
                return False
        raise GateNotClosed(f"the name {self.name} is taken again and again; somebody else creates it")

    def _do(self, control: ClickHouseControl, step: str, sql: str, *expected: int) -> str:
        try:
            control.command(sql)
            outcome = "ok"
        except ServerRefused as error:
            code = error.details.get("server_code")
            if code not in expected:
                raise GateNotClosed(
                    f"the server refused to {step} {self.name} (code {code}); check the controller's grants",
                    server_code=code,
                    steps=self._steps,
                ) from None
            outcome = f"refused {code}"
        except AnswerLost:
            outcome = "lost"
        self._steps.append(f"{step}: {outcome}")
        return outcome

    def _users(self, control: ClickHouseControl) -> tuple[list[tuple[str, str, bool]], ServerStart]:
        """Users under the name or the UUID (name, UUID, whether they can log in from nowhere)."""
        [(rows, control_user, service_id, uptime, now)] = control.query(
            load("gate_users.sql"), {"name": self.name, "uuid": self.uuid or ""}
        )
        if control_user != 1:
            raise ViewIncomplete("system.users does not show the controller itself")
        return [(str(name), str(uuid), bool(nowhere)) for name, uuid, nowhere in rows], self._start(
            service_id, uptime, now
        )

    def _require_gone(self, control: ClickHouseControl) -> ServerStart:
        found, start = self._users(control)
        if self.created is None:
            if len(found) != 1 or found[0][0] != self.name or not found[0][2] or found[0][1] == self.uuid:
                raise GateNotClosed(f"the tombstone of {self.name} is not what the server shows", found=found)
            self._tombstone = found[0][1]
        elif found:
            raise GateNotClosed(f"{self.name} is still there after it was dropped", found=found)
        self._steps.append("seen tombstone" if self._tombstone else "seen gone")
        return start

    def _wait_until_quiet(self, control: ClickHouseControl, wait: float) -> tuple[str, ServerStart]:
        deadline = time.monotonic() + wait
        killed = -1.0
        while True:
            marker = f"control-{self.randomness(8).hex()}"
            [(queries, own, inserts, queued, mutations, service_id, uptime, now)] = control.query(
                load("gate_quiet.sql"),
                {"name": self.name, "dispatches": self.dispatches, "tables": self.tables, "control": marker},
            )
            start = self._start(service_id, uptime, now)
            if not own:
                raise ViewIncomplete("system.processes does not show the observing statement itself")
            if not (queries or inserts or queued or mutations):
                self._steps.append("seen quiet")
                return marker, start
            if time.monotonic() >= deadline:
                raise GateNotClosed(
                    f"{self.name} is gone, but {queries} statement(s), {inserts + queued} waiting insert(s) and "
                    f"{mutations} mutation(s) are left; wait for them to end and try again",
                    steps=self._steps,
                )
            if queries and time.monotonic() - killed > 1.0:  # only to save time; its answer proves nothing
                who = literal(self.name)
                control.query(f"KILL QUERY WHERE user = {who} OR initial_user = {who} ASYNC")
                self._steps.append("kill: sent")
                killed = time.monotonic()
            time.sleep(0.02)

    def _start(self, service_id: object, uptime: object, now: object) -> ServerStart:
        start = start_from(str(service_id), int(str(uptime)), str(now))
        if start.service_id != self.service_id:
            raise GateNotClosed(f"the connection leads to server {start.service_id} instead of {self.service_id}")
        return start
