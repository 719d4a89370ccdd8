"""Sweeps side by side: a few processes strike attempts of each cell, each in databases of its own on the same servers."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests import ledger_database
from tests.campaign import scan, schedules
from tests.campaign.dbt_sweep import DbtSweep
from tests.campaign.loads import LoadSweep
from tests.campaign.snapshots import SnapshotSweep
from tests.campaign.strikes import ON_WIRE, Strike, chains, chosen, every_pair, where_a_worker_may_stand_still
from tests.campaign.sweep import Sweep, swept
from tests.dbt_world import DbtWorld
from tests.schema_world import SchemaWorld
from tests.servers import ClickHouseUnderTest, PostgresUnderTest
from tests.snapshot_world import SnapshotWorld

#: How many tries of one task are frozen at a time.
CHAIN: Final = 4


@dataclass(frozen=True)
class Amount:
    """How much is struck of one cell, by how many processes."""

    processes: int
    pairs: int
    """Strikes in all; 0 takes every pair of step and fault."""
    zombies: int
    schedules: int = 0


@dataclass(frozen=True)
class Servers:
    """What all shares run on."""

    clickhouse: ClickHouseUnderTest
    postgres: PostgresUnderTest


def make(cell: str, servers: Servers) -> Sweep:
    """A sweep over a world of its own."""
    ledger = ledger_database.create(servers.postgres.superuser)
    if cell == "snapshot":
        return SnapshotSweep(SnapshotWorld(servers.clickhouse, servers.postgres, ledger))
    if cell == "load":
        return LoadSweep(SchemaWorld(servers.postgres, ledger))
    return DbtSweep(DbtWorld(servers.postgres, ledger))


def planned(sweep: Sweep, amount: Amount, share: int, shares: int) -> tuple[list[Strike], list[list[Strike]]]:
    """Strikes and chains of one share, after a trace of one good attempt."""
    trace = sweep.trace()
    plan = sweep.plan(trace) if amount.pairs else every_pair(trace)
    places = where_a_worker_may_stand_still(trace)
    count = -(-amount.zombies // CHAIN)
    return (
        chosen(plan, amount.pairs or len(plan), share, shares),
        chains(places, CHAIN, count, share, shares),
    )


def run_share(
    cell: str,
    sweep: Sweep,
    amount: Amount,
    share: int,
    shares: int,
    servers: Servers,
    place: Path,
    deadline: float,
    only: str,
) -> dict[str, Any]:
    """The share of one process: its strikes and its chains in turn, then its schedules."""
    with swept(sweep, place.with_suffix(".reader")) as stop_reading:
        strikes, sleepers = planned(sweep, amount, share, shares)
        wanted = [s for s in strikes if only in str(s)]
        done: list[Strike] = []
        every = max(1, len(wanted) // max(1, len(sleepers)))
        for number, strike in enumerate(wanted):
            if time.monotonic() > deadline:
                break
            sweep.strike(strike)
            done.append(strike)
            if number % every == 0 and sleepers and not only:
                sweep.chain(sleepers.pop())
        while sleepers and not only and time.monotonic() < deadline:
            sweep.chain(sleepers.pop())
        readers = stop_reading()
    explored = schedules.explore(amount.schedules, share, shares, lambda: make(cell, servers), deadline)
    return {
        "cell": cell,
        "planned": len(wanted),
        "runs": len(done),
        "missed": len(sweep.missed),
        "missed_at": sweep.missed,
        "kinds": Counter(strike.kind for strike in done),
        "struck": [(s.end, s.number, s.label, s.kind) for s in done],
        "violations": sweep.violations + explored["violations"],
        "zombies": {
            "tried": sweep.zombies,
            "succeeded": sweep.zombies_succeeded,
            "alone": len(sweep.in_the_way),
            "unreached": len(sweep.unreached),
        },
        "kept_away": [f"in the way: {row}" for row in sweep.in_the_way] + [f"never: {row}" for row in sweep.unreached],
        "schedules": explored["schedules"],
        "readers": readers,
    }


@dataclass
class Shares:
    """What the processes found."""

    amounts: dict[str, Amount]
    shards: int = 1
    found: list[dict[str, Any]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def total(self, *path: str, cell: str | None = None) -> int:
        """The sum of one figure over all shares, or those of one cell."""
        values = []
        for share in self.found:
            if cell in (None, share["cell"]):
                value: Any = share
                for key in path:
                    value = value[key]
                values.append(value)
        return sum(values)

    def summary(self) -> dict[str, Any]:
        """Figures for build/campaign/summary.json."""
        kinds: Counter[str] = Counter()
        for share in self.found:
            kinds.update(share["kinds"])
        keys = ("planned", "runs", "missed")
        cells = {
            cell: {key: self.total(key, cell=cell) for key in keys}
            | {"violations": sum(len(share["violations"]) for share in self.found if share["cell"] == cell)}
            for cell in self.amounts
        }
        violations = [violation for share in self.found for violation in share["violations"]]
        return {
            "seconds": round(time.monotonic() - self.started, 1),
            "sweep": {
                "cells": cells,
                "steps": len({(share["cell"], *struck[:2]) for share in self.found for struck in share["struck"]}),
                "faults": len(kinds),
                **{key: self.total(key) for key in keys},
                "violations": len(violations),
                "by_fault": {kind: kinds[kind] for kind in ON_WIRE if kinds[kind]},
            },
            "zombies": {key: self.total("zombies", key) for key in ("tried", "succeeded", "alone", "unreached")},
            "schedules": self.total("schedules"),
            "readers": {key: self.total("readers", key) for key in ("polls", "errors", "mixed", "empty")},
            "violations": violations,
            "kept_away": [f"{share['cell']}: {row}" for share in self.found for row in share["kept_away"]],
            "missed_at": [f"{share['cell']}: {where}" for share in self.found for where in share["missed_at"]],
        }

    def complete(self) -> bool:
        """Whether every process came to its end and did all it was to do, with nothing wrong."""
        summary = self.summary()
        readers, zombies = summary["readers"], summary["zombies"]
        return (
            len(self.found) == sum(amount.processes for amount in self.amounts.values())
            and not summary["violations"]
            and summary["sweep"]["runs"] == summary["sweep"]["planned"] > 0
            and summary["sweep"]["missed"] * 10 <= summary["sweep"]["runs"]
            and zombies["unreached"] == 0
            and readers["errors"] == readers["mixed"] == readers["empty"] == zombies["succeeded"] == 0
            and readers["polls"] > 0
            and summary["schedules"] >= sum(amount.schedules for amount in self.amounts.values()) // self.shards
            and zombies["tried"] * self.shards >= sum(amount.zombies for amount in self.amounts.values()) * 3 // 4
        )


def run(
    servers: Servers, amounts: dict[str, Amount], folder: Path, deadline: float, only: str = "",
    shard: tuple[int, int] = (1, 1),
) -> Shares:  # fmt: skip
    """Run every share in a process of its own and wait for all; their output is kept in ``folder``.

    :param shard: which part of everything is run here, of how many.
    """
    shares = Shares(amounts, shard[1])
    pids: list[tuple[int, Path]] = []
    for cell, amount in amounts.items():
        for share in range(amount.processes):
            sweep, place = make(cell, servers), folder / f"{cell}-{share}.json"
            work = _share(
                cell, sweep, amount, (shard[0] - 1) * amount.processes + share, shard[1] * amount.processes, servers, place,
                deadline, only,
            )  # fmt: skip
            pids.append((_forked(work, place), place))
    for pid, _ in pids:
        os.waitpid(pid, 0)
    shares.found = [json.loads(place.read_text()) for _, place in pids if place.exists()]
    return shares


def _share(*arguments: Any) -> Callable[[], dict[str, Any]]:
    return lambda: run_share(*arguments)


def _forked(work: Callable[[], dict[str, Any]], place: Path) -> int:
    """Fork; the child writes down every password it makes, and what it says, and in the end what it found."""
    pid = os.fork()
    if pid:
        return pid
    try:
        with _output(place.with_suffix(".log")):
            scan.record(place.with_suffix(".passwords"))
            try:
                place.write_text(json.dumps(work()))
            except BaseException:  # noqa: BLE001 - shown in the log; the missing file fails the campaign
                traceback.print_exc()
    finally:
        os._exit(0)
    raise AssertionError


@contextmanager
def _output(log: Path) -> Iterator[None]:
    """Everything this process and its children say goes to a file, as it would to a task log."""
    with log.open("a", buffering=1) as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        sys.stdout = sys.stderr = output
        logging.basicConfig(level=logging.INFO, force=True, stream=output)
        yield


def tails(folder: Path, shares: Sequence[str], lines: int = 30) -> str:
    """The end of what shares said, for a failure's message."""
    return "\n".join(
        f"--- {name}\n" + "\n".join((folder / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])
        for name in shares
    )
