"""Starts the local ClickHouse server's endpoints on the loopback interface and writes where they are."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from airflow_provider_dpone.local.clickhouse.control_port import serve_control
from airflow_provider_dpone.local.clickhouse.core import Core
from airflow_provider_dpone.local.clickhouse.http import HttpConnection
from airflow_provider_dpone.local.clickhouse.native import NativeConnection

HOST = "127.0.0.1"
PORTS_FILE = "ports.json"
PASSWORD_FILE = "admin_password"
Handler = Callable[[socket.socket, tuple[str, int]], None]


def admin_password(directory: Path) -> str:
    """The administrator's password, made once and kept in a file only its owner reads."""
    path = directory / PASSWORD_FILE
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(18) + ";{}']")
    return path.read_text()


def serve(directory: Path, http_port: int, native_port: int, control_port: int) -> None:
    """Run until the process ends."""
    core = Core(directory, admin_password(directory))
    ports = {
        "http_port": _listen(http_port, lambda connection, address: HttpConnection(core, connection, address).run()),
        "native_port": _listen(
            native_port, lambda connection, address: NativeConnection(core, connection, address).run()
        ),
        "control_port": serve_control(core, HOST, control_port),
        "pid": os.getpid(),
    }
    partial = directory / (PORTS_FILE + ".new")
    partial.write_text(json.dumps(ports))
    partial.rename(directory / PORTS_FILE)
    threading.Event().wait()


def _listen(port: int, handle: Handler) -> int:
    """Accept connections in a thread of their own, each served in another; returns the port."""
    listener = socket.create_server((HOST, port), backlog=128)

    def serve_one(connection: socket.socket, address: tuple[str, int]) -> None:
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                handle(connection, address)
                connection.shutdown(socket.SHUT_RDWR)  # closing alone would wait for every file made of it
            except OSError:
                return  # the client went away; whatever it ran has been logged

    def accept() -> None:
        while True:
            connection, address = listener.accept()
            threading.Thread(target=serve_one, args=(connection, address), daemon=True).start()

    threading.Thread(target=accept, name=f"accept-{port}", daemon=True).start()
    return int(listener.getsockname()[1])
