"""From what producers declare to what is current: the two ways a release becomes active."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

from airflow_provider_dpone.activation.cache import Materialised
from airflow_provider_dpone.activation.physical import PhysicalAdmission
from airflow_provider_dpone.errors import ActivationMissing
from airflow_provider_dpone.hooks.bindings import coordinator, materializer
from airflow_provider_dpone.ledger.activations import StoredActivation
from airflow_provider_dpone.operators.declarations import loaded_dags, producers_in
from airflow_provider_dpone.releases.builder import Producers, build_release


def activate_release(
    release_dir: Path, *, release_id: str, cache: Path, environment: str, control_conn_id: str
) -> Materialised:
    """Materialise a built release into the cache and make it current.

    :raises DponeError: see :meth:`DeploymentCacheMaterializer.materialize`.
    """
    made = materializer(cache, control_conn_id, loaded_dags)
    return made.materialize(release_dir, environment=environment, expected_release_id=release_id)


def prepare_release(
    release_dir: Path, *, release_id: str, cache: Path, environment: str, control_conn_id: str
) -> StoredActivation:
    """Materialise a built release and reserve its guards; the pointer stays where it is.

    :raises DponeError: see :meth:`CompositionActivationCoordinator.prepare`.
    """
    made, work = materializer(cache, control_conn_id, loaded_dags), coordinator(control_conn_id)
    projection, deployment = made.seal(release_dir, environment=environment, expected_release_id=release_id)
    coordinates: dict[str, Any] = {
        "projection_root": projection,
        "environment": environment,
        "release_id": release_id,
        "deployment_id": deployment.digest(),
    }
    return work.standing(**coordinates) or work.prepare(
        activation_id=str(uuid.uuid4()), previous_deployment_id=work.current_deployment(environment), **coordinates
    )


def require_active_release(release_id: str, *, cache: Path, environment: str, control_conn_id: str) -> StoredActivation:
    """The activation of exactly this release, ACTIVE and re-verified.

    :raises ActivationMissing: another release, or none, is current in the cache.
    """
    made, work = materializer(cache, control_conn_id), coordinator(control_conn_id)
    pointer = made.current(environment)
    if pointer is None or pointer.release_id != release_id:
        raise ActivationMissing(f"release {release_id[7:19]} is not current in environment {environment!r}")
    return work.require_active(
        projection_root=made.projection(pointer.deployment_id),
        activation_id=pointer.activation_id,
        environment=environment,
        release_id=release_id,
        deployment_id=pointer.deployment_id,
        previous_deployment_id=work.followed(pointer.activation_id),
    )


def activate_dags_folder(dags_folder: Path, environment: str, control_conn_id: str) -> StoredActivation:
    """Make the workloads that DAG files declare now the active release; nothing is materialised.

    The release pins declarations, not files: DAG files may change in what declares nothing. The same declarations
    already active are returned as they are.
    """
    with tempfile.TemporaryDirectory(prefix="dpone-release-") as folder:
        made = materializer(Path(folder) / "cache", control_conn_id)
        release = build_release(_declared_only(dags_folder), Path(folder) / "release")
        projection, deployment = made.seal(
            Path(folder) / "release", environment=environment, expected_release_id=release.digest()
        )
        work = coordinator(control_conn_id)
        coordinates: dict[str, Any] = {
            "projection_root": projection,
            "environment": environment,
            "release_id": release.digest(),
            "deployment_id": deployment.digest(),
        }
        standing = work.standing(**coordinates)
        prepared = standing or work.prepare(
            activation_id=str(uuid.uuid4()),
            previous_deployment_id=work.current_deployment(environment),
            **coordinates,
        )
        return work.activate(prepared, projection_root=projection)


def look_at_dags_folder(dags_folder: Path, environment: str, control_conn_id: str) -> PhysicalAdmission:
    """What :func:`activate_dags_folder` would own, or why it is refused; changes nothing."""
    with tempfile.TemporaryDirectory(prefix="dpone-release-") as folder:
        release = build_release(_declared_only(dags_folder), Path(folder) / "release")
        return look_at_release(
            Path(folder) / "release",
            release_id=release.digest(),
            environment=environment,
            control_conn_id=control_conn_id,
        )


def look_at_release(release_dir: Path, *, release_id: str, environment: str, control_conn_id: str) -> PhysicalAdmission:
    """What :func:`activate_release` would own, or why it is refused; the cache and the ledger stay as they are."""
    with tempfile.TemporaryDirectory(prefix="dpone-release-") as folder:
        made = materializer(Path(folder) / "cache", control_conn_id)
        projection, deployment = made.seal(release_dir, environment=environment, expected_release_id=release_id)
        return coordinator(control_conn_id).look(
            projection_root=projection,
            environment=environment,
            release_id=release_id,
            deployment_id=deployment.digest(),
        )


def _declared_only(dags_folder: Path) -> Producers:
    found = producers_in(dags_folder)
    return Producers(declarations=found.declarations, dags=found.dags)
