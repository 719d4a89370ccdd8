"""A real Airflow over the local stack: api-server, scheduler, DAG processor and triggerer, and its REST API.

Each process runs in a session of its own and is ended by process group. Knows nothing of tables.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from airflow_provider_dpone.local.process import write_secret

COMPONENTS: Final = ("api-server", "scheduler", "dag-processor", "triggerer")
_FINISHED: Final = frozenset({"success", "failed"})


class LocalAirflow:
    """Airflow in ``home``, with DAG files from one folder.

    :param environ: settings and connections, for example :meth:`LocalStack.env`.
    """

    def __init__(self, home: Path, dags_folder: Path, environ: Mapping[str, str]) -> None:
        self.home = home
        self.logs = home / "logs"
        self.dags_folder = dags_folder
        self.port = _free_port()
        self.user = "admin"
        self.password = secrets.token_urlsafe(12)
        home.mkdir(parents=True, exist_ok=True)
        write_secret(home / "passwords.json", json.dumps({self.user: self.password}))
        settings = {
            "CORE__DAGS_FOLDER": str(dags_folder),
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{self.user}:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "CORE__FERNET_KEY": "",
            "API__PORT": str(self.port),
            "API__HOST": "127.0.0.1",
            "API__BASE_URL": f"http://127.0.0.1:{self.port}",
            "API__SECRET_KEY": secrets.token_hex(16),
            "LOGGING__BASE_LOG_FOLDER": str(self.logs),
        }
        self.environ = {**os.environ, **environ, "AIRFLOW_HOME": str(home)}
        self.environ |= {f"AIRFLOW__{key}": value for key, value in settings.items() if value}
        self.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._token = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # --- processes ---

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """One Airflow command to its end, in this Airflow's environment."""
        command = [sys.executable, "-m", "airflow", *arguments]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=300)
        if check and done.returncode:
            raise RuntimeError(f"airflow {' '.join(arguments)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done

    def start(self, timeout: float = 120.0) -> None:
        """Migrate the metadata database, start every component, wait until all are healthy."""
        self.run("db", "migrate")
        for component in COMPONENTS:
            self.start_component(component)
        deadline = time.monotonic() + timeout
        while not self._healthy():
            for component, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"airflow {component} ended: {self.output(component)[-4000:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"Airflow was not healthy within {timeout:.0f} s; see {self.home}")
            time.sleep(0.3)

    def start_component(self, component: str) -> None:
        """Start one component in a process group of its own; its output goes to a file."""
        with (self.home / f"{component}.out").open("ab") as output:
            self._processes[component] = subprocess.Popen(
                [sys.executable, "-m", "airflow", component],
                env=self.environ,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def output(self, component: str) -> str:
        """Everything a component printed."""
        return (self.home / f"{component}.out").read_text(errors="replace")

    def stop(self) -> None:
        """End every component with its whole group."""
        for sign, wait in ((signal.SIGTERM, 8.0), (signal.SIGKILL, 5.0)):
            for process in self._processes.values():
                _signal_group(process, sign)
            deadline = time.monotonic() + wait
            while time.monotonic() < deadline and any(p.poll() is None for p in self._processes.values()):
                time.sleep(0.1)
        for process in self._processes.values():
            _signal_group(process, signal.SIGKILL)
        self._processes.clear()

    def pids(self) -> dict[str, int]:
        """Process ids by component."""
        return {name: process.pid for name, process in self._processes.items()}

    # --- REST API ---

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """One call of the public REST API, as JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/api/v2/{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        request.add_header("Authorization", f"Bearer {self._login()}")
        with urllib.request.urlopen(request, timeout=30) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def wait_for_dags(self, dag_ids: Sequence[str], timeout: float = 90.0) -> None:
        """Until the DAG processor has stored every one of these DAGs."""
        deadline = time.monotonic() + timeout
        while True:
            found = {dag["dag_id"] for dag in self.api("GET", "dags?limit=500")["dags"]}
            missing = set(dag_ids) - found
            if not missing:
                return
            if time.monotonic() > deadline:
                errors = self.api("GET", "importErrors")["import_errors"]
                raise TimeoutError(f"DAGs {sorted(missing)} were not loaded: {errors}")
            time.sleep(0.5)

    def trigger(self, dag_id: str, run_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run and return its id."""
        body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf or {})}
        return str(self.api("POST", f"dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self.api("GET", f"dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id)}")["state"])

    def wait(self, dag_id: str, run_id: str, timeout: float = 240.0) -> str:
        """Until the run is finished; its state."""
        deadline = time.monotonic() + timeout
        while (state := self.run_state(dag_id, run_id)) not in _FINISHED:
            if time.monotonic() > deadline:
                raise TimeoutError(f"run {run_id} of {dag_id} is still {state}: {self.tasks(dag_id, run_id)}")
            time.sleep(0.4)
        return state

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Task instances of a run."""
        path = f"dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id)}/taskInstances"
        return list(self.api("GET", path)["task_instances"])

    def task(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """One task instance."""
        for found in self.tasks(dag_id, run_id):
            if found["task_id"] == task_id and found["map_index"] == map_index:
                return found
        raise LookupError(f"{dag_id}.{task_id}[{map_index}] of {run_id}")

    def receipt(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Any:
        """What a task returned (its XCom), or None."""
        run = urllib.parse.quote(run_id)
        path = f"dags/{dag_id}/dagRuns/{run}/taskInstances/{task_id}/xcomEntries/return_value?map_index={map_index}"
        try:
            value = self.api("GET", path)["value"]
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise
        return json.loads(value) if isinstance(value, str) else value

    def log(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
        """Every line all tries of a task wrote."""
        base = self.logs / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        base = base / f"map_index={map_index}" if map_index >= 0 else base
        return "\n".join(file.read_text(errors="replace") for file in sorted(base.glob("attempt=*.log*")))

    def clear(self, dag_id: str, run_id: str, task_ids: Sequence[str]) -> None:
        """Clear tasks of a run so that they run again."""
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": list(task_ids), "only_failed": False,
                "reset_dag_runs": True}  # fmt: skip
        self.api("POST", f"dags/{dag_id}/clearTaskInstances", body)

    def _login(self) -> str:
        if not self._token:
            body = json.dumps({"username": self.user, "password": self.password}).encode()
            request = urllib.request.Request(f"{self.url}/auth/token", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as reply:
                self._token = json.loads(reply.read())["access_token"]
        return self._token

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/monitor/health", timeout=5) as reply:
                health = json.loads(reply.read())
        except OSError:
            return False
        return all(health[part]["status"] == "healthy" for part in ("metadatabase", "scheduler", "dag_processor"))


def _signal_group(process: subprocess.Popen[bytes], sign: signal.Signals) -> None:
    try:
        os.killpg(process.pid, sign)
    except ProcessLookupError:
        return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
