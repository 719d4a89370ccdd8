"""The fault campaign of the dbt cell: whatever is killed, cut or frozen, a retry leaves exactly the project's relations.

Bounded by DPONE_CAMPAIGN_DBT_SECONDS (default 300). Figures: ``sweep.cells.dbt_native`` of build/campaign/summary.json.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.campaign.dbt_sweep import dbt_swept
from tests.dbt_world import DbtWorld
from tests.ledger_database import LedgerDatabase
from tests.servers import PostgresUnderTest

SUMMARY = Path(__file__).parents[2] / "build" / "campaign" / "summary.json"
SECONDS = float(os.environ.get("DPONE_CAMPAIGN_DBT_SECONDS", "300"))


@pytest.mark.timeout(SECONDS + 420)
def test_every_fault_of_a_dbt_run_ends_in_the_whole_project_and_nothing_left_open(
    postgres_server: PostgresUnderTest, ledger_database: LedgerDatabase
) -> None:
    only = os.environ.get("DPONE_CAMPAIGN_ONLY")
    started = time.monotonic()
    with dbt_swept(DbtWorld(postgres_server, ledger_database)) as sweep:
        trace = sweep.trace()
        planned = sweep.plan(trace)
        random.Random(1).shuffle(planned)
        done = []
        for strike in planned:
            if only is not None and only not in str(strike):
                continue
            if time.monotonic() - started > SECONDS:
                break
            sweep.strike(strike)
            print(f"{time.monotonic() - started:6.1f} s  {strike}", flush=True)
            done.append(strike)
    found = {
        "messages": sum(len(messages) for messages in trace.values()),
        "planned": len(planned),
        "runs": len(done),
        "missed": sweep.missed,
        "by_fault": dict(Counter(strike.kind for strike in done)),
        "zombies": {"tried": sweep.zombies, "succeeded": sweep.zombies_succeeded},
        "violations": sweep.violations,
    }
    summary = json.loads(SUMMARY.read_text()) if SUMMARY.exists() else {"passed": True, "sweep": {}}
    summary["sweep"].setdefault("cells", {})["dbt_native"] = found
    summary["passed"] = summary["passed"] and not sweep.violations
    SUMMARY.parent.mkdir(parents=True, exist_ok=True)
    SUMMARY.write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    assert sweep.violations == []
    assert done
    assert sweep.zombies_succeeded == 0
