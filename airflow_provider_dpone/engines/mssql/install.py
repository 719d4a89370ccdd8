"""What an administrator installs on a SQL Server: the login gate of the instance, and marker and receipts of a target.

The runtime never installs; it compares what is there with the fingerprint taken at enrolment.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.engines.mssql import scripts
from airflow_provider_dpone.engines.mssql.scripts import quoted
from airflow_provider_dpone.errors import GateRefused, TargetUnsupported
from airflow_provider_dpone.ledger.dialects.mssql import batches

if TYPE_CHECKING:  # the driver is not needed to render
    from airflow_provider_dpone.engines.mssql.control import MssqlControl, MssqlSession

GATE_SCHEMA: Final = "dpone_gate"
WRITER_ROLE: Final = "dpone_writer"
READER: Final = "dpone_gate_reader"
#: The first four bytes of every SID issued; the trigger's fast path looks at nothing else.
SID_TAG: Final = bytes.fromhex("64706f6e")
OLDEST_MAJOR: Final = 16
#: Editions of the boxed product; Azure SQL Database has no server triggers.
_EDITIONS: Final = (2, 3, 4)
_RIGHTS_ON_SCHEMA: Final = "SELECT, INSERT, UPDATE, DELETE, ALTER, REFERENCES, VIEW DEFINITION"
#: Rights of the server a controller needs; besides them it owns the target databases.
CONTROLLER_RIGHTS: Final = (
    "ALTER ANY LOGIN",
    "ALTER ANY CONNECTION",
    "VIEW ANY DEFINITION",
    "VIEW SERVER PERFORMANCE STATE",
    "VIEW SERVER SECURITY STATE",
)


def render_composition_mssql_login_gate(*, control_database: str) -> str:
    """The GO batches that install the login gate of an instance, run once by a sysadmin; keep every byte of them.

    Test the way in without it first: the dedicated administrator connection (``sqlcmd -A``) runs no login trigger.

    :param control_database: an existing database of the instance that holds the gates; it may be the ledger's.
    """
    return "\nGO\n".join([f"USE {quoted(control_database)};", *gate_statements(control_database), ""])


def render_mssql_controller_rights(*, control_database: str, controller: str) -> str:
    """The GO batches that give a controller's login what issuing and closing need, run by a sysadmin."""
    who = quoted(controller)
    server = [f"GRANT {right} TO {who};" for right in CONTROLLER_RIGHTS]
    return "\nGO\n".join(
        [
            "USE [master];",
            *server,
            f"GRANT IMPERSONATE ON LOGIN::{READER} TO {who};",
            f"USE {quoted(control_database)};",
            *controller_statements(controller),
            "",
        ]
    )


def gate_statements(control_database: str) -> list[str]:
    """The gate of the instance, batch by batch; run in the control database."""
    return [_placed(sql, control_database) for sql in scripts.parts("gate_install.sql").values()]


def controller_statements(controller: str) -> list[str]:
    """The controller's rights in the control database; an owner of the database has them already."""
    sql = scripts.parts("gate_controller.sql")["rights"]
    return [sql.replace("{name}", scripts.literal(controller)).replace("[controller]", quoted(controller))]


def target_statements(control_database: str, schemas: tuple[str, ...]) -> list[str]:
    """Marker, receipts and bounded role of a target database, batch by batch; run in it."""
    return [
        *(_placed(sql, control_database) for sql in scripts.parts("target_install.sql").values()),
        *writer_statements(schemas),
    ]


def writer_statements(schemas: tuple[str, ...]) -> list[str]:
    """The bounded role's rights on the managed schemas; run again they change nothing."""
    return [f"GRANT {_RIGHTS_ON_SCHEMA} ON SCHEMA::{quoted(schema)} TO {WRITER_ROLE};" for schema in schemas]


def _placed(sql: str, control_database: str) -> str:
    return sql.replace("[control]", quoted(control_database))


def require_version(session: MssqlSession) -> None:
    """:raises TargetUnsupported: the server is too old, or not the boxed product."""
    [(edition, major)] = session.query(scripts.parts("policy_server.sql")["version"])
    if edition not in _EDITIONS or major < OLDEST_MAJOR:
        raise TargetUnsupported(
            "a target needs SQL Server 2022 or newer; Azure SQL Database has no login triggers",
            server_version=major,
            edition=edition,
        )


def layout(control: MssqlControl, session: MssqlSession) -> str:
    """Fingerprint of everything installed, in both databases and on the server; of what is missing too.

    :param session: one in the target database.
    """
    text = resources.files("airflow_provider_dpone.ledger.dialects.mssql").joinpath("layout.sql").read_text("utf-8")
    wanted = batches(text.replace("N'dpone'", f"N'{GATE_SCHEMA}'"))
    target = [str(row[0]) for sql in wanted for row in session.query(sql)]
    with control.gates_beside(session) as gates:
        held = target if gates is session else [str(row[0]) for sql in wanted for row in gates.query(sql)]
        held = held + [str(row[0]) for sql in scripts.parts("gate_layout.sql").values() for row in gates.query(sql)]
    lines = [*(f"target|{line}" for line in target), *(f"gates|{line}" for line in held)]
    return digest_of("\n".join(sorted(lines)).encode())


def require_reader(control: MssqlControl) -> None:
    """The trigger's login may read the gate, asked as that login; the session is the controller's before it answers.

    :raises GateRefused: it may not, or the session was not restored.
    """
    with control.gates() as session:
        [row] = session.query(_placed(scripts.parts("reader_probe.sql")["probe"], control.control_database))
        may, as_whom, now, original = row
        [(after,)] = session.query("SELECT SUSER_SNAME()")
    if may != 1 or as_whom != READER:
        raise GateRefused(
            f"login {READER} may not read the gate, so the login trigger would refuse every one-time login; "
            "run the grants of the installed script again"
        )
    if not now == original == after:
        raise GateRefused(f"the probe left its session as {after}; the session was thrown away")
