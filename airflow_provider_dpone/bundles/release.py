"""A versioned DAG bundle over the deployment cache: a run stays on the release it started with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from airflow.dag_processing.bundles.base import BaseDagBundle

from airflow_provider_dpone.activation.cache import RELEASE, DeploymentCacheMaterializer
from airflow_provider_dpone.errors import ActivationMissing
from airflow_provider_dpone.releases import layout

try:  # Airflow 3.3 wraps versions; before that they are plain texts
    from airflow.dag_processing.bundles.base import BundleVersion
except ImportError:  # pragma: no cover
    BundleVersion = None  # type: ignore[assignment, misc]


#: Version while an environment has no current release. Not null: Airflow compares versions with what it saw.
NOTHING: Final = "nothing-is-current"


class ReleaseDagBundle(BaseDagBundle):
    """DAGs of the current release of an environment; the version is the deployment's id.

    A run that started under one release keeps its version when the pointer moves, as long as the projection is in the
    cache; `dpone-airflow release prune` removes those that nothing needs any more.

    :param cache: the deployment cache, the same directory on every machine (or a copy kept in step).
    :param environment: which pointer to follow.
    """

    supports_versioning = True

    def __init__(self, *, cache: str, environment: str = "default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.environment = environment
        self._cache = DeploymentCacheMaterializer(Path(cache))

    @property
    def path(self) -> Path:
        """The DAG files of the bundle's version, or of the current release.

        :raises ActivationMissing: the projection of this version is not in the cache any more.
        """
        version = self.version or self._current()
        if version == NOTHING:
            empty = Path(self.base_dir) / NOTHING
            empty.mkdir(parents=True, exist_ok=True)
            return empty
        dags = self._cache.projection(version) / RELEASE / layout.DAGS
        if not dags.is_dir():
            raise ActivationMissing(
                f"the projection of deployment {version[:12]} is not in the cache {self._cache.root}; materialise that "
                "release again, or clear the run onto the current one"
            )
        return dags

    def get_current_version(self) -> Any:
        """The deployment that is current now."""
        version = self.version or self._current()
        return version if BundleVersion is None else BundleVersion(version=version)

    def refresh(self) -> None:
        """Nothing to fetch: the pointer is read each time."""

    def _current(self) -> str:
        pointer = self._cache.current(self.environment)
        return NOTHING if pointer is None else pointer.deployment_id.removeprefix("sha256:")
