"""The fault sweep: trace one good attempt, then repeat it with one fault at one message, recover, and check.

The checker asks the servers with SQL of its own; what the product says about itself is only compared with that.
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
from tests.snapshot_world import SnapshotWorld

ROWS: Final = 300
ENDS: Final = ("ledger", "native", "http")
KINDS: Final = ("before", "after", "half", "outage", "kill", "killed-unsent", "freeze")
#: Statements that change something on the target server; each of them is struck in every way.
_CHANGING: Final = ("CREATE", "DROP", "GRANT", "REVOKE", "SYSTEM", "EXCHANGE", "INSERT INTO")


@dataclass(frozen=True)
class Strike:
    """One fault at one message of one end."""

    end: str
    number: int
    label: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.end} message {self.number} ({self.label})"


def plan(trace: dict[str, list[Message]]) -> list[Strike]:
    """The covering selection: every commit and every changing statement in every way, a spread of all else in turn.

    A worker frozen inside a ledger transaction keeps the ledger's lock until the server ends its session, so freezing is
    tried where a connection begins, and inside one transaction only.
    """
    strikes: list[Strike] = []
    for end in ENDS:
        commits = others = opened = 0
        for message in trace[end]:
            if end == "ledger" and message.label == "COMMIT":
                commits += 1
                kinds = ["before", "after", "kill", "killed-unsent"]
                kinds += ["outage"] if commits % 3 == 0 else ["freeze"] if commits == 7 else []
            elif end != "ledger" and message.label.startswith(_CHANGING):
                kinds = ["before", "after", "kill", "killed-unsent", "freeze"]
                kinds += ["half", "outage"] if end == "http" else []
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

    def start(self, world: SnapshotWorld) -> None:
        self.pid = os.fork()
        if self.pid:
            return
        seen = {"polls": 0, "errors": 0, "mixed": 0, "empty": 0}
        client = world.clickhouse.client()
        parent = os.getppid()
        while not self.place.exists() and os.getppid() == parent:
            try:
                sql = f"SELECT count(), min(version), max(version) FROM {world.database}.orders"
                [(rows, low, high)] = client.execute(sql)
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

    world: SnapshotWorld
    proxies: dict[str, FaultProxy] = field(default_factory=dict)
    version: int = 0
    zombies: int = 0
    zombies_succeeded: int = 0
    missed: int = 0
    violations: list[str] = field(default_factory=list)
    done: ClassVar[str] = "PUBLISHED"
    """State of the receipt of an attempt that did its work."""

    def prepare(self) -> None:
        """Tables, enrolment, release, and the proxies."""
        world = self.world
        world.pg("CREATE TABLE orders (id bigint NOT NULL, version integer NOT NULL, name text)")
        world.pg(f"INSERT INTO orders SELECT i, 0, 'name ' || i FROM generate_series(1, {ROWS}) i")
        target = f"{world.database}.orders"
        world.ch(
            f"CREATE TABLE {target} (id Int64, version Int32, name Nullable(String)) ENGINE = MergeTree ORDER BY id"
        )
        world.ch(f"INSERT INTO {target} SELECT number, 0, 'old' FROM numbers({ROWS})")
        world.activate("orders")
        server, ledger = world.clickhouse, world.ledger
        self.proxies = {
            "ledger": FaultProxy(ledger.host, ledger.port),
            "native": FaultProxy(server.host, server.native_port),
            "http": FaultProxy(server.host, server.http_port),
        }

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
        self.world.pg(f"UPDATE orders SET version = {self.version}")

    def _attempt(self, run_id: str) -> AttemptProcess:
        ports = {f"{end}_port": proxy.port for end, proxy in self.proxies.items()}
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
                return {"state": receipt.state, "reused": receipt.reused, "uuid": receipt.target_uuid}
            except DponeError as error:
                if not error.retryable or time.monotonic() > deadline:
                    self.violations.append(f"{strike}: no retry publishes: {error}")
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

    def _state(self) -> object:
        """Everything on the target that a woken worker must not change."""
        return self._target(), self._exchanges()

    def _target(self) -> tuple[str, int, int, int, int]:
        world = self.world
        [(found,)] = world.ch(
            f"SELECT toString(uuid) FROM system.tables WHERE database = '{world.database}' AND name = 'orders'"
        )
        [(rows, ids, low, high)] = world.ch(
            f"SELECT count(), uniqExact(id), min(version), max(version) FROM {world.database}.orders"
        )
        return str(found), rows, ids, low, high

    def _exchanges(self) -> dict[str, int]:
        """Query ids of EXCHANGE statements that had an effect, and how often, from the server's own log."""
        self.world.ch("SYSTEM FLUSH LOGS")
        return {
            str(query_id): int(times)
            for query_id, times in self.world.ch(
                "SELECT query_id, countIf(type = 'QueryFinish' OR exception_code = 394) AS times FROM system.query_log"
                f" WHERE query ILIKE 'EXCHANGE TABLES%' AND query LIKE '%{self.world.database}%'"
                " GROUP BY query_id HAVING times > 0"
            )
        }

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

    def _check_target(self, what: str) -> None:
        """The target is exactly the last snapshot, by one EXCHANGE each, and no user is left that can log in."""
        target = self._target()
        self._must(
            what,
            target[1:] == (ROWS, ROWS, self.version, self.version),
            f"the target is not snapshot {self.version}: {target}",
        )
        published = self._ledger(
            "SELECT d.dispatch_id::text, p.generation_uuid::text FROM dpone.publication p JOIN dpone.dispatch d"
            " ON d.attempt_sha256 = p.attempt_sha256 AND d.kind = 'exchange' WHERE p.state = 3 ORDER BY p.prepared_at"
        )
        exchanges = self._exchanges()
        self._must(
            what,
            exchanges == {dispatch: 1 for dispatch, _ in published},
            f"effective EXCHANGEs {exchanges} are not one for each of {published}",
        )
        [(current,)] = self._ledger("SELECT target_uuid::text FROM dpone.guard")
        self._must(
            what,
            current == target[0] == published[-1][1],
            f"ledger {current}, server {target[0]}, last {published[-1][1]}",
        )
        names = {name for (name,) in self._ledger("SELECT name FROM dpone.principal")}
        users = self.world.ch("SELECT name FROM system.users WHERE startsWith(name, 'dpone_') AND notEmpty(host_ip)")
        usable = sorted(name for (name,) in users if name in names)
        self._must(what, not usable, f"users that can still log in: {usable}")
        [(receipts, told)] = self._ledger(
            "SELECT count(*), count(*) FILTER (WHERE p.state = 3 AND convert_from(e.document, 'UTF8')::jsonb"
            " @> jsonb_build_object('state', 'PUBLISHED', 'target_uuid', p.generation_uuid::text, 'rows',"
            f" {ROWS})) FROM dpone.evidence e LEFT JOIN dpone.publication p ON p.attempt_sha256 = e.subject WHERE e.kind = 11"
        )
        self._must(
            what,
            receipts == told == len(published),
            f"{receipts} receipts, {told} true, {len(published)} publications",
        )


@contextmanager
def swept(world: SnapshotWorld, place: Path) -> Iterator[tuple[Sweep, Callable[[], dict[str, int]]]]:
    """A prepared sweep with its reader; the function given stops the reader and tells what it saw."""
    sweep = Sweep(world)
    sweep.prepare()
    readers = Readers(place)
    readers.start(world)
    try:
        yield sweep, readers.stop
    finally:
        readers.place.touch()
        for proxy in sweep.proxies.values():
            proxy.close()
