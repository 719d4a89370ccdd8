"""Reads a release directory back and verifies all its producer wrote, before anything rests on it.

Every file is there with its exact bytes and no other is; the inventory is the release document's own; packs are what
the builder makes of the declarations again; manifests declare what the inventory says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.release import Release, WorkloadDeclaration
from airflow_provider_dpone.errors import ReleaseAltered
from airflow_provider_dpone.releases import layout
from airflow_provider_dpone.releases.manifest import MAX_MANIFESTS, parse_manifest
from airflow_provider_dpone.releases.packs import AirflowCompactPackBuilder


@dataclass(frozen=True)
class CompositionSourceSnapshot:
    """A verified release: nothing in it changes any more, whatever happens to the directory."""

    release_id: str
    release: Release
    original: bytes
    """The release document's exact bytes."""
    native_id: str
    """Identity of the native constituent: digest over its workloads' pins."""
    standalone_id: str
    """Identity of the standalone inventory, likewise."""
    pins: dict[str, str]
    """Every workload's pinned declaration digest."""
    writes: dict[str, tuple[str, ...]]
    """Every relation each workload can write, its target first."""
    reads: dict[str, tuple[str, ...]]
    """Every relation each workload reads; recorded, they admit nothing."""
    manifests: dict[str, bytes]
    """The original transfer manifests by path."""
    files: dict[str, bytes]


class CompositionSourceReader:
    """Reads releases from directories."""

    def read_sources(self, path: Path, *, expected_release_id: str) -> CompositionSourceSnapshot:
        """The complete, verified release in a directory.

        :raises ReleaseAltered: it is another release, a byte differs, a file is missing or too many, or a projection is
            not what the declarations give.
        """
        files = layout.read_tree(path)
        original = files.pop(layout.RELEASE, None)
        if original is None:
            raise ReleaseAltered(f"{path} holds no {layout.RELEASE}")
        if digest_of(original) != expected_release_id:
            raise ReleaseAltered(f"{path} is release {digest_of(original)}, not the expected {expected_release_id}")
        release = Release.parse(original)
        self._require_files(path, release, files)
        self._require_packs(release, files)
        manifests = self._manifests(release, files)
        workloads = release.workloads()
        return CompositionSourceSnapshot(
            release_id=expected_release_id,
            release=release,
            original=original,
            native_id=_identity(release, native=True),
            standalone_id=_identity(release, native=False),
            pins={w.workload_id: w.digest() for w in workloads},
            writes={w.workload_id: w.relations() for w in workloads},
            reads={w.workload_id: _reads(w) for w in workloads},
            manifests=manifests,
            files=files,
        )

    @staticmethod
    def _require_files(path: Path, release: Release, files: dict[str, bytes]) -> None:
        listed = {f.path: f for f in release.files}
        missing, foreign = sorted(set(listed) - set(files)), sorted(set(files) - set(listed))
        altered = sorted(p for p, raw in files.items() if p in listed and layout.file_of(p, raw) != listed[p])
        if missing or foreign or altered:
            differences = (("missing", missing), ("not of the release", foreign), ("altered", altered))
            found = [f"{what} {', '.join(names[:5])}" for what, names in differences if names]
            raise ReleaseAltered(
                f"the release directory {path} is not as it was built: {'; '.join(found)}; build it again",
                missing=missing,
                foreign=foreign,
                altered=altered,
            )

    @staticmethod
    def _require_packs(release: Release, files: dict[str, bytes]) -> None:
        builder = AirflowCompactPackBuilder()
        packs = {p for p in files if p.startswith(layout.PACKS + "/")}
        for declaration in release.workloads():
            at = layout.pack_path(declaration.workload_id)
            if files.get(at) != builder.build(declaration, outlet_binding="logical").wire():
                raise ReleaseAltered(f"the pack of {declaration.workload_id} is not what its declaration gives")
            packs.discard(at)
        if packs:
            raise ReleaseAltered(f"packs of no workload: {', '.join(sorted(packs))}")

    @staticmethod
    def _manifests(release: Release, files: dict[str, bytes]) -> dict[str, bytes]:
        declared = {w.workload_id: w for w in release.workloads()}
        found = {p: raw for p, raw in files.items() if p.startswith(layout.MANIFESTS + "/")}
        if len(found) > MAX_MANIFESTS:
            raise ReleaseAltered(f"the release holds {len(found)} manifests; at most {MAX_MANIFESTS} are read")
        for path, raw in found.items():
            manifest = parse_manifest(raw, path)
            if declared.get(manifest.workload_id) != manifest.declaration():
                raise ReleaseAltered(f"{path} declares something else than the release says of {manifest.workload_id}")
            if files.get(f"{layout.RUNTIME}/{manifest.id}.json") != manifest.written():
                raise ReleaseAltered(f"what runs for {path} is not what it says")
        if sum(p.startswith(layout.RUNTIME + "/") for p in files) != len(found):
            raise ReleaseAltered("the release runs a transfer that no manifest declares")
        return found


def require_derived(
    sources: CompositionSourceSnapshot, declared: Iterable[WorkloadDeclaration], dags: Iterable[str]
) -> None:
    """Refuse a release whose pinned files, loaded again, declare anything else than its inventory.

    :param declared: what its ``dags`` folder declares now, generated DAGs included.
    :param dags: ids of the DAGs it gives now.
    :raises ReleaseAltered: names every workload and DAG that differs.
    """
    found = {d.workload_id: d.digest() for d in declared}
    differing = []
    for workload in sorted(found.keys() | sources.pins.keys()):
        if workload not in sources.pins:
            differing.append(f"{workload} is not in the inventory")
        elif found.get(workload) != sources.pins[workload]:
            differing.append(f"{workload} is {'declared otherwise' if workload in found else 'not declared'}")
    differing += [f"DAG {dag}" for dag in sorted(set(dags) ^ set(sources.release.dags))]
    if differing:
        raise ReleaseAltered(
            "the release's files do not declare what its inventory says; build it again:\n  " + "\n  ".join(differing),
            differing=differing,
        )


def _reads(declaration: WorkloadDeclaration) -> tuple[str, ...]:
    source = {declaration.source_relation} if declaration.source_relation else set()
    return tuple(sorted({*declaration.reads, *source}))


def _identity(release: Release, *, native: bool) -> str:
    workloads = release.native if native else release.standalone
    kind = "native" if native else "standalone"
    return digest_of("\n".join([f"dpone.{kind}.v1", *(f"{w.workload_id} {w.digest()}" for w in workloads)]).encode())


def build_composition_source_reader() -> CompositionSourceReader:
    """The production verifier of release directories."""
    return CompositionSourceReader()
