"""The subset of SQL Server's tests that runs with every change."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.mssql_selection import subset

ROOT = Path(__file__).parents[2]


def _tests(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_every_chosen_test_is_there_once() -> None:
    chosen = subset()
    assert len(set(chosen)) == len(chosen)
    for nodeid in chosen:
        path, _, name = nodeid.partition("::")
        assert name in _tests(ROOT / path), nodeid


def test_every_file_has_a_chosen_test() -> None:
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "live_mssql").glob("test_*.py")}
    assert files <= {nodeid.partition("::")[0] for nodeid in subset()}
