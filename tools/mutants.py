"""Mutation evidence: breaks the product on purpose, one promise at a time, and demands that a test goes red.

Each mutant of :mod:`tools.mutant_list` is applied in a copy of the tree, where the few tests expected to notice run in
a forked process (third-party packages are imported once). Killed: a test failed, and the same tests pass unmutated.
Writes ``build/mutants/mutants.json`` and fails when a mutant survives.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.mutant_list import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent
OUTPUT = ROOT / "build" / "mutants"
COPIED = ("airflow_provider_dpone", "tests", "tools", "docs", "dags_examples", "pyproject.toml", "README.md")
#: Seconds after which a test selection is ended; a mutant that hangs has been noticed.
LIMIT = 240.0
WARM = (
    "pytest",
    "hypothesis",
    "pyarrow.compute",
    "psycopg",
    "sqlalchemy.dialects.postgresql",
    "clickhouse_driver",
    "airflow_clickhouse_plugin.hooks.clickhouse",
    "airflow.sdk.exceptions",
)


@dataclass
class Job:
    """One selection of tests on one copy of the tree, mutated or not."""

    name: str
    tests: tuple[str, ...]
    mutant: Mutant | None = None
    pid: int = 0
    copy: Path = ROOT
    began: float = 0.0
    log: Path = ROOT
    interrupted: bool = False
    original: str = ""
    limit: float = LIMIT

    def apply(self) -> None:
        if self.mutant is not None:
            path = self.copy / self.mutant.path
            self.original = path.read_text()
            assert self.original.count(self.mutant.old) == 1, f"{self.name} does not apply to {self.mutant.path}"
            path.write_text(self.original.replace(self.mutant.old, self.mutant.new))

    def restore(self) -> None:
        if self.mutant is not None:
            (self.copy / self.mutant.path).write_text(self.original)

    def start(self, copy: Path) -> None:
        """Fork a process that runs the tests in the copy, with everything of ours imported from there."""
        self.copy, self.began, self.log = copy, time.monotonic(), OUTPUT / f"{self.name}.log"
        self.apply()
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                os.setsid()
                output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(output, 1)
                os.dup2(output, 2)
                os.chdir(copy)
                for module in [
                    m for m in sys.modules if m.split(".")[0] in ("airflow_provider_dpone", "tests", "tools")
                ]:
                    del sys.modules[module]
                sys.path[:] = [str(copy), *(p for p in sys.path if p not in ("", str(ROOT)))]
                os.environ["PYTHONPATH"] = str(copy)
                import pytest

                code = int(pytest.main(["-q", "-x", "-rf", "--tb=short", *self.tests]))
                sys.stdout.flush()
            finally:
                os._exit(code)

    def ended(self) -> str | None:
        """``passed``, ``failed``, ``hung`` or ``broken`` (the tests did not run); None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            spent = time.monotonic() - self.began
            if spent > self.limit and not self.interrupted:
                os.kill(self.pid, signal.SIGINT)  # pytest still ends the servers it started
                self.interrupted = True
            elif spent > self.limit + 30:
                os.kill(self.pid, signal.SIGKILL)
            return None
        if self.interrupted or os.WIFSIGNALED(status):
            return "hung"
        code, last = os.WEXITSTATUS(status), self.log.read_text(errors="replace").strip().splitlines()[-1:]
        if code == 1 and not any(" failed" in line for line in last):
            return "broken"  # a fixture failed: the mutant never met its test
        return {0: "passed", 1: "failed"}.get(code, "broken")


def run(jobs: list[Job], workers: int) -> Iterator[tuple[Job, str]]:
    """Run the jobs, ``workers`` at a time, each worker on a copy of its own."""
    with tempfile.TemporaryDirectory(prefix="dpone-mutants-") as directory:
        free = [_copy(Path(directory) / str(number)) for number in range(workers)]
        waiting, running = list(jobs), list[Job]()
        while waiting or running:
            while free and waiting:
                job = waiting.pop(0)
                job.start(free.pop())
                running.append(job)
            for job in list(running):
                outcome = job.ended()
                if outcome is not None:
                    running.remove(job)
                    job.restore()
                    free.append(job.copy)
                    yield job, outcome
            time.sleep(0.05)


def _copy(to: Path) -> Path:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, to / name)
    return to


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="numbers of mutants, such as 3,17; default is all")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="only list them")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests unmutated first")
    options = parser.parse_args()
    chosen = {int(n) for n in options.only.split(",") if n} or set(range(1, len(MUTANTS) + 1))
    mutants = {number: mutant for number, mutant in enumerate(MUTANTS, 1) if number in chosen}
    if options.list:
        for number, mutant in mutants.items():
            print(f"{number:3} {mutant.promise:4} {mutant.path}: {mutant.old.strip().splitlines()[0][:90]}")
        return 0
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # a mutant may have size and time of the original
    sys.dont_write_bytecode = True
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    for module in WARM:
        importlib.import_module(module)
    started = time.monotonic()
    if not options.no_baseline:
        tests: dict[str, list[str]] = {}
        for test in sorted({t for m in mutants.values() for t in m.tests}):
            tests.setdefault(test.partition("::")[0], []).append(test)
        baseline = [Job(f"baseline-{n}", tuple(found), limit=6 * LIMIT) for n, found in enumerate(tests.values())]
        red = [job.name for job, outcome in run(baseline, options.workers) if outcome != "passed"]
        if red:
            print(f"the tests are not green without a mutation: {', '.join(red)}; see {OUTPUT}", file=sys.stderr)
            return 1
        print(f"unmutated: green after {time.monotonic() - started:.0f} s", flush=True)
    survived, broken = list[int](), list[int]()
    jobs = [Job(f"{number:03}", mutant.tests, mutant) for number, mutant in mutants.items()]
    for job, outcome in run(jobs, options.workers):
        assert job.mutant is not None
        word = {"passed": "SURVIVED", "broken": "BROKEN"}.get(outcome, "killed")
        survived += [int(job.name)] if word == "SURVIVED" else []
        broken += [int(job.name)] if word == "BROKEN" else []
        seconds = time.monotonic() - job.began
        print(f"{job.name} {job.mutant.promise:4} {word:8} {seconds:5.1f} s  {job.mutant.path}", flush=True)
    summary = {
        "tried": len(jobs),
        "killed": len(jobs) - len(survived) - len(broken),
        "survived": sorted(survived),
        "broken": sorted(broken),
        "promises": sorted({m.promise for m in mutants.values()}, key=lambda p: int(p[1:])),
        "seconds": round(time.monotonic() - started),
    }
    (OUTPUT / "mutants.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary))
    return 1 if survived or broken else 0


if __name__ == "__main__":
    sys.exit(main())
