"""Judges the cases of a profile against its closed inventory. Pure: what ran goes in, a verdict comes out.

Nothing of a driver's text passes: a failure is its case, bounded error numbers of the server, and words of ours.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

#: Every case of every profile; a result with one more, one fewer, one twice or one skipped is no result.
INVENTORY: Final[dict[str, tuple[str, ...]]] = {
    "store": tuple(f"S{n}" for n in range(1, 8)),
    "gate": tuple(f"G{n}" for n in range(1, 17)),
    "trust": tuple(f"T{n}" for n in range(1, 10)),
    "registration": tuple(f"R{n}" for n in range(1, 19)),
}
MOST: Final = 8
STAND_IN: Final = "stand-in: no evidence of SQL Server"
_NUMBER: Final = re.compile(r"\[SQL Server\][^\[\]]{0,2000}? \((\d{1,5})\)")
_WORD: Final = re.compile(r"\b(?:DPONE_[A-Z_]{1,60}|login_database_policy_[a-z_]{1,40}|control_operation_unknown)\b")
_CASE: Final = re.compile(r"[A-Z]\d{1,2}")
_OUTCOMES: Final = {"failure": "failed", "error": "failed", "skipped": "skipped"}


@dataclass(frozen=True)
class Case:
    """One executed test: the id it carries (empty when it carries none) and what became of it."""

    case_id: str
    outcome: str
    seconds: float = 0.0
    sql_errors: tuple[int, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """PASS, FAIL or STAND_IN, and why not PASS."""

    status: str
    reasons: tuple[str, ...]
    cases: tuple[Case, ...] = field(default=(), repr=False)


def judge(profile: str, cases: Sequence[Case], *, cleaned: bool, unchanged: bool, stand_in: bool) -> Verdict:
    """The verdict over everything a run showed.

    :param cleaned: the server was removed and proved gone.
    :param unchanged: the source at the end is the commit of the beginning.
    :param stand_in: an existing server was used; then nothing is ever PASS.
    """
    expected = INVENTORY[profile]
    seen = Counter(case.case_id for case in cases)
    reasons = [f"missing {case_id}" for case_id in expected if not seen[case_id]]
    reasons += [f"duplicate {case_id}" for case_id in expected if seen[case_id] > 1]
    foreign = sum(count for case_id, count in seen.items() if case_id not in expected)
    reasons += [f"foreign {foreign}"] if foreign else []
    for outcome in ("skipped", "failed"):
        reasons += [f"{outcome} {c.case_id}" for c in cases if c.outcome == outcome and c.case_id in expected]
    reasons += [] if cleaned else ["cleanup"]
    reasons += [] if unchanged else ["source changed"]
    status = "FAIL" if reasons else "STAND_IN" if stand_in else "PASS"
    return Verdict(status, tuple(([STAND_IN] if stand_in else []) + reasons), tuple(cases))


def read_junit(raw: bytes) -> list[Case]:
    """The cases of pytest's own report, with nothing of its texts but numbers and words of ours."""
    found = []
    for element in ET.fromstring(raw).iter("testcase"):
        ids = [p.get("value", "") for p in element.iter("property") if p.get("name") == "case"]
        case_id = ids[0] if len(ids) == 1 and _CASE.fullmatch(ids[0]) else ""
        problems = [child for child in element if child.tag in _OUTCOMES]
        text = "\n".join(f"{child.get('message', '')}\n{child.text or ''}" for child in problems)
        outcome = _OUTCOMES[problems[0].tag] if problems else "passed"
        numbers = sorted({int(number) for number in _NUMBER.findall(text)})[:MOST]
        words = sorted(set(_WORD.findall(text)))[:MOST]
        found.append(Case(case_id, outcome, float(element.get("time", "0")), tuple(numbers), tuple(words)))
    return found


def junit(profile: str, verdict: Verdict) -> bytes:
    """The report that is kept, made anew."""
    counts = Counter(case.outcome for case in verdict.cases)
    suite = ET.Element(
        "testsuite", name=f"dpone.synthetic.{profile}", tests=str(len(verdict.cases)),
        failures=str(counts["failed"]), skipped=str(counts["skipped"]), errors="0",
    )  # fmt: skip
    for case in verdict.cases:
        known = case.case_id in INVENTORY[profile]
        element = ET.SubElement(
            suite, "testcase", classname=f"dpone.synthetic.{profile}", name=case.case_id if known else "foreign",
            time=f"{case.seconds:.1f}",
        )  # fmt: skip
        if case.outcome != "passed":
            told = [f"sql {number}" for number in case.sql_errors] + list(case.words)
            tag = "skipped" if case.outcome == "skipped" else "failure"
            ET.SubElement(element, tag, message=", ".join(told) or "no reason of ours")
    return ET.tostring(suite, encoding="utf-8", xml_declaration=True)
