"""A SQL Server container that exists for one run: pinned, on a random loopback port, removed and proved gone."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

IMAGE: Final = (
    "mcr.microsoft.com/mssql/server:2022-CU26-ubuntu-22.04"
    "@sha256:ba4c8329f48fb8f02e1416be6a930ebfd71268caee78aa985f3af4315e457c89"
)
DRIVER: Final = "ODBC Driver 18 for SQL Server"
LABEL: Final = "dpone.synthetic"
READY_SECONDS: Final = 180.0
#: Two bytes, public, made inside the container: what an administrator can import and a restricted login cannot.
PUBLIC_FILE: Final = "/var/opt/mssql/dpone_public_integer"

Run = Callable[[list[str]], str]


class Refusal(Exception):
    """The run cannot begin, or its server cannot be used; the message carries no text of a driver."""


def docker(arguments: list[str]) -> str:
    """One docker command.

    :raises Refusal: it failed, or there is no docker.
    """
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=900)
    except (OSError, subprocess.TimeoutExpired):
        raise Refusal("docker is not there or does not answer") from None
    if done.returncode:
        raise Refusal(f"docker {arguments[0]} failed")
    return done.stdout.strip()


@dataclass
class Disposable:
    """The container of one run."""

    label: str
    container: str
    dsn: str
    image: dict[str, str]
    command: Run = docker

    @classmethod
    def start(cls, command: Run = docker) -> Disposable:
        """Pull the pinned image and start it.

        :raises Refusal: not Linux on x86-64, no docker, or another image than the pinned one.
        """
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            raise Refusal("SQL Server containers are supported on Linux x86-64 only")
        command(["pull", "--quiet", "--platform", "linux/amd64", IMAGE])
        digests = command(
            ["image", "inspect", "--format", '{{join .RepoDigests " "}}|{{.Os}}/{{.Architecture}}', IMAGE]
        )
        if IMAGE.partition("@")[2] not in digests or not digests.endswith("|linux/amd64"):
            raise Refusal("the image is not the pinned one")
        label, password = f"{LABEL}={secrets.token_hex(8)}", f"Aa1!{secrets.token_hex(16)}"
        with tempfile.NamedTemporaryFile("w", prefix="dpone-", suffix=".env") as file:
            os.chmod(file.name, 0o600)
            file.write(f"ACCEPT_EULA=Y\nMSSQL_PID=Developer\nMSSQL_SA_PASSWORD={password}\n")
            file.flush()
            container = command(
                ["run", "--detach", "--platform", "linux/amd64", "--label", label, "--memory", "4g", "--publish",
                 "127.0.0.1::1433", "--env-file", file.name, IMAGE]
            )  # fmt: skip
        server = cls(label, container, "", {"reference": IMAGE, "digest": IMAGE.partition("@")[2]}, command)
        try:
            port = int(command(["port", container, "1433/tcp"]).splitlines()[0].rpartition(":")[2])
        except BaseException:
            server.remove()
            raise
        login = f"UID=sa;PWD={{{password}}};Encrypt=yes;TrustServerCertificate=yes"
        server.dsn = f"Driver={{{DRIVER}}};Server=127.0.0.1,{port};{login}"
        return server

    def public_file(self) -> str:
        """Make the public file inside the container; its path there."""
        self.command(["exec", self.container, "sh", "-c", f"printf '1\\n' > {PUBLIC_FILE}"])
        return PUBLIC_FILE

    def remove(self) -> bool:
        """Remove the container and everything of it; whether nothing of this run is left."""
        try:
            self.command(["rm", "--force", "--volumes", self.container])
            return not self.command(["ps", "--all", "--quiet", "--filter", f"label={self.label}"])
        except Refusal:
            return False


def wait_for(dsn: str, seconds: float = READY_SECONDS) -> None:
    """Until the server answers a login and a query.

    :raises Refusal: it does not in time.
    """
    import pyodbc

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with pyodbc.connect(dsn, autocommit=True, timeout=5) as connection:
                if connection.execute("SELECT 1").fetchval() == 1:
                    return
        except pyodbc.Error:
            time.sleep(2)
    raise Refusal("the server did not become ready in time")


def facts_of(dsn: str) -> dict[str, object]:
    """Version and edition of the server, and a digest that tells it from others without naming it."""
    import pyodbc

    with pyodbc.connect(dsn, autocommit=True, timeout=15) as connection:
        version, edition, name, driver = [
            str(connection.execute(f"SELECT CAST(SERVERPROPERTY(N'{what}') AS nvarchar(128))").fetchval())
            for what in ("ProductVersion", "Edition", "ServerName")
        ] + [str(connection.getinfo(pyodbc.SQL_DRIVER_VER))]
        started = str(connection.execute("SELECT MIN(login_time) FROM sys.dm_exec_sessions").fetchval())
    identity = hashlib.sha256("\n".join((version, edition, name, started)).encode()).hexdigest()
    return {"version": version, "edition": edition, "driver_version": driver, "identity_sha256": identity}
