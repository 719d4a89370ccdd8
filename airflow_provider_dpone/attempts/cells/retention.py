"""The retention step: removes generations of a target that earlier publications or failed attempts left behind.

An admitted attempt on the target's guard. A generation is renamed to a fresh name first; only the table that provably
carries the expected UUID under that fresh name is dropped, by an issued user whose rights end at that name. A table
that turns out to be another one is renamed back. The target is never touched.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass

from airflow_provider_dpone.attempts.admission import Admissible
from airflow_provider_dpone.attempts.clickhouse import ClickHouseWorld
from airflow_provider_dpone.attempts.protocol import AttemptProtocol
from airflow_provider_dpone.attempts.settle import SchedulerView, plan_digest
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.contracts.enrolment import TargetEnrolment
from airflow_provider_dpone.contracts.identity import TaskCoordinates, generation_name, retired_name, retired_prefix
from airflow_provider_dpone.contracts.receipts import RetentionReceipt
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.contracts.states import AttemptState, DispatchState, PublicationState, Purpose
from airflow_provider_dpone.engines.clickhouse.quoting import table
from airflow_provider_dpone.engines.clickhouse.rights import remover_rights
from airflow_provider_dpone.enrolment.clickhouse import require_target
from airflow_provider_dpone.errors import AnswerLost, CounterUnreadable, RemovalRefused, ServerRefused
from airflow_provider_dpone.ledger.schema import EvidenceKind

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RetentionWork:
    """One retention step as the operator rendered it."""

    declaration: WorkloadDeclaration
    environment: str
    coordinates: TaskCoordinates
    keep: int
    """Published predecessors to keep, newest first; leftovers of failed attempts are always removed."""

    def plan_sha256(self) -> str:
        """Digest of what the author's values decide."""
        return plan_digest(self.declaration.digest(), str(self.keep))


@dataclass(frozen=True)
class Candidate:
    """A table that may be removed: its name, the UUID it must carry, and its bytes now."""

    name: str
    uuid: str
    bytes: int | None
    """None where the server gives no number; such a table is not removed."""


