"""The demo's story: publications, recoveries and refusals, triggered through Airflow's REST API and then checked."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_dpone.local.airflow import LocalAirflow
from airflow_provider_dpone.local.clickhouse.control import HoldPoints
from airflow_provider_dpone.local.demo import sources
from airflow_provider_dpone.local.demo.checks import Checker

_CODE = re.compile(r"\b(DPONE_[A-Z_]+):")
Say = Callable[[str], None]


@dataclass
class Story:
    """What happened, as ``summary.json`` tells it."""

    airflow: LocalAirflow
    holds: HoldPoints
    checker: Checker
    source: dict[str, Any]
    say: Say
    tag: str
    runs: list[dict[str, str]] = field(default_factory=list)
    publications: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[dict[str, str]] = field(default_factory=list)
    recoveries: list[dict[str, Any]] = field(default_factory=list)
    loads: list[dict[str, Any]] = field(default_factory=list)
    dbt: list[dict[str, Any]] = field(default_factory=list)

    # --- publications ---

    def publish_all(self) -> None:
        """A large first snapshot, four mapped tables, edge cases, an empty one, and a changed second snapshot."""
        started = time.monotonic()
        first = [self._trigger(dag, "first") for dag in ("shipments", "edge_cases", "returns", "flights")]
        for dag, run in zip(("edge_cases", "returns"), first[1:3], strict=True):
            self._published(dag, run, dag, started)
        for index, table in enumerate(sources.FLIGHTS):
            self._published("flights", first[3], table, started, map_index=index)
        self._published("shipments", first[0], "shipments", started)
        sources.change_shipments(self.source)
        started = time.monotonic()
        self._published("shipments", self._trigger("shipments", "second"), "shipments", started)

    # --- loads ---

    def load_all(self) -> None:
        """A large table of every common type, edge cases, an empty one, and one that is refused and keeps its rows."""
        started = time.monotonic()
        runs = {table: self._trigger(f"load_{table}", "load") for table in sources.LOADS}
        for table, run in runs.items():
            state = self._finish(f"load_{table}", run)
            receipt = self.airflow.receipt(f"load_{table}", run, "load")
            if receipt is None:
                codes = _CODE.findall(self.airflow.log(f"load_{table}", run, "load"))
                [(rows,)] = self.checker.postgres("mart", f"SELECT count(*) FROM mart.{table}")
                self.loads.append(
                    {
                        "target": f"mart.{table}",
                        "state": "FAILED",
                        "code": codes[-1] if codes else f"{state} without a code",
                        "rows": rows,
                        "source_rows": self.checker.source_rows(table),
                        "digest_equal": False,
                        "seconds": round(time.monotonic() - started, 1),
                    }
                )
            else:
                self.loads.append(self.checker.load(receipt, table, time.monotonic() - started))
            found = self.loads[-1]
            self.say(
                f"LOAD {found['state']} {found['target']}: {found['rows']:,} of {found['source_rows']:,} rows, "
                f"{found.get('code') or 'digest ' + ('equal' if found['digest_equal'] else 'DIFFERS')} "
                f"({found['seconds']:.0f} s)"
            )

    # --- dbt ---

    def build_projects(self) -> None:
        """A dbt project with models, seeds, snapshots and tests; then a test of it that fails on purpose."""
        started = time.monotonic()
        run = self._trigger("shop", "dbt")
        self._finish("shop", run)
        for task in ("build", "complaint"):
            receipt = self.airflow.receipt("shop", run, task)
            codes = _CODE.findall(self.airflow.log("shop", run, task))
            found = {
                "project": receipt["project"] if receipt else "dpone_shop",
                "state": receipt["state"] if receipt else "FAILED",
                "models": receipt["models"] if receipt else 0,
                "code": None if receipt else codes[-1] if codes else "ended without a code",
                "read_back": self.checker.built(receipt["rows"]) if receipt else None,
                "seconds": round(time.monotonic() - started, 1),
            }
            self.dbt.append(found)
            self.say(f"DBT {found['state']} {found['project']}.{task}: {found['code'] or found['models']}")

    # --- recoveries ---

    def recover_killed_load(self) -> None:
        """SIGKILL in mid-load: the old table stays, the retry publishes."""
        started = time.monotonic()
        hold = self.holds.set("checked", kind="Insert", user_prefix="dpone_ingest")
        run = self._trigger("lineitem", "killed")
        self.holds.wait(hold, timeout=90)
        self._refuse_while_held()
        self._kill("lineitem", run)
        self.holds.clear(hold)
        found = self._published("lineitem", run, "lineitem", started)
        tries = self.airflow.task("lineitem", run, "publish")["try_number"]
        self._recovered(f"task killed with SIGKILL in mid-load, published by try {tries}", found, tries > 1)

    def recover_lost_exchange(self) -> None:
        """The answer of EXCHANGE is cut and the task dies before it can look: the retry finds PUBLISHED."""
        started = time.monotonic()
        self.holds.set("answer", "cut", kind="Exchange", user_prefix="dpone_publisher")
        hold = self.holds.set("authenticated", kind="DropUser", pattern="dpone_publisher")
        run = self._trigger("orders", "lost")
        self.holds.wait(hold, timeout=90)
        self._kill("orders", run)
        self.holds.clear(hold)
        found = self._published("orders", run, "orders", started)
        self._recovered("answer of EXCHANGE cut and task killed, retry found it published", found, found["reused"])

    # --- refusals ---

    def refuse(self) -> None:
        """A value outside its target type, and a ceiling in mid-stream."""
        cases = {"too_wide": "value outside the target type", "ceiling": "ceiling passed in mid-stream"}
        runs = {dag: self._trigger(dag, "refused") for dag in cases}
        for dag, case in cases.items():
            self._refused(case, dag, runs[dag])

    def _refuse_while_held(self) -> None:
        """A second run of the same table, which does not wait."""
        self._refused("target held by another run", "lineitem", self._trigger("lineitem", "held"))

    # --- pieces ---

    def _trigger(self, dag_id: str, name: str) -> str:
        self.say(f"{dag_id}: run '{name}' triggered")
        return self.airflow.trigger(dag_id, f"{name}-{self.tag}")

    def _finish(self, dag_id: str, run_id: str) -> str:
        state = self.airflow.wait(dag_id, run_id)
        entry = {"dag_id": dag_id, "run_id": run_id, "state": state}
        if entry not in self.runs:
            self.runs.append(entry)
        return state

    def _published(self, dag_id: str, run_id: str, table: str, started: float, map_index: int = -1) -> dict[str, Any]:
        state = self._finish(dag_id, run_id)
        receipt = self.airflow.receipt(dag_id, run_id, "publish", map_index)
        if receipt is None:
            tail = self.airflow.log(dag_id, run_id, "publish", map_index)[-3000:]
            raise RuntimeError(f"{dag_id} {run_id} ended {state} without a receipt:\n{tail}")
        found = self.checker.publication(receipt, table, time.monotonic() - started)
        self.publications.append(found)
        good = _good(found)
        self.say(
            f"{'PUBLISHED' if good else 'WRONG'} {found['target']}: "
            f"{found['rows']:,} of {found['source_rows']:,} rows, "
            f"digest {'equal' if found['digest_equal'] else 'DIFFERS'}, {found['exchange_count']} EXCHANGE"
            f"{', reused by the retry' if found['reused'] else ''} ({found['seconds']:.0f} s)"
        )
        return found

    def _recovered(self, case: str, found: dict[str, Any], as_meant: bool) -> None:
        state = "PUBLISHED" if as_meant and _good(found) else "WRONG"
        self.recoveries.append({"case": case, "state": state, "exchange_count": found["exchange_count"]})
        self.say(f"RECOVERED {case}: {state}")

    def _refused(self, case: str, dag_id: str, run_id: str) -> None:
        state = self._finish(dag_id, run_id)
        codes = _CODE.findall(self.airflow.log(dag_id, run_id, "publish"))
        code = codes[-1] if state == "failed" and codes else f"{state} without a code"
        self.refusals.append({"case": case, "code": code})
        self.say(f"REFUSED {case}: {code}")

    def _kill(self, dag_id: str, run_id: str) -> None:
        """SIGKILL the very process that runs the task."""
        pid = int(self.airflow.task(dag_id, run_id, "publish")["pid"])
        os.kill(pid, signal.SIGKILL)
        self.say(f"{dag_id}: killed its task process {pid} with SIGKILL")


def _good(found: dict[str, Any]) -> bool:
    return bool(
        found["state"] == "PUBLISHED"
        and found["rows"] == found["source_rows"]
        and found["digest_equal"]
        and found["exchange_count"] == 1
        and found["target_uuid_is_generation"]
    )


def _loaded(found: dict[str, Any]) -> bool:
    if found["state"] == "FAILED":
        return bool(found["code"] == "DPONE_VALUE_NOT_EXACT" and found["rows"] == 1)
    return bool(found["state"] == "SUCCEEDED" and found["rows"] == found["source_rows"] and found["digest_equal"])


def _built(found: dict[str, Any]) -> bool:
    if found["state"] == "FAILED":
        return bool(found["code"] == "DPONE_DBT_TEST_FAILED")
    return bool(found["state"] == "SUCCEEDED" and found["models"] >= 20 and found["read_back"])


def passed(story: Story, ledger: dict[str, int], secrets_found: int, planted_found: bool) -> bool:
    """Whether everything the demo is there to show was seen."""
    return (
        len(story.publications) >= 6
        and all(_good(found) for found in story.publications)
        and all(_loaded(found) for found in story.loads)
        and {found["state"] for found in story.loads} == {"SUCCEEDED", "FAILED"}
        and all(_built(found) for found in story.dbt)
        and {found["state"] for found in story.dbt} == {"SUCCEEDED", "FAILED"}
        and len(story.recoveries) >= 2
        and all(r["state"] == "PUBLISHED" and r["exchange_count"] == 1 for r in story.recoveries)
        and {r["code"] for r in story.refusals}
        >= {"DPONE_VALUE_NOT_EXACT", "DPONE_CEILING_EXCEEDED", "DPONE_GUARD_HELD"}
        and [ledger[k] for k in ("running", "commit_unknown", "open_guards", "open_gates")] == [0, 0, 0, 0]
        and secrets_found == 0
        and planted_found
    )


def command(airflow: LocalAirflow, *arguments: str) -> str:
    """One ``dpone-airflow`` command in Airflow's environment; its output."""
    done = subprocess.run(
        [sys.executable, "-m", "airflow_provider_dpone.cli", *arguments],
        env=airflow.environ, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"dpone-airflow {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout
