"""Runs one attempt in a process of its own, so that it can be frozen or killed with real signals."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from airflow_provider_dpone.errors import DponeError
from tests.schema_world import SchemaWorld
from tests.snapshot_world import SnapshotWorld


class AttemptProcess:
    """A forked process that runs ``world.cell(...).run()`` and leaves its result in a file."""

    def __init__(self, world: SnapshotWorld | SchemaWorld, table: str, **options: Any) -> None:
        self._result = Path(tempfile.mkstemp(suffix=".json")[1])
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            try:
                try:
                    receipt = world.cell(table, **options).run()
                    found: dict[str, Any] = {"state": receipt.state, "reused": receipt.reused, "rows": receipt.rows}
                except DponeError as error:
                    found = {"code": error.code, "message": error.message}
                except BaseException as error:  # noqa: BLE001 - reported to the parent
                    found = {"code": type(error).__name__, "message": traceback.format_exc()}
                self._result.write_text(json.dumps(found))
            finally:
                os._exit(0)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and collect it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0

    def ended(self) -> bool:
        """Whether it has ended by itself; its result is there then."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0] != 0:
            self.pid = 0
        return self.pid == 0

    def result(self, timeout: float = 60.0) -> dict[str, Any]:
        """What it ended with."""
        deadline = time.monotonic() + timeout
        while not self.ended():
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError("the attempt did not end")
            time.sleep(0.02)
        return dict(json.loads(self._result.read_text()))
