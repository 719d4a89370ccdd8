"""The last words of a failing task: the cause first, what is true now, what to do."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from airflow_provider_dpone import errors
from airflow_provider_dpone.errors import AnswerLost, DponeError, GateNotClosed, GuardHeld, LedgerRule, ValueNotExact
from airflow_provider_dpone.guidance import DO, what_to_do
from airflow_provider_dpone.operators.failing import block, first_cause

ROOT = Path(__file__).parents[2]


def _raised(first: DponeError, then: DponeError) -> DponeError:
    """What comes out when the second is raised while the first is being handled."""
    try:
        try:
            raise first
        finally:
            raise then
    except DponeError as error:
        return error


def test_the_first_failure_is_the_cause_whatever_failed_while_it_was_handled() -> None:
    killed, gate = AnswerLost("the server went away"), GateNotClosed("the ingest user cannot be looked at")
    error = _raised(killed, gate)
    assert error is gate
    assert first_cause(error) is killed
    text = block(error, "Attempt abc was admitted and is not settled yet.")
    assert text.splitlines()[0] == "DPONE_ANSWER_LOST"
    assert "the server went away. Then DPONE_GATE_NOT_CLOSED: the ingest user" in " ".join(text.split())


def test_an_error_that_explains_another_stands_for_itself() -> None:
    rule = LedgerRule("uq_attempt_guard_open", rule="uq_attempt_guard_open")
    explained, plain = GuardHeld("another attempt holds this target"), GuardHeld("held")
    explained.__context__ = explained.__cause__ = rule  # raise ... from rule
    plain.__context__, plain.__suppress_context__ = rule, True  # raise ... from None
    assert (first_cause(explained), first_cause(plain)) == (explained, plain)


def test_a_block_says_what_is_true_and_what_to_do_without_frames() -> None:
    text = block(
        ValueNotExact("column 'a', row 3: the value 300 does not fit Int8 exactly. " * 4), "Attempt abc ended FAILED."
    )
    assert [line[:20].strip() for line in text.splitlines() if line[2:3].strip()] == [
        "DPONE_VALUE_NOT_EXAC", "what happened:", "what is true now:", "what to do:", "more:",
    ]  # fmt: skip
    assert max(len(line) for line in text.splitlines()) <= 116
    assert "Traceback" not in text
    assert "docs/codes.md#dpone_value_not_exact" in text


def test_every_code_has_its_advice_and_the_page_says_the_same() -> None:
    codes = {c.code for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, DponeError)}
    assert set(DO) == codes
    page = (ROOT / "docs" / "codes.md").read_text()
    entries = dict(re.findall(r"^### (DPONE_[A-Z_]+)\n\n(.*?)(?=\n###|\n## |\Z)", page, re.S | re.M))
    for code, entry in entries.items():
        said = re.sub(r"\[([^\]]+)\]\(([^)]+)\)", r"\1 (docs/\2)", " ".join(entry.split("**Do:**")[1].split()))
        assert what_to_do(code) == said, code


@pytest.mark.parametrize("code", sorted(DO))
def test_advice_is_short_enough_to_be_read(code: str) -> None:
    assert len(DO[code]) <= 500
