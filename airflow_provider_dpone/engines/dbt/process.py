"""One dbt process for one attempt: parsed and planned without a login, then built with one that only its memory has."""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from airflow_provider_dpone.engines.dbt import child
from airflow_provider_dpone.engines.dbt.log import Redactor, relay
from airflow_provider_dpone.engines.dbt.profile import PROFILE, TARGET
from airflow_provider_dpone.engines.dbt.workspace import ParseCache, Workspace
from airflow_provider_dpone.errors import DbtProjectInvalid, DbtUnusable

_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "ODBCSYSINI", "ODBCINI", "SSL_CERT_FILE")
#: Seconds a build may take: as long as the server lets its login in.
LONGEST: Final = 24 * 3600.0
_EXITED: Final = os.WEXITED | os.WNOWAIT
_KINDS: Final = ("model", "seed", "snapshot", "test", "unit_test")
#: The same text in every process, so that a parse saved by one fits the private copy of the next.
_HERE: Final = "/proc/self/cwd" if sys.platform == "linux" else ""


def interpreter(dbt_executable: str | None) -> str:
    """The Python that dbt is installed for: ours, or the one beside the given ``dbt``.

    :raises DbtUnusable: there is none.
    """
    if dbt_executable is None:
        return sys.executable
    path = Path(dbt_executable)
    python = path if path.name.startswith("python") else path.parent / "python"
    if not os.access(python, os.X_OK):
        raise DbtUnusable(
            f"dbt_executable is {dbt_executable}, but there is no Python at {python}; give the path of the dbt (or the "
            "python) of a virtual environment"
        )
    return str(python)


