"""The data plane: exactly one HTTP POST per dispatch, and what its answer can and cannot say.

No retry, no redirect, no probe, no connection reuse. The statement travels in the URL when rows follow in the body, in
the body otherwise; the password travels in the ``Authorization`` header and never enters an error. Nothing here decides
whether a statement had an effect: a refusal was answered, anything else is open until observed.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import select
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol
from urllib.parse import quote, urlencode

from airflow_provider_dpone.errors import AnswerLost, ServerRefused, ServerUnreachable
from airflow_provider_dpone.waiting import BEYOND, STATEMENT, keep_alive

_EXCEPTION = re.compile(r"Code: (\d+)\. DB::")
_MAX_REPLY = 16 * 2**20
#: Codes that pass: time-out, too many queries, network, aborted, memory, too many parts, cancelled, no free thread.
PASSING = frozenset({159, 202, 209, 210, 236, 241, 252, 394, 439})


def refused(message: str, code: int, **details: object) -> ServerRefused:
    """The server answered with an error code."""
    return ServerRefused(message, passes=code in PASSING, server_code=code, **details)


class Login(Protocol):
    """A name and a password; an issued credential is one."""

    @property
    def name(self) -> str: ...
    @property
    def password(self) -> str: ...


@dataclass(frozen=True)
class HttpReply:
    """A complete, successful reply."""

    body: bytes
    query_id: str
    summary: dict[str, str]
    """``X-ClickHouse-Summary`` as the server gave it; empty when it gave none."""
    wire_bytes: int
    """Bytes handed to the socket, request line, headers and chunk framing included."""


@dataclass(frozen=True)
class ClickHouseHttp:
    """The HTTP end of a server.

    :param tls: how the server's certificate is verified; None sends in the clear.
    :param server_hostname: the name its certificate must carry, when it is not the host.
    :param connect_timeout: seconds to connect.
    :param answer_within: seconds without any progress of the socket after which the answer counts as lost.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    connect_timeout: float = 10.0
    answer_within: float = STATEMENT + BEYOND

    def dispatch(
        self,
        statement: str,
        login: Login,
        *,
        query_id: str,
        settings: Mapping[str, str | int] | None = None,
        answer_within: float | None = None,
    ) -> HttpDispatch:
        """A single-use dispatch of one statement; nothing is sent before :meth:`HttpDispatch.send`.

        :param answer_within: seconds of silence after which the answer counts as lost, when the statement's own limit
            on the server is known.
        """
        end = self if answer_within is None else replace(self, answer_within=answer_within)
        return HttpDispatch(end, statement, login, query_id, dict(settings or {}))

    def server_uuid(self, login: Login, *, query_id: str) -> str:
        """``serverUUID()`` of the server behind this end."""
        dispatch = self.dispatch("SELECT serverUUID()", login, query_id=query_id, answer_within=BEYOND)
        return dispatch.send().body.decode().strip()


class _CountingConnection(http.client.HTTPConnection):
    sent = 0

    def send(self, data: bytes) -> None:  # type: ignore[override]
        super().send(data)
        self.sent += len(data)


class _CountingTlsConnection(http.client.HTTPSConnection):
    def __init__(self, end: ClickHouseHttp, context: ssl.SSLContext) -> None:
        super().__init__(end.host, end.port, timeout=end.connect_timeout, context=context)
        self.sent = 0
        self._tls, self._name = context, end.server_hostname or end.host

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)

    def send(self, data: bytes) -> None:  # type: ignore[override]
        super().send(data)
        self.sent += len(data)


