"""Runs one profile of SQL Server cases on a disposable server of its own and keeps only a sanitized result.

    python tools/composition_mssql_synthetic.py --profile store|gate|trust|registration --output-dir NEW_DIRECTORY

Starts the pinned container on a random loopback port, runs the closed inventory of the profile
(``tests/live_mssql/test_<profile>.py``) against it, removes the container and proves it gone, and writes
``summary.json`` and ``junit.xml``. It accepts no existing service as evidence: with DPONE_TEST_MSSQL_DSN set it runs on
that server, says ``stand_in`` and never PASS. Exit 0: PASS; 1: FAIL; 2: refused, nothing ran; 4: STAND_IN.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.synthetic_judge import INVENTORY, Case, Verdict, judge, junit, read_junit  # noqa: E402
from tools.synthetic_server import DRIVER, Disposable, Refusal, facts_of, wait_for  # noqa: E402

DSN = "DPONE_TEST_MSSQL_DSN"
PUBLIC_FILE = "DPONE_TEST_MSSQL_PUBLIC_FILE"
EXITS = {"PASS": 0, "FAIL": 1, "STAND_IN": 4}
LIMIT_SECONDS = 3000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="One profile of SQL Server cases on a disposable server.")
    parser.add_argument("--profile", choices=sorted(INVENTORY), default="store")
    parser.add_argument("--output-dir", type=Path, required=True, help="new directory outside the checkout")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _ended)
    try:
        output = new_directory(options.output_dir)
        commit = clean_commit()
        verdict, summary = run(options.profile, commit)
    except Refusal as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        return 2
    (output / "junit.xml").write_bytes(junit(options.profile, verdict))
    (output / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
    print(f"{options.profile}: {verdict.status} ({', '.join(verdict.reasons) or 'every case as it must be'})")
    return EXITS[verdict.status]


def _ended(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # so that the container is removed on the way out


def new_directory(path: Path) -> Path:
    """Make the output directory; it must be new and outside the checkout."""
    resolved = path.expanduser().resolve()
    if resolved.is_relative_to(ROOT):
        raise Refusal("the output directory lies inside the checkout")
    try:
        resolved.mkdir(parents=True)
    except FileExistsError:
        raise Refusal("the output directory exists already") from None
    return resolved


def clean_commit() -> str:
    """The commit of a checkout without changes."""
    if _git("status", "--porcelain"):
        raise Refusal("the checkout has changes; commit them, so that the result names its exact source")
    return _git("rev-parse", "HEAD")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refusal("this is no git checkout")
    return done.stdout.strip()


def run(profile: str, commit: str) -> tuple[Verdict, dict[str, object]]:
    """Run the profile and judge it."""
    import pyodbc

    if DRIVER not in pyodbc.drivers():
        raise Refusal(f"{DRIVER} is not installed")
    stand_in = DSN in os.environ
    began = datetime.now(UTC)
    cases: list[Case] = []
    facts: dict[str, object] = {}
    server = None if stand_in else Disposable.start()
    try:
        dsn = os.environ[DSN] if server is None else server.dsn
        environment = {**os.environ, DSN: dsn}
        if server is not None:
            wait_for(dsn)
            environment[PUBLIC_FILE] = server.public_file()
        facts = facts_of(dsn)
        cases = executed(profile, environment)
    except (Refusal, pyodbc.Error, subprocess.TimeoutExpired):
        cases = []  # every case is missing then, and that is the verdict
    finally:
        gone = server is None or server.remove()
    unchanged = not _git("status", "--porcelain") and _git("rev-parse", "HEAD") == commit
    verdict = judge(profile, cases, cleaned=gone, unchanged=unchanged, stand_in=stand_in)
    summary: dict[str, object] = {
        "schema": "dpone.synthetic_result.v1",
        "profile": profile,
        "status": verdict.status,
        "reasons": verdict.reasons,
        "stand_in": stand_in,
        "cases": {case.case_id: case.outcome for case in cases if case.case_id in INVENTORY[profile]},
        "expected": len(INVENTORY[profile]),
        "cleanup": gone,
        "source": {"commit": commit, "unchanged": unchanged},
        "image": None if server is None else server.image,
        "server": facts,
        "driver": {"name": DRIVER, "pyodbc": importlib.metadata.version("pyodbc")},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "began_at": began.isoformat(timespec="seconds"),
        "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return verdict, summary


def executed(profile: str, environment: dict[str, str]) -> list[Case]:
    """Run the tests; what they print and the raw report stay in a directory that is removed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        report = folder / "raw.xml"
        with (folder / "output").open("wb") as output:
            subprocess.run(
                [sys.executable, "-m", "pytest", f"tests/live_mssql/test_{profile}.py", f"--junitxml={report}",
                 f"--basetemp={folder / 'tmp'}", "-q"],
                cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False, timeout=LIMIT_SECONDS,
            )  # fmt: skip
        return read_junit(report.read_bytes()) if report.exists() else []


if __name__ == "__main__":
    sys.exit(main())
