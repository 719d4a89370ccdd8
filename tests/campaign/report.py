"""build/campaign: summary.json for machines, report.md for people; each part of the campaign adds what it found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BUILD = Path(__file__).parents[2] / "build" / "campaign"
SUMMARY = BUILD / "summary.json"


def begin() -> None:
    """Forget what an earlier campaign found."""
    SUMMARY.unlink(missing_ok=True)


def read() -> dict[str, Any]:
    """What was found so far."""
    return dict(json.loads(SUMMARY.read_text())) if SUMMARY.exists() else {"passed": True}


def add(passed: bool, **figures: Any) -> None:
    """Add figures; ``passed`` stays true as long as every part passed."""
    summary = read() | figures
    summary["passed"] = bool(read()["passed"] and passed)
    BUILD.mkdir(parents=True, exist_ok=True)
    SUMMARY.write_text(json.dumps(summary, indent=2) + "\n")
    shown = {key: value for key, value in figures.items() if key != "struck"}
    print(json.dumps(shown, indent=2), flush=True)


def write_page() -> None:
    """report.md: the figures, and a row for every required fault."""
    summary = read()
    lines = ["# Fault campaign", "", f"passed: **{str(summary['passed']).lower()}**", ""]
    sweep, zombies, readers = summary.get("sweep", {}), summary.get("zombies", {}), summary.get("readers", {})
    lines += [
        "| what | figures |",
        "|---|---|",
        f"| strikes | {sweep.get('runs')} at {sweep.get('steps')} steps with {sweep.get('faults')} kinds of fault,"
        f" {sweep.get('violations')} violations |",
        f"| woken workers | {zombies.get('tried')} tried, {zombies.get('succeeded')} changed anything; {zombies.get('alone')} frozen alone, {zombies.get('unreached')} places not reached |",
        f"| readers | {readers.get('polls')} polls, {readers.get('errors')} errors, {readers.get('mixed')} mixed, {readers.get('empty')} empty |",
        f"| passwords | {summary.get('passwords')} made, {summary.get('secrets_found')} files that hold one |",
        "",
        "| required fault | shown by | strikes | shown |",
        "|---|---|---|---|",
    ]
    for row in summary.get("required_faults", []):
        tests = "<br>".join(f"{name.split('::')[1]}: {outcome}" for name, outcome in row["tests"].items())
        lines.append(f"| {row['fault']} | {tests} | {row['strikes']} | {'yes' if row['shown'] else 'NO'} |")
    lines += [
        "",
        "Places that a try could not be frozen at while its predecessor slept (each was then frozen there alone):",
        "",
    ]
    lines += [f"- {row}" for row in summary.get("kept_away", [])] or ["- none"]
    (BUILD / "report.md").write_text("\n".join(lines) + "\n")
