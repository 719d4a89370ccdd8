"""Hook of a ClickHouse server: the control plane through airflow-clickhouse-plugin's hook, the data plane by HTTP.

One Airflow connection serves both, in the shape of the official ClickHouse provider: ``port`` is the HTTP port, extra
``native_port`` the native one (default 9440 when ``secure``, else 9000). Its type is ``clickhouse``, which belongs to
whoever else is installed, or ``dpone_clickhouse``, which has our form and Test button.
"""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import clickhouse_driver

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the plugin imports Airflow's BaseHook by its former name
    from airflow_clickhouse_plugin.hooks.clickhouse import ClickHouseHook

from airflow_provider_dpone.engines.clickhouse.control import NativeControl
from airflow_provider_dpone.engines.clickhouse.rights import GatePolicy
from airflow_provider_dpone.engines.clickhouse.wire import ClickHouseHttp
from airflow_provider_dpone.errors import ConnectionInvalid, DponeError
from airflow_provider_dpone.hooks.forms import CLICKHOUSE
from airflow_provider_dpone.waiting import COUNT, IDLE, INTERVAL

#: Handed to clickhouse-driver as they are, when given.
_DRIVER_OPTIONS: Final = ("send_receive_timeout", "sync_request_timeout", "compression", "client_name")
#: Fields about TLS, and their names among the official provider's ``client_kwargs``.
_TLS: Final = {
    "ca_certs": "ca_cert",
    "certfile": "client_cert",
    "keyfile": "client_cert_key",
    "server_hostname": "server_host_name",
}


@dataclass(frozen=True)
class ControllerLogin:
    """The controller's own name and password."""

    name: str
    password: str = field(repr=False)


class DponeClickHouseHook(ClickHouseHook):  # type: ignore[misc]
    """airflow-clickhouse-plugin's hook on the native port of a ClickHouse connection, plus its HTTP end.

    Its extra fields are those of :data:`airflow_provider_dpone.hooks.forms.CLICKHOUSE`.

    :raises ConnectionInvalid: from every method, when a field cannot be read or a file of TLS cannot be used.
    """

    conn_name_attr = "clickhouse_conn_id"
    default_conn_name = "clickhouse_default"
    conn_type = "dpone_clickhouse"
    hook_name = "ClickHouse (dpone)"

    def get_conn(self) -> Any:
        """A new, not yet connected driver client on the native port."""
        return self.driver_factory()()

    def driver_factory(self) -> Callable[[], Any]:
        """A function that makes a new driver client; the Airflow connection is read once."""
        connection, fields = self._read()
        secure = bool(fields["secure"])
        options = {name: fields[name] for name in _DRIVER_OPTIONS if fields[name] is not None}
        options.update(
            host=connection.host or "localhost",
            port=fields["native_port"] or (9440 if secure else 9000),
            user=connection.login or "default",
            password=connection.password or "",
            database=self._database or connection.schema or "default",
            connect_timeout=fields["connect_timeout"],
            secure=secure,
            verify=fields["verify"],
            tcp_keepalive=(IDLE, INTERVAL, COUNT),
        )
        if secure:
            self._tls(fields)  # its files are usable, or the connection is refused
            options.update({name: fields[name] for name in _TLS if fields[name] is not None})
            # the driver would trust a list of its own; both ends trust the same
            options.setdefault("ca_certs", ssl.get_default_verify_paths().cafile)
        return lambda: clickhouse_driver.Client(**options)

    def control(self) -> NativeControl:
        """A control session that opens its own driver clients."""
        return NativeControl(self.driver_factory())

    def http(self) -> ClickHouseHttp:
        """The HTTP end of the same connection."""
        connection, fields = self._read()
        secure = bool(fields["secure"])
        return ClickHouseHttp(
            host=connection.host or "localhost",
            port=int(connection.port or (8443 if secure else 8123)),
            tls=self._tls(fields) if secure else None,
            server_hostname=fields["server_hostname"],
            connect_timeout=fields["connect_timeout"],
        )

    def login(self) -> ControllerLogin:
        """The controller's login, for the proof that both ends are one server."""
        connection = self.get_connection(self._clickhouse_conn_id)
        return ControllerLogin(connection.login or "default", connection.password or "")

    def gate_policy(self) -> GatePolicy:
        """How one-time users are issued through this connection."""
        _, fields = self._read()
        policy = GatePolicy(hosts=fields["issued_user_hosts"])
        pause = fields["receive_timeout"]
        return policy if pause is None else replace(policy, receive_timeout=pause)

    def _read(self) -> tuple[Any, dict[str, Any]]:
        """The connection and its fields; those of TLS also from the official provider's ``client_kwargs``."""
        connection = self.get_connection(self._clickhouse_conn_id)
        fields = CLICKHOUSE.read(connection)
        official = fields["client_kwargs"] or {}
        return connection, fields | {
            name: official[theirs] for name, theirs in _TLS.items() if fields[name] is None and official.get(theirs)
        }

    def _tls(self, fields: dict[str, Any]) -> ssl.SSLContext:
        """How the server's certificate is verified, and the client's certificate."""
        conn_id = self._clickhouse_conn_id
        try:
            context = ssl.create_default_context(cafile=fields["ca_certs"])
        except OSError as error:
            raise ConnectionInvalid(
                f"connection {conn_id!r}: ca_certs cannot be used: {error}", field="ca_certs"
            ) from error
        if not fields["verify"]:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if fields["keyfile"] is not None and fields["certfile"] is None:
            raise ConnectionInvalid(f"connection {conn_id!r}: keyfile is given without certfile", field="keyfile")
        if fields["certfile"] is not None:
            try:
                context.load_cert_chain(fields["certfile"], fields["keyfile"])
            except OSError as error:
                raise ConnectionInvalid(
                    f"connection {conn_id!r}: certfile and keyfile cannot be used: {error}", field="certfile"
                ) from error
        return context

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
