"""The gate of one-time logins of a SQL server: issued in memory, closed for good, and proved closed.

The name is journaled in the ledger before the login exists and never used again. The login and its gate row come into
being in one transaction of the server; the row is set READY last, and a login trigger lets nobody in before that or
after it is moved on. The password lives only in the credential handed out. How a server makes and closes a login is in
its engine. Creates and closes; decides nothing about outcomes.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

from airflow_provider_dpone.contracts.enrolment import SchemaEnrolment
from airflow_provider_dpone.contracts.ports import GateKey, IssuedCredential, PrincipalJournal
from airflow_provider_dpone.contracts.proofs import GateClosure, SessionQuiescence
from airflow_provider_dpone.contracts.states import Connector, GateState, Purpose
from airflow_provider_dpone.engines.sql.closing import Closing, ServerClosure
from airflow_provider_dpone.engines.sql.rights import WorkerRights
from airflow_provider_dpone.errors import DponeError, GateNotClosed, GateRefused, ServerRefused


@dataclass(frozen=True)
class Password:
    """A password that no printed frame shows."""

    text: str = field(repr=False)


class OneTimeGate(ABC):
    """Issues and closes the logins of one attempt in one enrolled place.

    :param control: sessions of the controller on the target database.
    :param enrolment: what was accepted; its gate must be there as it was installed.
    :param key: guard, epoch and attempt under which gates are kept.
    :param journal: the attempt's journal in the ledger.
    :param policy: how logins are issued and closed; ``quiet_timeout`` is in seconds.
    :param checkpoint: called before each step of an issue; raises to stop it.
    """

    connector: ClassVar[Connector]
    code_name: ClassVar[str]
    """How this server's error codes are called."""

    def __init__(
        self,
        control: Any,
        enrolment: SchemaEnrolment,
        key: GateKey,
        journal: PrincipalJournal,
        policy: Any,
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

    # --- what a server does ---

    @abstractmethod
    def _identity(self) -> tuple[str, str]:
        """A name never used before, and the UUID under which the server will know it."""

    @abstractmethod
    def _create(self, name: str, incarnation: str, password: Password, rights: WorkerRights) -> None:
        """Make login and gate row in one transaction, and compare what the catalog then shows with what was meant."""

    @abstractmethod
    def _open(self, name: str) -> None:
        """The last step: from here on the login is let in. :raises GateRefused: it was closed before."""

    @abstractmethod
    def _closing(self, name: str) -> Closing[Any]: ...

    # --- issuing ---

    def issue_once(self, purpose: Purpose, rights: WorkerRights) -> IssuedCredential:
        """Issue the attempt's one login with exactly these rights.

        :raises GateRefused: the server refused a step (a login of this attempt or guard is there already, for one) or
            shows something else than was meant; closed again.
        :raises ServerRefused: the server refused a step for a reason that passes; closed again.
        :raises GateNotClosed: issuing failed and closing could not be proved either; the gate stays open in the ledger.
        """
        name, incarnation = self._identity()
        password = Password("Dp1_" + self._randomness(32).hex())
        self._checkpoint()
        self._journal.journal(
            connector=self.connector, service_id=self._enrolment.marker.service_id, name=name, purpose=purpose
        )
        self._issued.append(name)
        try:
            self._bring_up(name, incarnation, password, rights)
            self._checkpoint()
            self._open(name)
        except BaseException as error:
            self.close(name)
            if isinstance(error, ServerRefused):
                self._checkpoint()  # refused because the task was stopped and its rights taken away
                if error.retryable:
                    raise
                code = error.details.get("server_code")
                raise GateRefused(
                    f"the server refused to issue {name} for {purpose.value} ({self.code_name} {code}): "
                    f"{error.message}",
                    server_code=code,
                ) from None
            raise
        return IssuedCredential(name=name, principal_uuid=incarnation, password=password.text)

    def _bring_up(self, name: str, incarnation: str, password: Password, rights: WorkerRights) -> None:
        """Create on the server, then READY in the ledger."""
        self._create(name, incarnation, password, rights)
        self._journal.ready(name=name, principal_uuid=incarnation)

    # --- closing ---

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

    def remove_leftover(self, name: str) -> str | None:
        """Take away a login that is usable although its gate is CLOSED; None when there is none, or not yet."""
        return name if self._closing(name).drop_kept() else None
