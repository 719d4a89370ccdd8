"""The command line: ``dpone-airflow ...``, the same as ``airflow dpone ...``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from airflow_provider_dpone import __version__
from airflow_provider_dpone.contracts.enrolment import TargetEnrolment
from airflow_provider_dpone.errors import DponeError

Command = Callable[[argparse.Namespace], None]


def parser(prog: str = "dpone-airflow") -> argparse.ArgumentParser:
    """The complete parser; each command sets ``handler``."""
    root = argparse.ArgumentParser(prog=prog, description="Table refreshes that are admitted, fenced and observed.")
    root.add_argument("--version", action="version", version=f"airflow-provider-dpone {__version__}")
    commands = root.add_subparsers(dest="command", required=True)
    add_commands(commands)
    return root


def add_commands(commands: Any) -> None:
    """Add every command to a subparsers object."""
    _add_ledger(commands)
    _add_enroll(commands)
    from airflow_provider_dpone.cli.releases import add_release_commands

    add_release_commands(commands)
    from airflow_provider_dpone.cli.attempts import add_attempt_commands

    add_attempt_commands(commands)
    from airflow_provider_dpone.cli.authority import add_authority_commands

    add_authority_commands(commands)
    from airflow_provider_dpone.local.cli import add_local_parser

    add_local_parser(commands)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors are one readable line on stderr and exit status 1."""
    options = parser().parse_args(arguments)
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")  # output is for people and pipes
    logging.getLogger("clickhouse_driver").setLevel(logging.ERROR)  # our own message says it, without a trace
    try:
        code = options.handler(options)
        sys.stdout.flush()
    except DponeError as error:
        print(str(error), file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of a pipe went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        from airflow.sdk.exceptions import AirflowNotFoundException

        if not isinstance(error, AirflowNotFoundException):
            raise
        print(
            f"{error}. Define the Airflow connection; for the local stack: "
            'eval "$(dpone-airflow local env --dir DIRECTORY)"',
            file=sys.stderr,
        )
        return 1
    return int(code or 0)


def get_cli_commands() -> list[Any]:
    """The ``airflow dpone`` command group, for Airflow's own command line."""
    from airflow.cli.cli_config import ActionCommand, Arg

    def run(options: Any) -> None:
        sys.exit(main(options.arguments))

    arguments = Arg(  # type: ignore[no-untyped-call]
        ("arguments",), nargs=argparse.REMAINDER, help="see `dpone-airflow --help`"
    )

    return [
        ActionCommand(
            name="dpone",
            help="Refresh tables: ledger, enrolment, releases, attempts, local stack",
            func=run,
            args=(arguments,),
        )
    ]


def add_control(parser: argparse.ArgumentParser, default: str = "dpone_control") -> None:
    parser.add_argument(
        "--control-conn-id", default=default, help=f"Airflow connection of the control database ({default})"
    )


# --- ledger ---------------------------------------------------------------------------------------------------


def _add_ledger(commands: Any) -> None:
    group = commands.add_parser("ledger", help="install the control ledger, or print its DDL")
    actions = group.add_subparsers(dest="action", required=True)
    install = actions.add_parser("install", help="create the ledger in an empty control database (administrator)")
    install.set_defaults(handler=_install, provision_only=False)
    provision = actions.add_parser(
        "provision", help="give the ledger its identity, after the printed DDL was run by hand (administrator)"
    )
    provision.set_defaults(handler=_install, provision_only=True)
    for action in (install, provision):
        add_control(action, "dpone_control_admin")
        action.add_argument("--runtime-role", required=True, help="existing role that running tasks use")
        action.add_argument(
            "--provisioner-role",
            help="existing role that records trust policies and registers grants, and nothing else",
        )
        action.add_argument("--family", choices=("nonproduction", "production"), default="nonproduction")
    adopt = actions.add_parser(
        "adopt", help="make a restored or copied database the ledger from now on; the original must never run again"
    )
    add_control(adopt, "dpone_control_admin")
    adopt.add_argument("--statement", required=True, help="why the original is gone for good")
    adopt.add_argument("--by", default=os.environ.get("USER", ""), help="who decides")
    adopt.set_defaults(handler=_adopt)
    ddl = actions.add_parser("ddl", help="print the DDL without running it")
    ddl.add_argument("--engine", choices=("postgres", "mssql"), default="postgres", help="of the control database")
    ddl.add_argument("--control-schema", default="dpone", help="schema of the ledger's tables (dpone)")
    ddl.set_defaults(handler=_ddl)


def _install(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.contracts.states import Family
    from airflow_provider_dpone.hooks.control import DponeControlHook
    from airflow_provider_dpone.ledger.install import install, provision

    hook = DponeControlHook(options.control_conn_id)
    service_id = (provision if options.provision_only else install)(
        hook.connector(),
        hook.dialect(),
        family=Family(options.family),
        runtime_role=options.runtime_role,
        provisioner_role=options.provisioner_role,
    )
    print(f"installed ledger {service_id} of family {options.family}")
    print(f'pin it: put {{"service_id": "{service_id}"}} into the extra of the control connection')


def _adopt(options: argparse.Namespace) -> None:
    from datetime import UTC, datetime

    from airflow_provider_dpone.contracts.proofs import Adoption
    from airflow_provider_dpone.hooks.control import DponeControlHook

    ledger = DponeControlHook(options.control_conn_id).ledger()
    signed = ledger.adopt(
        lambda before, after: Adoption.of(
            service_id=str(ledger.service_id), before=before, after=after, adopted_by=options.by,
            statement=options.statement, adopted_at=datetime.now(UTC).isoformat(timespec="microseconds"),
        )
    )  # fmt: skip
    print(f"this database is ledger {ledger.service_id} from now on; recorded as {signed.digest()}")


def _ddl(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.ledger.mssql import render_composition_mssql_schema
    from airflow_provider_dpone.ledger.postgres import render_composition_postgres_schema

    render = render_composition_mssql_schema if options.engine == "mssql" else render_composition_postgres_schema
    print(render(options.control_schema))


# --- enrolment ------------------------------------------------------------------------------------------------


def _add_enroll(commands: Any) -> None:
    enroll = commands.add_parser("enroll", help="accept a target table, or a managed schema (administrator)")
    enroll.add_argument("--conn-id", required=True, help="Airflow connection of an administrator of the target server")
    add_control(enroll, "dpone_control_admin")
    enroll.add_argument("--table", action="append", default=[], help="ClickHouse: database.table; may be repeated")
    enroll.add_argument(
        "--schema", action="append", default=[],
        help="PostgreSQL: managed schema; SQL Server: every managed schema of the dedicated database; may be repeated",
    )  # fmt: skip
    enroll.add_argument("--controller", help="with --schema: the login tasks use, which issues one-time logins")
    enroll.add_argument("--administrator", action="append", default=[], help="user or role that may hold write rights")
    enroll.add_argument(
        "--accept", action="append", default=[], help="side effect accepted by name, as a refusal named it"
    )
    enroll.add_argument("--dry-run", action="store_true", help="look at everything, write nothing")
    enroll.add_argument("--json", action="store_true", help="the complete enrolments")
    enroll.add_argument(
        "--print-ddl",
        action="store_true",
        help="only print the SQL that lets a target take a source table",
    )
    enroll.add_argument("--source-conn-id", help="with --print-ddl")
    enroll.add_argument(
        "--source-table", action="append", default=[], help="with --print-ddl: schema.table, per --table"
    )
    enroll.set_defaults(handler=_enroll)
    gate = commands.add_parser("render-login-gate", help="print the T-SQL that installs the login gate of a SQL Server")
    gate.add_argument("--control-database", required=True, help="existing database of the server that holds the gates")
    gate.add_argument("--controller", help="print the rights of this login instead")
    gate.set_defaults(handler=_render_login_gate)


def _render_login_gate(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.engines.mssql import install

    if options.controller:
        controller, database = options.controller, options.control_database
        print(install.render_mssql_controller_rights(control_database=database, controller=controller))
    else:
        print(install.render_composition_mssql_login_gate(control_database=options.control_database))


def _enroll(options: argparse.Namespace) -> None:
    if options.print_ddl:
        return _print_ddl(options)
    from airflow_provider_dpone.hooks.enrolment import enrol_targets

    found = enrol_targets(
        options.conn_id,
        options.control_conn_id,
        tables=options.table,
        schemas=options.schema,
        controller=options.controller,
        administrators=options.administrator,
        accepted_features=options.accept,
        accepted_by=os.environ.get("USER"),
        dry_run=options.dry_run,
    )
    if options.json:
        print(json.dumps([{"target": t, "guard_id": g, "enrolment": e.model_dump(mode="json")} for t, g, e in found]))
        return
    word = "would enrol" if options.dry_run else "enrolled"
    for target, guard_id, enrolment in found:
        if isinstance(enrolment, TargetEnrolment):
            what = f"{target}: table {enrolment.target_uuid}, {len(enrolment.design.columns)} columns"
        else:
            what = (
                f"schema {target} of {enrolment.marker.database}: owner {enrolment.owner}, "
                f"controller {enrolment.controller}"
            )
        print(f"{word} {what}, guard {guard_id[7:19]}, ledger {enrolment.marker.ledger_service_id}")
    if options.schema and found[0][2].marker.connector == "postgres":
        _note_open_databases(options.conn_id)


def _note_open_databases(conn_id: str) -> None:
    from airflow_provider_dpone.engines.postgres.control import PostgresControl
    from airflow_provider_dpone.enrolment.postgres import open_databases
    from airflow_provider_dpone.hooks.source import source_params

    others = open_databases(PostgresControl(source_params(conn_id)))
    if others:
        print(
            "note: anybody may connect to these databases of the same server, one-time logins included (they have no "
            f"rights there): {', '.join(others)}"
        )


def _print_ddl(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.errors import DeclarationInvalid
    from airflow_provider_dpone.hooks.suggest import suggest

    if not options.source_conn_id or not options.table or len(options.source_table) != len(options.table):
        raise DeclarationInvalid("--print-ddl needs --source-conn-id and one --source-table for each --table")
    for relation, target in zip(options.source_table, options.table, strict=True):
        statements = suggest(options.conn_id, target, options.source_conn_id, relation)
        if not statements:
            print(f"-- {target} takes {relation} as it is\n")
            continue
        print(f"-- suggested for {relation}; read it, then run it as administrator, then enrol {target}")
        for statement in statements:
            print(statement if statement.startswith("--") else f"{statement};")
        print()
