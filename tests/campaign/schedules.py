"""A schedule explorer: racing tries of one target, of which only one moves at a time, in an order drawn by lot.

Each racer is a process with connections of its own. Before it begins a transaction of the ledger, or sends a word to a
server, it waits to be let go; then the next is drawn. Whatever the order, the target ends as one whole snapshot.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.attempt_process import AttemptProcess
from tests.campaign.sweep import Sweep
from tests.campaign.wire import FaultProxy, Message

#: A racer that has not come to its next step by then waits for another one (a lock, a pause): somebody else moves.
_PATIENCE: Final = 0.1
#: Runs and tries that race, and whether Airflow says that another run's task is over.
RACES: Final = (
    (("run", 1, False), ("run", 2, False)),
    (("run", 1, False), ("run", 2, False), ("run", 3, False)),
    (("run", 1, False), ("other", 1, True)),
    (("run", 1, False), ("run", 2, False), ("other", 1, True)),
    (("run", 1, False), ("other", 1, False), ("third", 1, True)),
)


@dataclass
class Racer:
    """One try, and where it waits."""

    process: AttemptProcess | None = None
    waiting: list[threading.Event] = field(default_factory=list)
    moved_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def pace(self, message: Message) -> None:
        """Wait to be let go; called by the proxies of this racer."""
        go = threading.Event()
        with self.lock:
            self.waiting.append(go)
        go.wait(120)

    def let_go(self) -> None:
        with self.lock:
            go = self.waiting.pop(0)
        self.moved_at = time.monotonic()
        go.set()

    def ended(self) -> bool:
        return self.process is not None and self.process.ended()


def _proxies(sweep: Sweep, racer: Racer) -> dict[str, FaultProxy]:
    line = {end: FaultProxy(host, port) for end, (host, port) in sweep.upstreams.items()}
    for end, proxy in line.items():
        if end == "ledger":
            proxy.pace = lambda message: racer.pace(message) if message.label in ("BEGIN", "COMMIT") else None
        elif end != "source":
            proxy.pace = lambda message: racer.pace(message) if not message.opens else None
    return line


def race(sweep: Sweep, seed: int) -> str:
    """Let some tries race in an order drawn by lot; what was run, for messages."""
    chance = random.Random(seed)
    plan = RACES[seed % len(RACES)]
    what = f"schedule {seed}: " + ", ".join(f"{run} try {number}" for run, number, _ in plan)
    sweep.version += 1
    sweep.change()
    racers, lines = [], []
    for run_id, number, finished in plan:
        racer = Racer()
        line = _proxies(sweep, racer)
        ports = {sweep.ports[end]: proxy.port for end, proxy in line.items()}
        racer.process = AttemptProcess(
            sweep.world, "orders", run_id=f"{run_id}-{seed}", try_number=number, max_tries=200,
            finished=_always(finished), **ports,
        )  # fmt: skip
        racers.append(racer)
        lines.append(line)
    moves = _move(racers, chance, sweep, what)
    for line in lines:
        for proxy in line.values():
            proxy.close()
    ended = sweep._recover(what, f"{plan[0][0]}-{seed}", 10)
    sweep._check(f"{what} ({moves} moves)", ended)
    return what


def _always(finished: bool) -> Callable[[Any], bool]:
    return lambda coordinates: finished


def _move(racers: list[Racer], chance: random.Random, sweep: Sweep, what: str) -> int:
    """Let one go at a time until all have ended; how often."""
    current: Racer | None = None
    moves, deadline = 0, time.monotonic() + 150
    while live := [racer for racer in racers if not racer.ended()]:
        if time.monotonic() > deadline:
            sweep.violations.append(f"{what}: {len(live)} racers did not end within 150 s")
            for racer in live:
                if racer.process is not None:
                    racer.process.kill()
            return moves
        ready = [racer for racer in live if racer.waiting]
        still = [r for r in live if not r.waiting and time.monotonic() - r.moved_at < _PATIENCE]
        if not ready or (still and current in still):
            time.sleep(0.001)
            continue
        if current not in ready or chance.random() < 0.25:
            current = chance.choice(ready)
        current.let_go()
        moves += 1
    return moves


def explore(count: int, share: int, shares: int, make: Callable[[], Sweep], deadline: float) -> dict[str, Any]:
    """Run this share's schedules, each in the same fresh world; how many, and what was wrong."""
    seeds = range(share, count, shares)
    if not seeds:
        return {"schedules": 0, "violations": []}
    sweep = make()
    sweep.prepare()
    done = 0
    for seed in seeds:
        if time.monotonic() > deadline:
            break
        race(sweep, seed)
        done += 1
    sweep.close()
    return {"schedules": done, "violations": sweep.violations}
