"""The steps of one attempt: each asks the stop flag before it starts, tells the log, and is timed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_dpone.errors import Stopped

logger = logging.getLogger(__name__)


class StopFlag:
    """Set once by a signal, a time-out, a kill or the end of the time a grant allows; never cleared."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._deadline: float | None = None
        self._late = ""
        self.reason = ""

    def set(self, reason: str) -> None:
        """Ask every further step not to start."""
        self.reason = self.reason or reason
        self._event.set()

    def expire_after(self, seconds: float, reason: str) -> None:
        """Set by itself once so many seconds have passed."""
        self._deadline, self._late = time.monotonic() + seconds, reason

    def is_set(self) -> bool:
        if self._deadline is not None and time.monotonic() > self._deadline:
            self.set(self._late)
        return self._event.is_set()

    def check(self) -> None:
        """:raises Stopped: the flag is set."""
        if self.is_set():
            raise Stopped(f"the task was asked to stop ({self.reason}); nothing further was started")


class Steps:
    """Names, times and logs the steps of an attempt."""

    def __init__(self, stop: StopFlag, label: str) -> None:
        self.stop = stop
        self.milliseconds: dict[str, int] = {}
        self._label = label

    @contextmanager
    def __call__(self, name: str, words: str, *, always: bool = False) -> Iterator[None]:
        """Run one step.

        :param always: also when the task was asked to stop (closing, observing).
        :raises Stopped: the stop flag is set; the step was not started.
        """
        if not always:
            self.stop.check()
        logger.info("%s: %s", self._label, words)
        started = time.monotonic()
        try:
            yield
        finally:
            spent = round((time.monotonic() - started) * 1000)
            self.milliseconds[name] = self.milliseconds.get(name, 0) + spent

    def say(self, words: str) -> None:
        """One line of progress."""
        logger.info("%s: %s", self._label, words)
