"""The fault sweep: trace one good attempt, then repeat it with one fault at one message, recover, and check.

What one cell changes, and how that is checked, stands in a module per cell. Each checker asks the servers with SQL of
its own; what the product says about itself is only compared with that.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import psycopg

from airflow_provider_dpone.errors import DponeError
from tests.attempt_process import AttemptProcess
from tests.campaign.wire import Fault, FaultProxy, Message

ROWS: Final = 300
KINDS: Final = ("before", "after", "half", "outage", "kill", "killed-unsent", "freeze")


@dataclass(frozen=True)
class Strike:
    """One fault at one message of one end."""

    end: str
    number: int
    label: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.end} message {self.number} ({self.label})"


def covering(trace: dict[str, list[Message]], changing: tuple[str, ...], struck_more: str) -> list[Strike]:
    """The covering selection: every commit and every changing statement in every way, a spread of all else in turn.

    A worker frozen inside a ledger transaction keeps the ledger's lock until the server ends its session, so freezing is
    tried where a connection begins, and inside one transaction only.

    :param changing: how the labels of statements begin that change something on the target.
    :param struck_more: the end whose changing statements are halved and cut off for longer as well.
    """
    strikes: list[Strike] = []
    for end, messages in trace.items():
        commits = others = opened = 0
        for message in messages:
            if end == "ledger" and message.label == "COMMIT":
                commits += 1
                kinds = ["before", "after", "kill", "killed-unsent"]
                kinds += ["outage"] if commits % 3 == 0 else ["freeze"] if commits == 7 else []
            elif end not in ("ledger", "source") and message.label.startswith(changing):
                kinds = ["before", "after", "kill", "killed-unsent", "freeze"]
                kinds += ["half", "outage"] if end == struck_more else []
            elif end == "ledger" and message.opens:
                opened += 1
                kinds = ["freeze"] if opened % 2 else ["outage"] if opened % 8 == 2 else []
            else:
                others += 1
                every = 24 if end == "ledger" else 2
                kinds = (
                    [("after", "kill", "before", "half", "outage")[others // every % 5]] if others % every == 0 else []
                )
            strikes += [Strike(end, message.number, message.label, kind) for kind in kinds]
    return strikes


@dataclass
class Readers:
    """A process that reads the target all along; each read must be one complete snapshot."""

    place: Path
    pid: int = 0

    def start(self, sweep: Sweep) -> None:
        self.pid = os.fork()
        if self.pid:
            return
        seen = {"polls": 0, "errors": 0, "mixed": 0, "empty": 0}
        read = sweep.reader()
        parent = os.getppid()
        while not self.place.exists() and os.getppid() == parent:
            try:
                rows, low, high = read()
                seen["empty"] += rows == 0
                seen["mixed"] += rows not in (0, ROWS) or low != high
            except Exception as error:  # noqa: BLE001 - any error of a reader is what is counted
                print(f"reader: {error!r}", flush=True)
                seen["errors"] += 1
            seen["polls"] += 1
            time.sleep(0.02)
        self.place.write_text(json.dumps(seen))
        os._exit(0)

    def stop(self) -> dict[str, int]:
        self.place.touch()
        os.waitpid(self.pid, 0)
        return dict(json.loads(self.place.read_text()))


@dataclass
class Sweep:
    """One world with a proxy before each end, in which attempts are struck one after another."""

    world: Any
    proxies: dict[str, FaultProxy] = field(default_factory=dict)
    version: int = 0
    zombies: int = 0
    zombies_succeeded: int = 0
    missed: int = 0
    violations: list[str] = field(default_factory=list)
    done: ClassVar[str]
    """State of the receipt of an attempt that did its work."""
    ports: ClassVar[dict[str, str]] = {}
    """The option of ``world.cell`` that leads each end through its proxy."""

    # --- what a cell says ---

    def prepare(self) -> None:
        """Tables, enrolment, release, and the proxies."""
        raise NotImplementedError

    def plan(self, trace: dict[str, list[Message]]) -> list[Strike]:
        """What to strike."""
        raise NotImplementedError

    def change(self) -> None:
        """Make the source snapshot :attr:`version`."""
        raise NotImplementedError

    def reader(self) -> Callable[[], tuple[int, Any, Any]]:
        """A function that reads rows, lowest and highest version of the target as its readers do."""
        raise NotImplementedError

    def _state(self) -> object:
        """Everything on the target that a woken worker must not change."""
        raise NotImplementedError

    def _check_target(self, what: str) -> None:
        """The target is snapshot :attr:`version`, done exactly once, and nothing usable is left on its server."""
        raise NotImplementedError

    # --- the sweep ---

    def trace(self) -> dict[str, list[Message]]:
        """One good attempt through the proxies, and what was said on the wire."""
        self._next()
        ended = self._attempt("trace").result()
        assert ended.get("state") == self.done, ended
        found = {end: list(proxy.trace) for end, proxy in self.proxies.items()}
        self._check("trace", ended)
        assert not self.violations, self.violations
        return found

    def strike(self, strike: Strike) -> None:
        """One attempt with one fault, its recovery, and the check."""
        self._next()
        run_id = f"run-{self.version}"
        proxy = self.proxies[strike.end]
        reached = threading.Event()
        worker: list[AttemptProcess] = []

        def act() -> None:
            while not worker:  # it may say its first word before we know its number
                time.sleep(0.001)
            self._act(strike, worker[0])
            reached.set()

        on_wire = {"kill": "after", "kill-dbt": "after", "killed-unsent": "before", "freeze": "hold"}
        proxy.arm(Fault(on_wire.get(strike.kind, strike.kind), strike.number, act))
        worker.append(self._attempt(run_id))
        ended = self._watch(strike, worker[0], reached)
        self.missed += not reached.is_set()
        proxy.heal()
        if ended.get("state") != self.done:
            ended = self._recover(strike, run_id)
        if strike.kind == "freeze" and reached.is_set():
            self._wake(strike, worker[0], proxy)
        self._check(str(strike), ended)

    # --- steps of one strike ---

    def _act(self, strike: Strike, worker: AttemptProcess) -> None:
        """What happens to the worker itself."""
        if strike.kind in ("kill", "killed-unsent"):
            os.kill(worker.pid, signal.SIGKILL)
        elif strike.kind == "freeze":
            worker.freeze()

    def _next(self) -> None:
        self.version += 1
        for proxy in self.proxies.values():
            proxy.arm(None)
        self.change()

    def _attempt(self, run_id: str) -> AttemptProcess:
        ports = {self.ports[end]: proxy.port for end, proxy in self.proxies.items()}
        return AttemptProcess(self.world, "orders", run_id=run_id, **ports)

    def _watch(self, strike: Strike, worker: AttemptProcess, reached: threading.Event) -> dict[str, Any]:
        """Wait until the worker ended, was killed, or is frozen; what it ended with, if it could tell."""
        deadline = time.monotonic() + 120
        while not (strike.kind == "freeze" and reached.is_set()):
            if worker.ended():
                killed = strike.kind in ("kill", "killed-unsent") and reached.is_set()
                return {} if killed else worker.result()
            if time.monotonic() > deadline:
                worker.kill()
                self.violations.append(f"{strike}: the attempt did not end within 120 s")
                return {}
            time.sleep(0.01)
        return {}

    def _recover(self, strike: Strike, run_id: str) -> dict[str, Any]:
        """Retries as a scheduler makes them; a busy or unreachable ledger is tried again for a while."""
        deadline = time.monotonic() + 90
        for try_number in range(2, 100):
            try:
                receipt = self.world.cell("orders", run_id=run_id, try_number=try_number, max_tries=200).run()
                return {"state": receipt.state, "reused": receipt.reused}
            except DponeError as error:
                if not error.retryable or time.monotonic() > deadline:
                    self.violations.append(f"{strike}: no retry succeeds: {error}")
                    return {"code": error.code}
        return {}

    def _wake(self, strike: Strike, worker: AttemptProcess, proxy: FaultProxy) -> None:
        """Deliver what was held and let the frozen worker go on: it must change nothing any more."""
        before = self._state()
        self.zombies += 1
        proxy.release()
        worker.wake()
        try:
            ended = worker.result(120)
        except TimeoutError:
            self.violations.append(f"{strike}: the woken worker did not end")
            return
        after = self._state()
        if before != after:
            self.zombies_succeeded += 1
            self.violations.append(f"{strike}: the woken worker changed the target ({before} -> {after}): {ended}")

    # --- the checker ---

    def _ledger(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(
            **{**self.world.postgres.superuser, "dbname": self.world.ledger.dbname}  # type: ignore[arg-type]
        ) as connection:
            return connection.execute(sql.encode()).fetchall()

    def _check(self, what: str, ended: dict[str, Any]) -> None:
        self._must(what, ended.get("state") == self.done, f"it did not end {self.done} but {ended}")
        self._check_target(what)
        self._check_ledger(what)

    def _must(self, what: str, holds: bool, text: str) -> None:
        if not holds:
            self.violations.append(f"{what}: {text}")

    def _check_ledger(self, what: str) -> None:
        """Nothing is left open, whatever the cell."""
        [found] = self._ledger(
            "SELECT (SELECT count(*) FROM dpone.attempt WHERE state IN (1, 4)),"
            " (SELECT count(*) FROM dpone.attempt_guard WHERE is_open),"
            " (SELECT count(*) FROM dpone.principal WHERE state <> 4),"
            " (SELECT count(*) FROM dpone.dispatch WHERE state = 1)"
        )
        text = "left open: {} attempts, {} guards, {} gates, {} dispatches".format(*found)
        self._must(what, found == (0, 0, 0, 0), text)


@contextmanager
def swept(sweep: Sweep, place: Path) -> Iterator[Callable[[], dict[str, int]]]:
    """Prepare a sweep and read its target all along; the function given stops the reader and tells what it saw."""
    sweep.prepare()
    readers = Readers(place)
    readers.start(sweep)
    try:
        yield readers.stop
    finally:
        readers.place.touch()
        for proxy in sweep.proxies.values():
            proxy.close()
