"""A loopback TCP proxy that cuts a connection on a chosen message. Faults happen on the wire, not in the product."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class CuttingProxy:
    """Forward to one server; cut when the client sends (or the server answers) a given byte sequence.

    ``cut_on(marker, forward=True)`` forwards the message, waits for the server's answer and drops it;
    ``forward=False`` drops the message itself. With ``late`` the client is cut first and the message arrives that many
    seconds later. ``silence_on(marker)`` cuts nothing: the message arrives, its connection stays open on both sides, and
    not a byte more goes either way.
    """

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self.refuse_after_cut = False
        self.connections = 0
        self.late = 0.0
        self._marker = b""
        self._forward = True
        self._times = 0
        self._open: set[socket.socket] = set()
        self._stopped = False
        self._silent_on = b""
        self._let_through = 0
        self._until_stopped = threading.Event()
        self.silenced = 0

    def cut_on(self, marker: bytes, *, forward: bool, times: int = 1) -> None:
        self._marker, self._forward, self._times = marker, forward, times

    def silence_on(self, marker: bytes, *, after: int = 0) -> None:
        """Go silent when the client sends ``marker``, ``after`` so many more bytes of answers were let through."""
        self._silent_on, self._let_through = marker, after

    def __enter__(self) -> CuttingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped = True
        self._until_stopped.set()
        self._listener.close()
        for sock in list(self._open):
            _end(sock)

    def _accept(self) -> None:
        while not self._stopped:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.refuse_after_cut and self.cuts:
                client.close()
                continue
            server = socket.create_connection(self._upstream)
            self._open |= {client, server}
            state: dict[str, int] = {"cut": False}
            threading.Thread(target=self._pump, args=(client, server, state, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, state, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, state: dict[str, int], upward: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if upward and self._times > 0 and self._marker and self._marker in data:
                    self._times -= 1
                    self.cuts += 1
                    state["cut"] = True
                    if self.late:
                        source.shutdown(socket.SHUT_RDWR)
                        time.sleep(self.late)
                    if self._forward:
                        sink.sendall(data)
                        time.sleep(0.3)
                    break
                if not upward and state["cut"]:
                    break
                if upward and self._silent_on and self._silent_on in data:
                    self._silent_on = b""
                    state["left"] = self._let_through
                    self.silenced += 1
                elif "left" in state and (upward or state["left"] <= 0):
                    self._until_stopped.wait()  # sockets stay open; a full buffer is all the sender ever notices
                    break
                elif "left" in state:
                    state["left"] -= len(data)
                sink.sendall(data)
        for sock in (source, sink):
            _end(sock)


def _end(sock: socket.socket) -> None:
    """Both sides see the end at once: closing alone tells nobody while a thread still reads from it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
