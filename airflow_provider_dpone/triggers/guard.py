"""Waits, without a worker slot, until an attempt no longer holds its guards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_dpone.contracts.states import TERMINAL_ATTEMPTS
from airflow_provider_dpone.hooks.control import DponeControlHook
from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore


class GuardTrigger(BaseTrigger):
    """Fires when the attempt is resolved, and at least every ``recheck`` seconds so that the task can look at Airflow.

    :param control_conn_id: connection of the control database.
    :param attempt_sha256: the attempt to wait for.
    :param waiting_since: when the task began to wait, ISO 8601; handed back in the event.
    """

    def __init__(
        self, control_conn_id: str, attempt_sha256: str, waiting_since: str, poll: float = 2.0, recheck: float = 20.0
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.control_conn_id = control_conn_id
        self.attempt_sha256 = attempt_sha256
        self.waiting_since = waiting_since
        self.poll = poll
        self.recheck = recheck

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Path and arguments, for Airflow."""
        return f"{type(self).__module__}.{type(self).__name__}", {
            "control_conn_id": self.control_conn_id,
            "attempt_sha256": self.attempt_sha256,
            "waiting_since": self.waiting_since,
            "poll": self.poll,
            "recheck": self.recheck,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the ledger; one event."""
        store = CompositionAttemptStore(await sync_to_async(DponeControlHook(self.control_conn_id).ledger)())
        waited = 0.0
        while waited < self.recheck:
            stored = await sync_to_async(store.read_exact)(self.attempt_sha256)
            if stored.state in TERMINAL_ATTEMPTS:
                break
            await asyncio.sleep(self.poll)
            waited += self.poll
        yield TriggerEvent({"waiting_since": self.waiting_since})  # type: ignore[no-untyped-call]
