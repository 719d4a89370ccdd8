"""The native endpoint, protocol revision 54453: enough for clickhouse-driver and what is built on it."""

from __future__ import annotations

import re
import socket
import struct
import uuid
from collections.abc import Iterable, Iterator

from airflow_provider_dpone.local.clickhouse.core import Core, Request
from airflow_provider_dpone.local.clickhouse.engine import Counts, Engine, EngineSession
from airflow_provider_dpone.local.clickhouse.errors import ClientGone, Cut, ServerError, not_implemented
from airflow_provider_dpone.local.clickhouse.http import DISPLAY_NAME
from airflow_provider_dpone.local.clickhouse.native_blocks import (
    BLOCK_INFO,
    Block,
    Source,
    blocks,
    header_block,
    pack_frames,
    text,
    unpack_frame,
    varint,
)
from airflow_provider_dpone.local.clickhouse.principals import User
from airflow_provider_dpone.local.clickhouse.statements import Statement, split

REVISION = 54453
_HELLO, _QUERY, _DATA, _CANCEL, _PING = range(5)
_S_HELLO, _S_DATA, _S_EXCEPTION, _S_PROGRESS, _S_PONG, _S_END = range(6)


class NativeConnection:
    """One client connection; runs in its own thread until either side closes."""

    def __init__(self, core: Core, connection: socket.socket, address: tuple[str, int]) -> None:
        self.core = core
        self.socket = connection
        self.address = address
        self.source = Source(self._more)
        self.settings: dict[str, str] = {}
        self.database = ""
        self.client_name = ""

    def _more(self) -> bytes:
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            raise ServerError(209, "Timeout exceeded while reading from socket") from None
        if not data:
            raise ClientGone
        return data

    def run(self) -> None:
        try:
            user = self._hello()
            while user is not None and self._packet(user):
                pass
        except (ClientGone, Cut, ConnectionError):
            return

    def _hello(self) -> User | None:
        if self.source.varint() != _HELLO:
            return None
        self.client_name = self.source.text()
        self.source.varint(), self.source.varint()
        revision = self.source.varint()
        self.database, name, password = self.source.text(), self.source.text(), self.source.text()
        try:
            if revision < REVISION:
                raise not_implemented(f"native clients of revision {revision}, older than {REVISION}")
            user = self.core.store.authenticate(name, password, self.address[0])
        except ServerError as error:
            self.send(exception(error))
            return None
        self.database = self.database or user.default_database
        hello = varint(_S_HELLO) + text("ClickHouse") + varint(26) + varint(9) + varint(REVISION)
        self.send(hello + text("UTC") + text(DISPLAY_NAME) + varint(2))
        return user

    def _packet(self, user: User) -> bool:
        self.source.mark()
        kind = self.source.varint()
        if kind == _PING:
            self.send(varint(_S_PONG))
        elif kind == _QUERY:
            return _Exchange(self, user).run()
        elif kind == _DATA:  # what is left of an INSERT that failed
            raise ClientGone
        elif kind != _CANCEL:  # a CANCEL that came after the end is late, not wrong
            self.send(exception(ServerError(101, f"Unexpected packet {kind} from client")))
            return False
        return True

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            raise ClientGone from None


def exception(error: ServerError) -> bytes:
    message = f"DB::Exception: {error.message}. ({error.name})"
    return (
        varint(_S_EXCEPTION) + struct.pack("<i", error.code) + text("DB::Exception") + text(message) + text("") + b"\0"
    )


