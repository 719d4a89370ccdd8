"""The outcome of a run: what the controller reads back decides; what dbt says explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider_dpone.contracts.dbt import DbtBaseline, DbtPlan, DbtReadBack, DbtRun, FoundRelation, NodeResult
from airflow_provider_dpone.errors import (
    DbtInterrupted,
    DbtModelFailed,
    DbtTargetUnexpected,
    DbtTestFailed,
    DponeError,
)

_DONE = ("success", "pass", "warn")
_BACKUP = "__dbt_backup"


def compare(
    baseline: DbtBaseline, relations: Mapping[str, str], rows: Mapping[str, int], observed_at: str
) -> DbtReadBack:
    """Compare the schema as it is now with the plan and with what was there before."""
    plan, before = baseline.plan, {found.name for found in baseline.found}
    permanent = plan.permanent()
    return DbtReadBack(
        attempt_sha256=baseline.attempt_sha256,
        plan_sha256=plan.digest(),
        observed_at=observed_at,
        found=found_relations(relations, rows),
        missing=tuple(sorted(name for name, kind in plan.expected().items() if relations.get(name) != kind)),
        lost=tuple(sorted(name for name in permanent if name in before and name not in relations)),
        leftovers=tuple(sorted(name for name in relations if name not in permanent and plan.is_helper(name))),
        undeclared=tuple(
            sorted(n for n in relations if n not in permanent and n not in before and not plan.is_helper(n))
        ),
    )


def found_relations(relations: Mapping[str, str], rows: Mapping[str, int]) -> tuple[FoundRelation, ...]:
    """Relations as documents, with the rows that were counted."""
    return tuple(sorted(FoundRelation(name=n, kind=kind, rows=rows.get(n)) for n, kind in relations.items()))


def judge(plan: DbtPlan, run: DbtRun | None, seen: DbtReadBack) -> DponeError | None:
    """Why the run did not succeed, or None when artifacts, exit and the read-back all agree that it did.

    :param run: None when the process ended with its task, before anything was recorded of it.
    """
    after = f"Now {_where(plan, seen, seen.lost)}. {_leftovers(seen)}" if seen.lost else _leftovers(seen)
    broken_off = DbtTargetUnexpected if seen.lost else DbtInterrupted
    if run is None or run.results is None:
        how = "with its task" if run is None else _exit(run.exit_code)
        return broken_off(
            f"dbt ended {how} without an account of its run; models it had finished are in place. {after}",
            lost=list(seen.lost),
        )
    failed = [r for r in run.results if r.status not in _DONE and not _is_test(r)]
    tests = [r for r in run.results if r.status not in _DONE and r.status != "skipped" and _is_test(r)]
    errors = [r for r in failed if r.status != "skipped"]
    if errors:
        skipped = len(run.results) - sum(r.status != "skipped" for r in run.results)
        return DbtModelFailed(
            f"{len(errors)} of {len(plan.selected)} nodes failed and {skipped} were skipped: {_named(errors)}. {after}",
            nodes=[r.unique_id for r in errors],
            lost=list(seen.lost),
        )
    if tests:
        return DbtTestFailed(
            f"{len(tests)} tests failed: {_named(tests)}. What they test is built and in place; dbt skipped what is "
            f"built on it. {after}",
            nodes=[r.unique_id for r in tests],
            lost=list(seen.lost),
        )
    foreign = sorted(
        {r.unique_id for r in run.results if not r.unique_id.startswith("operation.")} - set(plan.selected)
    )
    silent = sorted(set(plan.selected) - {r.unique_id for r in run.results if r.status != "skipped"})
    if run.exit_code != 0 or silent or foreign:
        return broken_off(
            f"dbt ended {_exit(run.exit_code)} and its account does not fit what was planned "
            f"({', '.join([*silent, *foreign][:5]) or 'every node is fine'}). {after}",
            lost=list(seen.lost),
        )
    gone = sorted({*seen.missing, *seen.lost})
    if gone:
        return DbtTargetUnexpected(
            f"dbt says it succeeded, but {_where(plan, seen, gone)}. {_leftovers(seen)}", missing=gone
        )
    if seen.leftovers:
        return DbtTargetUnexpected(
            f"dbt says it succeeded, but left {', '.join(seen.leftovers)}; the next run removes them",
            leftovers=list(seen.leftovers),
        )
    return None


def _is_test(result: NodeResult) -> bool:
    return result.unique_id.startswith(("test.", "unit_test."))


def _named(results: Sequence[NodeResult]) -> str:
    shown = [f"{r.unique_id} ({r.status}: {r.message[:200]})" for r in results[:5]]
    return "; ".join(shown) + (f"; and {len(results) - 5} more" if len(results) > 5 else "")


def _exit(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


def _leftovers(seen: DbtReadBack) -> str:
    if not seen.leftovers:
        return "It left no helper relation"
    return f"It left {', '.join(seen.leftovers)}; the next run puts them in order first"


def _where(plan: DbtPlan, seen: DbtReadBack, names: Sequence[str]) -> str:
    """What is missing in the target, and for each where its rows are."""
    left = {plan.helped(name): name for name in seen.leftovers if name.endswith(_BACKUP)}
    nodes = {r.name: r.node for r in plan.relations}
    kinds = {found.name: found.kind for found in seen.found}
    shown = []
    for name in names:
        backup = left.get(nodes.get(name))
        if name in kinds:
            shown.append(f"{name} is a {kinds[name]}")
        elif backup:
            shown.append(f"{name} is missing, and what it held is in {backup}: run again, which renames it back first")
        else:
            shown.append(f"{name} is missing: run again with it selected")
    return f"in schema {plan.target_schema} " + "; ".join(shown)
