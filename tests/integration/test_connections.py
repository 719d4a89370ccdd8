"""Connections as people write them: TLS that is verified unless they say otherwise, and fields that are read or refused."""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from airflow_provider_dpone.errors import ConnectionInvalid, DponeError, ServerUnreachable
from airflow_provider_dpone.get_provider_info import get_provider_info
from airflow_provider_dpone.hooks.clickhouse import DponeClickHouseHook
from airflow_provider_dpone.hooks.control import DponeControlHook
from airflow_provider_dpone.hooks.dbt import dbt_target
from airflow_provider_dpone.hooks.forms import CLICKHOUSE, MSSQL, POSTGRES
from airflow_provider_dpone.hooks.mssql import mssql_params
from airflow_provider_dpone.hooks.source import postgres_params
from airflow_provider_dpone.hooks.targets import postgres_world
from tests.servers import ClickHouseUnderTest, PostgresUnderTest

ROOT = Path(__file__).parents[2]
Connect = Callable[..., Any]


# --- certificates and a server that ends TLS ------------------------------------------------------------------


@dataclass
class Authority:
    """An authority of our own, its file, and a server and a client that it vouches for."""

    ca: str
    server: str
    client: str


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    directory = tmp_path_factory.mktemp("certificates")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "our authority")])
    now = datetime.datetime.now(datetime.UTC)

    def made(subject: x509.Name, public: ec.EllipticCurvePublicKey, *extensions: x509.ExtensionType) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject).issuer_name(name).public_key(public).serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=2))
        )  # fmt: skip
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    (directory / "ca.pem").write_bytes(made(name, key.public_key(), x509.BasicConstraints(True, None)))
    for file, extensions in (("server", [x509.SubjectAlternativeName([x509.DNSName("dwh.example")])]), ("client", [])):
        own = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, file)])
        pem = own.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (directory / f"{file}.pem").write_bytes(pem + made(subject, own.public_key(), *extensions))
    return Authority(*(str(directory / f"{file}.pem") for file in ("ca", "server", "client")))


@contextmanager
def tls(authority: Authority, port: int, *, demand_client: bool = False) -> Iterator[tuple[int, list[bytes]]]:
    """Ends TLS before a server's plain port; yields its own port and what clients sent inside TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server)
    if demand_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.ca)
    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def pump(source: socket.socket, sink: socket.socket, note: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if note:
                    seen.append(data)
                sink.sendall(data)
        for sock in (source, sink):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def serve(raw: socket.socket) -> None:
        try:
            client = context.wrap_socket(raw, server_side=True)
            client.settimeout(None)
        except OSError:
            raw.close()
            return
        server = socket.create_connection(("127.0.0.1", port))
        threading.Thread(target=pump, args=(server, client, False), daemon=True).start()
        pump(client, server, True)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1], seen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Defines an Airflow connection."""

    def define(conn_id: str, **fields: Any) -> None:
        if isinstance(fields.get("extra"), dict):
            fields["extra"] = json.dumps(fields["extra"])
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))

    return define


class Behind:
    """A ClickHouse server whose two ports speak TLS."""

    def __init__(self, server: ClickHouseUnderTest, http: int, native: int, connect: Connect) -> None:
        self.server, self.http, self.native, self.connect = server, http, native, connect

    def hook(self, extra: dict[str, Any]) -> DponeClickHouseHook:
        self.connect(
            "far", conn_type="dpone_clickhouse", host="127.0.0.1", port=self.http, login=self.server.controller_user,
            password=self.server.controller_password, extra={"secure": True, "native_port": self.native, **extra},
        )  # fmt: skip
        return DponeClickHouseHook(clickhouse_conn_id="far")


