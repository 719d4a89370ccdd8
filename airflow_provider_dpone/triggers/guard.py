"""Waits, without a worker slot, until a task that waits for a target has something to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_dpone.contracts.states import AttemptState
from airflow_provider_dpone.errors import DponeError
from airflow_provider_dpone.hooks.control import DponeControlHook
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore, StoredAttempt
from airflow_provider_dpone.triggers.scheduler import finished

logger = logging.getLogger(__name__)


class GuardTrigger(BaseTrigger):
    """Fires once: when the attempt is resolved, when Airflow reports its task finished, or when waiting is given up.

    Airflow shows the trigger's arguments in the task's deferral, so they say what is waited for and since when.

    :param control_conn_id: connection of the control database.
    :param attempt_sha256: the attempt to wait for.
    :param waiting_for: in words, who holds the target.
    :param waiting_since: when the task began to wait, ISO 8601; handed back in the event.
    :param give_up_at: when it must look whatever happened, ISO 8601.
    :param poll: seconds between looks at the ledger.
    :param recheck: seconds between questions to Airflow about the holder's task.
    """

    def __init__(
        self,
        control_conn_id: str,
        attempt_sha256: str,
        waiting_for: str,
        waiting_since: str,
        give_up_at: str,
        poll: float = 2.0,
        recheck: float = 20.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.control_conn_id = control_conn_id
        self.attempt_sha256 = attempt_sha256
        self.waiting_for = waiting_for
        self.waiting_since = waiting_since
        self.give_up_at = give_up_at
        self.poll = poll
        self.recheck = recheck

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Path and arguments, for Airflow."""
        names = ("control_conn_id", "attempt_sha256", "waiting_for", "waiting_since", "give_up_at", "poll", "recheck")
        return f"{type(self).__module__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the ledger and at Airflow; one event."""
        logger.info("%s, since %s, until %s at the latest", self.waiting_for, self.waiting_since, self.give_up_at)
        why = await self._wait()
        logger.info("waking the task: %s", why)
        yield TriggerEvent({"waiting_since": self.waiting_since, "why": why})  # type: ignore[no-untyped-call]

    async def _wait(self) -> str:
        store = CompositionAttemptStore(await sync_to_async(DponeControlHook(self.control_conn_id).ledger)())
        until, asked = datetime.fromisoformat(self.give_up_at), 0.0
        while datetime.now(UTC) < until:
            try:
                stored = await sync_to_async(store.read_exact)(self.attempt_sha256)
            except DponeError as error:
                if not error.retryable:
                    raise
                logger.warning("the ledger does not answer; still waiting: %s", error)  # looking again changes nothing
            else:
                if stored.state is not AttemptState.RUNNING:
                    return f"attempt {self.attempt_sha256[7:19]} is {stored.state.name}"
                if asked <= 0.0:
                    asked = self.recheck
                    if await sync_to_async(_gone)(stored):
                        return f"Airflow reports the task of attempt {self.attempt_sha256[7:19]} finished"
            await asyncio.sleep(self.poll)
            asked -= self.poll
        return "the time to wait is over"


def _gone(stored: StoredAttempt) -> bool:
    return finished(stored.identity.coordinates)
