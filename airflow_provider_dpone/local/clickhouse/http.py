"""The HTTP endpoint: requests parsed from a socket, bodies streamed, answers with ClickHouse's headers and codes."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import time
import urllib.parse
import uuid
import zlib
from collections.abc import Iterable, Iterator

from airflow_provider_dpone.local.clickhouse.core import Core, Request
from airflow_provider_dpone.local.clickhouse.engine import Counts, Engine, EngineSession
from airflow_provider_dpone.local.clickhouse.errors import ClientGone, Cut, ServerError, not_implemented
from airflow_provider_dpone.local.clickhouse.principals import ADMINISTRATOR, User
from airflow_provider_dpone.local.clickhouse.statements import Statement, split

DISPLAY_NAME = "dpone-local"
_PIECE = 1 << 20
_MAX_QUERY_BYTES = 64 << 20
_STATUS_TEXT = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    408: "Request Timeout",
}
_STATUS_TEXT |= {500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable"}
_OURS = {"query", "database", "query_id", "user", "password", "default_format", "wait_end_of_query", "buffer_size"}
_OURS |= {
    "enable_http_compression",
    "send_progress_in_http_headers",
    "quota_key",
    "stacktrace",
    "client_protocol_version",
}
_REFUSED = {"session_id", "session_timeout", "session_check", "role", "compress", "decompress"}
_TYPES = {
    "JSON": "application/json",
    "CSV": "text/csv",
    "Tab": "text/tab-separated-values",
    "TSV": "text/tab-separated-values",
}


class _Message:
    """One parsed HTTP request."""

    def __init__(self, method: str, target: str, headers: dict[str, str]) -> None:
        self.method = method
        url = urllib.parse.urlsplit(target)
        self.path = url.path
        self.params = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        self.headers = headers

    def header(self, name: str, default: str = "") -> str:
        return self.headers.get(name, default)


class HttpConnection:
    """One client connection; runs in its own thread until either side closes."""

    def __init__(self, core: Core, connection: socket.socket, address: tuple[str, int]) -> None:
        self.core = core
        self.socket = connection
        self.address = address
        self.reader = connection.makefile("rb", 1 << 16)

    def run(self) -> None:
        with self.reader:  # it keeps the socket open as long as it is
            message = self._read_head()
            while message is not None and self._serve(message):
                message = self._read_head()

    def _read_head(self) -> _Message | None:
        self.socket.settimeout(None)
        line = self.reader.readline(1 << 20)
        parts = line.decode("latin-1").split()
        if len(parts) != 3:
            return None
        headers: dict[str, str] = {}
        while (line := self.reader.readline(1 << 16)) not in (b"\r\n", b"\n"):
            if not line:
                return None
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return _Message(parts[0], parts[1], headers)

    def _serve(self, message: _Message) -> bool:
        """Answer one request; False when the connection must be closed."""
        keep = message.header("connection").lower() != "close"
        if message.path in ("/ping", "/replicas_status") or (message.path == "/" and not self._has_query(message)):
            self.send(200, b"Ok.\n", {"Content-Type": "text/html; charset=UTF-8"})
            return keep
        if message.path != "/":
            self.send(404, f"There is no handle {message.path}\n".encode(), {"X-ClickHouse-Exception-Code": "60"})
            return False
        exchange = _Exchange(self, message)
        try:
            exchange.run()
        except ServerError as error:
            exchange.fail(error)
        except (Cut, ClientGone, ConnectionError, TimeoutError):
            return False
        if not exchange.body_done:
            self._drain()
            return False
        return keep and not exchange.broken

    def _has_query(self, message: _Message) -> bool:
        return "query" in message.params or message.method == "POST"

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.socket.sendall(_head(status, {**headers, "Content-Length": str(len(body))}) + body)

    def _drain(self) -> None:
        """Let a client that still sends read our answer before the connection goes."""
        self.socket.shutdown(socket.SHUT_WR)
        self.socket.settimeout(1.0)
        end = time.monotonic() + 3.0
        try:
            while time.monotonic() < end and self.socket.recv(_PIECE):
                pass
        except OSError:
            return


def _head(status: int, headers: dict[str, str]) -> bytes:
    headers = {"Connection": "Keep-Alive", "X-ClickHouse-Server-Display-Name": DISPLAY_NAME, **headers}
    lines = [f"HTTP/1.1 {status} {_STATUS_TEXT.get(status, 'Error')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class _Exchange:
    """One query over HTTP: the front of one :class:`Request`."""

    def __init__(self, connection: HttpConnection, message: _Message) -> None:
        self.connection = connection
        self.message = message
        self.query_id = message.params.get("query_id") or str(uuid.uuid4())
        self.body_done = "transfer-encoding" not in message.headers and message.header("content-length", "0") == "0"
        self.broken = False
        self._buffer: list[bytes] = []
        self._streaming = False
        self._format = message.params.get("default_format") or message.header("x-clickhouse-format") or "TabSeparated"
        self._body = self._body_pieces()
        accepted = "gzip" in message.header("accept-encoding")
        self._gzip = accepted and message.params.get("enable_http_compression") == "1"
        self._compressor = zlib.compressobj(3, zlib.DEFLATED, 31) if self._gzip else None
        self._request: Request | None = None
        self._started = time.monotonic()

    def run(self) -> None:
        core, message = self.connection.core, self.message
        name, password = self._credentials()
        user = core.store.authenticate(name, password, self.connection.address[0])
        settings, params = self._settings()
        self.connection.socket.settimeout(self._receive_timeout(user, settings))
        if message.header("expect").lower() == "100-continue":
            self.connection.socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        text, data_format, inline = self._statement()
        statement = core.prepare(user, text, settings, data_format, inline)
        self._request = Request(
            user=user,
            statement=statement,
            query_id=self.query_id,
            database=message.params.get("database") or message.header("x-clickhouse-database") or user.default_database,
            settings=settings,
            params=params,
            interface="HTTP",
            address=self.connection.address[0],
            port=self.connection.address[1],
            http_method=message.method if message.method in ("GET", "POST") else "UNKNOWN",
            user_agent=message.header("user-agent"),
            socket=self.connection.socket,
        )
        core.execute(self._request, self)
        self._finish()

    def _credentials(self) -> tuple[str, str]:
        basic, user = self.message.header("authorization"), self.message.header("x-clickhouse-user")
        if basic and user:
            raise ServerError(516, "Invalid authentication: X-ClickHouse headers and Authorization used together")
        if user:
            return user, self.message.header("x-clickhouse-key")
        if basic:
            kind, _, encoded = basic.partition(" ")
            if kind.lower() != "basic":
                raise ServerError(516, f"Invalid authentication: '{kind}' HTTP Authorization scheme is not supported")
            name, _, password = base64.b64decode(encoded).decode().partition(":")
            return name, password
        return self.message.params.get("user", ADMINISTRATOR), self.message.params.get("password", "")

    def _settings(self) -> tuple[dict[str, str], dict[str, str]]:
        settings: dict[str, str] = {}
        params: dict[str, str] = {}
        for name, value in self.message.params.items():
            if name in _REFUSED:
                raise not_implemented(f"the HTTP parameter {name}")
            if name.startswith("param_"):
                params[name[6:]] = value
            elif name not in _OURS:
                settings[name] = value
        return settings, params

    @staticmethod
    def _receive_timeout(user: User, settings: dict[str, str]) -> float:
        values = {element.name: element.value for element in user.settings}
        return float(settings.get("http_receive_timeout") or values.get("http_receive_timeout") or 30)

    # --- the body ----------------------------------------------------------------------------------------------

    def _statement(self) -> tuple[str, str | None, bytes]:
        """Statement, INSERT format and first data; reads no more of the body than the statement needs."""
        head = self.message.params.get("query", "").encode()
        if head:
            head += b"\n"
            found = split(head)
            if found[1] is not None:
                return found
        for piece in self._body:
            head += piece
            if len(head) > _MAX_QUERY_BYTES:
                raise ServerError(62, "Query is too large")
            try:
                found = split(head)
            except ServerError:
                continue  # perhaps the rest of a quoted text is still to come
            if found[1] is not None:
                return found
        return split(head)

    def _body_pieces(self) -> Iterator[bytes]:
        pieces = self._raw_pieces()
        encoding = self.message.header("content-encoding")
        if encoding in ("", "identity"):
            yield from pieces
            return
        if encoding not in ("gzip", "deflate"):
            raise not_implemented(f"Content-Encoding {encoding}")
        unpack = zlib.decompressobj(31 if encoding == "gzip" else 15)
        try:
            for piece in pieces:
                while piece:
                    yield unpack.decompress(piece, _PIECE)
                    piece = unpack.unconsumed_tail
        except zlib.error as error:
            raise ServerError(27, f"Cannot decompress request body: {error}") from None
        if not unpack.eof:
            raise ServerError(33, "Cannot read all data: compressed request body is cut off")

    def _raw_pieces(self) -> Iterator[bytes]:
        if self.message.header("transfer-encoding").lower() == "chunked":
            while size := int(self._line().split(b";")[0], 16):
                yield from self._exactly(size)
                self._line()
            while self._line():
                pass
        else:
            yield from self._exactly(int(self.message.header("content-length", "0")))
        self.body_done = True

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self._read(size)
            size -= len(piece)
            yield piece

    def _read(self, size: int) -> bytes:
        try:
            piece = self.connection.reader.read1(min(size, _PIECE))  # type: ignore[attr-defined]
        except TimeoutError:
            raise ServerError(209, "Timeout exceeded while reading from socket") from None
        except ConnectionError:
            raise ClientGone from None
        if not piece:
            raise ClientGone
        return bytes(piece)

    def _line(self) -> bytes:
        try:
            line = self.connection.reader.readline(1 << 12)
        except TimeoutError:
            raise ServerError(209, "Timeout exceeded while reading from socket") from None
        except ConnectionError:
            raise ClientGone from None
        if not line.endswith(b"\n"):
            raise ClientGone
        return line.strip()

    # --- Front -------------------------------------------------------------------------------------------------

    def query(self, engine: Engine, session: EngineSession, sql: str, fmt: str | None, stream: bool = True) -> Counts:
        self._format = fmt or self._format
        counts: list[Counts] = []
        limit = None if self.message.params.get("wait_end_of_query") == "1" else _PIECE
        size = 0
        for piece in engine.select(session, sql, self._format, counts.append):
            self._buffer.append(piece)
            size += len(piece)
            if limit is not None and (self._streaming or size > limit):
                self._stream()
        return counts[0]

    def data(self, engine: Engine, session: EngineSession, statement: Statement) -> tuple[str, Iterable[bytes]]:
        def pieces() -> Iterator[bytes]:
            if statement.inline:
                yield statement.inline
            yield from self._body

        assert statement.data_format is not None
        return statement.data_format, pieces()

    def remember(self, settings: dict[str, str], database: str | None) -> None:
        """Nothing outlives an HTTP request without a session."""

    def cut(self) -> None:
        self.connection.socket.shutdown(socket.SHUT_RDWR)

    # --- the answer --------------------------------------------------------------------------------------------

    def _headers(self) -> dict[str, str]:
        kind = next(
            (value for name, value in _TYPES.items() if self._format.startswith(name)), "application/octet-stream"
        )
        headers = {
            "Content-Type": f"{kind}; charset=UTF-8",
            "X-ClickHouse-Query-Id": self.query_id,
            "X-ClickHouse-Format": self._format,
            "X-ClickHouse-Timezone": "UTC",
            "X-ClickHouse-Summary": self._summary(),
        }
        return {**headers, "Content-Encoding": "gzip"} if self._gzip else headers

    def _summary(self) -> str:
        counts = self._request.counts if self._request else Counts()
        numbers = {**counts._asdict(), "total_rows_to_read": 0, "result_rows": counts.written_rows}
        numbers |= {"result_bytes": counts.written_bytes, "elapsed_ns": int((time.monotonic() - self._started) * 1e9)}
        return json.dumps({name: str(value) for name, value in numbers.items()}, separators=(",", ":"))

    def _stream(self) -> None:
        """Send what is buffered as chunks; the status is 200 from here on."""
        sender = self.connection.socket
        try:
            if not self._streaming:
                self._streaming = True
                sender.sendall(_head(200, {**self._headers(), "Transfer-Encoding": "chunked"}))
            data = self._packed(b"".join(self._buffer))
            self._buffer.clear()
            if data:
                sender.sendall(b"%x\r\n%b\r\n" % (len(data), data))
        except OSError:
            raise ClientGone from None

    def _packed(self, data: bytes) -> bytes:
        return self._compressor.compress(data) if self._compressor else data

    def _finish(self) -> None:
        if not self._streaming:
            body = b"".join(self._buffer)
            self.connection.send(200, gzip.compress(body, 3) if self._gzip else body, self._headers())
            return
        self._stream()
        tail = self._compressor.flush() if self._compressor else b""
        self.connection.socket.sendall((b"%x\r\n%b\r\n" % (len(tail), tail) if tail else b"") + b"0\r\n\r\n")

    def fail(self, error: ServerError) -> None:
        """Answer with an exception; in the middle of a stream the connection is broken instead of ended."""
        if self._streaming:
            self.broken = True
            text = error.text.encode()
            self.connection.socket.sendall(b"%x\r\n%b\r\n" % (len(text), text))
            return
        headers = {
            "Content-Type": "text/plain; charset=UTF-8",
            "X-ClickHouse-Query-Id": self.query_id,
            "X-ClickHouse-Exception-Code": str(error.code),
            "X-ClickHouse-Summary": self._summary(),
        }
        if not self.body_done:
            headers["Connection"] = "Close"
        self.connection.send(error.http_status, error.text.encode() + b"\n", headers)
