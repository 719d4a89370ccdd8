"""The command line: ``dpone-airflow ...``, the same as ``airflow dpone ...``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any

from airflow_provider_dpone.errors import DponeError

Command = Callable[[argparse.Namespace], None]


def parser(prog: str = "dpone-airflow") -> argparse.ArgumentParser:
    """The complete parser; each command sets ``handler``."""
    root = argparse.ArgumentParser(prog=prog, description="Table refreshes that are admitted, fenced and observed.")
    commands = root.add_subparsers(dest="command", required=True)
    add_commands(commands)
    return root


def add_commands(commands: Any) -> None:
    """Add every command to a subparsers object."""
    _add_ledger(commands)
    _add_enroll(commands)
    from airflow_provider_dpone.cli.releases import add_release_commands

    add_release_commands(commands)
    _add_attempts(commands)
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
    add_control(install, "dpone_control_admin")
    install.add_argument("--runtime-role", required=True, help="existing role that running tasks use")
    install.add_argument("--family", choices=("nonproduction", "production"), default="nonproduction")
    install.set_defaults(handler=_install)
    ddl = actions.add_parser("ddl", help="print the DDL without running it")
    ddl.set_defaults(handler=_ddl)


def _install(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.contracts.states import Family
    from airflow_provider_dpone.hooks.control import DponeControlHook
    from airflow_provider_dpone.ledger.dialects.postgres import PostgresDialect
    from airflow_provider_dpone.ledger.install import install

    service_id = install(
        DponeControlHook(options.control_conn_id).connector(),
        PostgresDialect(),
        family=Family(options.family),
        runtime_role=options.runtime_role,
    )
    print(f"installed ledger {service_id} of family {options.family}")
    print(f'pin it: put {{"service_id": "{service_id}"}} into the extra of the control connection')


def _ddl(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.ledger.dialects.postgres import PostgresDialect
    from airflow_provider_dpone.ledger.install import render

    print(render(PostgresDialect()))


# --- enrolment ------------------------------------------------------------------------------------------------


def _add_enroll(commands: Any) -> None:
    enroll = commands.add_parser("enroll", help="accept a target table, or a managed schema (administrator)")
    enroll.add_argument("--conn-id", required=True, help="Airflow connection of an administrator of the target server")
    add_control(enroll, "dpone_control_admin")
    enroll.add_argument("--table", action="append", default=[], help="ClickHouse: database.table; may be repeated")
    enroll.add_argument("--schema", action="append", default=[], help="PostgreSQL: managed schema; may be repeated")
    enroll.add_argument("--controller", help="with --schema: the login tasks use, which issues one-time logins")
    enroll.add_argument("--administrator", action="append", default=[], help="user or role that may hold write rights")
    enroll.add_argument(
        "--accept", action="append", default=[], help="side effect accepted by name, as a refusal named it"
    )
    enroll.add_argument("--print-ddl", action="store_true", help="only print a suggested target for a source table")
    enroll.add_argument("--source-conn-id", help="with --print-ddl")
    enroll.add_argument(
        "--source-table", action="append", default=[], help="with --print-ddl: schema.table, per --table"
    )
    enroll.set_defaults(handler=_enroll)


def _enroll(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.contracts.naming import split_table
    from airflow_provider_dpone.hooks.clickhouse import DponeClickHouseHook

    if options.print_ddl:
        return _print_ddl(options)
    if bool(options.table) == bool(options.schema):
        raise SystemExit("dpone-airflow enroll: give --table for a ClickHouse target, or --schema for PostgreSQL")
    if options.schema:
        return _enroll_schemas(options)
    from airflow_provider_dpone.enrolment.clickhouse import enrol
    from airflow_provider_dpone.hooks.control import DponeControlHook

    hook = DponeClickHouseHook(clickhouse_conn_id=options.conn_id)
    ledger = DponeControlHook(options.control_conn_id).ledger()
    login = hook.login().name
    for text in options.table:
        database, name = split_table(text)
        guard_id, enrolment = enrol(
            hook.control(),
            ledger,
            database=database,
            target_table=name,
            administrators=sorted({login, *options.administrator}),
            accepted_features=options.accept,
            accepted_by=os.environ.get("USER") or login,
        )
        print(
            f"enrolled {text}: table {enrolment.target_uuid}, {len(enrolment.design.columns)} columns, "
            f"guard {guard_id[7:19]}, ledger {enrolment.marker.ledger_service_id}"
        )


def _enroll_schemas(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.engines.postgres.control import PostgresControl
    from airflow_provider_dpone.enrolment.postgres import enrol_schema, open_databases
    from airflow_provider_dpone.errors import DeclarationInvalid
    from airflow_provider_dpone.hooks.control import DponeControlHook
    from airflow_provider_dpone.hooks.source import source_params

    if not options.controller:
        raise DeclarationInvalid("--schema needs --controller: the login of the Airflow connection that tasks use")
    params = source_params(options.conn_id)
    control = PostgresControl(params)
    ledger = DponeControlHook(options.control_conn_id).ledger()
    for schema in options.schema:
        guard_id, enrolment = enrol_schema(
            control,
            ledger,
            schema=schema,
            controller=options.controller,
            administrators=sorted({params.user, *options.administrator}),
            accepted_features=options.accept,
            accepted_by=os.environ.get("USER") or params.user,
        )
        print(
            f"enrolled schema {schema} of {enrolment.marker.database}: owner {enrolment.owner}, controller "
            f"{enrolment.controller}, guard {guard_id[7:19]}, ledger {enrolment.marker.ledger_service_id}"
        )
    others = open_databases(control)
    if others:
        print(
            "note: anybody may connect to these databases of the same server, one-time logins included (they have no "
            f"rights there): {', '.join(others)}"
        )


def _print_ddl(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.contracts.naming import split_table
    from airflow_provider_dpone.engines.postgres.catalog import parse_relation
    from airflow_provider_dpone.engines.postgres.snapshot import describe_table
    from airflow_provider_dpone.enrolment.suggest import suggest_ddl
    from airflow_provider_dpone.errors import DeclarationInvalid
    from airflow_provider_dpone.hooks.source import source_params

    if not options.source_conn_id or len(options.source_table) != len(options.table):
        raise DeclarationInvalid("--print-ddl needs --source-conn-id and one --source-table for each --table")
    params = source_params(options.source_conn_id)
    for relation, target in zip(options.source_table, options.table, strict=True):
        ddl = suggest_ddl(describe_table(params, *parse_relation(relation)), *split_table(target))
        print(f"-- suggested for {relation}; choose ORDER BY for your readers, then run it as administrator\n{ddl};\n")


# --- attempts -------------------------------------------------------------------------------------------------


def _add_attempts(commands: Any) -> None:
    listing = commands.add_parser("attempts", help="open attempts: what is held, and by whom")
    listing.add_argument(
        "--last", type=int, metavar="N", help="the N attempts admitted last instead, whatever became of them"
    )
    listing.add_argument("--json", action="store_true")
    add_control(listing)
    listing.set_defaults(handler=_attempts)
    show = commands.add_parser("show", help="one attempt: its gates, dispatches, publication and outcome")
    show.add_argument("attempt", help="beginning of its digest, as `attempts` and the task log print it")
    add_control(show)
    show.set_defaults(handler=_show)
    reconcile = commands.add_parser(
        "reconcile",
        help="fence an attempt and settle it by observation",
        description="Fence an attempt and settle it by observation. If its task is still at work, that task stops with "
        "DPONE_FENCED; the target is safe either way.",
    )
    reconcile.add_argument("attempt", help="beginning of its digest")
    add_control(reconcile)
    reconcile.set_defaults(handler=_reconcile)
    adjudicate = commands.add_parser("adjudicate", help="decide a COMMIT_UNKNOWN attempt (administrator)")
    adjudicate.add_argument("attempt", help="beginning of its digest")
    adjudicate.add_argument("--state", choices=("SUCCEEDED", "FAILED"), required=True)
    adjudicate.add_argument("--statement", required=True, help="what was looked at and why this is so")
    adjudicate.add_argument("--by", default=os.environ.get("USER", ""), help="who decides")
    add_control(adjudicate, "dpone_control_admin")
    adjudicate.set_defaults(handler=_adjudicate)


def _attempts(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.hooks.control import DponeControlHook
    from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore

    store = CompositionAttemptStore(DponeControlHook(options.control_conn_id).ledger())
    found = store.latest(options.last) if options.last else store.all_open()
    if options.json:
        print(
            json.dumps(
                [
                    {
                        "attempt": a.sha256,
                        "workload": a.identity.workload_id,
                        "state": a.state.name,
                        "admitted_at": a.admitted_at.isoformat(),
                    }
                    for a in found
                ]
            )
        )
        return
    for stored in found:
        where = stored.identity.coordinates
        print(
            f"{stored.sha256[7:19]}  {stored.admitted_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}  {stored.state.name:<14} "
            f"{'fenced  ' if stored.fenced else ''}{stored.identity.workload_id}  run {where.run_id}  "
            f"try {where.try_number}"
        )
    if not options.last:
        print(f"{len(found)} open attempt{'' if len(found) == 1 else 's'}")


def _show(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.hooks.control import DponeControlHook
    from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
    from airflow_provider_dpone.ledger.history import history

    ledger = DponeControlHook(options.control_conn_id).ledger()
    stored = CompositionAttemptStore(ledger).find(options.attempt)
    for line in history(ledger, stored):
        print(line)


def _reconcile(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.contracts.states import TERMINAL_ATTEMPTS
    from airflow_provider_dpone.hooks.control import DponeControlHook
    from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
    from airflow_provider_dpone.operators.reconcile import settle_one

    ledger = DponeControlHook(options.control_conn_id).ledger()
    stored = CompositionAttemptStore(ledger).find(options.attempt)
    before = " already" if stored.state in TERMINAL_ATTEMPTS else ""
    ended = settle_one(ledger, stored)
    print(f"attempt {ended.sha256[7:19]} is {ended.state.name}{before}")


def _adjudicate(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.attempts.settle import Cause, Settler
    from airflow_provider_dpone.attempts.world import utc_now
    from airflow_provider_dpone.contracts.proofs import Adjudication
    from airflow_provider_dpone.contracts.states import AttemptState
    from airflow_provider_dpone.hooks.control import DponeControlHook
    from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore
    from airflow_provider_dpone.operators.reconcile import world_of

    ledger = DponeControlHook(options.control_conn_id).ledger()
    stored = CompositionAttemptStore(ledger).find(options.attempt)
    signed = Adjudication(
        attempt_sha256=stored.sha256,
        state=AttemptState[options.state],
        decided_by=options.by or "unnamed",
        statement=options.statement,
        decided_at=utc_now(),
    )
    cause = Cause("DPONE_ADJUDICATED", options.statement)
    ended = Settler(world_of(ledger, stored)).resolve(stored.sha256, cause, adjudication=signed)
    print(f"attempt {ended.sha256[7:19]} is {ended.state.name}; enrol the target again before the next run")
