"""Every fault that must be shown, and what shows it: tests of the suite by name, and strikes of the sweep.

The campaign runs the tests named here and writes a row for each fault into its report.
"""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).parents[2]
#: cell, end, message number, label and kind of a strike.
Struck = tuple[str, str, int, str, str]


@dataclass(frozen=True)
class Required:
    """One fault."""

    fault: str
    tests: tuple[str, ...] = ()
    strikes: Callable[[str, str, str, str], bool] | None = None
    """Of cell, end, label and kind."""


def _tests(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/integration/test_{module}.py::test_{name}" for name in names)


REQUIRED: Final = (
    Required("one place behind two connections", _tests("handover", "a_refusal_changes_nothing")),
    Required(
        "names that are one under the server's collation",
        _tests(
            "handover", "names_are_compared_under_the_servers_own_collation",
            "a_trailing_blank_is_another_name_only_where_the_server_says_so",
        ),
    ),
    Required(
        "a cell that is not supported",
        _tests("handover", "a_refusal_changes_nothing", "every_offending_workload_is_named"),
    ),
    Required(
        "a state that moved on since it was read",
        _tests("ledger", "claim_has_one_winner", "the_database_refuses_every_step_that_is_not_next"),
    ),
    Required("the context of another deployment", _tests("handover", "only_the_typed_receipt_of_this_activation_acknowledges")),
    Required(
        "an epoch that is past",
        (
            *_tests("handover", "a_stale_epoch_acknowledges_nothing"),
            *_tests("ledger", "admission_demands_the_pinned_declaration_and_epochs"),
            *_tests("postgres_gate", "older_epoch_gets_no_login_in_the_target_either"),
        ),
    ),
    Required(
        "an attempt that runs, requested again",
        (
            *_tests("ledger", "admission_is_once_per_instance_and_one_per_guard", "sixteen_concurrent_admissions_have_one_winner"),
            *_tests("recovery", "cleared_while_running_the_second_instance_fences_the_first"),
        ),
    ),
    Required(
        "a lost answer while a login is issued",
        _tests("postgres_gate", "lost_answer_of_the_creation_is_closed", "lost_journal_answer_creates_no_login"),
        lambda cell, end, label, kind: kind == "after" and label in ("CREATE USER", "CREATE ROLE"),
    ),
    Required(
        "logins that come again while they are closed",
        _tests("postgres_gate", "parallel_logins_while_closing_leave_nothing_behind"),
    ),
    Required(
        "a release that is current, whose acknowledgement was lost",
        _tests(
            "handover", "a_lost_switch_is_commit_unknown_and_activating_again_recovers",
            "killed_between_pointer_and_acknowledgement_the_same_occurrence_goes_on",
        ),
    ),
    Required(
        "rows committed without evidence",
        _tests(
            "load", "rows_committed_without_a_receipt_are_unknown_and_hold_the_guard",
            "lost_commit_answer_is_decided_by_the_receipt_committed",
            "lost_commit_answer_is_decided_by_the_receipt_not_committed",
        ),
        lambda cell, end, label, kind: cell == "load" and label == "conclude" and kind in ("after", "before", "kill"),
    ),
    Required(
        "a staging INSERT that arrives late",
        ("tests/live_clickhouse/test_product_gate.py::test_a_standing_insert_body_is_ended_before_the_gate_is_closed",),
        lambda cell, end, label, kind: end == "http" and label == "INSERT INTO" and kind in ("late", "freeze", "slow", "twice"),
    ),
    Required(
        "an EXCHANGE whose outcome is uncertain",
        _tests(
            "recovery", "lost_exchange_answer_is_observed_and_never_sent_again",
            "contradictory_tables_are_commit_unknown_until_an_administrator_decides",
        ),
        lambda cell, end, label, kind: label == "EXCHANGE TABLES" and kind in ("after", "before", "late", "twice", "kill"),
    ),
    Required(
        "decimals, NULLs, vanished rows, an empty source, bytes counted at the source",
        (
            *_tests("load", "every_type_arrives_exactly", "decimals_of_every_precision_and_scale_keep_every_digit"),
            *_tests("load", "duplicates_are_kept_and_vanished_rows_go", "empty_source_empties_the_target_unless_min_rows_forbids"),
            *_tests("load", "ceiling_stops_the_load_and_leaves_the_target"),
        ),
    ),
)  # fmt: skip


def run(junit: Path) -> dict[str, tuple[str, float]]:
    """Run every test named here; outcome and seconds of each."""
    names = list(dict.fromkeys(name for required in REQUIRED for name in required.tests))
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", *names],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    outcomes: dict[str, tuple[str, float]] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        module = str(case.get("classname")).replace(".", "/")
        name = f"{module}.py::{str(case.get('name')).split('[')[0]}"
        bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        earlier, seconds = outcomes.get(name, ("passed", 0.0))
        outcomes[name] = (bad[0] if bad else earlier, seconds + float(case.get("time") or 0))
    return outcomes


def rows(outcomes: dict[str, tuple[str, float]], struck: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """One row for each fault: the tests and strikes that show it, and whether every one did."""
    found = []
    for required in REQUIRED:
        tests = {name: outcomes.get(name, ("missing", 0.0))[0] for name in required.tests}
        strikes = [s for s in struck if required.strikes is not None and required.strikes(s[0], s[1], s[3], s[4])]
        shown = all(outcome == "passed" for outcome in tests.values()) and bool(tests or strikes)
        found.append({
            "fault": required.fault,
            "tests": tests,
            "strikes": len(strikes),
            "shown": shown and (required.strikes is None or bool(strikes)),
        })  # fmt: skip
    return found
