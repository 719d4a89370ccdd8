"""The rest of the campaign: a soak, the ledger against its model, mutations that must not survive, required faults.

Each part adds its figures to build/campaign/summary.json. DPONE_SOAK_SECONDS (default 180), DPONE_MODEL_EXAMPLES and
DPONE_CAMPAIGN_MUTANTS (how many of the list are tried, spread over the promises; default 16) bound it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign import report, required
from tests.campaign.soak import Soak
from tests.integration import test_ledger_model as model
from tests.ledger_database import LedgerDatabase
from tests.snapshot_world import SnapshotWorld
from tools.mutant_list import MUTANTS

ROOT = Path(__file__).parents[2]
SOAK_SECONDS = float(os.environ.get("DPONE_SOAK_SECONDS", "180"))
TRIED = int(os.environ.get("DPONE_CAMPAIGN_MUTANTS", "16"))


@pytest.mark.timeout(SOAK_SECONDS + 900)
def test_sixty_four_snapshots_at_once_over_sixteen_guards(world: SnapshotWorld, tmp_path: Path) -> None:
    soak = Soak(world, tmp_path / "soak")
    soak.prepare()
    found = soak.run(SOAK_SECONDS, settle_seconds=600)
    readers = found["readers"]
    unread = readers["errors"] + readers["mixed"] + readers["empty"]
    figures = {**found, "violations": len(found["violations"])}
    report.add(not found["violations"] and not unread, soak=figures)
    assert found["violations"] == []
    assert unread == 0
    assert found["kills"] > 0


@pytest.mark.timeout(1800)
def test_the_ledger_allows_what_its_model_allows(
    ledger_database: LedgerDatabase, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "EXAMPLES", int(os.environ.get("DPONE_MODEL_EXAMPLES", "60")))
    model.test_any_order_of_steps_is_allowed_exactly_when_the_model_allows_it(ledger_database, capsys)
    rules = sum(1 for value in vars(model.LedgerMachine).values() if hasattr(value, "hypothesis_stateful_rule"))
    report.add(True, model={"examples": model.EXAMPLES, "rules": rules, "steps": model.LedgerMachine.steps})
    assert rules >= 14


@pytest.mark.timeout(3000)
def test_no_mutation_survives() -> None:
    """Mutations spread over the promises; `make mutants` tries all of them."""
    by_promise: dict[str, list[int]] = {}
    for number, mutant in enumerate(MUTANTS, 1):
        by_promise.setdefault(mutant.promise, []).append(number)
    chosen: list[int] = []
    while len(chosen) < min(TRIED, len(MUTANTS)):
        for numbers in by_promise.values():
            if numbers and len(chosen) < TRIED:
                chosen.append(numbers.pop(0))
    done = subprocess.run(
        [sys.executable, "-m", "tools.mutants", "--no-baseline", "--only", ",".join(map(str, sorted(chosen)))],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    kept = {key: figures[key] for key in ("tried", "killed", "survived")}
    report.add(not figures["survived"] and not figures["broken"], mutants=kept)
    assert figures["survived"] == figures["broken"] == [], done.stdout


@pytest.mark.timeout(1200)
def test_every_required_fault_has_a_row_that_shows_it(tmp_path: Path) -> None:
    """Last: it looks at the strikes of the sweep before it."""
    rows = required.rows(required.run(tmp_path / "required.xml"), report.read().get("struck", []))
    missing = [row for row in rows if not row["shown"]]
    report.add(not missing, required_faults=rows)
    report.write_page()
    assert missing == []
