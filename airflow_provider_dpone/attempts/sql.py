"""A SQL database as attempts see it: its gate, its managed schema, and how an attempt on it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_provider_dpone.attempts.dbt_outcomes import DbtOutcomes
from airflow_provider_dpone.attempts.world import Outcomes, World
from airflow_provider_dpone.contracts.dbt import SourceRelation
from airflow_provider_dpone.contracts.ports import IssuedCredential, SchemaCatalog
from airflow_provider_dpone.contracts.states import Purpose
from airflow_provider_dpone.engines.postgres.closing import GateKey
from airflow_provider_dpone.engines.postgres.control import PostgresControl
from airflow_provider_dpone.engines.postgres.gate import PostgresGate, leftover_names
from airflow_provider_dpone.engines.postgres.policy import require_policy, service_id
from airflow_provider_dpone.engines.postgres.relations import PostgresSchemaCatalog
from airflow_provider_dpone.engines.postgres.rights import GatePolicy, Grant, WorkerRights, owner_rights
from airflow_provider_dpone.errors import Fenced
from airflow_provider_dpone.ledger.activations import Guard
from airflow_provider_dpone.ledger.attempts import StoredAttempt
from airflow_provider_dpone.ledger.transaction import Ledger


class SqlWorld(World[PostgresGate]):
    """The ledger and one PostgreSQL database."""

    def __init__(
        self,
        ledger: Ledger,
        control: PostgresControl,
        policy: GatePolicy,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> None:
        with control.fresh() as session:
            found = service_id(session)
        super().__init__(ledger, found, checkpoint)
        self.control = control
        self.policy = policy

    def make_gate(self, attempt_sha256: str, held: Sequence[Guard]) -> PostgresGate:
        """The gate of an attempt on its managed schema."""
        [guard] = held
        with self.together() as ledger:
            epochs = ledger.attempts.read_exact(attempt_sha256).identity.guard_epochs
        [epoch] = [e.epoch for e in epochs if e.guard_id == guard.guard_id]
        key = GateKey(guard_id=guard.guard_id, epoch=epoch, attempt_sha256=attempt_sha256)
        journal = self.journal(attempt_sha256)
        return PostgresGate(self.control, guard.schema, key, journal, self.policy, checkpoint=self.checkpoint)

    def outcomes(self, stored: StoredAttempt) -> Outcomes:
        """Who observes how this attempt ended, by its cell."""
        if stored.identity.cell == "dbt_native":
            return DbtOutcomes(self, self.catalog(self._held(stored.sha256)[0]))
        raise Fenced(f"attempts of cell {stored.identity.cell} cannot be settled here")

    def usable_names(self) -> list[str]:
        """Issued logins that still exist although their gates are closed."""
        return leftover_names(self.control)

    def is_stand_in(self) -> bool:
        """PostgreSQL is never a stand-in for itself."""
        return False

    def close(self) -> None:
        """Nothing is held open: every statement has a session of its own."""

    # --- what dbt needs ---

    def look(self, guard: Guard) -> None:
        """The managed schema is as enrolled, and nobody else can write it.

        :raises TargetUnsupported, AmbientWriter: it is not.
        """
        enrolment = guard.schema
        with self.control.fresh() as session:
            require_policy(
                session,
                schema=enrolment.managed_schemas[0],
                owner=enrolment.owner,
                controller=enrolment.controller,
                administrators=list(enrolment.administrators),
                accepted=list(enrolment.accepted_features),
            )

    def catalog(self, guard: Guard) -> SchemaCatalog:
        """The relations of the managed schema."""
        return PostgresSchemaCatalog(self.control, guard.schema.managed_schemas[0])

    def issue_maker(self, attempt: str, guard: Guard, reads: Sequence[SourceRelation]) -> IssuedCredential:
        """A one-time login that may make, change and drop relations of the managed schema, and read these."""
        schema, owner = guard.schema.managed_schemas[0], guard.schema.owner
        rights = owner_rights(schema, owner)
        schemas = sorted({source.schema_of for source in reads})
        grants = (
            *rights.grants,
            *(Grant(("USAGE",), name) for name in schemas),
            *(Grant(("SELECT",), source.schema_of, source.name) for source in reads),
        )
        rights = WorkerRights(grants, rights.member_of, rights.settings)
        return self.gate_of(attempt, [guard]).issue_once(Purpose.WORKER, rights)
