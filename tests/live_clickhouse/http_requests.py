"""Plain HTTP requests for the conformance tests: whole ones, and ones stopped in the middle of their body."""

from __future__ import annotations

import base64
import http.client
import secrets
import socket
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.servers import ClickHouseUnderTest


@dataclass
class Reply:
    """Status, body, exception code (0 for none) and headers of an answer."""

    status: int
    body: bytes
    code: int
    headers: dict[str, str]


def call(
    server: ClickHouseUnderTest,
    sql: str,
    body: bytes | Iterable[bytes] = b"",
    user: str | None = None,
    password: str = "",
    headers: dict[str, str] | None = None,
    method: str = "POST",
    **params: str,
) -> Reply:
    """One request on a connection of its own; an iterable body is sent in chunks."""
    if user is None:
        user, password = server.admin_user, server.admin_password
    connection = http.client.HTTPConnection(server.host, server.http_port, timeout=30)
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    target = "/?" + urllib.parse.urlencode({"query": sql, **params})
    sent = {"Authorization": f"Basic {token}", **(headers or {})}
    try:
        connection.request(method, target, body=body, headers=sent, encode_chunked=not isinstance(body, bytes))
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, answer.read(), int(found.get("x-clickhouse-exception-code", 0)), found)
    finally:
        connection.close()


class PartialRequest:
    """A POST whose body is announced whole and sent in parts."""

    def __init__(
        self, server: ClickHouseUnderTest, sql: str, size: int, user: str, password: str, **params: str
    ) -> None:
        self.socket = socket.create_connection((server.host, server.http_port), timeout=30)
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        target = "/?" + urllib.parse.urlencode({"query": sql, **params})
        head = f"POST {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {token}\r\nContent-Length: {size}\r\n\r\n"
        self.socket.sendall(head.encode())

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def code(self) -> int:
        """The exception code of the answer; 0 for success, -1 for a connection closed without one."""
        answer = http.client.HTTPResponse(self.socket)
        try:
            answer.begin()
            answer.read()
        except (http.client.HTTPException, ConnectionError):
            return -1
        return int(answer.getheader("X-ClickHouse-Exception-Code") or 0)

    def close(self) -> None:
        self.socket.close()


@dataclass
class Tables:
    """Two equal tables of a database of their own."""

    database: str
    a: str
    b: str


@contextmanager
def two_tables(server: ClickHouseUnderTest, columns: str = "id Int64, name String") -> Iterator[Tables]:
    """Make and drop a database with tables ``a`` and ``b``."""
    database = f"t_{secrets.token_hex(6)}"
    tables = Tables(database, f"{database}.a", f"{database}.b")
    server.execute(f"CREATE DATABASE {database}")
    for name in (tables.a, tables.b):
        server.execute(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY tuple()")
    try:
        yield tables
    finally:
        server.execute(f"DROP DATABASE {database} SYNC")


def make_user(server: ClickHouseUnderTest, *grants: str, clauses: str = "") -> tuple[str, str]:
    """Create a user with a fresh name as the controller would; returns name and password."""
    name, password = f"u_{secrets.token_hex(8)}", secrets.token_hex(8)
    server.execute(f"CREATE USER {name} IDENTIFIED WITH sha256_password BY '{password}' {clauses}")
    for grant in grants:
        server.execute(f"GRANT {grant} TO {name}")
    return name, password


def uuids(server: ClickHouseUnderTest, tables: Tables) -> tuple[str, str]:
    """The UUIDs under the names ``a`` and ``b``."""
    rows = server.execute(
        f"SELECT name, toString(uuid) FROM system.tables WHERE database = '{tables.database}' ORDER BY name"
    )
    return rows[0][1], rows[1][1]


def eventually(condition: Callable[[], Any], timeout: float = 10.0) -> Any:
    """Wait until ``condition`` is true and return its value."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return value