class RetentionCell(AttemptProtocol[ClickHouseWorld, RetentionReceipt]):
    """Runs one retention attempt."""

    receipt_type = RetentionReceipt

    def __init__(self, world: ClickHouseWorld, work: RetentionWork, stop: StopFlag, finished: SchedulerView) -> None:
        super().__init__(world, work, stop, finished)
        self._work: RetentionWork = work
        self._removable: list[Candidate] = []
        self._kept: list[str] = []

    def preflight(self, admissible: Admissible) -> None:
        """The target is as enrolled; what may go and what stays is known."""
        require_target(self.world.target.control, admissible.guard)
        self._removable, self._kept = self._candidates(admissible)
        _freed(self._removable)

    def reusable(self, admissible: Admissible) -> RetentionReceipt | None:
        """With nothing to remove, nothing is admitted."""
        return None if self._removable else self._receipt(admissible, [])

    def plan_sha256(self) -> str:
        """The plan names what is removed."""
        return plan_digest(self._work.plan_sha256(), *(c.name for c in self._removable))

    def perform(self, admissible: Admissible) -> RetentionReceipt:
        """Remove what may go, as it is seen now that nobody else moves the guard.

        :raises RemovalRefused: what was planned may not go any more; the next try plans again.
        """
        may_go, self._kept = self._candidates(admissible)
        changed = [c.name for c in self._removable if (c.name, c.uuid) not in {(m.name, m.uuid) for m in may_go}]
        if changed:
            raise RemovalRefused(f"{', '.join(changed)} may not be removed any more; run the task again")
        for candidate in self._removable:
            with self.steps("remove", f"removing {admissible.database}.{candidate.name}"):
                self._remove(admissible, candidate)
        return self._receipt(admissible, self._removable)

    # --- steps ---

    def _candidates(self, admissible: Admissible) -> tuple[list[Candidate], list[str]]:
        """What may go (with the UUID each must carry) and what is kept, by the ledger and the server's catalog.

        A published predecessor carries the UUID its publication swapped out, under its generation's name or the name
        a broken-off removal gave it. Anything else under a failed attempt's name is its leftover, unless that table
        was ever live on this target: then somebody swapped it in or out by hand, and it stays.
        """
        world, guard = self.world, admissible.guard
        published = [
            p for p in world.publications.of_guard(guard.guard_id) if p.record.state is PublicationState.PUBLISHED
        ]
        ended = world.attempts.ended_on(guard.guard_id)
        enrolments = world.attempts.originals(guard.guard_id, EvidenceKind.ENROLMENT)
        live = {guard.target_uuid} | {TargetEnrolment.parse(raw).target_uuid for raw in enrolments}
        live |= {p.intent.old_target_uuid for p in published} | {p.intent.generation_uuid for p in published}
        predecessors = {p.intent.target.generation_table: p.intent.old_target_uuid for p in published}
        leftovers = {generation_name(a.sha256) for a in ended if a.state is AttemptState.FAILED} - set(predecessors)
        kept: list[str] = []
        found: dict[str, Candidate] = {}  # predecessors by UUID
        removable: list[Candidate] = []
        for table_found in self._present(admissible, [*predecessors, *leftovers], [a.sha256 for a in ended]):
            name, carried = table_found.name, table_found.uuid
            moved = name not in predecessors and name not in leftovers
            meant = (moved and name.endswith(f"_{uuid.UUID(carried).hex}")) or predecessors.get(name) == carried
            if meant and carried != guard.target_uuid and carried in predecessors.values():
                found[carried] = table_found
            elif (meant or name in leftovers) and carried not in live:
                removable.append(table_found)
            else:
                logger.warning("%s.%s carries %s, not what was left there; kept", admissible.database, name, carried)
                kept.append(name)
        newest = [found[u] for u in reversed([p.intent.old_target_uuid for p in published]) if u in found]
        kept += [candidate.name for candidate in newest[: self._work.keep]]
        return removable + newest[self._work.keep :], kept

    def _present(self, admissible: Admissible, names: list[str], ended: list[str]) -> list[Candidate]:
        """Tables under these names, or under a name some retention attempt of the guard gave to one."""
        rows = self.world.target.control.query(
            "SELECT name, toString(uuid), total_bytes FROM system.tables WHERE database = {database:String} "
            "AND (name IN {names:Array(String)} OR substring(name, 1, 24) IN {retired:Array(String)}) ORDER BY name",
            {
                "database": admissible.database,
                "names": sorted(names) or [""],
                "retired": [retired_prefix(sha256) for sha256 in ended] or [""],
            },
        )
        return [Candidate(str(n), str(carried), None if size is None else int(size)) for n, carried, size in rows]

    def _remove(self, admissible: Admissible, candidate: Candidate) -> None:
        world = self.world
        database, attempt = admissible.database, self.attempt
        fresh = retired_name(attempt, candidate.uuid)
        world.attempts.require_acting(attempt)
        control = world.target.control
        control.command(f"RENAME TABLE {table(database, candidate.name)} TO {table(database, fresh)}")
        [(found,)] = control.query(
            "SELECT toString(uuid) FROM system.tables WHERE database = {database:String} AND name = {name:String}",
            {"database": database, "name": fresh},
        )
        if str(found) != candidate.uuid:
            control.command(f"RENAME TABLE {table(database, fresh)} TO {table(database, candidate.name)}")
            raise RemovalRefused(
                f"{database}.{candidate.name} was replaced by another table ({found}); renamed back, nothing dropped",
                seen=str(found),
                expected=candidate.uuid,
            )
        gate, journal = world.gate_of(attempt), world.journal(attempt)
        credential = gate.issue_once(Purpose.REMOVER, remover_rights(database, fresh))
        query_id, statement = str(uuid.uuid4()), f"DROP TABLE {table(database, fresh)} SYNC"
        refused: ServerRefused | None = None
        try:
            journal.claim_dispatch(dispatch_id=query_id, name=credential.name, kind="drop", statement=statement)
            gate.note_dispatch(credential.name, query_id)
            try:
                within = world.target.policy.answer_within
                world.target.http.dispatch(statement, credential, query_id=query_id, answer_within=within).send()
                journal.end_dispatch(dispatch_id=query_id, state=DispatchState.ANSWERED, note="ok")
            except ServerRefused as error:
                refused = error
                note = f"refused {error.details.get('server_code')}"
                journal.end_dispatch(dispatch_id=query_id, state=DispatchState.ANSWERED, note=note)
            except AnswerLost:
                logger.warning("the answer of the DROP was lost; looking at the server decides")
        finally:
            gate.close(credential.name)
        left = control.query(
            "SELECT count() FROM system.tables WHERE database = {database:String} AND name = {name:String}",
            {"database": database, "name": fresh},
        )
        if left != [(0,)]:
            control.command(f"RENAME TABLE {table(database, fresh)} TO {table(database, candidate.name)}")
            raise RemovalRefused(
                f"the server kept {database}.{candidate.name} (code "
                f"{refused.details.get('server_code') if refused else 'unknown'}); renamed back, cleanup stays pending",
            ) from refused

    def _receipt(self, admissible: Admissible, removed: list[Candidate]) -> RetentionReceipt:
        return RetentionReceipt(
            family=admissible.activation.request.family,
            workload_id=self._work.declaration.workload_id,
            attempt_sha256=self.attempt_sha256,
            target=f"{admissible.database}.{admissible.table}",
            removed=tuple(c.name for c in removed),
            kept=tuple(sorted(self._kept)),
            freed_bytes=_freed(removed),
        )


def _freed(candidates: list[Candidate]) -> int:
    """Bytes these tables take.

    :raises CounterUnreadable: the server gives no size for one; it is never taken for nothing.
    """
    unsized = [c.name for c in candidates if c.bytes is None]
    if unsized:
        raise CounterUnreadable(f"the server gives no size for {', '.join(unsized)}; nothing was removed")
    return sum(c.bytes for c in candidates if c.bytes is not None)
