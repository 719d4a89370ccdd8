"""Runs one attempt in a process of its own, so that it can be frozen, stopped or killed with real signals."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import tempfile
import threading
import time
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.engines.clickhouse.gate import ClickHouseGate
from airflow_provider_dpone.engines.postgres.gate import PostgresGate
from airflow_provider_dpone.errors import DponeError
from tests.schema_world import SchemaWorld
from tests.snapshot_world import SnapshotWorld


class AttemptProcess:
    """A forked process that runs ``world.cell(...).run()`` and leaves its result in a file."""

    def __init__(self, world: SnapshotWorld | SchemaWorld, table: str, **options: Any) -> None:
        self._result = Path(tempfile.mkstemp(suffix=".json")[1])
        self._clock = multiprocessing.Value("d", 0.0)
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            self._shift_clocks()
            try:
                try:
                    stop = StopFlag()
                    cell = world.cell(table, stop=stop, **options)
                    signal.signal(signal.SIGTERM, lambda *_: _stop(stop, cell))
                    receipt = cell.run()
                    found: dict[str, Any] = {"state": receipt.state, "reused": receipt.reused, "rows": receipt.rows}
                except DponeError as error:
                    found = {"code": error.code, "message": error.message}
                except BaseException as error:  # noqa: BLE001 - reported to the parent
                    found = {"code": type(error).__name__, "message": traceback.format_exc()}
                self._result.write_text(json.dumps(found))
            finally:
                os._exit(0)

    def _shift_clocks(self) -> None:
        """Clocks of this process go by :meth:`set_clock` from here on."""
        for gate in (ClickHouseGate, PostgresGate):
            defaults = gate.__init__.__kwdefaults__
            assert "clock" in defaults
            defaults["clock"] = lambda: datetime.now(UTC) + timedelta(seconds=self._clock.value)

    def set_clock(self, seconds: float) -> None:
        """Let the process believe it is that much later."""
        self._clock.value = seconds

    def limit_memory(self) -> None:
        """Give it no more memory than it has now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[0])
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_AS)
        resource.prlimit(self.pid, resource.RLIMIT_AS, (pages * resource.getpagesize(), hard))

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

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
        """What it ended with; ``died`` when it could not tell."""
        deadline = time.monotonic() + timeout
        while not self.ended():
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError("the attempt did not end")
            time.sleep(0.02)
        return dict(json.loads(self._result.read_text() or '{"code": "died"}'))


def _stop(stop: StopFlag, cell: Any) -> None:
    """What Airflow makes of SIGTERM: ``on_kill`` of the operator, after which ``execute`` goes on."""
    stop.set("killed by Airflow")
    closing = threading.Thread(target=_close, args=(cell,), daemon=True)
    closing.start()
    closing.join(4.0)


def _close(cell: Any) -> None:
    try:
        cell.kill()
    except DponeError as error:  # as the operator does: the ending task goes on with it
        print(f"closing on the server is not proved yet: {error}", flush=True)
