"""The fault campaign: whatever goes wrong on the wire or to a worker, each snapshot is published exactly once.

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
from tests.campaign.sweep import KINDS, Strike, plan, swept
from tests.servers import ClickHouseUnderTest, PostgresUnderTest
from tests.snapshot_world import SnapshotWorld

BUILD = Path(__file__).parents[2] / "build" / "campaign"
SECONDS = float(os.environ.get("DPONE_CAMPAIGN_SECONDS", "780"))
WORKERS = 3


def _sweep(world: SnapshotWorld, number: int, place: Path, deadline: float, only: str | None) -> dict[str, Any]:
    """The share of one process: its own trace, then every WORKERS-th strike of the shuffled plan."""
    with swept(world, place.with_suffix(".reader")) as (sweep, stop_reading):
        trace = sweep.trace()
        planned = plan(trace)
        random.Random(1).shuffle(planned)
        done: list[Strike] = []
        for strike in planned[number::WORKERS]:
            if only is not None and only not in str(strike):
                continue
            if time.monotonic() > deadline:
                break
            sweep.strike(strike)
            done.append(strike)
        return {
            "steps": sum(len(messages) for messages in trace.values()),
            "planned": len(planned[number::WORKERS]),
            "runs": len(done),
            "missed": sweep.missed,
            "kinds": Counter(strike.kind for strike in done),
            "struck": sorted({f"{strike.end} {strike.number}" for strike in done}),
            "violations": sweep.violations,
            "zombies": {"tried": sweep.zombies, "succeeded": sweep.zombies_succeeded},
            "readers": stop_reading(),
        }


@pytest.mark.timeout(SECONDS + 420)
def test_every_fault_ends_in_exactly_one_publication_and_nothing_left_open(
    clickhouse_server: ClickHouseUnderTest, postgres_server: PostgresUnderTest, tmp_path: Path
) -> None:
    deadline = time.monotonic() + SECONDS
    started = time.monotonic()
    worlds = [
        SnapshotWorld(clickhouse_server, postgres_server, ledger_database.create(postgres_server.superuser))
        for _ in range(WORKERS)
    ]
    shares: list[tuple[int, Path]] = []
    for number, world in enumerate(worlds):
        place = tmp_path / f"share-{number}.json"
        pid = os.fork()
        if pid == 0:
            logging.disable(logging.WARNING)
            try:
                found = _sweep(world, number, place, deadline, os.environ.get("DPONE_CAMPAIGN_ONLY"))
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
    assert len(found) == WORKERS
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
    sweep = {
        "messages": max((share["steps"] for share in shares), default=0),
        "steps": len({step for share in shares for step in share["struck"]}),
        "faults": len(kinds),
        "planned": total("planned"),
        "runs": total("runs"),
        "missed": total("missed"),
        "violations": len(violations),
        "by_fault": {kind: kinds[kind] for kind in KINDS if kinds[kind]},
    }
    unread = readers["errors"] + readers["mixed"] + readers["empty"]
    return {
        "passed": len(shares) == WORKERS and not violations and not unread and zombies["succeeded"] == 0
        and readers["polls"] > sweep["runs"] > 0,
        "seconds": round(seconds, 1),
        "sweep": sweep,
        "zombies": zombies,
        "readers": readers,
        "violations": violations,
    }  # fmt: skip
