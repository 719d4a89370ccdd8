"""Closing one issued login on a SQL server in rounds, with every answer kept as evidence.

What a round does is the engine's. A lock that a login or a worker holds is never waited for without end: the wait is
bounded, the login's sessions are told to end, and the step is tried again. Needs no ledger.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, TypeVar

from airflow_provider_dpone.contracts.enrolment import SchemaEnrolment
from airflow_provider_dpone.contracts.ports import GateKey
from airflow_provider_dpone.contracts.proofs import GateClosure, SessionQuiescence
from airflow_provider_dpone.contracts.states import Connector
from airflow_provider_dpone.errors import AnswerLost, GateNotClosed, ServerRefused, ServerUnreachable

S = TypeVar("S")
T = TypeVar("T")
_ROUNDS: Final = 5
TICK: Final = 0.05


@dataclass(frozen=True)
class ServerClosure:
    """What closing on the server showed; complete without the ledger.

    :ivar created: whether a login was ever made under the name.
    :ivar kept: whether the disabled login stays under its name.
    """

    connector: Connector
    service_id: str
    name: str
    incarnation: str
    created: bool
    kept: bool
    steps: tuple[str, ...]
    started_at: datetime
    seen_at: datetime
    control_seen: str

    def closure(self) -> GateClosure:
        """The evidence that the gate is closed."""
        return GateClosure(
            connector=self.connector,
            service_id=self.service_id,
            name=self.name,
            principal_uuid=self.incarnation if self.created else None,
            tombstone_uuid=self.incarnation if self.kept or not self.created else None,
            steps=self.steps,
            server_started_at=self.started_at.isoformat(timespec="seconds"),
            server_uptime_seconds=max(0, int((self.seen_at - self.started_at).total_seconds())),
            closed_at=self.seen_at.isoformat(),
        )

    def quiescence(self) -> SessionQuiescence:
        """The evidence that no session or prepared transaction of the login is left."""
        return SessionQuiescence(
            connector=self.connector,
            service_id=self.service_id,
            name=self.name,
            sessions=0,
            prepared_transactions=0,
            unattributed_locks=0,
            control_seen=self.control_seen,
            observed_at=self.seen_at.isoformat(),
        )


class Closing(ABC, Generic[S]):
    """The closing of one name.

    :param incarnation: the identity the gate row gets when there is none.
    """

    code_name: ClassVar[str]
    passing: ClassVar[tuple[object, ...]]
    """Codes that say somebody else holds a lock or stands in the way: the step is tried again."""

    def __init__(
        self, control: Any, enrolment: SchemaEnrolment, key: GateKey, policy: Any, name: str, incarnation: str
    ) -> None:
        self._control = control
        self._enrolment = enrolment
        self._key = key
        self._policy = policy
        self._name = name
        self._incarnation = incarnation
        self._steps: list[str] = []
        self._deadline = 0.0

    def run(self, wait: float) -> ServerClosure:
        """Close and prove it, in rounds.

        :param wait: seconds to wait for locks and sessions altogether.
        :raises GateNotClosed: not proved in time, or something contradicts it.
        """
        self._deadline = time.monotonic() + wait
        last: Exception | None = None
        for attempt in range(_ROUNDS):
            if attempt:
                time.sleep(0.1 * 2**attempt)
            try:
                return self._round()
            except (AnswerLost, ServerUnreachable) as error:
                self._say(f"round {attempt + 1}: {error.code}")
                last = error
            except ServerRefused as error:
                code = error.details.get("server_code")
                raise self._doubt(f"the server refused a step ({self.code_name} {code}): {error.message}") from error
        raise self._doubt(f"no round of {_ROUNDS} was answered completely") from last

    @abstractmethod
    def _round(self) -> ServerClosure: ...

    @abstractmethod
    def drop_kept(self) -> bool:
        """Take away a login whose gate is CLOSED and that is there and usable; False when there is none, or not yet."""

    @abstractmethod
    def _end_sessions(self, session: S) -> None: ...

    @abstractmethod
    def _bounded(self, session: S) -> None:
        """Bound the wait for locks on the session; also puts it right after a refused step."""

    def _patiently(self, session: S, step: Callable[[S], T]) -> T:
        """Do a step that may meet a lock: bounded, then its sessions are told to end, then again."""
        self._bounded(session)
        while True:
            try:
                return step(session)
            except ServerRefused as error:
                code = error.details.get("server_code")
                if code not in self.passing:
                    raise
                self._bounded(session)
                self._say(f"waited: {self.code_name} {code}")
                self._require_time(f"another session stands in the way ({self.code_name} {code})")
                self._end_sessions(session)
                time.sleep(TICK)

    def _require_time(self, why: str) -> None:
        if time.monotonic() >= self._deadline:
            raise self._doubt(why)

    def _say(self, step: str) -> None:
        if not self._steps or self._steps[-1] != step:
            self._steps.append(step)

    def _doubt(self, why: str) -> GateNotClosed:
        return GateNotClosed(
            f"login {self._name} could not be proved closed: {why}. Its guard stays held, and a later try or the "
            "reaper resumes",
            steps=list(self._steps),
        )
