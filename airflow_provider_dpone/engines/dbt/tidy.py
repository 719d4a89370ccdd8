"""Puts in order what a killed run left, before the next one starts: renamed-away relations come back, helpers go."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_dpone.contracts.dbt import DbtPlan
from airflow_provider_dpone.contracts.ports import ManagedSchema

_BACKUP = "__dbt_backup"


def tidy(
    managed: ManagedSchema, plan: DbtPlan, before_each: Callable[[], None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Restore and remove; what something still depends on is left for dbt, which replaces it with its model.

    A backup is never dropped while its relation is missing: it is all there is of it.

    :param before_each: called before every statement; raises when this attempt may not act any more.
    :returns: names restored, names removed.
    """
    relations = managed.relations()
    permanent = plan.permanent()
    owners = {r.node: r.name for r in plan.relations if r.name in permanent and r.role != "helper"}
    left = {n: kind for n, kind in relations.items() if n not in permanent and plan.is_helper(n)}
    restored: list[str] = []
    for name, kind in sorted(left.items()):
        target = owners.get(plan.helped(name) or "")
        if name.endswith(_BACKUP) and target is not None and target not in relations:
            before_each()
            managed.rename(kind, name, target)
            restored.append(target)
            del left[name]
    removed: list[str] = []
    progress = True
    while left and progress:  # a helper view may stand on a helper table
        dropped = []
        for name, kind in sorted(left.items()):
            before_each()
            if managed.drop(kind, name):
                dropped.append(name)
        progress = bool(dropped)
        removed += dropped
        for name in dropped:
            del left[name]
    return tuple(restored), tuple(sorted(removed))
