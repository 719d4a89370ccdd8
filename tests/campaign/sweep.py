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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import psycopg

from airflow_provider_dpone.errors import DponeError
from tests.attempt_process import AttemptProcess
from tests.campaign.strikes import DAY, DEADLY, ON_WIRE, Strike
from tests.campaign.wire import Fault, FaultProxy, Message

ROWS: Final = 300


@dataclass
class Worker:
    """One attempt under one strike, behind proxies of its own."""

    strike: Strike
    proxies: dict[str, FaultProxy]
    process: AttemptProcess
    reached: threading.Event

    def heal(self) -> None:
        for proxy in self.proxies.values():
            proxy.heal()

    def deliver(self) -> None:
        """Deliver what is held."""
        self.proxies[self.strike.end].release()


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
            time.sleep(0.1)
        self.place.write_text(json.dumps(seen))
        os._exit(0)

    def stop(self) -> dict[str, int]:
        self.place.touch()
        os.waitpid(self.pid, 0)
        return dict(json.loads(self.place.read_text()))


@dataclass
class Sweep:
    """One world in which attempts are struck one after another, each through proxies before every end."""

    world: Any
    upstreams: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Host and port of each end."""
    lines: list[dict[str, FaultProxy]] = field(default_factory=list)
    """A set of proxies for each worker that lives at the same time as another."""
    version: int = 0
    zombies: int = 0
    zombies_succeeded: int = 0
    missed: list[str] = field(default_factory=list)
    """Strikes of attempts that never said the message."""
    in_the_way: list[str] = field(default_factory=list)
    """Tries of chains whose sleeping predecessor kept them from the place they were to be frozen at, and how they ended;
    each was frozen there in a chain of its own."""
    unreached: list[str] = field(default_factory=list)
    """Places that no try came to, and how the tries ended."""
    violations: list[str] = field(default_factory=list)
    done: ClassVar[str]
    """State of the receipt of an attempt that did its work."""
    ports: ClassVar[dict[str, str]] = {}
    """The option of ``world.cell`` that leads each end through its proxy."""

    # --- what a cell says ---

    def prepare(self) -> None:
        """Tables, enrolment, release, and where each end is."""
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
        ended = self._attempt("trace", 1, self._line(0)).result()
        assert ended.get("state") == self.done, ended
        found = {end: list(proxy.trace) for end, proxy in self._line(0).items()}
        self._check("trace", ended)
        assert not self.violations, self.violations
        return found

    def strike(self, strike: Strike) -> None:
        """One attempt with one fault, its recovery, and the check."""
        self._next()
        run_id = f"run-{self.version}"
        worker = self._begin(strike, run_id, 1)
        ended = self._watch(worker)
        if not worker.reached.is_set():
            self.missed.append(str(strike))
        worker.heal()
        if ended.get("state") != self.done:
            ended = self._recover(strike, run_id, 2)
        if strike.kind in ("freeze", "late") and worker.reached.is_set():
            self._wake(str(strike), [worker])
        self._check(str(strike), ended)

    def chain(self, strikes: Sequence[Strike]) -> None:
        """A try frozen at each of these places, the next one begun meanwhile; all wake when the last has published.

        A try that cannot come to its place, for its predecessor sleeps in the way, is frozen there alone afterwards: so
        each place is proved.
        """
        kept_away = self._sleepers(strikes)
        for strike, how in kept_away:
            if len(strikes) > 1:
                self.in_the_way.append(f"{strike}: {how}")
                kept_away_again = self._sleepers([strike])
            else:
                kept_away_again = kept_away
            self.unreached += [f"{strike}: {how}" for strike, how in kept_away_again]

    def _sleepers(self, strikes: Sequence[Strike]) -> list[tuple[Strike, str]]:
        """One chain; the places that were not reached, each with how its try ended."""
        self._next()
        run_id, what = f"run-{self.version}", " / ".join(map(str, strikes))
        asleep: list[Worker] = []
        kept_away: list[tuple[Strike, str]] = []
        ended: dict[str, Any] = {}
        for number, strike in enumerate(strikes, 1):
            if ended.get("state") == self.done:
                kept_away.append((strike, "the task was done before"))
                continue
            worker = self._begin(strike, run_id, number, self._line(number - 1))
            ended = self._watch(worker)
            if worker.reached.is_set():
                asleep.append(worker)
            else:
                kept_away.append((strike, str(ended.get("state") or ended.get("code") or "killed")))
        if ended.get("state") != self.done:
            ended = self._recover(what, run_id, len(strikes) + 1)
        self._wake(what, asleep)
        self._check(what, ended)
        return kept_away

    def close(self) -> None:
        for line in self.lines:
            for proxy in line.values():
                proxy.close()

    # --- steps of one strike ---

    def _line(self, number: int) -> dict[str, FaultProxy]:
        while len(self.lines) <= number:
            self.lines.append({end: FaultProxy(host, port) for end, (host, port) in self.upstreams.items()})
        return self.lines[number]

    def _begin(self, strike: Strike, run_id: str, try_number: int, line: dict[str, FaultProxy] | None = None) -> Worker:
        line = line or self._line(0)
        reached = threading.Event()
        process: list[AttemptProcess] = []

        def act() -> None:
            while not process:  # it may say its first word before we know its number
                time.sleep(0.001)
            self._act(strike, process[0])
            reached.set()

        for proxy in line.values():
            proxy.arm(None)
        line[strike.end].arm(Fault(ON_WIRE[strike.kind], strike.number, strike.opening, act))
        process.append(self._attempt(run_id, try_number, line))
        return Worker(strike, line, process[0], reached)

    def _act(self, strike: Strike, process: AttemptProcess) -> None:
        """What happens to the worker itself."""
        if strike.kind in DEADLY:
            os.kill(process.pid, signal.SIGKILL)
        elif strike.kind == "freeze":
            process.freeze()
        elif strike.kind == "term":
            process.terminate()
        elif strike.kind == "memory":
            process.limit_memory()
        elif strike.kind.startswith("clock"):
            process.set_clock(DAY if strike.kind == "clock-ahead" else -DAY)

    def _next(self) -> None:
        self.version += 1
        for line in self.lines:
            for proxy in line.values():
                proxy.arm(None)
        self.change()

    def _attempt(self, run_id: str, try_number: int, line: dict[str, FaultProxy]) -> AttemptProcess:
        ports = {self.ports[end]: proxy.port for end, proxy in line.items()}
        return AttemptProcess(self.world, "orders", run_id=run_id, try_number=try_number, max_tries=200, **ports)

    def _watch(self, worker: Worker) -> dict[str, Any]:
        """Wait until the worker ended, was killed, or is frozen; what it ended with, if it could tell."""
        strike, process = worker.strike, worker.process
        deadline = time.monotonic() + (8 if strike.kind == "memory" else 120)
        while not (strike.kind == "freeze" and worker.reached.is_set()):
            if process.ended():
                if worker.proxies[strike.end].struck:
                    worker.reached.wait(60)  # a server that is started again takes longer than its client to fail
                return {} if strike.kind in DEADLY and worker.reached.is_set() else process.result()
            if time.monotonic() > deadline:
                process.kill()
                if strike.kind != "memory":  # it may hang: an interpreter waits for a thread that could not start
                    self.violations.append(f"{strike}: the attempt did not end within 120 s")
                return {}
            time.sleep(0.01)
        return {}

    def _recover(self, what: object, run_id: str, try_number: int) -> dict[str, Any]:
        """Retries as a scheduler makes them; a busy or unreachable ledger is tried again for a while."""
        deadline = time.monotonic() + 90
        for number in range(try_number, 200):
            try:
                receipt = self._retry(run_id, number)
                return {"state": receipt.state, "reused": receipt.reused}
            except DponeError as error:
                if not error.retryable or time.monotonic() > deadline:
                    self.violations.append(f"{what}: no retry succeeds: {error}")
                    return {"code": error.code}
        return {}

    def _retry(self, run_id: str, try_number: int) -> Any:
        """One more try, in this process and past the proxies."""
        return self.world.cell("orders", run_id=run_id, try_number=try_number, max_tries=200).run()

    def _wake(self, what: str, workers: list[Worker]) -> None:
        """Deliver what was held and let frozen workers go on: they must change nothing any more."""
        before = self._state()
        for worker in workers:
            worker.deliver()
            if worker.strike.kind == "freeze":
                worker.process.wake()
        ends = []
        for worker in workers:
            try:
                ends.append(worker.process.result(120) if worker.strike.kind == "freeze" else {})
            except TimeoutError:
                self.violations.append(f"{what}: the woken worker did not end")
        if any(worker.strike.kind == "late" for worker in workers):
            time.sleep(0.3)  # what was delivered late has its effect by then, if it has any
        after = self._state()
        self.zombies += len(workers)
        if before != after:
            self.zombies_succeeded += len(workers)
            self.violations.append(f"{what}: woken workers changed the target ({before} -> {after}): {ends}")

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
        sweep.close()
