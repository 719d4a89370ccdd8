"""The production-like stack without an engine: what it is made of, and that no secret is in it."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.synthetic_server import IMAGE

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_it_is_a_compose_file() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", DOCKER / "compose.yaml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_image_is_pinned_and_the_servers_are_the_ones_promised() -> None:
    images = {name: service["image"] for name, service in SERVICES.items()}
    assert images["mssql"] == IMAGE
    assert images["postgres"].startswith("postgres:18.")
    assert re.fullmatch(r"clickhouse/clickhouse-server:\d+\.\d+", images["clickhouse"])
    assert all("latest" not in image and ":" in image for image in images.values())
    pinned = re.search(r"^FROM apache/airflow:([\d.]+)-python3\.12$", (DOCKER / "Dockerfile").read_text(), re.M)
    assert pinned is not None
    assert f"apache-airflow=={pinned[1]}" in (ROOT / "constraints.txt").read_text()


def test_everything_that_stays_up_is_watched_and_waits_for_the_set_up() -> None:
    for name, service in SERVICES.items():
        needs = service.get("depends_on", {})
        assert set(needs) <= set(SERVICES)
        if name == "init":
            assert service["restart"] == "no"
            assert {n: c["condition"] for n, c in needs.items()} == dict.fromkeys(
                ("mssql", "clickhouse", "postgres"), "service_healthy"
            )
            continue
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
        assert service["restart"] == "unless-stopped"
        if name.startswith("airflow-"):
            assert needs == {"init": {"condition": "service_completed_successfully"}}


def test_only_the_loopback_is_published_and_volumes_are_declared() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        named = {v.partition(":")[0] for v in service.get("volumes", []) if not v.startswith(".")}
        assert named <= set(COMPOSE["volumes"])


def test_every_secret_is_generated_and_none_is_committed() -> None:
    example = dict(
        line.split("=", 1) for line in (DOCKER / ".env.example").read_text().splitlines() if not line.startswith("#")
    )
    assert set(example.values()) == {"<password>", "<fernet>"}
    text = (DOCKER / "compose.yaml").read_text()
    used = set(re.findall(r"\$\{(\w+):\?run docker/up\}", text))
    assert used == set(example)
    assert not re.findall(r"(?<!\$)\$\{\w+\}", text)
    for name, value in ((k, v) for s in SERVICES.values() for k, v in s.get("environment", {}).items()):
        if re.search(r"PASSWORD$|SECRET$|KEY$", name):
            assert value.startswith("${"), name
    ignored = subprocess.run(["git", "-C", str(ROOT), "check-ignore", "docker/.env", "docker/.env.new"],
                             capture_output=True, text=True, check=True)  # fmt: skip
    assert len(ignored.stdout.split()) == 2


def test_secrets_are_made_once_and_are_the_owners_alone(tmp_path: Path) -> None:
    for name in ("up", ".env.example"):
        shutil.copy(DOCKER / name, tmp_path / name)
    subprocess.run(["bash", "-n", str(tmp_path / "up")], check=True)
    for _ in range(2):
        subprocess.run([str(tmp_path / "up"), "--env-only"], check=True)
        first = (tmp_path / ".env").read_text()
    assert (tmp_path / ".env").read_text() == first
    assert stat.S_IMODE(os.stat(tmp_path / ".env").st_mode) == 0o600
    values = dict(line.split("=", 1) for line in first.splitlines())
    assert not any(v.startswith("<") for v in values.values())
    assert len(set(values.values())) == len(values)
    assert all(re.fullmatch(r"Aa1[A-Za-z0-9]{20,}", v) for k, v in values.items() if k != "AIRFLOW_FERNET_KEY")
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}=", values["AIRFLOW_FERNET_KEY"])


def test_the_image_passes_its_linter() -> None:
    linter = Path(shutil.which("hadolint") or ROOT / ".venv" / "bin" / "hadolint")
    done = subprocess.run(
        [str(linter), "--no-color", str(DOCKER / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_image_copies_is_in_its_context() -> None:
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = re.findall(r"^COPY --chown=airflow:0 (.+) \S+$", (DOCKER / "Dockerfile").read_text(), re.M)
    assert sorted(name for line in copied for name in line.split()) == sorted(let_in)
    assert all((ROOT / name).exists() for name in let_in)


def test_the_dag_goes_through_every_cell_and_every_connection_of_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.docker_init import init

    monkeypatch.setattr(init, "secret", lambda name: "x")
    tasks = runpy.run_path(str(DOCKER / "dags" / "orders.py"))["load"].dag.task_dict
    assert {name: sorted(task.downstream_task_ids) for name, task in tasks.items()} == {
        "snapshot": [], "load": ["totals"], "totals": ["totals_snapshot"], "totals_snapshot": [],
    }  # fmt: skip
    named = {getattr(t, f"{end}_conn_id", None) for t in tasks.values() for end in ("source", "target", "control")}
    assert named - {None} <= set(init.connections())
    assert (Path(tasks["totals"].project_dir) / "models" / "order_totals.sql").exists()


@pytest.mark.parametrize("name", ["POSTGRES_PASSWORD", "MSSQL_SA_PASSWORD"])
def test_a_password_that_would_need_quoting_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.docker_init import init

    monkeypatch.setenv(name, "it's; DROP TABLE")
    with pytest.raises(SystemExit, match=name):
        init.secret(name)
