"""The life of an activation: prepared, switched, active, retiring, retired; each step re-verifies what it rests on.

Everything is refused before anything is reserved or drained. A predecessor is drained first: it is retired only when
all its attempts are resolved, in the transaction that reserves its guards for the successor, which compares once more.
Nothing here switches the pointer; see :mod:`airflow_provider_dpone.activation.cache`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from airflow_provider_dpone.activation.physical import CompositionActivationPreparation, PhysicalAdmission
from airflow_provider_dpone.contracts.release import ActivationRequest, Deployment
from airflow_provider_dpone.contracts.states import ActivationState, Family
from airflow_provider_dpone.errors import (
    ActivationCommitUnknown,
    ActivationMissing,
    ActivationStale,
    AdmissionUnavailable,
    CommitUnknown,
)
from airflow_provider_dpone.ledger.activations import StoredActivation, refuse_unresolved
from airflow_provider_dpone.ledger.stores import Stores
from airflow_provider_dpone.releases.plan import CompositionExecutionPlan, plan_composition_execution
from airflow_provider_dpone.releases.sources import CompositionSourceSnapshot


class ActivationInputs(Protocol):
    """Reads the sealed projection: a verified release and its runtime context."""

    def sources(self, projection_root: Path, release_id: str) -> CompositionSourceSnapshot: ...

    def deployment(self, projection_root: Path, deployment_id: str) -> Deployment: ...


class CompositionActivationCoordinator:
    """Prepares, activates and retires releases in one ledger.

    :raises AdmissionUnavailable: from every operation, when a capability is missing.
    """

    def __init__(
        self,
        *,
        inputs: ActivationInputs | None = None,
        preparation: CompositionActivationPreparation | None = None,
        stores: Stores | None = None,
    ) -> None:
        self._inputs = inputs
        self._preparation = preparation
        self._stores = stores

    # --- looking ---

    def current_deployment(self, environment: str) -> str | None:
        """The deployment that is in force in an environment."""
        _, _, stores = self._capabilities()
        found = stores.activations.in_states(environment, ActivationState.ACTIVE, ActivationState.RETIRING)
        return found[-1].request.deployment_id if found else None

    def standing(
        self, *, projection_root: Path, environment: str, release_id: str, deployment_id: str
    ) -> StoredActivation | None:
        """The activation that is already PREPARED or ACTIVE with exactly this release, context and guards."""
        _, _, stores = self._capabilities()
        found = stores.activations.in_states(environment, ActivationState.ACTIVE) or stores.activations.in_states(
            environment, ActivationState.PREPARED
        )
        if not found or found[-1].request.deployment_id != deployment_id:
            return None
        look = self.look(
            projection_root=projection_root,
            environment=environment,
            release_id=release_id,
            deployment_id=deployment_id,
        )
        request = found[-1].request
        same = (look.workloads, look.resources, look.observation.digest()) == (
            request.workloads,
            request.resources,
            request.observation_sha256,
        )
        return found[-1] if same else None

    def followed(self, activation_id: str) -> str | None:
        """The deployment that an activation followed."""
        _, _, stores = self._capabilities()
        found = stores.activations.of_occurrence(activation_id)
        before = None if found is None else found.request.previous_activation_sha256
        return None if before is None else stores.activations.read_exact(before).request.deployment_id

    def unresolved(self, environment: str) -> list[str]:
        """Attempts of what is in force that are RUNNING or COMMIT_UNKNOWN."""
        _, _, stores = self._capabilities()
        found = stores.activations.in_states(environment, ActivationState.ACTIVE, ActivationState.RETIRING)
        return [attempt for activation in found for attempt in stores.activations.unresolved(activation.sha256)]

    def dags_in_force(self, environment: str) -> list[str]:
        """Ids of the DAGs of what is in force in an environment."""
        _, _, stores = self._capabilities()
        found = stores.activations.in_states(environment, ActivationState.ACTIVE, ActivationState.RETIRING)
        dags = {dag for activation in found for dag in activation.release.dags}
        return sorted(dags | {w.workload_id.rsplit(".", 1)[0] for a in found for w in a.release.workloads()})

    def of_occurrence(self, activation_id: str) -> StoredActivation | None:
        """The activation of an occurrence, when there is one."""
        _, _, stores = self._capabilities()
        return stores.activations.of_occurrence(activation_id)

    def plan(self, sources: CompositionSourceSnapshot) -> CompositionExecutionPlan:
        """Classify every workload; reserves nothing.

        :raises ActivationRefused: names every workload that has no cell.
        """
        _, preparation, stores = self._capabilities()
        return plan_composition_execution(
            sources, family=Family(stores.family), connector=preparation.physical.backend.connector
        )

    def seal(self, sources: CompositionSourceSnapshot, environment: str) -> Deployment:
        """The deployment of a release in an environment, its connections as they resolve now."""
        _, preparation, _ = self._capabilities()
        return preparation.physical.seal(self.plan(sources), environment)

    def look(
        self, *, projection_root: Path, environment: str, release_id: str, deployment_id: str
    ) -> PhysicalAdmission:
        """What an activation would own, and under which names; reserves nothing."""
        inputs, preparation, stores = self._capabilities()
        sources = inputs.sources(projection_root, release_id)
        deployment = inputs.deployment(projection_root, deployment_id)
        if (deployment.release_id, deployment.environment) != (release_id, environment):
            raise ActivationStale("the sealed context belongs to another release or environment; seal it again")
        plan = self.plan(sources)
        if preparation.physical.seal(plan, environment) != deployment:
            raise ActivationStale(
                "a connection of the environment leads to another server or database than when the context was sealed; "
                "seal it again"
            )
        return preparation.physical.admit(plan, deployment, stores.activations.guards(), str(stores.service_id))

    # --- the five operations ---

    def prepare(
        self,
        *,
        projection_root: Path,
        activation_id: str,
        environment: str,
        release_id: str,
        deployment_id: str,
        previous_deployment_id: str | None,
    ) -> StoredActivation:
        """Verify, admit, drain the predecessor, and reserve every guard: PREPARED.

        A repeated call with the same ``activation_id`` returns what is there, re-verified.

        :param activation_id: the occurrence, a UUIDv4.
        :param previous_deployment_id: the deployment that is current; compare-and-swap.
        :raises ActivationStale: another deployment is current, or sources or context changed.
        :raises ActivationRefused: see :meth:`plan`; or the predecessor has unresolved attempts.
        """
        _, _, stores = self._capabilities()
        admission = self.look(
            projection_root=projection_root,
            environment=environment,
            release_id=release_id,
            deployment_id=deployment_id,
        )
        existing = stores.activations.of_occurrence(activation_id)
        if existing is not None:
            self._require_same(existing, admission, environment, release_id)
            return self._require_state(existing, ActivationState.PREPARED, ActivationState.ACTIVE)
        in_force = stores.activations.in_states(environment, ActivationState.ACTIVE, ActivationState.RETIRING)
        current = in_force[-1] if in_force else None
        if (current.request.deployment_id if current else None) != previous_deployment_id:
            raise ActivationStale(
                f"deployment {current.request.deployment_id[7:19] if current else 'none'} is current in environment "
                f"{environment!r}, not {(previous_deployment_id or 'none').removeprefix('sha256:')[:12]}; look again"
            )
        request = ActivationRequest(
            family=Family(stores.family),
            occurrence_id=activation_id,
            environment=environment,
            release_id=release_id,
            deployment_id=deployment_id,
            observation_sha256=admission.observation.digest(),
            previous_activation_sha256=current.sha256 if current else None,
            workloads=admission.workloads,
            resources=admission.resources,
        )
        stale = stores.activations.in_states(environment, ActivationState.PREPARED)
        replaced = [a.sha256 for a in (*in_force, *stale)]
        stores.activations.require_free(request, besides=replaced)
        sources = self._capabilities()[0].sources(projection_root, release_id)
        return stores.activations.prepare(
            request, sources.release, admission.deployment, admission.observation, replaced
        )

    def while_prepared(self, prepared: StoredActivation, switch: Callable[[], None]) -> None:
        """Move the current pointer, while no other deployer can retire the activation it is moved to.

        :raises ActivationStale: another deployer was first; nothing was moved.
        """
        _, _, stores = self._capabilities()
        stores.activations.while_prepared(prepared.sha256, switch)

    def activate(self, prepared: StoredActivation, *, projection_root: Path) -> StoredActivation:
        """PREPARED -> ACTIVE, everything verified once more; ACTIVE is returned as it is.

        :raises ActivationStale: sources, context, places, names or epochs are others than were prepared.
        :raises ActivationCommitUnknown: the acknowledgement was lost; it may be current.
        """
        _, _, stores = self._capabilities()
        found = self._reverified(prepared, projection_root)
        if found.state is ActivationState.ACTIVE:
            return found
        self._require_state(found, ActivationState.PREPARED)
        try:
            active = stores.activations.activate(found.sha256)
        except CommitUnknown as error:
            raise ActivationCommitUnknown(
                f"activation {found.sha256} was not acknowledged; it may be current. Activate again: that reads "
                "what is there and goes on from it",
                activation=found.sha256,
                state_may_have_changed=True,
                recovery_required=True,
            ) from error
        if active.epochs != prepared.epochs:
            raise ActivationStale("the guards are held under other epochs than were prepared")
        return active

    def require_active(
        self,
        *,
        projection_root: Path,
        activation_id: str,
        environment: str,
        release_id: str,
        deployment_id: str,
        previous_deployment_id: str | None,
    ) -> StoredActivation:
        """The activation of these coordinates, ACTIVE, with sources, context and places as they were admitted.

        :raises ActivationMissing: there is none. :raises ActivationStale: something changed.
        """
        _, _, stores = self._capabilities()
        existing = stores.activations.of_occurrence(activation_id)
        if existing is None:
            raise ActivationMissing(f"there is no activation {activation_id}")
        self._require_state(existing, ActivationState.ACTIVE)
        if self.followed(activation_id) != previous_deployment_id:
            raise ActivationStale("the activation followed another deployment than the one given")
        admission = self.look(
            projection_root=projection_root,
            environment=environment,
            release_id=release_id,
            deployment_id=deployment_id,
        )
        self._require_same(existing, admission, environment, release_id)
        return existing

    def begin_retirement(self, active: StoredActivation, *, projection_root: Path) -> StoredActivation:
        """ACTIVE -> RETIRING: nothing is admitted any more; attempts already admitted may finish.

        :param projection_root: the sealed projection, verified first.
        :raises ActivationStale: the activation presented is not the ledger's. :raises ReleaseAltered: the projection is
            not the one that was activated.
        """
        return self._begin(self._presented(active, projection_root))

    def _begin(self, found: StoredActivation) -> StoredActivation:
        _, _, stores = self._capabilities()
        if found.state is ActivationState.RETIRING:
            return found
        self._require_state(found, ActivationState.ACTIVE)
        return stores.activations.begin_retirement(found.sha256)

    def finalize_retirement(self, retiring: StoredActivation, *, projection_root: Path) -> StoredActivation:
        """RETIRING -> RETIRED, every guard free, epochs kept.

        :param projection_root: the sealed projection, verified first.
        :raises ActivationRefused: an attempt is RUNNING or COMMIT_UNKNOWN, or a gate is not CLOSED.
        """
        return self._finish(self._presented(retiring, projection_root))

    def _finish(self, found: StoredActivation) -> StoredActivation:
        _, _, stores = self._capabilities()
        if found.state is ActivationState.RETIRED:
            return found
        self._require_state(found, ActivationState.RETIRING)
        return stores.activations.finalize_retirement(found.sha256)

    def retire(self, environment: str) -> list[StoredActivation]:
        """Both retirement steps for whatever is in force in an environment, by the ledger's complete originals.

        For a person: a release whose projection is gone can be retired as well.
        """
        _, _, stores = self._capabilities()
        active = stores.activations.in_states(environment, ActivationState.ACTIVE)
        if active:
            refuse_unresolved(stores.activations.unresolved(active[0].sha256))
        for current in active:
            self._begin(self._presented(current))
        retiring = stores.activations.in_states(environment, ActivationState.RETIRING)
        return [self._finish(self._presented(found)) for found in retiring]

    # --- inside ---

    def _presented(self, given: StoredActivation, projection_root: Path | None = None) -> StoredActivation:
        """What a caller presents, as the ledger has it now."""
        inputs, _, stores = self._capabilities()
        found = stores.activations.read_exact(given.sha256)
        if found.request != given.request or found.epochs != given.epochs:
            raise ActivationStale("the activation presented is not the one in the ledger")
        if projection_root is not None:
            inputs.sources(projection_root, found.request.release_id)
            inputs.deployment(projection_root, found.request.deployment_id)
        return found

    def _reverified(self, given: StoredActivation, projection_root: Path) -> StoredActivation:
        found = self._presented(given)
        admission = self.look(
            projection_root=projection_root,
            environment=found.request.environment,
            release_id=found.request.release_id,
            deployment_id=found.request.deployment_id,
        )
        self._require_same(found, admission, found.request.environment, found.request.release_id)
        return found

    @staticmethod
    def _require_same(
        existing: StoredActivation, admission: PhysicalAdmission, environment: str, release_id: str
    ) -> None:
        """Membership, resources and names are those of the immutable request; when tables changed is no matter."""
        request = existing.request
        given = (
            environment,
            release_id,
            admission.deployment.digest(),
            admission.observation.digest(),
            admission.workloads,
            admission.resources,
        )
        if given != (
            request.environment,
            request.release_id,
            request.deployment_id,
            request.observation_sha256,
            request.workloads,
            request.resources,
        ):
            raise ActivationStale(
                "the release, its context, its enrolments or its physical places are others than were admitted; "
                "prepare a new activation"
            )

    @staticmethod
    def _require_state(found: StoredActivation, *states: ActivationState) -> StoredActivation:
        if found.state not in states:
            raise ActivationStale(f"activation {found.sha256[7:19]} is {found.state.name}")
        return found

    def _capabilities(self) -> tuple[ActivationInputs, CompositionActivationPreparation, Stores]:
        if self._inputs is None or self._preparation is None or self._stores is None:
            raise AdmissionUnavailable(
                "activation needs inputs, preparation and stores; build it from a control connection"
            )
        self._stores.verify()
        return self._inputs, self._preparation, self._stores
