"""How a dbt run is judged: what was read back decides, what dbt says explains."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_dpone.contracts.dbt import DbtBaseline, DbtPlan, DbtRun, NodeResult, PlannedRelation
from airflow_provider_dpone.engines.dbt.verdict import compare, found_relations, judge
from airflow_provider_dpone.errors import (
    DbtInterrupted,
    DbtModelFailed,
    DbtTargetUnexpected,
    DbtTestFailed,
    DponeError,
)

SHA = "sha256:" + "0" * 64


def relation(name: str, node: str, role: str = "model", kind: str = "table", selected: bool = True) -> PlannedRelation:
    return PlannedRelation(name=name, kind=kind, role=role, node=node, selected=selected)  # type: ignore[arg-type]


PLAN = DbtPlan(
    reads=(),
    project="shop",
    project_sha256=SHA, adapter="postgres", versions={"dbt-core": "1"}, target_schema="mart", full_refresh=False,
    selected=("model.a", "model.b", "test.t"),
    relations=tuple(sorted([
        relation("a", "model.a"), relation("a__dbt_tmp", "model.a", "helper"),
        relation("a__dbt_backup", "model.a", "helper"), relation("b", "model.b", kind="view"),
        relation("other", "model.other", selected=False), relation("testview_*", "tests", "pattern", "view"),
    ])),
)  # fmt: skip
GOOD = {"a": "table", "b": "view"}


def judged(
    now: dict[str, str], *, before: dict[str, str] | None = None, exit_code: int = 0,
    results: dict[str, str] | None = None, recorded: bool = True,
) -> DponeError | None:  # fmt: skip
    baseline = DbtBaseline(
        attempt_sha256=SHA, plan=PLAN, found=found_relations(before or {}, {}), restored=(), removed=()
    )
    seen = compare(baseline, now, {}, "now")
    rows: Any = None
    if results is not None:
        rows = tuple(
            sorted(
                NodeResult(unique_id=u, status=s, message="why", failures=None, milliseconds=1)
                for u, s in results.items()
            )
        )
    run = DbtRun(
        attempt_sha256=SHA,
        plan_sha256=PLAN.digest(),
        exit_code=exit_code,
        manifest_sha256=SHA,
        run_results_sha256=SHA,
        results=rows,
    )
    return judge(PLAN, run if recorded else None, seen)


ALL = {"model.a": "success", "model.b": "success", "test.t": "pass"}


def test_success_needs_artifacts_exit_and_read_back_to_agree() -> None:
    assert judged(GOOD, results=ALL) is None
    assert judged(GOOD, results={**ALL, "test.t": "warn"}) is None
    assert judged(GOOD, results={**ALL, "operation.shop.shop-on-run-end-0": "success"}) is None
    assert judged({**GOOD, "other": "table"}, before={"other": "table"}, results=ALL) is None


@pytest.mark.parametrize(
    ("now", "values", "error", "words"),
    [
        (GOOD, {"results": {**ALL, "model.b": "error", "test.t": "skipped"}, "exit_code": 1}, DbtModelFailed, "model.b"),
        (GOOD, {"results": {**ALL, "test.t": "fail"}, "exit_code": 1}, DbtTestFailed, "test.t"),
        (GOOD, {"results": {**ALL, "test.t": "error"}, "exit_code": 1}, DbtTestFailed, "test.t"),
        (GOOD, {"results": {**ALL, "model.b": "partial success"}, "exit_code": 1}, DbtModelFailed, "partial"),
        (GOOD, {"results": {**ALL, "operation.x": "error"}, "exit_code": 1}, DbtModelFailed, "operation.x"),
        (GOOD, {"results": None, "exit_code": -9}, DbtInterrupted, "by signal 9"),
        (GOOD, {"results": None, "exit_code": 0}, DbtInterrupted, "exit code 0"),
        (GOOD, {"recorded": False}, DbtInterrupted, "with its task"),
        (GOOD, {"results": ALL, "exit_code": 1}, DbtInterrupted, "does not fit"),
        (GOOD, {"results": {"model.a": "success"}}, DbtInterrupted, "model.b"),
        (GOOD, {"results": {**ALL, "model.x": "success"}}, DbtInterrupted, "model.x"),
        (GOOD, {"results": {**ALL, "model.b": "skipped"}}, DbtInterrupted, "model.b"),
        ({"b": "view"}, {"results": ALL}, DbtTargetUnexpected, "a is missing"),
        ({**GOOD, "b": "table"}, {"results": ALL}, DbtTargetUnexpected, "b is a table"),
        ({**GOOD, "a__dbt_tmp": "table"}, {"results": ALL}, DbtTargetUnexpected, "left a__dbt_tmp"),
        ({**GOOD, "testview_9_1": "view"}, {"results": ALL}, DbtTargetUnexpected, "left testview_9_1"),
        (GOOD, {"results": ALL, "before": {"other": "table"}}, DbtTargetUnexpected, "other is missing"),
    ],
)  # fmt: skip
def test_anything_else_is_told_apart(
    now: dict[str, str], values: dict[str, Any], error: type[DponeError], words: str
) -> None:
    found = judged(now, **values)
    assert type(found) is error
    assert words in found.message


def test_a_target_caught_between_its_renames_is_never_called_anything_else() -> None:
    for recorded, results in ((False, None), (True, None), (True, ALL)):
        found = judged(
            {"a__dbt_backup": "table", "b": "view"}, before=GOOD, recorded=recorded, results=results, exit_code=-9
        )
        assert isinstance(found, DbtTargetUnexpected)
        assert "a is missing, and what it held is in a__dbt_backup: run again" in found.message


def test_leftovers_of_a_killed_run_are_reported() -> None:
    found = judged({**GOOD, "a__dbt_backup": "table", "a__dbt_tmp": "table"}, before=GOOD, recorded=False)
    assert isinstance(found, DbtInterrupted)
    assert "a__dbt_backup, a__dbt_tmp" in found.message


def test_what_a_hook_made_is_undeclared() -> None:
    baseline = DbtBaseline(attempt_sha256=SHA, plan=PLAN, found=(), restored=(), removed=())
    assert compare(baseline, {**GOOD, "audit": "table"}, {"a": 3}, "now").undeclared == ("audit",)
