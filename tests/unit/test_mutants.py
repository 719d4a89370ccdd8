"""The list of mutations stays applicable: what it removes is there once, and so are the tests that must notice."""

from __future__ import annotations

from pathlib import Path

from tools.mutant_list import MUTANTS

ROOT = Path(__file__).parents[2]


def test_every_mutation_applies_and_names_tests_that_exist() -> None:
    for number, mutant in enumerate(MUTANTS, 1):
        assert (ROOT / mutant.path).read_text().count(mutant.old) == 1, f"mutant {number} in {mutant.path}"
        for test in mutant.tests:
            path, _, name = test.partition("[")[0].partition("::")
            assert f"def {name}(" in (ROOT / path).read_text() or not name, f"mutant {number}: {test}"


def test_every_promise_about_state_has_mutants() -> None:
    assert len(MUTANTS) >= 40
    assert {m.promise for m in MUTANTS} >= {f"P{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17)}