@pytest.mark.parametrize("verify", [{"verify": None}, {}, {"verify": ""}, {"verify": "true"}, {"verify": "yes"}])
def test_a_certificate_nobody_vouches_for_gets_no_login(
    clickhouse_server: ClickHouseUnderTest, authority: Authority, connect: Connect, verify: dict[str, Any]
) -> None:
    with tls(authority, clickhouse_server.http_port) as (http, over_http), \
         tls(authority, clickhouse_server.native_port) as (native, over_native):  # fmt: skip
        hook = Behind(clickhouse_server, http, native, connect).hook(verify)
        with pytest.raises(ServerUnreachable, match="CERTIFICATE_VERIFY_FAILED"), hook.control() as control:
            control.query("SELECT 1")
        with pytest.raises(ServerUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            hook.http().server_uuid(hook.login(), query_id="dpone-tls")
        works, message = hook.test_connection()
        assert not works
        assert clickhouse_server.controller_password not in message
        assert over_http == over_native == []  # nothing was said, the login least of all


@pytest.mark.parametrize("verify", [False, "false", "No", 0, "0", "off"])
def test_a_certificate_is_accepted_unverified_only_when_somebody_says_so(
    clickhouse_server: ClickHouseUnderTest, authority: Authority, connect: Connect, verify: Any
) -> None:
    with tls(authority, clickhouse_server.http_port) as (http, _), \
         tls(authority, clickhouse_server.native_port) as (native, _):  # fmt: skip
        works, message = Behind(clickhouse_server, http, native, connect).hook({"verify": verify}).test_connection()
    assert works, message


def test_an_authority_a_server_name_and_a_client_certificate_serve_both_ports(
    clickhouse_server: ClickHouseUnderTest, authority: Authority, connect: Connect
) -> None:
    with tls(authority, clickhouse_server.http_port, demand_client=True) as (http, _), \
         tls(authority, clickhouse_server.native_port, demand_client=True) as (native, _):  # fmt: skip
        behind = Behind(clickhouse_server, http, native, connect)
        whole = {"ca_certs": authority.ca, "server_hostname": "dwh.example", "certfile": authority.client}
        works, message = behind.hook(whole).test_connection()
        assert works, message
        official = {"ca_cert": authority.ca, "server_host_name": "dwh.example", "client_cert": authority.client}
        works, message = behind.hook({"client_kwargs": official}).test_connection()
        assert works, message
        for missing in whole:
            works, message = behind.hook({k: v for k, v in whole.items() if k != missing}).test_connection()
            assert not works, f"it connected without {missing}"
        with pytest.raises(DponeError), behind.hook({**whole, "server_hostname": "other.example"}).control() as control:
            control.query("SELECT 1")


def test_files_of_tls_that_cannot_be_used_are_named(connect: Connect, authority: Authority, tmp_path: Path) -> None:
    nothing, garbage = str(tmp_path / "nothing.pem"), tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for extra, field in (
        ({"ca_certs": nothing}, "ca_certs"), ({"ca_certs": str(garbage)}, "ca_certs"),
        ({"certfile": nothing}, "certfile"), ({"certfile": str(garbage)}, "certfile"),
        ({"keyfile": authority.client}, "keyfile"),
    ):  # fmt: skip
        connect("far", conn_type="clickhouse", host="127.0.0.1", extra={"secure": True, **extra})
        hook = DponeClickHouseHook(clickhouse_conn_id="far")
        for use in (hook.http, hook.control):
            with pytest.raises(ConnectionInvalid, match=field) as refused:
                use()
            assert refused.value.details["field"] == field


# --- fields ---------------------------------------------------------------------------------------------------


def _refused(extra: Any, use: Callable[[], object], conn_id: str = "far") -> str:
    with pytest.raises(ConnectionInvalid) as refused:
        use()
    assert conn_id in str(refused.value)
    return str(refused.value.details["field"])


@pytest.mark.parametrize(
    ("uri", "field"),
    [
        ("secure=maybe", "secure"), ("verify=2", "verify"), ("native_port=abc", "native_port"),
        ("native_port=-9000", "native_port"), ("connect_timeout=soon", "connect_timeout"), ("sequre=true", "sequre"),
        ("alt_hosts=other:9000", "alt_hosts"), ("client_kwargs=none", "client_kwargs"), ("dpone_stand_in=perhaps", "dpone_stand_in"),
    ],
)  # fmt: skip
def test_unknown_words_and_fields_of_a_clickhouse_connection_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, uri: str, field: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_FAR", f"clickhouse://user:pw@host:8123/default?{uri}")
    hook = DponeClickHouseHook(clickhouse_conn_id="far")
    for use in (hook.http, hook.driver_factory, hook.gate_policy):
        assert _refused(uri, use) == field
    works, message = hook.test_connection()
    assert not works
    assert message.startswith("DPONE_CONNECTION_INVALID")


def test_booleans_that_arrive_as_text_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_FAR", "clickhouse://user:pw@host:8123/default?secure=false&verify=false&native_port=9001"
    )
    hook = DponeClickHouseHook(clickhouse_conn_id="far")
    assert hook.http().tls is None
    client = hook.get_conn()
    assert (client.connection.secure_socket, client.connection.hosts[0]) == (False, ("host", 9001))
    monkeypatch.setenv("AIRFLOW_CONN_FAR", "clickhouse://user:pw@host:8123/default?secure=True&verify=False")
    context = hook.http().tls
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE
    assert hook.get_conn().connection.hosts[0] == ("host", 9440)


def test_what_an_untouched_form_stores_means_the_defaults(connect: Connect, postgres_server: PostgresUnderTest) -> None:
    """Airflow's form stores ``null`` for every field that nobody touched."""
    forms = {c["connection-type"]: c["conn-fields"] for c in get_provider_info()["connection-types"]}
    assert forms["dpone_clickhouse"]["verify"]["schema"]["default"] is True
    untouched = dict.fromkeys(forms["dpone_clickhouse"])
    connect("far", conn_type="dpone_clickhouse", host="host", extra=untouched)
    hook = DponeClickHouseHook(clickhouse_conn_id="far")
    assert (hook.http().tls, hook.http().port, hook.gate_policy().hosts) == (None, 8123, ())
    connect("far", conn_type="dpone_clickhouse", host="host", extra={**untouched, "secure": True})
    context = hook.http().tls
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert hook.get_conn().connection.verify_cert is True
    superuser = postgres_server.superuser
    at = {"host": superuser["host"], "port": superuser["port"], "login": superuser["user"],
          "password": superuser["password"], "schema": "postgres"}  # fmt: skip
    connect("plain", conn_type="dpone_control", extra=dict.fromkeys(forms["dpone_control"]), **at)
    with DponeControlHook("plain").connector()() as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert DponeControlHook("plain").dialect().control_schema == "dpone"


