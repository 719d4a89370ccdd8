"""Processes started by the local stack: known by pid and start time, ended only when both still agree."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process and the moment it started (in the kernel's ticks), so that a reused pid is never taken for it."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """The running process with this pid; ProcessLookupError when there is none."""
        started = _start_time(pid)
        if started is None:
            raise ProcessLookupError(pid)
        return cls(pid, started)

    @property
    def alive(self) -> bool:
        return _start_time(self.pid) == self.started

    def end(self, sign: signal.Signals = signal.SIGTERM, timeout: float = 20.0) -> None:
        """Signal this very process and wait; killed when it is still there after ``timeout`` seconds."""
        for attempt, wait in ((sign, timeout), (signal.SIGKILL, 5.0)):
            if not self.alive:
                return
            os.kill(self.pid, attempt)
            if wait_for(lambda: not self.alive, wait):
                with suppress(ChildProcessError):  # somebody else's child
                    os.waitpid(self.pid, os.WNOHANG)  # until then its pid is taken: PostgreSQL would not start again
                return
        raise TimeoutError(f"process {self.pid} does not end")


def _start_time(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def wait_for(condition: Callable[[], bool], timeout: float) -> bool:
    """Poll ``condition`` until it holds or ``timeout`` seconds are over."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, replacing it in one step."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_suffix(".new")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    partial.rename(path)
