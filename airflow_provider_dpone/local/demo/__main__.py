"""``make demo``: stack, Airflow, enrolment, activation, the story, and ``build/demo/summary.json``."""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg

from airflow_provider_dpone.local.airflow import LocalAirflow
from airflow_provider_dpone.local.demo import sources
from airflow_provider_dpone.local.demo.checks import ArgumentWatch, Checker, find_secrets
from airflow_provider_dpone.local.demo.scenario import Story, command, passed
from airflow_provider_dpone.local.stack import LocalStack

BUILD = Path("build/demo")
#: For a demo: a killed worker is noticed within seconds instead of minutes.
QUICK = {
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_DETECTION_INTERVAL": "2",
}


def main() -> int:
    """Run the demo; 0 when everything was seen as it should be."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything up and print address and login")
    options = parser.parse_args()
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {line}", flush=True)

    stack = LocalStack(BUILD / "stack")
    stack.down()
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    airflow: LocalAirflow | None = None
    try:
        say("starting PostgreSQL and the local ClickHouse server (a development stand-in)")
        stack.up()
        stack.clickhouse.holds.record_logins()
        airflow = LocalAirflow(BUILD.resolve() / "airflow", sources.dags_folder(), {**stack.env(), **QUICK})
        with ArgumentWatch() as watch:
            summary = _run(stack, airflow, watch, say)
        summary["seconds"] = round(time.monotonic() - started, 1)
        (BUILD / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        say(f"{'PASSED' if summary['passed'] else 'FAILED'}: see {BUILD / 'summary.json'}")
        if options.keep:
            print(f"\nAirflow {airflow.url}  login {airflow.user}  password {airflow.password}")
            print(f'Your own shell: eval "$(.venv/bin/dpone-airflow local env --dir {BUILD / "stack"})"')
            print(f"Stop it all:    kill {' '.join(str(p) for p in airflow.pids().values())}; "
                  f".venv/bin/dpone-airflow local down --dir {BUILD / 'stack'}")  # fmt: skip
        return 0 if summary["passed"] else 1
    finally:
        if not options.keep:
            if airflow is not None:
                airflow.stop()
            stack.down()


def _run(stack: LocalStack, airflow: LocalAirflow, watch: ArgumentWatch, say: Any) -> dict[str, Any]:
    source = stack.postgres.parameters("source")
    checker = Checker(stack.connections(), stack.postgres.parameters())
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(airflow.start)
        say("starting Airflow: api-server, scheduler, dag-processor, triggerer; loading the source tables meanwhile")
        rows = sources.load(_source_login(stack, source))
        say("source: " + ", ".join(f"{table} {count:,}" for table, count in rows.items()))
        _make_targets(stack, airflow, checker, say)
        starting.result()
    say(f"Airflow is up at {airflow.url}")
    print(command(airflow, "activate", "--dags-folder", str(sources.dags_folder())), end="", flush=True)
    dags = ["orders", "shipments", "flights", "edge_cases", "returns", "lineitem", "too_wide", "ceiling", "shop"]
    airflow.wait_for_dags([*dags, *(f"load_{table}" for table in sources.LOADS)])
    story = Story(airflow, stack.clickhouse.holds, checker, source, say, secrets.token_hex(3))
    story.publish_all()
    story.refuse()
    story.load_all()
    story.build_projects()
    story.recover_killed_load()
    story.recover_lost_exchange()
    say("scanning ledger, logs, metadata, XCom, process arguments and query_log for every one-time password")
    passwords = stack.clickhouse.holds.presented()
    issued = {
        name: word for name, word in passwords.items() if name.startswith("dpone_") and name != "dpone_controller"
    }
    found = find_secrets(issued, checker.texts(airflow.home, watch.seen))
    planted = _planted(checker, airflow)
    ledger = checker.ledger()
    say(f"{len(issued)} passwords were issued, {sum(found.values())} found; ledger {ledger}")
    return {
        "passed": bool(issued) and passed(story, ledger, sum(found.values()), planted),
        "airflow": {"version": _version(), "executor": airflow.environ["AIRFLOW__CORE__EXECUTOR"], "runs": story.runs},
        "publications": story.publications,
        "loads": story.loads,
        "dbt": story.dbt,
        "refusals": story.refusals,
        "recoveries": story.recoveries,
        "ledger": ledger,
        "secrets_found": sum(found.values()),
        "secrets": {"issued": len(issued), "places": found, "planted_found": planted},
    }


def _source_login(stack: LocalStack, source: dict[str, Any]) -> dict[str, Any]:
    """Tables belong to the source's own administrator, and the reader may read them."""
    admin = stack.connections()["dpone_source_admin"]
    return {**source, "user": admin["login"], "password": admin["password"]}


def _make_targets(stack: LocalStack, airflow: LocalAirflow, checker: Checker, say: Any) -> None:
    """First targets, from the suggested DDL, and their enrolment."""
    enroll = ["enroll", "--conn-id", "dpone_clickhouse_admin", "--administrator", "dpone_controller"]
    plain = [table for table in sources.TABLES if table not in sources.TARGETS]
    pairs = [part for t in plain for part in ("--source-table", f"public.{t}", "--table", f"mart.{t}")]
    ddl = command(airflow, *enroll, "--print-ddl", "--source-conn-id", "dpone_source", *pairs)
    for statement in (*ddl.strip().rstrip(";").split(";\n\n"), *sources.TARGETS.values()):
        checker.clickhouse(statement.strip())
    checker.clickhouse("CREATE TABLE mart.ceiling AS mart.orders")
    tables = [*sources.TABLES, "ceiling"]
    print(
        command(airflow, *enroll, *(part for table in tables for part in ("--table", f"mart.{table}"))),
        end="",
        flush=True,
    )
    say(f"{len(tables)} targets enrolled")
    with psycopg.connect(**stack.postgres.parameters("mart"), autocommit=True) as connection:
        connection.execute("SET ROLE mart_owner")
        for statement in sources.load_targets(stack.postgres.parameters("source")):
            connection.execute(statement.encode())
        connection.execute("INSERT INTO mart.too_wide VALUES (7)")
    for schema in ("mart", "models"):
        enrol = ["enroll", "--conn-id", "dpone_mart_admin", "--schema", schema, "--controller", "mart_controller"]
        print(command(airflow, *enrol), end="", flush=True)


def _planted(checker: Checker, airflow: LocalAirflow) -> bool:
    """The scan sees a secret that is planted on purpose in a log, in the query log and in the metadata database."""
    word = secrets.token_hex(16)
    checker.clickhouse(f"SELECT '{word}'")
    checker.clickhouse("SYSTEM FLUSH LOGS")
    (airflow.logs / "planted.log").write_text(f"a line with {word}\n")
    found = find_secrets({"planted": word}, checker.texts(airflow.home, set()))
    (airflow.logs / "planted.log").unlink()
    return {"query_log", "file planted.log"} <= set(found)


def _version() -> str:
    from airflow import __version__

    return str(__version__)


if __name__ == "__main__":
    sys.exit(main())
