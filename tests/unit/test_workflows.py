"""The workflows: what they run exists, is pinned and bounded, and covers what is promised."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.synthetic_judge import INVENTORY

ROOT = Path(__file__).parents[2]
WORKFLOWS: dict[str, Any] = {
    path.name: yaml.safe_load(path.read_text()) for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
JOBS = {(name, job): body for name, flow in WORKFLOWS.items() for job, body in flow["jobs"].items()}
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))


def _runs(body: dict[str, Any]) -> list[str]:
    return [step["run"] for step in body["steps"] if "run" in step]


def test_the_promised_workflows_are_there() -> None:
    assert set(WORKFLOWS) == {
        "ci.yml", "clickhouse-live.yml", "sqlserver-component.yml", "campaign-live.yml", "nightly.yml"
    }  # fmt: skip


def test_they_are_workflows() -> None:
    files = [ROOT / ".github" / "workflows" / name for name in WORKFLOWS]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *files],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_only_read(name: str) -> None:
    flow = WORKFLOWS[name]
    assert set(flow) == {"name", True, "permissions", "jobs"}  # YAML reads `on` as a boolean
    assert flow["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("key", JOBS, ids="/".join)
def test_a_job_is_bounded_and_everything_it_uses_is_pinned(key: tuple[str, str]) -> None:
    body = JOBS[key]
    assert body["runs-on"] == "ubuntu-24.04"
    assert 0 < body["timeout-minutes"] <= 360
    assert set(body) <= {"runs-on", "timeout-minutes", "strategy", "services", "env", "steps"}
    for step in body["steps"]:
        assert set(step) <= {"uses", "run", "with", "env", "if"}
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+|docker://[\w/]+:\d+\.\d+\.\d+", step["uses"])
    assert not any("github.event" in run or "github.head_ref" in run for run in _runs(body))


@pytest.mark.parametrize("key", JOBS, ids="/".join)
def test_what_a_job_runs_exists(key: tuple[str, str]) -> None:
    for run in _runs(JOBS[key]):
        for target in re.findall(r"\bmake (\w+)", run):
            assert target in TARGETS
        for path in re.findall(r"(?<![\w./-])((?:tools|tests|docker|\.github)/[\w./-]+)", run):
            assert (ROOT / path).exists(), path
        for module in re.findall(r"-m (tools\.\w+)", run):
            assert (ROOT / (module.replace(".", "/") + ".py")).exists()


def test_the_component_runs_every_profile_by_itself() -> None:
    strategy = JOBS["sqlserver-component.yml", "component"]["strategy"]
    assert strategy == {"fail-fast": False, "matrix": {"profile": list(INVENTORY)}}


def test_live_clickhouse_runs_a_closed_list_on_the_newest_and_two_long_term_releases() -> None:
    body = JOBS["clickhouse-live.yml", "conformance"]
    newest, *long_term = body["strategy"]["matrix"]["clickhouse"]
    assert newest == "latest"
    assert len(long_term) == 2
    assert all(re.fullmatch(r"\d\d\.(3|8)", release) for release in long_term)
    assert any("tools.closed_list" in run for run in _runs(body))


def test_nightly_strikes_every_pair_in_parts_and_runs_everything_long() -> None:
    assert JOBS["nightly.yml", "campaign"]["env"] == {"SOAK_MINUTES": "30"}
    sweep = JOBS["nightly.yml", "sweep"]
    assert [step["env"]["CAMPAIGN"] for step in sweep["steps"] if "env" in step and "CAMPAIGN" in step["env"]] == [
        "full"
    ]
    parts: dict[str, set[str]] = {}
    for part in sweep["strategy"]["matrix"]["part"]:
        cell, shard = part.split()
        parts.setdefault(cell, set()).add(shard)
    assert set(parts) == {"snapshot", "load", "dbt"}
    assert all(shards == {f"{n}/{len(shards)}" for n in range(1, len(shards) + 1)} for shards in parts.values())
    runs = {run for key, body in JOBS.items() if key[0] == "nightly.yml" for run in _runs(body)}
    assert {"make campaign", "make scale", "make mutants"} < runs
