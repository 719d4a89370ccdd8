"""One POST per dispatch: what was answered, what was lost, and that nothing is ever sent twice."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from airflow_provider_dpone.contracts.ports import IssuedCredential
from airflow_provider_dpone.engines.clickhouse.wire import ClickHouseHttp
from airflow_provider_dpone.errors import AnswerLost, DponeError, ServerRefused, ServerUnreachable

LOGIN = IssuedCredential("dpone_ingest_" + "0" * 32, "00000000-0000-4000-8000-000000000001", "se;cr{e}t':]")
OK = b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-ClickHouse-Summary: {"written_rows":"2"}\r\n\r\n'


def refusal(code: int, status: str = "500 Internal Server Error", header: bool = True) -> bytes:
    body = f"Code: {code}. DB::Exception: nothing doing. (CODE)".encode()
    named = f"X-ClickHouse-Exception-Code: {code}\r\n" if header else ""
    return f"HTTP/1.1 {status}\r\n{named}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Peer:
    """A server that handles connections with one function and keeps what it received."""

    handle: Callable[[socket.socket, Peer], None]
    received: list[bytes] = field(default_factory=list)
    port: int = 0
    connections: int = 0

    def __enter__(self) -> Peer:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self.handle(connection, self)

    @property
    def end(self) -> ClickHouseHttp:
        return ClickHouseHttp("127.0.0.1", self.port, connect_timeout=5, answer_within=5)


def whole_request(connection: socket.socket) -> bytes:
    data = b""
    while True:
        data += connection.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        if b"chunked" in head and body.endswith(b"0\r\n\r\n"):
            return data
        if b"Content-Length: " in head and len(body) >= int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]):
            return data


def answering(reply: bytes) -> Callable[[socket.socket, Peer], None]:
    def handle(connection: socket.socket, peer: Peer) -> None:
        peer.received.append(whole_request(connection))
        connection.sendall(reply)

    return handle


def test_a_dispatch_is_one_post_with_its_query_id_and_counts_every_byte_it_sent() -> None:
    with Peer(answering(OK)) as peer:
        reply = peer.end.dispatch("INSERT INTO t FORMAT TSV", LOGIN, query_id="q-1").send(iter([b"1\n", b"", b"2\n"]))
    assert peer.connections == 1
    assert peer.received[0].startswith(b"POST /?query_id=q-1&")
    assert b"query=INSERT%20INTO%20t%20FORMAT%20TSV" in peer.received[0]
    assert peer.received[0].endswith(b"2\r\n1\n\r\n2\r\n2\n\r\n0\r\n\r\n")
    assert reply.wire_bytes == len(peer.received[0])
    assert reply.summary == {"written_rows": "2"}


def test_a_dispatch_cannot_be_sent_again() -> None:
    with Peer(answering(OK)) as peer:
        dispatch = peer.end.dispatch("EXCHANGE TABLES a AND b", LOGIN, query_id="q")
        dispatch.send()
        with pytest.raises(RuntimeError):
            dispatch.send()
    assert peer.connections == 1


@pytest.mark.parametrize("header", [True, False])
def test_an_answered_refusal_carries_the_servers_code(header: bool) -> None:
    with Peer(answering(refusal(201, header=header))) as peer, pytest.raises(ServerRefused) as caught:
        peer.end.dispatch("EXCHANGE TABLES a AND b", LOGIN, query_id="q").send()
    assert caught.value.details["server_code"] == 201


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n",
        refusal(60, status="200 OK", header=False),
    ],
    ids=["cut", "half an answer", "a proxy's error", "a redirect", "an exception behind status 200"],
)
def test_anything_but_a_complete_clickhouse_answer_is_lost_and_never_sent_again(reply: bytes) -> None:
    with Peer(answering(reply)) as peer, pytest.raises(AnswerLost):
        peer.end.dispatch("EXCHANGE TABLES a AND b", LOGIN, query_id="q").send()
    assert peer.connections == 1


def test_no_connection_means_nothing_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ServerUnreachable):
        ClickHouseHttp("127.0.0.1", port, connect_timeout=2).dispatch("SELECT 1", LOGIN, query_id="q").send()


def test_a_silent_server_is_a_lost_answer_after_the_read_timeout() -> None:
    release = threading.Event()

    def silent(connection: socket.socket, peer: Peer) -> None:
        whole_request(connection)
        release.wait(5)

    with Peer(silent) as peer:
        end = ClickHouseHttp("127.0.0.1", peer.port, answer_within=0.2)
        with pytest.raises(AnswerLost):
            end.dispatch("EXCHANGE TABLES a AND b", LOGIN, query_id="q").send()
        release.set()


def test_a_refusal_before_the_body_ended_is_read_and_stops_the_body() -> None:
    def early(connection: socket.socket, peer: Peer) -> None:
        connection.recv(65536)
        connection.sendall(refusal(241))
        connection.recv(1)

    sent = 0

    def body() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100_000):
            sent += 1
            yield b"x" * 65536

    with Peer(early) as peer, pytest.raises(ServerRefused) as caught:
        peer.end.dispatch("INSERT INTO t FORMAT TSV", LOGIN, query_id="q").send(body())
    assert caught.value.details["server_code"] == 241
    assert sent < 100_000


def test_an_error_of_the_body_ends_the_request_unfinished_and_passes_through() -> None:
    ended = threading.Event()

    def until_closed(connection: socket.socket, peer: Peer) -> None:
        data = b""
        while piece := connection.recv(65536):
            data += piece
        peer.received.append(data)
        ended.set()

    def body() -> Iterator[bytes]:
        yield b"row\n"
        raise OSError("the source went away")

    with Peer(until_closed) as peer:
        with pytest.raises(OSError, match="the source went away"):
            peer.end.dispatch("INSERT INTO t FORMAT TSV", LOGIN, query_id="q").send(body())
        assert ended.wait(5)
    assert not peer.received[0].endswith(b"0\r\n\r\n")


def test_cancel_ends_a_waiting_dispatch_at_once_as_a_lost_answer() -> None:
    arrived = threading.Event()

    def hold(connection: socket.socket, peer: Peer) -> None:
        whole_request(connection)
        arrived.set()
        connection.recv(1)

    with Peer(hold) as peer:
        dispatch = ClickHouseHttp("127.0.0.1", peer.port).dispatch("EXCHANGE TABLES a AND b", LOGIN, query_id="q")
        threading.Thread(target=lambda: (arrived.wait(5), dispatch.cancel()), daemon=True).start()
        with pytest.raises(AnswerLost):
            dispatch.send()


def test_a_cancelled_dispatch_sends_nothing() -> None:
    with Peer(answering(OK)) as peer:
        dispatch = peer.end.dispatch("EXCHANGE TABLES a AND b", LOGIN, query_id="q")
        dispatch.cancel()
        with pytest.raises(ServerUnreachable):
            dispatch.send()
    assert peer.received == []


@pytest.mark.parametrize("reply", [refusal(516, "403 Forbidden"), b"", b"HTTP/1.1 502 x\r\nContent-Length: 0\r\n\r\n"])
def test_the_password_is_in_no_error(reply: bytes) -> None:
    with Peer(answering(reply)) as peer, pytest.raises(DponeError) as caught:
        peer.end.dispatch("SELECT 1", LOGIN, query_id="q").send()
    error: BaseException | None = caught.value
    while error is not None:
        assert LOGIN.password not in repr(error) + str(error) + str(getattr(error, "details", ""))
        error = error.__context__


def test_a_dispatch_looks_after_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is gone says nothing: the system asks for it."""
    kept: list[int] = []
    shut = http.client.HTTPConnection.close

    def look(self: http.client.HTTPConnection) -> None:
        if self.sock is not None:
            kept.append(self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        shut(self)

    monkeypatch.setattr(http.client.HTTPConnection, "close", look)
    with Peer(answering(OK)) as peer:
        peer.end.dispatch("SELECT 1", LOGIN, query_id="q").send()
    assert kept
    assert all(kept)


@pytest.mark.parametrize("reply", [OK, refusal(60), b"nonsense"])
def test_a_connection_is_closed_once_the_answer_was_read(reply: bytes) -> None:
    """The server sees its end: a session of a user that is to be closed must not linger."""
    ended = threading.Event()

    def until_closed(connection: socket.socket, peer: Peer) -> None:
        whole_request(connection)
        connection.sendall(reply)
        if reply == b"nonsense":
            connection.shutdown(socket.SHUT_WR)
        connection.settimeout(5)
        assert connection.recv(1) == b""
        ended.set()

    with Peer(until_closed) as peer:
        dispatch = peer.end.dispatch("SELECT 1", LOGIN, query_id="q")
        if reply == OK:
            dispatch.send()
        else:
            with pytest.raises((ServerRefused, AnswerLost)):
                dispatch.send()
        assert ended.wait(5)
        assert dispatch._connection.sock is None
