"""The course every attempt takes, whatever its cell: admitted, performed, and brought to its observed end.

A cell says what is looked at before admission, what it does once admitted, and what a retry may reuse. Everything that
must hold for all of them is here: nothing is reserved before the look, an interrupted admission is found again, a
failure settles the attempt as far as it can be proved, and an outcome is only what was observed.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from airflow_provider_dpone.attempts.admission import Admissible, Admission
from airflow_provider_dpone.attempts.settle import Cause, SchedulerView, Settler
from airflow_provider_dpone.attempts.steps import Steps, StopFlag
from airflow_provider_dpone.attempts.world import World
from airflow_provider_dpone.contracts.canonical import Document
from airflow_provider_dpone.contracts.identity import TaskCoordinates
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.contracts.states import AttemptState
from airflow_provider_dpone.errors import DponeError, Fenced, NotPublished
from airflow_provider_dpone.ledger.schema import EvidenceKind

logger = logging.getLogger(__name__)

W = TypeVar("W", bound=World[Any])
R = TypeVar("R", bound=Document)


class Work(Protocol):
    """One workload as its operator rendered it."""

    @property
    def declaration(self) -> WorkloadDeclaration: ...

    @property
    def environment(self) -> str: ...

    @property
    def coordinates(self) -> TaskCoordinates: ...

    def plan_sha256(self) -> str:
        """Digest of everything the author's rendered values decide."""
        ...


