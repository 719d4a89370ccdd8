"""The fault campaign: whatever goes wrong on the wire or to a worker, each snapshot or load happens exactly once.

A few processes strike attempts side by side on the same servers, each in databases of its own. Bounded by
DPONE_CAMPAIGN_SECONDS (default 780); what was not reached in time is counted. Figures: build/campaign/summary.json.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import ledger_database
from tests.campaign.loads import LoadSweep
from tests.campaign.snapshots import SnapshotSweep
from tests.campaign.strikes import Strike
from tests.campaign.sweep import Sweep, swept

KINDS=()
from tests.schema_world import SchemaWorld
from tests.servers import ClickHouseUnderTest, PostgresUnderTest
from tests.snapshot_world import SnapshotWorld

BUILD = Path(__file__).parents[2] / "build" / "campaign"
SECONDS = float(os.environ.get("DPONE_CAMPAIGN_SECONDS", "780"))
#: How many processes strike attempts of each cell.
WORKERS = {"snapshot": 2, "load": 2}
CELLS = os.environ.get("DPONE_CAMPAIGN_CELLS", ",".join(WORKERS)).split(",")


def make(cell: str, clickhouse: ClickHouseUnderTest, postgres: PostgresUnderTest) -> Sweep:
    """A sweep over a world of its own."""
    ledger = ledger_database.create(postgres.superuser)
    if cell == "snapshot":
        return SnapshotSweep(SnapshotWorld(clickhouse, postgres, ledger))
    return LoadSweep(SchemaWorld(postgres, ledger))


def _sweep(cell: str, sweep: Sweep, number: int, place: Path, deadline: float, only: str | None) -> dict[str, Any]:
    """The share of one process: its own trace, then its part of the shuffled plan."""
    with swept(sweep, place.with_suffix(".reader")) as stop_reading:
        trace = sweep.trace()
        planned = sweep.plan(trace)
        random.Random(1).shuffle(planned)
        done: list[Strike] = []
        for strike in planned[number :: WORKERS[cell]]:
            if only is not None and only not in str(strike):
                continue
            if time.monotonic() > deadline:
                break
            sweep.strike(strike)
            done.append(strike)
        return {
            "steps": sum(len(messages) for messages in trace.values()),
            "cell": cell,
            "planned": len(planned[number :: WORKERS[cell]]),
            "runs": len(done),
            "missed": sweep.missed,
            "kinds": Counter(strike.kind for strike in done),
            "struck": sorted({f"{cell} {strike.end} {strike.number}" for strike in done}),
            "violations": sweep.violations,
            "zombies": {"tried": sweep.zombies, "succeeded": sweep.zombies_succeeded},
            "readers": stop_reading(),
        }


@pytest.mark.timeout(SECONDS + 420)
def test_every_fault_ends_in_exactly_one_effect_and_nothing_left_open(
    clickhouse_server: ClickHouseUnderTest, postgres_server: PostgresUnderTest, tmp_path: Path
) -> None:
    deadline = time.monotonic() + SECONDS
    started = time.monotonic()
    sweeps = [
        (cell, number, make(cell, clickhouse_server, postgres_server))
        for cell in CELLS
        for number in range(WORKERS[cell])
    ]
    shares: list[tuple[int, Path]] = []
    for cell, number, sweep in sweeps:
        place = tmp_path / f"share-{cell}-{number}.json"
        pid = os.fork()
        if pid == 0:
            logging.disable(logging.WARNING)
            try:
                found = _sweep(cell, sweep, number, place, deadline, os.environ.get("DPONE_CAMPAIGN_ONLY"))
                place.write_text(json.dumps(found))
            except BaseException:  # noqa: BLE001 - shown here; the missing file fails the test
                traceback.print_exc()
            finally:
                os._exit(0)
        shares.append((pid, place))
    for pid, _ in shares:
        os.waitpid(pid, 0)
    found = [json.loads(place.read_text()) for _, place in shares if place.exists()]
    summary = _summary(found, time.monotonic() - started)
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps({k: v for k, v in summary.items() if k != "violations"}, indent=2))
    assert summary["violations"] == []
    assert len(found) == len(sweeps)
    assert summary["passed"]


def _summary(shares: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    kinds: Counter[str] = Counter()
    for share in shares:
        kinds.update(share["kinds"])

    def total(*path: str) -> int:
        values = []
        for share in shares:
            for key in path:
                share = share[key]
            values.append(share)
        return sum(values)  # type: ignore[arg-type]

    violations = [violation for share in shares for violation in share["violations"]]
    readers = {key: total("readers", key) for key in ("polls", "errors", "mixed", "empty")}
    zombies = {key: total("zombies", key) for key in ("tried", "succeeded")}
    cells = {
        cell: {
            "messages": max(share["steps"] for share in mine),
            **{key: sum(share[key] for share in mine) for key in ("planned", "runs", "missed")},
            "violations": sum(len(share["violations"]) for share in mine),
        }
        for cell in CELLS
        if (mine := [share for share in shares if share["cell"] == cell])
    }
    sweep = {
        "messages": sum(cell["messages"] for cell in cells.values()),
        "steps": len({step for share in shares for step in share["struck"]}),
        "faults": len(kinds),
        "planned": total("planned"),
        "runs": total("runs"),
        "missed": total("missed"),
        "violations": len(violations),
        "by_fault": {kind: kinds[kind] for kind in KINDS if kinds[kind]},
        "cells": cells,
    }
    unread = readers["errors"] + readers["mixed"] + readers["empty"]
    return {
        "passed": len(shares) == sum(WORKERS[cell] for cell in CELLS) and not violations and not unread and zombies["succeeded"] == 0
        and readers["polls"] > sweep["runs"] > 0,
        "seconds": round(seconds, 1),
        "sweep": sweep,
        "zombies": zombies,
        "readers": readers,
        "violations": violations,
    }  # fmt: skip
