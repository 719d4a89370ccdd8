"""Starts, stops and finds the process of a local ClickHouse server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from airflow_provider_dpone.errors import LocalStackFailed
from airflow_provider_dpone.local.clickhouse.control import HoldPoints
from airflow_provider_dpone.local.process import Process, wait_for, write_secret

HOST = "127.0.0.1"
ADMIN = "default"
_START_SECONDS = 30.0


class ClickHouseProcess:
    """One server over one directory.

    :ivar http_port: port of the HTTP endpoint, kept over restarts; likewise ``native_port`` and ``control_port``.
    """

    host = HOST
    admin_user = ADMIN

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self._state = self.directory / "server.json"
        self.known: dict[str, int] = json.loads(self._state.read_text()) if self._state.exists() else {}

    @property
    def http_port(self) -> int:
        return self.known["http_port"]

    @property
    def native_port(self) -> int:
        return self.known["native_port"]

    @property
    def control_port(self) -> int:
        return self.known["control_port"]

    @property
    def http_url(self) -> str:
        return f"http://{HOST}:{self.http_port}"

    @property
    def admin_password(self) -> str:
        return (self.directory / "admin_password").read_text()

    @property
    def holds(self) -> HoldPoints:
        """Client of the control port."""
        return HoldPoints(HOST, self.control_port)

    @property
    def pid(self) -> int | None:
        """The server's process, or None when it does not run."""
        process = self._process()
        return process.pid if process is not None and process.alive else None

    def _process(self) -> Process | None:
        return Process(self.known["pid"], self.known["started"]) if "pid" in self.known else None

    def start(self, http_port: int = 0, native_port: int = 0) -> None:
        """Start the server if it does not run; 0 keeps the last port or takes a free one.

        :raises LocalStackFailed: it does not start; the message ends with its log.
        """
        if self.pid is not None:
            return
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        ports_file = self.directory / "ports.json"
        ports_file.unlink(missing_ok=True)
        log = self.directory / "log"
        ports = {
            "http": http_port or self.known.get("http_port", 0),
            "native": native_port or self.known.get("native_port", 0),
            "control": self.known.get("control_port", 0),
        }
        command = [sys.executable, "-m", "airflow_provider_dpone.local.clickhouse", "--data", str(self.directory)]
        for name, port in ports.items():
            command += [f"--{name}-port", str(port)]
        source = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
        with log.open("ab") as output:
            child = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "PYTHONPATH": path, "MALLOC_ARENA_MAX": "2"},
            )  # fmt: skip
        process = Process.of(child.pid)
        if (
            not wait_for(lambda: ports_file.exists() or child.poll() is not None, _START_SECONDS)
            or child.poll() is not None
        ):
            raise LocalStackFailed(
                f"the ClickHouse server does not start in {self.directory}: {log.read_text()[-2000:]}"
            )
        self.known = {**json.loads(ports_file.read_text()), "pid": process.pid, "started": process.started}
        write_secret(self._state, json.dumps(self.known))

    def stop(self) -> None:
        """End the server. What it acknowledged is on disk already."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, sign: signal.Signals) -> None:
        process = self._process()
        if process is not None:
            process.end(sign)
