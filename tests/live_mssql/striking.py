"""An attempt in a process of its own, stopped at a step of a load, to be killed or woken there."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from airflow_provider_dpone.engines.mssql.load_target import MssqlLoads
from tests.attempt_process import AttemptProcess
from tests.live_mssql.target_world import MssqlWorld


def strike(world: MssqlWorld, method: str, *, after: bool, seconds: float = 200) -> AttemptProcess:
    """A process that has stopped itself before, or after, a step of the worker's side.

    :param seconds: how long it may take to come so far.
    """
    world.let_go()  # a session is never shared with a child
    make = MssqlLoads.writer

    def writer(self: MssqlLoads, credential: Any) -> Any:
        made = make(self, credential)
        original = getattr(made, method)

        def step(*args: Any) -> Any:
            if not after:
                os.kill(os.getpid(), signal.SIGSTOP)
            done = original(*args)
            if after:
                os.kill(os.getpid(), signal.SIGSTOP)
            return done

        setattr(made, method, step)
        return made

    MssqlLoads.writer = writer  # type: ignore[method-assign]
    try:
        process = AttemptProcess(world, "t")
    finally:
        MssqlLoads.writer = make  # type: ignore[method-assign]
    deadline = time.monotonic() + seconds
    while stat(process.pid) != "T":
        assert not process.ended()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


def stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
