"""The program that runs dbt, under the interpreter dbt is installed in. It imports nothing of this package.

One process for the whole attempt: it parses the project under a placeholder login, tells what would run, and waits.
Only when a one-time login comes down its standard input does it build, with the manifest it has parsed, so nothing is
parsed twice and no login ever decides whether a saved parse is good. It ends with its parent: on Linux by the kernel,
and everywhere when its standard input is closed.

Arguments: parent's process id, file descriptor for answers. Requests and answers are lines of JSON.
"""

import sys

if __name__ == "__main__":
    del sys.path[0]  # this directory: its modules would hide others of the same name

import atexit
import importlib.metadata
import json
import os
import signal
import threading

PLACEHOLDER = "dpone-one-time-login"
USER = "DPONE_DBT_USER"
PASSWORD = "DBT_ENV_SECRET_DPONE_PASSWORD"  # dbt masks the value of such a variable in everything it writes


def _end() -> None:
    os.killpg(0, signal.SIGKILL)


def die_with(parent: int) -> None:
    """End this process group when the parent does."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        _end()


class Requests:
    """Lines from the parent; the end of them is the end of this process, also in the middle of a build."""

    def __init__(self) -> None:
        self._lines: list[dict[str, object]] = []
        self._ready = threading.Semaphore(0)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.append(json.loads(line))
            self._ready.release()
        _end()

    def next(self) -> dict[str, object]:
        self._ready.acquire()
        return self._lines.pop(0)


def distributions() -> dict[str, str]:
    """Installed dbt distributions and their versions."""
    found = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
    return {name: version for name, version in sorted(found.items()) if name.startswith("dbt-")}


def main() -> int:
    parent, answers = int(sys.argv[1]), os.fdopen(int(sys.argv[2]), "w")
    die_with(parent)
    requests = Requests()

    def answer(**values: object) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    answer(versions=distributions())
    arguments = list(requests.next()["common"])  # type: ignore[call-overload]
    os.environ.update({USER: PLACEHOLDER, PASSWORD: PLACEHOLDER})
    from dbt.cli.main import dbtRunner  # slow: after the first answer

    parsed = dbtRunner().invoke(["parse", *arguments])
    if not parsed.success:
        answer(failed=str(parsed.exception or "dbt parse failed"))
        return 2
    answer(parsed=True)
    request = requests.next()
    selection, listing, building = (list(request[key]) for key in ("selection", "list", "build"))  # type: ignore[call-overload]
    runner = dbtRunner(manifest=parsed.result)
    listed = runner.invoke(["list", *selection, *arguments, *listing])
    if not listed.success:
        answer(failed=str(listed.exception or "dbt list failed"))
        return 2
    answer(selected=sorted(json.loads(line)["unique_id"] for line in listed.result))
    login = requests.next()
    if "password" not in login:
        return 0  # only asked what would run
    os.environ.update({USER: str(login["user"]), PASSWORD: str(login["password"])})
    built = runner.invoke(["build", *building, *selection, *arguments])
    if built.exception is not None:
        answer(failed=str(built.exception))
        return 2
    return 0 if built.success else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    atexit._run_exitfuncs()  # semaphores of dbt's are given back
    os._exit(code)  # everything is written; taking an interpreter of this size down takes seconds
