"""Which extra fields connections to each kind of server have; the forms and ``docs/connections.md`` follow these."""

from __future__ import annotations

from typing import Final

from airflow_provider_dpone.hooks.fields import Field, Fields, table

#: Types of a connection to ClickHouse: the official provider's, and ours with a form of its own.
CLICKHOUSE_TYPES: Final = ("clickhouse", "dpone_clickhouse")
MSSQL_TYPES: Final = ("mssql", "odbc")
#: Types of a connection to PostgreSQL; the second is a control database.
POSTGRES_TYPES: Final = ("postgres", "dpone_control")

_STAND_IN: Final = Field(
    "dpone_stand_in", "flag", False, "The server is a local development stand-in; every receipt says so."
)
_LEDGER: Final = (
    Field(
        "service_id", "uuid", None,
        "Control database: the ledger's service id, as `ledger install` printed it. Another ledger is refused.",
        "Ledger service id (printed at installation)",
    ),
    Field("control_schema", "text", "dpone", "Control database: the ledger's schema."),
)  # fmt: skip

CLICKHOUSE: Final = Fields(
    ours=(
        Field("native_port", "integer", None, "Native port; 9000, or 9440 with TLS, when not given.", "Native port"),
        Field("secure", "flag", False, "TLS on both ports.", "TLS"),
        Field(
            "verify", "flag", True,
            "With TLS: the server's certificate must be trusted and carry the host's name.", "Verify certificate",
        ),
        Field("ca_certs", "text", None, "With TLS: file of the authorities to trust, not the system's.", "CA file"),
        Field("certfile", "text", None, "With TLS: file of the client's certificate chain.", "Client certificate file"),
        Field("keyfile", "text", None, "With TLS: file of the client's key.", "Client key file"),
        Field(
            "server_hostname", "text", None,
            "With TLS: the name that the server's certificate must carry, when it is not the host.", "Server name",
        ),
        Field(
            "issued_user_hosts", "names", (),
            "Addresses or networks that one-time users may come from; any when not given.",
            "Addresses one-time users come from",
        ),
        Field(
            "receive_timeout", "integer", None,
            "Seconds the source may pause in mid-load before the server ends the INSERT (60 when not given); closing "
            "waits longer.",
        ),
        Field("connect_timeout", "integer", 10, "Seconds to connect."),
        Field("send_receive_timeout", "integer", None, "Native protocol: seconds without an answer (300)."),
        Field("sync_request_timeout", "integer", None, "Native protocol: seconds to wait for a ping (5)."),
        Field("compression", "text", None, "Native protocol: `lz4`, `lz4hc` or `zstd`; none when not given."),
        Field("client_name", "text", None, "Native protocol: the client's name in the server's log."),
        Field(
            "client_kwargs", "object", None,
            "As the official provider has it; `ca_cert`, `client_cert`, `client_cert_key` and `server_host_name` are "
            "read from it when the fields above are not given.",
        ),
        _STAND_IN,
    ),
    others=("compress", "session_settings", "tcp_keepalive"),
    refused=(("alt_hosts", "names further servers; a connection leads to one server, whose identity is proved"),),
)  # fmt: skip

_LIBPQ: Final = tuple(
    Field(name, "integer" if name.endswith(("timeout", "idle", "interval", "count", "sni")) else "text", None, meaning)
    for name, meaning in (
        ("sslrootcert", "File of the authorities to trust; `system` takes the system's."),
        ("sslcert", "File of the client's certificate."),
        ("sslkey", "File of the client's key."),
        ("sslcrl", "File of revoked certificates."),
        ("sslcrldir", "Directory of revoked certificates."),
        ("sslsni", "Whether the host's name is sent in the handshake (1 or 0)."),
        ("sslnegotiation", "`postgres` or `direct`."),
        ("ssl_min_protocol_version", "Lowest version of TLS."),
        ("ssl_max_protocol_version", "Highest version of TLS."),
        ("channel_binding", "`disable`, `prefer` or `require`."),
        ("require_auth", "Methods of authentication that are acceptable."),
        ("gssencmode", "`disable`, `prefer` or `require` encryption by GSSAPI."),
        ("krbsrvname", "Kerberos service name."),
        ("options", "Options of the session, as libpq has them."),
        ("target_session_attrs", "As libpq has it, such as `read-write`."),
        (
            "hostaddr",
            "Address to connect to; the host is then the name that the certificate must carry (`sslmode=verify-full`).",
        ),
        ("connect_timeout", "Seconds to connect (10)."),
        ("keepalives_idle", "Seconds of silence before the first keepalive (30)."),
        ("keepalives_interval", "Seconds between keepalives (10)."),
        ("keepalives_count", "Keepalives without an answer that end a connection (6)."),
        ("tcp_user_timeout", "Milliseconds that sent data may stay unacknowledged."),
    )
)
POSTGRES: Final = Fields(
    ours=table(
        (
            Field(
                "sslmode", "choice", "prefer",
                "As libpq has it. Only `verify-full` proves which server answers: use it on every network that is not "
                "yours alone.",
                "sslmode", ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
            ),
        ),
        _LIBPQ,
        _LEDGER,
        (_STAND_IN,),
    ),
    others=(
        "cursor", "log_sql", "enable_log_db_messages", "sqlalchemy_scheme", "sqlalchemy_query", "application_name",
        "client_encoding", "keepalives", "use_sqlalchemy", "azure_conn_id", "azure_oauth_scope",
    ),
    refused=(
        ("iam", "takes short-lived tokens from AWS, which is not supported; give a login and a password"),
        ("redshift", "is not PostgreSQL"),
        ("service", "would take host and database from a file of this machine; write them into the connection"),
        ("passfile", "would take the password from a file of this machine; write it into the connection"),
        ("replication", "opens another protocol"),
    ),
)  # fmt: skip
#: libpq's keywords among the fields of a PostgreSQL connection, apart from ``sslmode``.
LIBPQ_KEYWORDS: Final = tuple(field.name for field in _LIBPQ)

MSSQL: Final = Fields(
    folded=True,
    ours=table(
        (
            Field("driver", "text", None, "Name of the ODBC driver (`ODBC Driver 18 for SQL Server`)."),
            Field(
                "Encrypt", "choice", "yes", "TLS; `strict` is TDS 8.0.", "",
                ("yes", "no", "true", "false", "mandatory", "optional", "strict"),
            ),
            Field(
                "TrustServerCertificate", "flag", False, "Accept any certificate: the server is then not authenticated."
            ),
            Field(
                "HostNameInCertificate", "text", None,
                "The name that the server's certificate must carry, when it is not the host.",
            ),
            Field(
                "ServerCertificate", "text", None,
                "File of the certificate the server must present. The driver takes authorities from the system only.",
            ),
            Field("ClientCertificate", "text", None, "File of the client's certificate, as the driver has it."),
            Field("ClientKey", "text", None, "File of the client's key, as the driver has it."),
            Field("Authentication", "text", None, "As the driver has it."),
            Field("login_timeout", "integer", None, "dbt: seconds to log in."),
            Field("query_timeout", "integer", None, "dbt: seconds a statement may take."),
            Field("backend", "text", None, "dbt: the adapter's driver."),
            Field("dpone_control_database", "text", None, "Database of the instance that holds the login gates."),
        ),
        _LEDGER,
        (_STAND_IN,),
    ),
    others=("charset", "tds_version", "appname", "timeout", "sqlalchemy_scheme", "placeholder", "encrypt_connection"),
    refused=(("dsn", "takes the server from a file of this machine; write host and database into the connection"),),
)  # fmt: skip
