"""The parts of a dbt run that need no server: sealing, private directories, saved parses, profile, log, process."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_provider_dpone.engines.dbt.artifacts import read_run
from airflow_provider_dpone.engines.dbt.log import Redactor, relay
from airflow_provider_dpone.engines.dbt.process import DbtProcess, interpreter
from airflow_provider_dpone.engines.dbt.profile import DbtTarget
from airflow_provider_dpone.engines.dbt.project import seal
from airflow_provider_dpone.engines.dbt.workspace import ParseCache, Workspace
from airflow_provider_dpone.errors import DbtProjectInvalid, DbtUnusable, DeclarationInvalid
from tests.dbt_world import alive, project, wait_for

SHA = "sha256:" + "0" * 64
POSTGRES = DbtTarget("postgres", "db", 5432, "shop", "mart", (("sslmode", "require"),))
SQLSERVER = DbtTarget("sqlserver", "db", 1433, "shop", "mart", (("encrypt", True),))


def test_a_sealed_project_is_the_same_for_the_same_files_and_another_for_any_other(tmp_path: Path) -> None:
    source = project(tmp_path / "source")
    first = seal(source, tmp_path / "a")
    (source / "target").mkdir()
    (source / "target" / "manifest.json").write_text("{}")
    (source / ".env").write_text("DBT_ENV_SECRET_X=1")
    assert seal(source, tmp_path / "b") == first
    assert not (tmp_path / "b" / ".env").exists()
    (source / "models" / "first.sql").write_text("select 2 as id")
    second = seal(source, tmp_path / "c")
    (source / "models" / "first.sql").rename(source / "models" / "other.sql")
    assert len({first, second, seal(source, tmp_path / "d")}) == 3
    assert (tmp_path / "d" / "models" / "other.sql").read_text() == "select 2 as id"


def test_a_directory_without_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DbtProjectInvalid, match=r"no dbt_project\.yml"):
        seal(tmp_path, tmp_path / "copy")


def test_a_link_that_leads_back_into_the_project_is_refused(tmp_path: Path) -> None:
    source = project(tmp_path / "source")
    (source / "models" / "again").symlink_to(source)
    with pytest.raises(DbtProjectInvalid, match=r"cannot be read|too deeply"):
        seal(source, tmp_path / "copy")


def test_a_workspace_is_private_and_one_nobody_works_in_is_removed(tmp_path: Path) -> None:
    mine, other = Workspace(tmp_path), Workspace(tmp_path)
    assert mine.directory.stat().st_mode & 0o777 == 0o700
    os.close(other._lock or 0)  # its task was killed
    third = Workspace(tmp_path)
    assert mine.directory.exists()
    assert not other.directory.exists()
    for workspace in (mine, third):
        workspace.remove()
    assert list(tmp_path.iterdir()) == []


def test_saved_parses_are_kept_whole_and_the_oldest_go(tmp_path: Path) -> None:
    cache, target = ParseCache(tmp_path / "cache"), tmp_path / "target"
    target.mkdir()
    assert not cache.take("none", target)
    for number in range(20):
        (target / "partial_parse.msgpack").write_text(str(number))
        cache.keep(f"key{number}", target)
        os.utime(tmp_path / "cache" / f"key{number}", (number, number))
    assert len(list((tmp_path / "cache").iterdir())) == 16
    assert not cache.take("key0", target)
    assert cache.take("key19", target)
    assert (target / "partial_parse.msgpack").read_text() == "19"


def test_parses_in_a_directory_that_others_can_write_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("planted")
    tmp_path.chmod(0o777)
    target = tmp_path / "target"
    target.mkdir()
    assert not ParseCache(tmp_path).take("key", target)
    assert not (target / "partial_parse.msgpack").exists()


def test_a_profile_holds_no_login_and_retries_nothing() -> None:
    for target in (POSTGRES, SQLSERVER):
        output = json.loads(target.profiles(3))["dpone"]["outputs"]["attempt"]
        assert output["user"] == "{{ env_var('DPONE_DBT_USER') }}"
        assert output["password"] == "{{ env_var('DBT_ENV_SECRET_DPONE_PASSWORD') }}"
        assert (output["retries"], output["threads"], output["schema"]) == (1, 3, "mart")


def test_the_profile_of_sqlserver_is_one_for_its_adapter() -> None:
    from dbt.adapters.sqlserver.sqlserver_credentials import SQLServerCredentials

    output = json.loads(SQLSERVER.profiles(1))["dpone"]["outputs"]["attempt"]
    fields = SQLServerCredentials.translate_aliases({k: v for k, v in output.items() if k not in ("type", "threads")})
    SQLServerCredentials.validate(fields)
    credentials = SQLServerCredentials.from_dict(fields)
    assert (credentials.host, credentials.database, credentials.retries) == ("db", "shop", 1)
    assert credentials.xact_abort
    assert credentials.authentication == "sql"


@pytest.mark.parametrize("option", ["user", "password", "role", "retries", "host", "threads"])
def test_what_decides_who_connects_where_cannot_be_set(option: str) -> None:
    with pytest.raises(DeclarationInvalid, match=option):
        DbtTarget("postgres", "db", 5432, "shop", "mart", ((option, "x"),)).profiles(1)


def test_log_lines_keep_their_level_and_lose_every_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    redact = Redactor()
    redact.hide("s3cret")
    lines = [json.dumps({"info": {"level": level, "msg": f"{level} s3cret", "name": "X"}}).encode() for level in
             ("debug", "info", "warn", "error")]  # fmt: skip
    errors = relay([*lines, b"Traceback: s3cret\n", b""], redact, "dbt")
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO", "WARNING", "ERROR", "WARNING"]
    assert errors == ["error *****"]
    assert "s3cret" not in caplog.text


def test_results_that_are_cut_or_doubled_are_no_results(tmp_path: Path) -> None:
    def read() -> object:
        return read_run(tmp_path, attempt_sha256=SHA, plan_sha256=SHA, exit_code=0).results

    row = {"unique_id": "model.a", "status": "success", "execution_time": 0.25, "message": None, "failures": None}
    assert read() is None
    (tmp_path / "run_results.json").write_text(json.dumps({"results": [row]}))
    assert [(r.unique_id, r.milliseconds) for r in read() or ()] == [("model.a", 250)]  # type: ignore[attr-defined]
    (tmp_path / "run_results.json").write_text(json.dumps({"results": [row, row]}))
    assert read() is None
    (tmp_path / "run_results.json").write_text(json.dumps({"results": [row]})[:-9])
    assert read() is None


def test_the_interpreter_beside_the_named_dbt_is_taken(tmp_path: Path) -> None:
    assert interpreter(None) == sys.executable
    with pytest.raises(DbtUnusable, match="no Python at"):
        interpreter(str(tmp_path / "dbt"))
    (tmp_path / "python").symlink_to(sys.executable)
    assert interpreter(str(tmp_path / "dbt")) == str(tmp_path / "python")


def test_an_environment_without_dbt_is_unusable(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    workspace = Workspace(tmp_path / "runs")
    digest = seal(project(tmp_path / "source"), workspace.project)
    executable = str(tmp_path / "venv" / "bin" / "dbt")
    with (
        DbtProcess(workspace, POSTGRES.profiles(1), dbt_executable=executable) as process,
        pytest.raises(DbtUnusable, match="dbt is not installed"),
    ):
        process.parse(ParseCache(tmp_path / "cache"), digest)
    assert not alive(process.pid)


def test_dbt_is_a_group_of_its_own_with_a_small_environment_and_ends_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SECRET", "s3cret")
    monkeypatch.setenv("DBT_PROFILES_DIR", "/elsewhere")
    workspace = Workspace(tmp_path / "runs")
    seal(project(tmp_path / "source"), workspace.project)
    with DbtProcess(workspace, POSTGRES.profiles(1), environment={"COUNTRY": "DE"}) as process:
        assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        assert b"COUNTRY=DE" in environment
        assert not [e for e in environment if e.startswith((b"AIRFLOW", b"DBT_"))]
        process.stop()
        assert not alive(process.pid)


def test_dbt_and_what_it_started_die_with_a_killed_task(tmp_path: Path) -> None:
    """A forked task starts dbt, which waits for a request, and is killed; nothing tells dbt but the kernel."""
    workspace = Workspace(tmp_path / "runs")
    seal(project(tmp_path / "source"), workspace.project)
    told = tmp_path / "pid"
    task = os.fork()
    if task == 0:
        process = DbtProcess(workspace, POSTGRES.profiles(1))
        told.write_text(str(process.pid))
        signal.pause()
    wait_for(lambda: told.exists() and told.read_text() != "", 20)
    child = int(told.read_text())
    assert alive(child)
    os.kill(task, signal.SIGKILL)
    os.waitpid(task, 0)
    wait_for(lambda: not alive(child), 5)


def test_dbt_dies_with_a_killed_task_even_if_somebody_keeps_its_input_open(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "runs")
    seal(project(tmp_path / "source"), workspace.project)
    told = tmp_path / "pid"
    task = os.fork()
    if task == 0:
        process = DbtProcess(workspace, POSTGRES.profiles(1))
        keeper = os.fork()
        if keeper == 0:
            signal.alarm(60)
            signal.pause()
        told.write_text(f"{process.pid} {keeper}")
        signal.pause()
    wait_for(lambda: told.exists() and " " in told.read_text(), 20)
    child, keeper = (int(pid) for pid in told.read_text().split())
    wait_for(lambda: b"child.py" in Path(f"/proc/{child}/cmdline").read_bytes() and _told(child), 20)
    os.kill(task, signal.SIGKILL)
    os.waitpid(task, 0)
    wait_for(lambda: not alive(child), 5)
    os.kill(keeper, signal.SIGKILL)


def _told(pid: int) -> bool:
    """Whether the kernel was told: the process sleeps, waiting for its first request."""
    return "State:\tS" in Path(f"/proc/{pid}/status").read_text() and _threads(pid) > 1


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_a_password_that_dbt_would_print_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    talkative = tmp_path / "talkative.py"
    talkative.write_text(
        "import sys, json\n"
        "login = json.loads(sys.stdin.readline())\n"
        "print(json.dumps({'info': {'level': 'error', 'msg': 'login ' + login['password'], 'name': 'X'}}))\n"
    )
    monkeypatch.setattr("airflow_provider_dpone.engines.dbt.child.__file__", str(talkative))
    workspace = Workspace(tmp_path / "runs")
    seal(project(tmp_path / "source"), workspace.project)
    with DbtProcess(workspace, POSTGRES.profiles(1)) as process:
        assert process.build("dpone_w_1", "s3cret-s3cret") == 0
        assert process.last_errors() == ["login *****"]
    assert "s3cret" not in caplog.text


def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Workspace:
    """A workspace in which this program stands in for the one that runs dbt."""
    program = tmp_path / "program.py"
    program.write_text(text)
    monkeypatch.setattr("airflow_provider_dpone.engines.dbt.child.__file__", str(program))
    workspace = Workspace(tmp_path / "runs")
    seal(project(tmp_path / "source"), workspace.project)
    return workspace


def test_a_build_that_waits_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a server that fell silent: dbt itself would wait as long as its connection stands."""
    monkeypatch.setattr("airflow_provider_dpone.engines.dbt.process.LONGEST", 1.0)
    workspace = _program(tmp_path, monkeypatch, "import time\ntime.sleep(60)\n")
    started = time.monotonic()
    with DbtProcess(workspace, POSTGRES.profiles(1)) as process:
        assert process.build("dpone_w_1", "s3cret") < 0
    assert time.monotonic() - started < 30


