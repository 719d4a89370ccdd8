"""The control plane over the native protocol: users, catalog and observation, as the controller.

A statement is sent once. What the driver raises becomes one of three meanings: refused (answered with a code),
unreachable (nothing was sent), lost (sent, not answered).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

from clickhouse_driver import errors as driver

from airflow_provider_dpone.engines.clickhouse.quoting import bind
from airflow_provider_dpone.engines.clickhouse.wire import ClickHouseHttp, Login, first_line, refused
from airflow_provider_dpone.errors import AnswerLost, EnrolledElsewhere, ServerRefused, ServerUnreachable


class DriverClient(Protocol):
    """What is used of ``clickhouse_driver.Client``."""

    connection: Any

    def execute(self, query: str) -> Any: ...
    def disconnect(self) -> None: ...


class NativeControl:
    """A control session.

    :param connect: makes a client; it connects on first use. A driver client reconnects by itself before it sends,
        never after, so a statement is never sent twice.
    """

    def __init__(self, connect: Callable[[], DriverClient]) -> None:
        self._connect = connect
        self._client: DriverClient | None = None

    def query(self, sql: str, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a reading statement with its ``{name:Type}`` parameters bound, and return all rows."""
        rows = self._send(bind(sql, params) if params is not None else sql)
        return [tuple(row) for row in rows]

    def command(self, sql: str) -> None:
        """Run one statement that returns no rows."""
        self._send(sql)

    def fresh(self) -> NativeControl:
        """Another session on a connection of its own."""
        return NativeControl(self._connect)

    def display_name(self) -> str:
        """The server's display name, as it greets a client; the local development server names itself there."""
        return str(self._opened().connection.server_info.display_name)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.disconnect()
            self._client = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, sql: str) -> Any:
        client = self._opened()
        try:
            return client.execute(sql)
        except driver.ServerException as error:
            raise _refused(error) from None
        except (driver.Error, OSError, EOFError) as error:
            raise AnswerLost(f"no complete answer from ClickHouse (native): {type(error).__name__}") from None

    def _opened(self) -> DriverClient:
        if self._client is None:
            self._client = self._connect()
        if not self._client.connection.connected:
            try:
                self._client.connection.connect()
            except driver.ServerException as error:
                raise _refused(error) from None
            except (driver.Error, OSError, EOFError) as error:
                raise ServerUnreachable(f"ClickHouse (native) cannot be reached: {first_line(str(error))}") from None
        return self._client


def require_same_server(control: NativeControl, http: ClickHouseHttp, login: Login, *, query_id: str) -> str:
    """``serverUUID()``, proved to be the same behind the native and the HTTP end.

    :raises EnrolledElsewhere: the two ends are two servers.
    """
    native = str(control.query("SELECT serverUUID()")[0][0])
    over_http = http.server_uuid(login, query_id=query_id)
    if native != over_http:
        raise EnrolledElsewhere(
            "the native and the HTTP port belong to two servers; name one server in the connection",
            native=native,
            http=over_http,
        )
    return native


def _refused(error: driver.ServerException) -> ServerRefused:
    return refused(first_line(str(error.message)), int(error.code))