def test_every_field_of_a_postgres_connection_reaches_libpq_or_is_refused(connect: Connect) -> None:
    from airflow.sdk import Connection

    def params(extra: Any) -> str:
        text = extra if isinstance(extra, str) else json.dumps(extra)
        return postgres_params(Connection(conn_id="far", conn_type="postgres", host="h", extra=text)).conninfo()

    made = params({"sslmode": "verify-full", "gssencmode": "require", "sslrootcert": "/ca.pem", "connect_timeout": "3",
                   "keepalives_idle": 5, "hostaddr": "10.0.0.1", "cursor": "dictcursor", "sslcert": None})  # fmt: skip
    for part in ("sslmode=verify-full", "gssencmode=require", "sslrootcert=/ca.pem", "connect_timeout=3",
                 "keepalives_idle=5", "hostaddr=10.0.0.1"):  # fmt: skip
        assert part in made
    assert "sslcert" not in made
    assert "cursor" not in made
    for extra, field in (({"sslmode": "None"}, "sslmode"), ({"ssl_mode": "require"}, "ssl_mode"), ({"iam": True}, "iam"),
                         ({"service": "x"}, "service"), ({"service_id": "nonsense"}, "service_id"), ("[1]", "extra"),
                         ("{", "extra"), ({"dpone_stand_in": "so-so"}, "dpone_stand_in")):  # fmt: skip
        with pytest.raises(ConnectionInvalid) as refused:
            params(extra)
        assert refused.value.details["field"] == field


def test_the_pin_of_a_ledger_that_is_no_uuid_is_refused_by_field(connect: Connect) -> None:
    connect("control", conn_type="dpone_control", host="h", extra={"service_id": "nonsense"})
    assert _refused(None, DponeControlHook("control").ledger, "control") == "service_id"
    works, message = DponeControlHook("control").test_connection()
    assert (works, "service_id" in message) == (False, True)


def test_a_stand_in_said_in_words_is_read(
    connect: Connect, postgres_server: PostgresUnderTest, ledger_database: Any
) -> None:
    superuser = postgres_server.superuser
    for word, expected in (("false", False), ("true", True), (None, False)):
        connect("mart", conn_type="postgres", host=superuser["host"], port=superuser["port"], login=superuser["user"],
                password=superuser["password"], schema="postgres", extra={"dpone_stand_in": word})  # fmt: skip
        with postgres_world(ledger_database.runtime(), "mart") as world:
            assert world.is_stand_in() is expected


def test_fields_of_a_sql_server_connection_are_read_for_odbc_and_dbt_alike(connect: Connect) -> None:
    from airflow.sdk import Connection

    def options(extra: dict[str, Any]) -> dict[str, str]:
        made = Connection(conn_id="far", conn_type="mssql", host="h", schema="d", extra=json.dumps(extra))
        return dict(mssql_params(made).options)

    assert options({}) == {"Encrypt": "yes", "TrustServerCertificate": "no"}
    assert options({"TrustServerCertificate": None, "encrypt": None}) == options({})
    assert options({"trustservercertificate": "true", "Encrypt": "Strict", "connect_kwargs": {"HostNameInCertificate": "n"}}) == {
        "Encrypt": "strict", "TrustServerCertificate": "yes", "HostNameInCertificate": "n",
    }  # fmt: skip
    for extra, field in (({"TrustServerCertificate": "perhaps"}, "TrustServerCertificate"), ({"Encrypt": "sometimes"}, "Encrypt"),
                         ({"dsn": "x"}, "dsn"), ({"TrustServerCert": "yes"}, "TrustServerCert")):  # fmt: skip
        with pytest.raises(ConnectionInvalid) as refused:
            options(extra)
        assert refused.value.details["field"] == field
    for extra, expected in (
        ({}, (True, False)),
        ({"TrustServerCertificate": "yes"}, (True, True)),
        ({"Encrypt": "no"}, (False, False)),
    ):
        connect("sql", conn_type="mssql", host="h", schema="d", extra=extra)
        found = dict(dbt_target("sql", "mart").options)
        assert (found["encrypt"], found["trust_cert"]) == expected


def test_the_page_of_connections_lists_every_field_with_its_meaning() -> None:
    page = (ROOT / "docs" / "connections.md").read_text()
    for fields in (CLICKHOUSE, POSTGRES, MSSQL):
        for field in fields.ours:
            assert f"`{field.name}` | {field.meaning}" in page, field.name
        for name, _ in fields.refused:
            assert f"`{name}`" in page