class DbtProcess:
    """dbt over one workspace whose project is sealed; always ended, with all it started, when closed.

    :param profiles: text of ``profiles.yml``.
    :param variables: dbt's ``--vars``.
    :param environment: further variables for the project's own ``env_var()``.
    :param label: put before every line in the task log.
    :raises DbtUnusable: dbt cannot be started.
    """

    def __init__(
        self,
        workspace: Workspace,
        profiles: str,
        *,
        dbt_executable: str | None = None,
        variables: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        label: str = "dbt",
    ) -> None:
        self._workspace = workspace
        self._redact = Redactor()
        self._ending = threading.Lock()
        self._answered_failure: str | None = None
        self._planned = False
        (workspace.profiles / "profiles.yml").write_text(profiles)
        self._profiles = profiles
        self._root = _HERE or str(workspace.project)
        self._common = [
            *("--profiles-dir", str(workspace.profiles), "--profile", PROFILE, "--target", TARGET),
            *("--project-dir", self._root, "--target-path", str(workspace.target)),
            *("--log-path", str(workspace.logs), "--log-format", "json", "--log-level", "info"),
            *("--log-level-file", "none", "--no-use-colors", "--no-version-check", "--no-send-anonymous-usage-stats"),
            *("--partial-parse", "--vars", json.dumps(dict(variables or {}), sort_keys=True)),
        ]
        self._python = interpreter(dbt_executable)
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                [self._python, child.__file__, str(os.getpid()), str(writing)],
                cwd=workspace.project,
                env=self._environment(environment or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                start_new_session=True,
            )
        except OSError as error:
            os.close(reading)
            raise DbtUnusable(f"dbt cannot be started with {self._python}: {error}") from error
        finally:
            os.close(writing)
        self._answers = os.fdopen(reading, "r")
        self._errors: Future[list[str]] = Future()
        threading.Thread(target=self._relay, args=(label,), name="dpone-dbt-log", daemon=True).start()

    # --- what it is asked ---

    @property
    def pid(self) -> int:
        """The process; also the id of its group."""
        return self._process.pid

    def parse(self, cache: ParseCache, project_sha256: str) -> tuple[dict[str, Any], dict[str, str]]:
        """The manifest as dbt's own parser makes it, and the installed dbt distributions.

        :raises DbtUnusable: dbt or an adapter is not installed there.
        :raises DbtProjectInvalid: the project does not parse.
        """
        versions = self._answer("starting dbt", DbtUnusable)["versions"]
        if "dbt-core" not in versions:
            raise DbtUnusable(f"dbt is not installed for {self._python}; give dbt_executable, or install the dbt extra")
        key = cache.key(project_sha256, self._profiles, json.dumps(versions, sort_keys=True), self._python, self._root)
        cache.take(key, self._workspace.target)
        self._ask(common=self._common)
        self._answer("dbt parse", DbtProjectInvalid)
        cache.keep(key, self._workspace.target)
        return json.loads((self._workspace.target / "manifest.json").read_bytes()), versions

    def select(
        self, select: Sequence[str], exclude: Sequence[str], *, full_refresh: bool = False, fail_fast: bool = False
    ) -> tuple[str, ...]:
        """Unique ids of what a build would run, sorted.

        :raises DbtProjectInvalid: the selection is not one.
        """
        kinds = [argument for kind in _KINDS for argument in ("--resource-type", kind)]
        chosen = [argument for item in select for argument in ("--select", item)]
        chosen += [argument for item in exclude for argument in ("--exclude", item)]
        build = [*(["--full-refresh"] if full_refresh else []), *(["--fail-fast"] if fail_fast else [])]
        listing = ["--output", "json", "--output-keys", "unique_id", "--log-level", "none"]
        self._ask(selection=[*kinds, *chosen], list=listing, build=build)
        selected = tuple(self._answer("dbt list", DbtProjectInvalid)["selected"])
        self._planned = True  # from here on it waits for a login, or to be let go
        return selected

    def build(self, user: str, password: str) -> int:
        """Build with a one-time login; returns when the process and all it started have ended.

        A process that waits for a server gone silent is ended after :data:`LONGEST`.

        :returns: dbt's exit code; negative when a signal ended it. It proves nothing.
        """
        self._redact.hide(password)
        self._planned = False
        self._ask(user=user, password=password)
        deadline = threading.Timer(LONGEST, self.stop)
        deadline.daemon = True
        deadline.start()
        try:
            for line in self._answers:
                self._answered_failure = str(json.loads(line).get("failed"))
            return self._ended()
        finally:
            deadline.cancel()

    def last_errors(self) -> list[str]:
        """What dbt last logged as errors; call it after the end."""
        said = self._errors.result()
        return [*said, *([self._redact(self._answered_failure)] if self._answered_failure else [])]

    # --- its end ---

    def stop(self, grace: float = 1.0) -> None:
        """End the process and all it started: asked first, killed after ``grace`` seconds. Any thread, any time."""
        with self._ending:
            if self._process.returncode is not None:
                return
            self._signal(signal.SIGTERM)
            self._wait(grace)
            self._signal(signal.SIGKILL)  # also whatever its end left of the group, whose id is still taken
            self._process.wait()

    def close(self) -> None:
        """End it if it still runs; may be called again."""
        with self._ending:
            if self._process.returncode is None and self._planned:
                self._ask(end=True)
                self._wait(3.0)
        self.stop(grace=0.2)
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._answers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- below ---

    def _environment(self, further: Mapping[str, str]) -> dict[str, str]:
        ours = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        home = str(self._workspace.directory)
        own = {"HOME": home, "TMPDIR": home, "PYTHONUNBUFFERED": "1", "PYTHONUSERBASE": site.getuserbase()}
        own["PYTHONWARNINGS"] = "ignore:resource_tracker"  # one that is killed cannot give its semaphores back
        return {**further, **ours, **own}

    def _ask(self, **values: Any) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it ended: the answer that does not come says so
            self._process.stdin.write(json.dumps(values).encode() + b"\n")
            self._process.stdin.flush()

    def _answer(self, doing: str, error: type[DbtUnusable | DbtProjectInvalid]) -> dict[str, Any]:
        line = self._answers.readline()
        answer: dict[str, Any] = json.loads(line) if line else {}
        if line and "failed" not in answer:
            return answer
        code = self._ended()
        said = "; ".join([str(answer["failed"])] if answer else self.last_errors()[-3:])
        raise error(f"{doing} failed (exit code {code}): {self._redact(said)[:1500]}", exit_code=code)

    def _ended(self) -> int:
        """Wait for the end, take along what it left of its group, and say how it ended."""
        with suppress(ChildProcessError):  # stopped by another thread meanwhile
            os.waitid(os.P_PID, self.pid, _EXITED)
        self.stop(grace=0)
        return int(self._process.returncode)

    def _wait(self, seconds: float) -> None:
        """Wait for the end, at most so long; it stays a zombie, so that its group's id stays taken."""
        until = time.monotonic() + seconds
        while os.waitid(os.P_PID, self.pid, _EXITED | os.WNOHANG) is None and time.monotonic() < until:
            time.sleep(0.02)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
            os.killpg(self.pid, number)

    def _relay(self, label: str) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self._errors.set_result(relay(lines, self._redact, label))