class _Broken(Exception):
    """The socket failed, or the server answered, while the request was being sent."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class HttpDispatch:
    """One POST. :meth:`send` may be called once; :meth:`cancel` may be called from any thread at any time."""

    def __init__(
        self, end: ClickHouseHttp, statement: str, login: Login, query_id: str, settings: dict[str, str | int]
    ) -> None:
        self._statement = statement
        self._query_id = query_id
        self._settings = settings
        token = base64.b64encode(f"{login.name}:{login.password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {token}", "User-Agent": "airflow-provider-dpone"}
        self._where = f"{end.host}:{end.port}"
        self._answer_within = end.answer_within
        self._secure = end.tls is not None
        self._connection: _CountingConnection | _CountingTlsConnection
        if end.tls is not None:
            self._connection = _CountingTlsConnection(end, end.tls)
        else:
            self._connection = _CountingConnection(end.host, end.port, timeout=end.connect_timeout)
        self._cancelled = False
        self._used = False

    @property
    def wire_bytes(self) -> int:
        """Bytes handed to the socket so far."""
        return self._connection.sent

    def cancel(self) -> None:
        """Shut the socket down: a send or read under way ends at once as :class:`AnswerLost`."""
        self._cancelled = True
        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # already down

    def send(self, body: Iterator[bytes] | None = None) -> HttpReply:
        """Send the statement, with ``body`` streamed in chunks behind it, and read the whole reply.

        An exception raised by ``body`` itself ends the request unfinished and passes through.

        :raises ServerUnreachable: no connection; nothing was sent.
        :raises ServerRefused: the server answered with an exception; ``details["server_code"]`` is its code.
        :raises AnswerLost: anything else; the effect is unknown until observed.
        """
        if self._used:
            raise RuntimeError("a dispatch is sent once")
        self._used = True
        try:
            self._connect()
            broken: OSError | None = None
            try:
                self._request(body)
            except _Broken as error:  # the server may have answered and closed before the body ended
                broken = error.cause
            return self._reply(broken)
        finally:
            self._connection.close()

    def _connect(self) -> None:
        if self._cancelled:
            raise ServerUnreachable(f"the dispatch to {self._where} was cancelled before it was sent")
        try:
            self._connection.connect()
        except OSError as error:
            raise ServerUnreachable(f"ClickHouse at {self._where} (HTTP) cannot be reached: {error}") from error
        assert self._connection.sock is not None
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(self._connection.sock)
        self._connection.sock.settimeout(self._answer_within)
        if self._cancelled:
            raise ServerUnreachable(f"the dispatch to {self._where} was cancelled before it was sent")

    def _request(self, body: Iterator[bytes] | None) -> None:
        parameters: dict[str, str | int] = {"query_id": self._query_id, "wait_end_of_query": 1, **self._settings}
        if body is not None:
            parameters["query"] = self._statement
        connection = self._connection
        connection.putrequest("POST", "/?" + urlencode(parameters, quote_via=quote), skip_accept_encoding=True)
        for name, value in self._headers.items():
            connection.putheader(name, value)
        if body is None:
            statement = self._statement.encode()
            connection.putheader("Content-Length", str(len(statement)))
            self._write(lambda: connection.endheaders(statement))
            return
        connection.putheader("Transfer-Encoding", "chunked")
        self._write(connection.endheaders)
        for piece in body:
            if self._cancelled or self._answered_early():
                raise _Broken(ConnectionAbortedError("answered before the body ended"))
            if piece:
                self._write(partial(self._chunk, piece))
        self._write(lambda: connection.send(b"0\r\n\r\n"))

    def _chunk(self, piece: bytes) -> None:
        self._connection.send(b"%x\r\n" % len(piece))
        self._connection.send(piece)
        self._connection.send(b"\r\n")

    def _write(self, write: Callable[[], object]) -> None:
        """Keep an error of the socket apart from an error of the body that is being sent."""
        try:
            write()
        except OSError as error:
            raise _Broken(error) from error

    def _answered_early(self) -> bool:
        sock = self._connection.sock  # under TLS, readable need not mean an answer
        return sock is not None and not self._secure and bool(select.select([sock], [], [], 0)[0])

    def _reply(self, broken: OSError | None) -> HttpReply:
        try:
            if self._cancelled:
                raise ConnectionAbortedError("cancelled")
            if broken is not None and isinstance(broken, TimeoutError):
                raise broken
            response = self._connection.getresponse()
            content = response.read(_MAX_REPLY + 1)
            if not response.chunked and response.length != 0:
                raise http.client.IncompleteRead(content, response.length)
        except (OSError, http.client.HTTPException) as error:
            reason = "cancelled" if self._cancelled else f"{type(error).__name__}: {broken or error}"
            raise AnswerLost(
                f"no complete answer from {self._where} (HTTP): {reason}", query_id=self._query_id
            ) from None
        code = response.headers.get("X-ClickHouse-Exception-Code")
        text = content[:2000].decode("utf-8", "replace")
        found = _EXCEPTION.search(text)
        if code is None and found is not None and response.status >= 400:
            code = found[1]
        if code is not None and code.isdecimal():
            raise refused(first_line(text), int(code), query_id=self._query_id)
        if broken is not None or response.status != 200 or found or len(content) > _MAX_REPLY:
            raise AnswerLost(
                f"{self._where} (HTTP) answered {response.status} {response.reason} without a ClickHouse result: "
                + first_line(text),
                query_id=self._query_id,
                status=response.status,
            )
        return HttpReply(
            body=content,
            query_id=response.headers.get("X-ClickHouse-Query-Id", ""),
            summary=_summary(response.headers.get("X-ClickHouse-Summary")),
            wire_bytes=self._connection.sent,
        )


def first_line(text: str) -> str:
    """The first line of a server's message, bounded, without stack trace."""
    return (text.split("Stack trace")[0].strip().splitlines() or ["no message"])[0][:400]


def _summary(header: str | None) -> dict[str, str]:
    if header is None:
        return {}
    try:
        read = json.loads(header)
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in read.items()} if isinstance(read, dict) else {}
