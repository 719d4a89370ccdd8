"""Which tests run on the SQL Server under test, and what is said of them at the end."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from tests.ledger_engines import LEDGERS

SUBSET: Final = "DPONE_TEST_MSSQL_SUBSET"
#: Why a test was not run, and how many: each test worker's own counts are the same.
_LEFT: Final[pytest.StashKey[Counter[str]]] = pytest.StashKey()


def on_mssql(nodeid: str) -> bool:
    """Whether a test runs on SQL Server."""
    return nodeid.startswith("tests/live_mssql/") or "[mssql" in nodeid


def subset() -> list[str]:
    """The tests that run with every change."""
    lines = (Path(__file__).parent / "live_mssql" / "subset.txt").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a stand-in lacks, whose case stays UNVERIFIED, and what the subset does not name."""
    left: Counter[str] = config.stash.setdefault(_LEFT, Counter())
    there = [item for item in items if on_mssql(item.nodeid)] if "mssql" in LEDGERS else []
    if not there:
        return
    from tests import mssql_server

    stand_in, chosen, out = mssql_server.server().stand_in, subset(), []
    for item in there:
        if stand_in and item.get_closest_marker("needs"):
            left["cannot be told by a stand-in"] += 1
            out.append(item)
        elif os.environ.get(SUBSET) and item.nodeid.partition("[")[0] not in chosen:
            left["run in the whole suite only"] += 1
            out.append(item)
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


def left_out(config: pytest.Config) -> dict[str, int]:
    """What :func:`select` left out, by reason."""
    return dict(config.stash.get(_LEFT, Counter()))


def remember(config: pytest.Config, counts: dict[str, int]) -> None:
    """What a test worker left out."""
    config.stash[_LEFT] = Counter(counts)


def said(reports: dict[str, list[Any]], config: pytest.Config) -> str:
    """One line of counts; empty when no SQL Server is under test."""
    if "mssql" not in LEDGERS:
        return ""
    counts = {
        outcome: len({report.nodeid for report in reports.get(outcome, ()) if on_mssql(getattr(report, "nodeid", ""))})
        for outcome in ("passed", "failed", "error")
    }
    parts = [f"{number} {outcome}" for outcome, number in counts.items() if number or outcome == "passed"]
    parts += [f"{number} {why}" for why, number in sorted(left_out(config).items())]
    return f"on SQL Server under test{' (subset)' if os.environ.get(SUBSET) else ''}: {', '.join(parts)}"
