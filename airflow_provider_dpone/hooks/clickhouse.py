"""Hook of a ClickHouse server: the control plane through airflow-clickhouse-plugin's hook, the data plane by HTTP.

One Airflow connection of type ``clickhouse`` serves both, in the shape of the official ClickHouse provider: ``port`` is
the HTTP port, extra ``native_port`` the native one (default 9440 when ``secure``, else 9000).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import clickhouse_driver

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the plugin imports Airflow's BaseHook by its former name
    from airflow_clickhouse_plugin.hooks.clickhouse import ClickHouseHook

from airflow_provider_dpone.engines.clickhouse.control import NativeControl
from airflow_provider_dpone.engines.clickhouse.rights import GatePolicy
from airflow_provider_dpone.engines.clickhouse.wire import ClickHouseHttp
from airflow_provider_dpone.errors import DponeError


@dataclass(frozen=True)
class ControllerLogin:
    """The controller's own name and password."""

    name: str
    password: str = field(repr=False)


class DponeClickHouseHook(ClickHouseHook):  # type: ignore[misc]
    """airflow-clickhouse-plugin's hook on the native port of a ``clickhouse`` connection, plus its HTTP end.

    Extra fields: ``native_port``, ``secure``, ``verify``, ``issued_user_hosts`` (addresses that one-time users may come
    from), ``receive_timeout`` (seconds the source may pause in mid-load), and clickhouse-driver's own keys of
    :attr:`DRIVER_KEYS`.
    """

    conn_name_attr = "clickhouse_conn_id"
    default_conn_name = "clickhouse_default"
    conn_type = "clickhouse"
    hook_name = "ClickHouse"

    DRIVER_KEYS: ClassVar[frozenset[str]] = frozenset(
        {"secure", "verify", "ca_certs", "certfile", "keyfile", "server_hostname", "connect_timeout", "compression"}
        | {"send_receive_timeout", "sync_request_timeout", "tcp_keepalive", "client_name", "alt_hosts"}
    )

    def get_conn(self) -> Any:
        """A new, not yet connected driver client on the native port."""
        return self.driver_factory()()

    def driver_factory(self) -> Callable[[], Any]:
        """A function that makes a new driver client; the Airflow connection is read once."""
        connection = self.get_connection(self._clickhouse_conn_id)
        extra = connection.extra_dejson
        secure = bool(extra.get("secure"))
        options = {key: value for key, value in extra.items() if key in self.DRIVER_KEYS}
        options.setdefault("connect_timeout", 10)
        options.update(
            host=connection.host or "localhost",
            port=int(extra.get("native_port") or (9440 if secure else 9000)),
            user=connection.login or "default",
            password=connection.password or "",
            database=self._database or connection.schema or "default",
        )
        return lambda: clickhouse_driver.Client(**options)

    def control(self) -> NativeControl:
        """A control session that opens its own driver clients."""
        return NativeControl(self.driver_factory())

    def http(self) -> ClickHouseHttp:
        """The HTTP end of the same connection."""
        connection = self.get_connection(self._clickhouse_conn_id)
        extra = connection.extra_dejson
        secure = bool(extra.get("secure"))
        return ClickHouseHttp(
            host=connection.host or "localhost",
            port=int(connection.port or (8443 if secure else 8123)),
            secure=secure,
            verify=bool(extra.get("verify", True)),
        )

    def login(self) -> ControllerLogin:
        """The controller's login, for the proof that both ends are one server."""
        connection = self.get_connection(self._clickhouse_conn_id)
        return ControllerLogin(connection.login or "default", connection.password or "")

    def gate_policy(self) -> GatePolicy:
        """How one-time users are issued through this connection."""
        extra = self.get_connection(self._clickhouse_conn_id).extra_dejson
        hosts = extra.get("issued_user_hosts") or ()
        policy = GatePolicy(hosts=(hosts,) if isinstance(hosts, str) else tuple(hosts))
        pause = extra.get("receive_timeout")
        return policy if pause is None else replace(policy, receive_timeout=int(pause))

    def test_connection(self) -> tuple[bool, str]:
        """The Test button: both ports answer, and both lead to one server."""
        try:
            with self.control() as control:
                [(server, version)] = control.query("SELECT toString(serverUUID()), version()")
            over_http = self.http().server_uuid(self.login(), query_id="dpone-test-connection")
        except DponeError as error:
            return False, str(error)
        if over_http != server:
            return False, f"the HTTP port leads to server {over_http}, the native port to {server}"
        return True, f"ClickHouse {version}, server {server}"
