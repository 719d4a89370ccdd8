"""The closed list of the live ClickHouse suite is its tests, and the judge of a report takes nothing less or more."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.live_clickhouse.conftest import LOCAL
from tools.closed_list import LIST, disagreements, executed, listed

KNOWN = {"test_m::test_a": False, "test_m::test_b": False, "test_m::test_c": True}
GOOD = [("test_m::test_a", True), ("test_m::test_b", True), ("test_m::test_b", True)]


def _fixtures(path: Path) -> dict[str, set[str]]:
    """Fixtures each test of a file asks for, through the fixtures of the same file."""
    functions = {n.name: n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)}
    asked = {name: {a.arg for a in node.args.args} for name, node in functions.items()}

    def all_of(name: str) -> set[str]:
        direct = asked.get(name, set())
        return direct | {deep for one in direct if one in asked and one != name for deep in all_of(one)}

    return {name: all_of(name) for name in functions if name.startswith("test_")}


def test_the_list_is_the_suite() -> None:
    found = {
        f"{path.stem}::{name}": bool(LOCAL & asked)
        for path in sorted(LIST.parent.glob("test_*.py"))
        for name, asked in _fixtures(path).items()
    }
    assert listed(LIST.read_text()) == found


def test_every_fault_of_a_closing_has_a_form_for_a_real_server() -> None:
    known = listed(LIST.read_text())
    for name in (
        "test_server_faults::test_a_request_whose_text_is_still_on_its_way_has_no_effect_after_drop_user",
        "test_server_barrier::test_waiting_insert_outlives_drop_user_and_ends_with_kill",
        "test_server_faults::test_an_exchange_racing_drop_user_happens_before_it_is_quiet_or_never",
        "test_server_faults::test_a_drop_user_whose_answer_was_lost_is_asked_again",
        "test_server_faults::test_a_create_user_that_arrives_late_fails_against_the_tombstone",
        "test_product_publication::test_a_repeated_request_is_refused_by_the_server",
        "test_server_faults::test_a_quota_does_not_outlive_a_restart",
        "test_server_faults::test_a_server_restarted_in_the_middle_of_a_closing_is_observed_again",
    ):
        assert known[name] is False


def test_a_complete_report_passes() -> None:
    assert disagreements(KNOWN, GOOD) == []


@pytest.mark.parametrize(
    ("ran", "line"),
    [
        (GOOD[:1], "missing test_m::test_b"),
        ([*GOOD, ("test_m::test_c", True)], "not in the list test_m::test_c"),
        ([*GOOD, ("test_x::test_y", True)], "not in the list test_x::test_y"),
        ([*GOOD, ("test_m::test_a", False)], "not passed test_m::test_a"),
    ],
)
def test_anything_else_fails(ran: list[tuple[str, bool]], line: str) -> None:
    assert disagreements(KNOWN, ran) == [line]


def test_a_skipped_test_did_not_pass() -> None:
    raw = b'<t><testcase classname="tests.live.test_m" name="test_a[x]"><skipped/></testcase></t>'
    assert list(executed(raw)) == [("test_m::test_a", False)]
