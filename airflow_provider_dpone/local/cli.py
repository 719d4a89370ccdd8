"""The commands ``local up``, ``down``, ``status``, ``env`` and ``sql``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_dpone.errors import LocalStackFailed

if TYPE_CHECKING:
    from airflow_provider_dpone.local.stack import LocalStack

DEFAULT_DIRECTORY = Path(".dpone-local")


def add_local_parser(subparsers: Any) -> None:
    """Add ``local`` and its commands; each sets ``handler``: parsed arguments to exit code."""
    local = subparsers.add_parser("local", help="the local development stack: PostgreSQL and a ClickHouse stand-in")
    commands = local.add_subparsers(dest="local_command", required=True)
    up = _command(commands, "up", _up, "start what does not run; the first time, make databases and users")
    for name, what in (
        ("--pg-port", "PostgreSQL"),
        ("--ch-http-port", "ClickHouse HTTP"),
        ("--ch-native-port", "ClickHouse native"),
    ):
        up.add_argument(
            name, type=int, default=0, metavar="PORT", help=f"{what} port; by default the last one or a free one"
        )
    _command(commands, "down", _down, "stop both servers; everything stays on disk")
    status = _command(commands, "status", _status, "show what runs where")
    status.add_argument("--json", action="store_true", help="as JSON")
    _command(commands, "env", _env, "print the exports (passwords included) under which Airflow uses the stack")
    sql = _command(commands, "sql", _sql, "run SQL as administrator of one of the servers, and print the rows")
    sql.add_argument("server", choices=("source", "clickhouse"))
    sql.add_argument("statements", nargs="?", help="by default from standard input; a statement ends with ; and a line")


def _command(commands: Any, name: str, handler: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument(
        "--dir", type=Path, default=DEFAULT_DIRECTORY, metavar="D", help=f"its directory ({DEFAULT_DIRECTORY})"
    )
    parser.set_defaults(handler=handler)
    return parser


def _stack(arguments: argparse.Namespace) -> LocalStack:
    from airflow_provider_dpone.local.stack import LocalStack  # loads database drivers: only when a command runs

    return LocalStack(arguments.dir)


def _made(arguments: argparse.Namespace) -> LocalStack:
    """The stack that ``up`` has made before."""
    if not (arguments.dir / "stack.json").exists():
        raise LocalStackFailed(
            f"there is no local stack in {arguments.dir}; `dpone-airflow local up --dir {arguments.dir}` makes one"
        )
    return _stack(arguments)


def _up(arguments: argparse.Namespace) -> int:
    stack = _stack(arguments)
    stack.up(arguments.pg_port, arguments.ch_http_port, arguments.ch_native_port)
    _print_status(stack.status())
    return 0


def _down(arguments: argparse.Namespace) -> int:
    _made(arguments).down()
    return 0


def _status(arguments: argparse.Namespace) -> int:
    status = _made(arguments).status()
    if arguments.json:
        print(json.dumps(status, indent=2))
    else:
        _print_status(status)
    return 0 if status["running"] else 3


def _env(arguments: argparse.Namespace) -> int:
    print(_made(arguments).exports())
    return 0


def _sql(arguments: argparse.Namespace) -> int:
    from airflow_provider_dpone.local.sql import run_sql

    text = sys.stdin.read() if arguments.statements is None else arguments.statements
    for row in run_sql(_made(arguments), arguments.server, text):
        print("\t".join("NULL" if value is None else str(value) for value in row))
    return 0


def _print_status(status: dict[str, Any]) -> None:
    print(f"local stack in {status['directory']}")
    for name in ("postgres", "clickhouse"):
        service = status[name]
        state = f"running, pid {service['pid']}" if service["pid"] else "not running"
        ports = ", ".join(
            f"{key.replace('_', ' ')} {value}" for key, value in service.items() if "port" in key and value
        )
        print(f"  {name:<11} {state}; {service['host']} {ports}")