class AttemptProtocol(ABC, Generic[W, R]):
    """Runs one attempt from admission to its observed end."""

    receipt_type: ClassVar[type[Document]]
    untouched: ClassVar[str] = "the target is as it was before"
    """What is true of the target when the attempt FAILED."""

    def __init__(self, world: W, work: Work, stop: StopFlag, finished: SchedulerView) -> None:
        self.world = world
        self.stop = stop
        self.steps = Steps(stop, work.declaration.workload_id)
        self.admission = Admission(world, Settler(world), finished)
        self._work = work
        self._settler = Settler(world)
        self._attempt: str | None = None
        self.standing = "Nothing was reserved, created or changed."
        """What is true of the attempt and its target, in words; for the end of a failing task's log."""

    # --- what a cell says ---

    @abstractmethod
    def preflight(self, admissible: Admissible) -> None:
        """Look at source and target; changes nothing.

        :raises Refused: the work cannot be done as declared.
        """

    @abstractmethod
    def reusable(self, admissible: Admissible) -> R | None:
        """The receipt of this task's previous try, when all it says still holds (see :meth:`Admission.previous`)."""

    @abstractmethod
    def perform(self, admissible: Admissible) -> R | None:
        """Do the work as the admitted attempt; ``admissible`` carries the guard as it is held now.

        :returns: the receipt, where the cell makes it and not the observation of its outcome.
        """

    def not_done(self, attempt: str) -> DponeError:
        """The error for an attempt that did everything and yet provably changed nothing."""
        return NotPublished(f"attempt {attempt} provably changed nothing; a new try does it again", attempt=attempt)

    def plan_sha256(self) -> str:
        """Digest of everything that decides what the attempt does."""
        return self._work.plan_sha256()

    def interrupt(self) -> None:
        """Break off what is being sent, now; safe from a signal handler."""

    # --- the course ---

    @property
    def attempt_sha256(self) -> str | None:
        """The admitted attempt, once there is one."""
        return self._attempt

    @property
    def attempt(self) -> str:
        """The admitted attempt; steps after admission always have one."""
        if self._attempt is None:
            raise Fenced("no attempt was admitted")
        return self._attempt

    def run(self) -> R:
        """Admit, perform, observe; return the receipt.

        :raises DponeError: with its code; before admission nothing changed, after it the attempt was settled as far as
            it can be proved, and a later try goes on.
        """
        work, steps = self._work, self.steps
        with steps("admission", "looking at the active release and earlier attempts"):
            admissible = self.admission.admissible(work.environment, work.declaration, work.coordinates)
        with steps("preflight", "checking source, target, types and limits"):
            self.preflight(admissible)
            earlier = self.reusable(admissible)
        if earlier is not None:
            steps.say("the previous try did this work and it still stands; nothing is done again")
            return earlier
        identity = admissible.identity(work.coordinates, self.plan_sha256())
        try:
            with steps("admission", "asking for admission"):
                self._attempt = self.world.attempts.admit_once(identity)
            steps.say(f"admitted as attempt {self._attempt[7:19]}")
            self.standing = _open(self._attempt)
            granted = self.world.attempts.granted_seconds.get(self._attempt)
            if granted is not None:
                self.stop.expire_after(granted, f"its grant allows an attempt {granted} s")
            done = self.perform(self.admission.refreshed(admissible))  # from here on nobody else can move the guard
        except BaseException as error:
            if self._attempt is None and not isinstance(error, Exception):
                self._attempt = self.admission.interrupted(identity)
            if self._attempt is None:
                raise
            receipt = self._wind_up(error)
            if receipt is not None and isinstance(error, Exception):
                return receipt
            raise
        return self._conclude(done)

    def kill(self) -> None:
        """Take every right away on the server, now, without the ledger; safe from a signal handler."""
        self.interrupt()
        for gate in self.world.gates_made(self._attempt):
            gate.close_known(wait=2.0)

    def _conclude(self, done: R | None) -> R:
        attempt = self.attempt
        with self.steps("finish", "resolving the attempt in the ledger", always=True):
            ended = self._settler.resolve(
                attempt, Cause(None, "done as planned"), milliseconds=self.steps.milliseconds, done=done
            )
        if ended.state is AttemptState.COMMIT_UNKNOWN:
            raise self._settler.unknown(ended)
        receipt = self._recorded(attempt)
        if ended.state is not AttemptState.SUCCEEDED or receipt is None:
            self.standing = self._ended(attempt)
            raise self.not_done(attempt)
        return receipt

    def _wind_up(self, error: BaseException) -> R | None:
        """Settle the attempt after a failure; the receipt when its work turns out to be done all the same.

        :raises PublicationUnknown: what the target shows proves neither outcome.
        """
        attempt = self.attempt
        self.standing = _open(attempt)
        code = error.code if isinstance(error, DponeError) else type(error).__name__
        self.steps.say(f"ending attempt {attempt[7:19]} after {code}")
        try:
            ended = self._settler.resolve(attempt, Cause(code, str(error)), milliseconds=self.steps.milliseconds)
        except DponeError as doubt:
            error.add_note(f"attempt {attempt} stays open ({doubt}); the next try or the reaper settles it")
            logger.warning("attempt %s stays open: %s; the next try or the reaper settles it", attempt, doubt)
            self._take_rights_away()
            return None
        if ended.state is AttemptState.COMMIT_UNKNOWN:
            self.standing = (
                f"Attempt {attempt[7:19]} is COMMIT_UNKNOWN: it keeps its guard, and nothing else runs on this target "
                "until it is decided."
            )
            raise self._settler.unknown(ended) from error
        self.standing = self._ended(attempt)
        return self._recorded(attempt) if ended.state is AttemptState.SUCCEEDED else None

    def _ended(self, attempt: str) -> str:
        return f"Attempt {attempt[7:19]} ended FAILED: {self.untouched}, and its guard is free."

    def _recorded(self, attempt: str) -> R | None:
        """The receipt kept when the attempt succeeded."""
        kept = self.world.attempts.originals(attempt, EvidenceKind.RECEIPT)
        return self.receipt_type.parse(kept[-1]) if kept else None  # type: ignore[return-value]

    def _take_rights_away(self) -> None:
        """Without the ledger at least no issued principal may keep a right; closing is recorded by whoever settles."""
        for gate in self.world.gates_made(self._attempt):
            try:
                gate.close_known()
            except DponeError as doubt:
                logger.warning("closing on the server is not proved either: %s", doubt)


def _open(attempt: str) -> str:
    return (
        f"Attempt {attempt[7:19]} was admitted and is not settled yet: it keeps its guard until the next try or the "
        "reaper settles it by what the target shows."
    )