class _Exchange:
    """One query over the native protocol: the front of one :class:`Request`."""

    def __init__(self, connection: NativeConnection, user: User) -> None:
        self.connection = connection
        self.user = user
        self.compressed = False
        self.reading = False  # an INSERT's blocks are under way
        self._frames = Source(lambda: unpack_frame(connection.source))

    def run(self) -> bool:
        source, connection = self.connection.source, self.connection
        query_id = source.text() or str(uuid.uuid4())
        self._client_info(source)
        settings = dict(connection.settings)
        while name := source.text():
            source.skip(1)
            settings[name] = source.text()
        source.text()  # interserver secret
        source.varint()  # stage
        self.compressed = bool(source.varint())
        query = source.text()
        if self._next_block() is not None:
            raise ClientGone  # external tables: no answer could be understood, their structure is lost
        request: Request | None = None
        try:
            statement_text, data_format, inline = split(query.encode("utf-8", "surrogateescape"))
            statement = connection.core.prepare(self.user, statement_text, settings, data_format, inline)
            request = Request(
                user=self.user,
                statement=statement,
                query_id=query_id,
                database=connection.database,
                settings=settings,
                interface="TCP",
                address=connection.address[0],
                port=connection.address[1],
                client_name=connection.client_name,
                socket=connection.socket,
                watch_input=True,
            )
            connection.core.execute(request, self)
            counts = request.counts
            progress = (counts.read_rows, counts.read_bytes, 0, counts.written_rows, counts.written_bytes)
            connection.send(varint(_S_PROGRESS) + b"".join(map(varint, progress)) + varint(_S_END))
        except ServerError as error:
            connection.socket.settimeout(None)
            if error.code == 394 and request is not None and self._cancelled():
                connection.send(varint(_S_END))
                return True
            connection.send(exception(error))
            while self.reading and self._packet_block() is not None:
                pass  # the client sends its blocks to the end whatever we answer
        return True

    def _client_info(self, source: Source) -> None:
        if source.take(1) == b"\0":
            return
        for _ in range(3):
            source.text()
        source.skip(9)
        for _ in range(3):
            source.text()
        for _ in range(3):
            source.varint()
        source.text()
        source.varint(), source.varint()
        if source.take(1) == b"\1":
            source.skip(24)
            source.text()
            source.skip(1)
        for _ in range(3):
            source.varint()

    def _cancelled(self) -> bool:
        """Whether the client's CANCEL is what waits in the connection."""
        try:
            return self.connection.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == bytes([_CANCEL])
        except BlockingIOError:
            return False

    def _packet_block(self) -> Block | None:
        """The block of the next Data packet; None for the empty one that ends the data."""
        self.connection.source.mark()
        kind = self.connection.source.varint()
        if kind == _CANCEL:
            self.reading = False
            raise ServerError(394, "Query was cancelled by the client")
        if kind != _DATA:
            raise ServerError(101, f"Unexpected packet {kind} from client")
        return self._block_body()

    def _next_block(self) -> Block | None:
        if self.connection.source.varint() != _DATA:
            raise ClientGone
        return self._block_body()

    def _block_body(self) -> Block | None:
        self.connection.source.text()  # the table's name
        source = self._frames if self.compressed else self.connection.source
        while field := source.varint():
            source.skip(1 if field == 1 else 4)
        block = Block(source)
        return block if block.columns or block.rows else None

    # --- Front -------------------------------------------------------------------------------------------------

    def query(self, engine: Engine, session: EngineSession, sql: str, fmt: str | None, stream: bool = True) -> Counts:
        if not stream:
            data, counts = engine.run(session, sql, "Native")
            for number, block in enumerate(blocks(data)):
                if number == 0:
                    self._send_block(header_block([(name, kind) for _, _, name, kind in block.headers]))
                self._send_block(block.data)
            return counts
        counted: list[Counts] = []
        columns: list[tuple[str, str]] | None = None
        retype = False
        for chunk in engine.native_blocks(session, sql, counted.append):
            if columns is None:
                columns = [(name, kind) for _, _, name, kind in next(blocks(chunk)).headers]
                # Native without a revision loses time zones: then the types must be asked for
                retype = any(re.search(r"\bDateTime\b", kind) for _, kind in columns)
                columns = engine.columns(session, sql) if retype else columns
                self._send_block(header_block(columns))
            if retype:
                for block in blocks(chunk):
                    self._send_block(block.with_types([kind for _, kind in columns]))
            else:
                self._send_block(chunk)
        if columns is None:
            self._send_block(header_block(engine.columns(session, sql)))
        return counted[0]

    def _send_block(self, block: bytes) -> None:
        body = BLOCK_INFO + block
        self.connection.send(varint(_S_DATA) + text("") + (pack_frames(body) if self.compressed else body))

    def data(self, engine: Engine, session: EngineSession, statement: Statement) -> tuple[str, Iterable[bytes]]:
        assert statement.data_format is not None
        if statement.inline.strip():
            return statement.data_format, [statement.inline]
        self._send_block(header_block(engine.columns(session, _sample_query(statement))))
        self.reading = True
        self.connection.socket.settimeout(300)

        def pieces() -> Iterator[bytes]:
            while (block := self._packet_block()) is not None:
                if block.rows:
                    yield block.data
            self.reading = False
            self.connection.socket.settimeout(None)

        return "Native", pieces()

    def remember(self, settings: dict[str, str], database: str | None) -> None:
        self.connection.settings |= settings
        if database is not None:
            self.connection.database = database

    def cut(self) -> None:
        self.connection.socket.shutdown(socket.SHUT_RDWR)


def _sample_query(statement: Statement) -> str:
    """A query with the columns an INSERT takes."""
    cursor = statement.cursor()
    cursor.expect("INSERT INTO")
    cursor.accept("TABLE")
    start = cursor.peek().start
    cursor.table("")
    table = statement.text[start : cursor.tokens[cursor.position - 1].end]
    columns = "*"
    if cursor.peek().text == "(":
        columns = statement.text[cursor.peek().end : cursor.tokens[-1].start]
    return f"SELECT {columns} FROM {table}"
