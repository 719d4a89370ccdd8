"""The deployment cache: sealed projections side by side, and one pointer per environment to the current one.

    <root>/projections/<deployment>/release/...        the release directory, byte for byte
    <root>/projections/<deployment>/deployment.json    its sealed runtime context
    <root>/current/<environment>.json                  which activation is current

A projection is written once, whole, and never changed. The pointer moves atomically, after PREPARED was checked and
before ACTIVE is acknowledged; whoever reads it sees the old or the new one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from airflow_provider_dpone.activation.coordinator import CompositionActivationCoordinator
from airflow_provider_dpone.contracts.canonical import Digest, Document, Uuid4, digest_of
from airflow_provider_dpone.contracts.release import Deployment
from airflow_provider_dpone.contracts.states import ActivationState
from airflow_provider_dpone.errors import (
    ActivationCommitUnknown,
    ActivationRefused,
    ActivationStale,
    AdmissionUnavailable,
    DponeError,
    ReleaseAltered,
)
from airflow_provider_dpone.ledger.activations import StoredActivation
from airflow_provider_dpone.releases import layout
from airflow_provider_dpone.releases.builder import sync, sync_tree
from airflow_provider_dpone.releases.sources import CompositionSourceSnapshot, build_composition_source_reader

RELEASE: Final = "release"
DEPLOYMENT: Final = "deployment.json"


class CurrentPointer(Document):
    """What is current in an environment, as the cache tells DAG bundles."""

    schema_name: Literal["dpone.current.v1"] = Field(default="dpone.current.v1")
    environment: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", strict=True)]
    activation_id: Uuid4
    activation_sha256: Digest
    deployment_id: Digest
    release_id: Digest


class SealedProjections:
    """Reads sealed projections; see :class:`airflow_provider_dpone.activation.coordinator.ActivationInputs`."""

    def sources(self, projection_root: Path, release_id: str) -> CompositionSourceSnapshot:
        """The verified release of a projection."""
        return build_composition_source_reader().read_sources(projection_root / RELEASE, expected_release_id=release_id)

    def deployment(self, projection_root: Path, deployment_id: str) -> Deployment:
        """The sealed context of a projection.

        :raises ReleaseAltered: it is missing or another.
        """
        at = projection_root / DEPLOYMENT
        raw = at.read_bytes() if at.is_file() else b""
        if digest_of(raw) != deployment_id:
            raise ReleaseAltered(f"{at} is not the sealed context {deployment_id}")
        return Deployment.parse(raw)


@dataclass(frozen=True)
class Materialised:
    """A deployment that is current and ACTIVE, acknowledged."""

    projection_root: Path
    activation: StoredActivation
    pointer: CurrentPointer


class DeploymentCacheMaterializer:
    """Makes deployments current: seals the projection, prepares, switches the pointer, activates.

    :param root: the cache directory, on a local file system.
    :param composition_activation_coordinator: the parent activation; a receipt of anything else is no acknowledgement.
    :param loaded_dags: ids of the DAGs a release's ``dags`` folder gives; every expected one must load, and no other,
        before anything is prepared.
    """

    def __init__(
        self,
        root: Path,
        *,
        composition_activation_coordinator: CompositionActivationCoordinator | None = None,
        loaded_dags: Callable[[Path], Collection[str]] | None = None,
    ) -> None:
        self.root = root
        self._coordinator = composition_activation_coordinator
        self._loaded_dags = loaded_dags

    def projection(self, deployment_id: str) -> Path:
        """Where the projection of a deployment lies."""
        return self.root / "projections" / deployment_id.removeprefix("sha256:")

    def current(self, environment: str) -> CurrentPointer | None:
        """The current pointer of an environment."""
        at = self._pointer(environment)
        return CurrentPointer.parse(at.read_bytes()) if at.is_file() else None

    def seal(self, release_dir: Path, *, environment: str, expected_release_id: str) -> tuple[Path, Deployment]:
        """Copy a verified release into the cache and seal its context; nothing is current yet.

        :raises ReleaseAltered: see :meth:`CompositionSourceReader.read_sources`.
        :raises ActivationRefused: a workload has no cell, or a DAG does not load.
        """
        coordinator = self._require()
        sources = build_composition_source_reader().read_sources(release_dir, expected_release_id=expected_release_id)
        deployment = coordinator.seal(sources, environment)
        projection = self.projection(deployment.digest())
        if not projection.exists():
            self._write(projection, sources, deployment)
        SealedProjections().sources(projection, expected_release_id)
        if self._loaded_dags is not None:
            _require_dags(sources, set(self._loaded_dags(projection / RELEASE / layout.DAGS)))
        return projection, deployment

    def materialize(
        self, release_dir: Path, *, environment: str, expected_release_id: str, activation_id: str | None = None
    ) -> Materialised:
        """Make a release current in an environment, or return it when it is already.

        :param activation_id: the occurrence; give the same one to repeat a call whose answer was lost.
        :raises ActivationCommitUnknown: the pointer moved and ACTIVE was not acknowledged.
        """
        coordinator = self._require()
        projection, deployment = self.seal(
            release_dir, environment=environment, expected_release_id=expected_release_id
        )
        deployment_id = deployment.digest()
        if activation_id is None:
            standing = coordinator.standing(
                projection_root=projection,
                environment=environment,
                release_id=expected_release_id,
                deployment_id=deployment_id,
            )
            activation_id = standing.request.occurrence_id if standing else str(uuid.uuid4())
        prepared = coordinator.prepare(
            projection_root=projection,
            activation_id=activation_id,
            environment=environment,
            release_id=expected_release_id,
            deployment_id=deployment_id,
            previous_deployment_id=coordinator.current_deployment(environment),
        )
        _require_receipt(
            prepared,
            (activation_id, environment, expected_release_id, deployment_id),
            ActivationState.PREPARED,
            ActivationState.ACTIVE,
        )
        pointer = CurrentPointer(
            environment=environment,
            activation_id=activation_id,
            activation_sha256=prepared.sha256,
            deployment_id=deployment_id,
            release_id=expected_release_id,
        )
        coordinator.while_prepared(prepared, lambda: self._switch(pointer))
        try:
            active = coordinator.activate(prepared, projection_root=projection)
            _require_receipt(
                active, (activation_id, environment, expected_release_id, deployment_id), ActivationState.ACTIVE
            )
            if (active.request, active.epochs) != (prepared.request, prepared.epochs):
                raise ActivationStale("what was activated is not what was prepared")
        except ActivationCommitUnknown:
            raise
        except DponeError as error:
            raise _moved(environment, prepared.sha256, error) from error
        return Materialised(projection, active, pointer)

    def prune(self, keep: int, *, dry_run: bool = False) -> list[str]:
        """Remove projections that are not current, but for the newest ``keep``; their names.

        A run that started under a removed one can no longer be cleared onto it.
        """
        folder = self.root / "projections"
        pointers = [CurrentPointer.parse(p.read_bytes()) for p in (self.root / "current").glob("*.json")]
        current = {p.deployment_id.removeprefix("sha256:") for p in pointers}
        others = [p for p in folder.glob("*") if p.name not in current and len(p.name) == 64]
        stale = sorted(others, key=lambda p: p.stat().st_mtime_ns, reverse=True)[keep:]
        for path in [] if dry_run else stale:
            going = path.with_name(f".pruning-{path.name}")
            os.rename(path, going)
            shutil.rmtree(going)
        return [path.name for path in stale]

    def _require(self) -> CompositionActivationCoordinator:
        if not isinstance(self._coordinator, CompositionActivationCoordinator):
            raise AdmissionUnavailable("a deployment becomes current only through its parent activation's coordinator")
        return self._coordinator

    def _pointer(self, environment: str) -> Path:
        return self.root / "current" / f"{environment}.json"

    def _switch(self, pointer: CurrentPointer) -> None:
        at = self._pointer(pointer.environment)
        try:
            at.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".switching-", dir=at.parent)
            with os.fdopen(descriptor, "wb") as file:
                file.write(pointer.wire())
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.replace(name, at)
        except OSError as error:
            raise ActivationRefused(f"the pointer {at} cannot be written ({error}); it was not moved") from error
        try:
            sync(at.parent)
        except OSError as error:
            raise _moved(pointer.environment, pointer.activation_sha256, error) from error

    def _write(self, projection: Path, sources: CompositionSourceSnapshot, deployment: Deployment) -> None:
        projection.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=".building-", dir=projection.parent))
        try:
            for path, raw in {**sources.files, layout.RELEASE: sources.original}.items():
                at = building / RELEASE / path
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_bytes(raw)
            (building / RELEASE / layout.DAGS).mkdir(exist_ok=True)
            (building / DEPLOYMENT).write_bytes(deployment.wire())
            building.chmod(0o755)
            sync_tree(building)
            try:
                os.rename(building, projection)
            except OSError:
                if not projection.is_dir():
                    raise
                shutil.rmtree(building)  # another process sealed the same bytes first
            sync(projection.parent)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise


def _moved(environment: str, activation_sha256: str, error: Exception) -> ActivationCommitUnknown:
    return ActivationCommitUnknown(
        f"the pointer of environment {environment!r} moved to activation {activation_sha256[7:19]}, and ACTIVE "
        f"was not acknowledged ({error}). Sealed inputs, request and evidence are kept; activate the same "
        "release again: that reads what is there and goes on from it. Moving the pointer back undoes no SQL",
        activation=activation_sha256,
        state_may_have_changed=True,
        recovery_required=True,
    )


def _require_receipt(receipt: object, coordinates: tuple[str, str, str, str], *states: ActivationState) -> None:
    """Only a typed activation of exactly these coordinates, with both constituents, acknowledges anything.

    :raises ActivationStale: it is something else.
    """
    if not isinstance(receipt, StoredActivation):
        raise ActivationStale(f"a {type(receipt).__name__} is no receipt of a parent activation")
    request = receipt.request
    given = (request.occurrence_id, request.environment, request.release_id, request.deployment_id)
    if given != coordinates or receipt.state not in states:
        raise ActivationStale("the receipt is of another activation or state")
    if {w.workload_id for w in receipt.release.workloads()} != {w.workload_id for w in request.workloads}:
        raise ActivationStale("the receipt lacks workloads of a constituent")
    if {e.guard_id for e in receipt.epochs} != {r.guard_id for r in request.resources}:
        raise ActivationStale("the receipt lacks guards of its request")


def _require_dags(sources: CompositionSourceSnapshot, loaded: set[str]) -> None:
    expected = set(sources.release.dags)
    if loaded != expected:
        missing, more = sorted(expected - loaded), sorted(loaded - expected)
        raise ActivationRefused(
            f"the release should give DAGs {len(expected)}; "
            + "; ".join(p for p in (missing and f"missing {missing[:5]}", more and f"not expected {more[:5]}") if p)
            + ". Nothing was reserved"
        )
