"""Holds a JUnit report of ``tests/live_clickhouse`` on a real server against its closed list.

    python -m tools.closed_list REPORT

Every test of the list that is not local must have run and passed; one missing, failed, skipped or not listed fails.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

LIST = Path(__file__).parent.parent / "tests" / "live_clickhouse" / "closed_list.txt"


def listed(text: str) -> dict[str, bool]:
    """The tests of the list, each with whether it is local."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {words[0]: words[1:] == ["local"] for words in lines}


def executed(raw: bytes) -> Iterable[tuple[str, bool]]:
    """Every executed test by its function, and whether it passed."""
    for case in ET.fromstring(raw).iter("testcase"):
        module = case.get("classname", "").rpartition(".")[2]
        good = not any(child.tag in ("failure", "error", "skipped") for child in case)
        yield f"{module}::{case.get('name', '').partition('[')[0]}", good


def disagreements(known: dict[str, bool], ran: Iterable[tuple[str, bool]]) -> list[str]:
    """What keeps a report from being a pass, one line each."""
    ran = list(ran)
    names = {name for name, _ in ran}
    found = [f"missing {name}" for name, local in known.items() if not local and name not in names]
    found += [f"not in the list {name}" for name in sorted(names) if known.get(name, True)]
    return found + [f"not passed {name}" for name, good in ran if not good]


def main(report: str) -> int:
    found = disagreements(listed(LIST.read_text()), executed(Path(report).read_bytes()))
    for line in found:
        print(line)
    print("PASS" if not found else "FAIL")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