def test_a_process_that_is_told_to_end_is_waited_for_before_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What dbt does at its end (it closes its sessions, cancels its statements) is not cut off."""
    done = tmp_path / "done"
    workspace = _program(
        tmp_path, monkeypatch,
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n"
        "    time.sleep(0.4)\n"
        f"    pathlib.Path({str(done)!r}).write_text('closed')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).write_text('')\n"
        "time.sleep(60)\n",
    )  # fmt: skip
    with DbtProcess(workspace, POSTGRES.profiles(1)) as process:
        wait_for(lambda: (tmp_path / "ready").exists(), 20)
        process.stop(grace=20)
        assert done.read_text() == "closed"
        assert process._process.returncode == 0


def test_a_process_that_does_not_end_when_told_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = _program(
        tmp_path, monkeypatch,
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).write_text('')\n"
        "time.sleep(60)\n",
    )  # fmt: skip
    with DbtProcess(workspace, POSTGRES.profiles(1)) as process:
        wait_for(lambda: (tmp_path / "ready").exists(), 20)
        process.stop(grace=0.2)
        assert process._process.returncode == -signal.SIGKILL
        assert not alive(process.pid)


def test_a_planned_process_is_let_go_and_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was only asked what would run: it is told so, and nothing is killed in the middle of its end."""
    done = tmp_path / "done"
    workspace = _program(
        tmp_path, monkeypatch,
        "import json, pathlib, sys, time\n"
        "asked = json.loads(sys.stdin.readline())\n"
        "time.sleep(0.4)\n"
        f"pathlib.Path({str(done)!r}).write_text(json.dumps(asked))\n",
    )  # fmt: skip
    with DbtProcess(workspace, POSTGRES.profiles(1)) as process:
        process._planned = True
    assert json.loads(done.read_text()) == {"end": True}
    assert process._process.returncode == 0
