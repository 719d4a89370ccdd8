"""The mutations of ``make mutants``: each removes one check, lock, comparison, rule or ordering a promise rests on.

``old`` occurs exactly once in ``path``. ``tests`` is the smallest selection expected to notice.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.mutations import attempts, core, deployment, ledger, sqlserver


@dataclass(frozen=True)
class Mutant:
    """One change of the product, the promise that rests on what it removes, and the tests that must see red."""

    promise: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = [
    Mutant(promise, f"airflow_provider_dpone/{path}", old, new, tests)
    for path, rows in (*core.BY_FILE, *attempts.BY_FILE, *ledger.BY_FILE, *deployment.BY_FILE, *sqlserver.BY_FILE)
    for promise, old, new, tests in rows
]
