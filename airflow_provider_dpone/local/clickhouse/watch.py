"""Notices, while a query runs, that its client has gone or sent CANCEL. Reads nothing from the connection."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_dpone.local.clickhouse.core import Request


class ClientWatch:
    """Notices clients that close their connection, or send CANCEL, while a query of theirs runs."""

    def __init__(self, kill: Callable[[Request], None]) -> None:
        self._kill = kill
        self._poll = select.epoll()
        self._requests: dict[int, Request] = {}
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def add(self, connection: socket.socket, request: Request) -> None:
        self._requests[connection.fileno()] = request
        events = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR | select.EPOLLONESHOT
        self._poll.register(connection.fileno(), events | (select.EPOLLIN if request.watch_input else 0))

    def remove(self, connection: socket.socket) -> None:
        number = connection.fileno()
        if self._requests.pop(number, None) is not None:
            self._poll.unregister(number)

    def _run(self) -> None:
        while True:
            for number, _ in self._poll.poll():
                request = self._requests.get(number)
                if request is not None:
                    self._kill(request)
