"""Builds an immutable release directory from what producers declare: DAG files, manifests, native projects."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from airflow_provider_dpone.contracts.release import Release, WorkloadDeclaration
from airflow_provider_dpone.errors import ManifestInvalid, ReleaseAltered
from airflow_provider_dpone.releases import layout
from airflow_provider_dpone.releases.manifest import manifests_in
from airflow_provider_dpone.releases.packs import AirflowCompactPackBuilder

_GENERATED: Final = b'''"""DAGs of this release's transfer manifests."""

from airflow_provider_dpone.operators.generated import transfer_dags

globals().update(transfer_dags(__file__))
'''
_LEFT_OUT: Final = frozenset({"__pycache__", ".git"})


@dataclass(frozen=True)
class Producers:
    """What goes into a release."""

    declarations: Sequence[WorkloadDeclaration] = ()
    """Of the DAG files."""
    dags: Sequence[str] = ()
    """Ids of the DAGs the DAG files define."""
    dags_folder: Path | None = None
    manifests_folder: Path | None = None
    native: Mapping[str, Path] = field(default_factory=dict)
    """Native projects by name; each directory is kept whole, but for what is left out."""
    native_left_out: frozenset[str] = frozenset()
    """Names of files and directories that are no part of a native project: what its tool writes."""


def build_release(producers: Producers, output: Path) -> Release:
    """Write the release directory, whole or not at all, and return its release document.

    :raises ReleaseAltered: ``output`` exists. :raises ManifestInvalid: see :func:`manifests_in`.
    """
    if output.exists():
        raise ReleaseAltered(f"{output} exists; a release is never written over")
    files: dict[str, bytes] = {}
    if producers.dags_folder is not None:
        _take(files, producers.dags_folder, layout.DAGS)
    for name, folder in sorted(producers.native.items()):
        _take(files, folder, f"{layout.NATIVE}/{name}", producers.native_left_out)
    declarations = list(producers.declarations)
    dags = set(producers.dags)
    if producers.manifests_folder is not None:
        for path, raw, manifest in manifests_in(producers.manifests_folder):
            files[f"{layout.MANIFESTS}/{manifest.id}.yaml"] = raw
            files[f"{layout.RUNTIME}/{manifest.id}.json"] = manifest.written()
            for sql in manifest.sql_files:
                at = path.parent / sql
                if not at.is_file() or not at.resolve().is_relative_to(producers.manifests_folder.resolve()):
                    raise ManifestInvalid(f"{path}: declared SQL file {sql} is not a file below the manifests folder")
                files[f"{layout.SQL}/{manifest.id}/{sql}"] = at.read_bytes()
            if manifest.id in dags:
                raise ManifestInvalid(f"{path}: a DAG file already defines DAG {manifest.id!r}")
            dags.add(manifest.id)
            declarations.append(manifest.declaration())
            files[layout.GENERATED_DAGS] = _GENERATED
    builder = AirflowCompactPackBuilder()
    for declaration in declarations:
        files[layout.pack_path(declaration.workload_id)] = builder.build(declaration, outlet_binding="logical").wire()
    release = release_of(
        declarations, dags=sorted(dags), files={path: raw for path, raw in files.items() if path != layout.RELEASE}
    )
    _write(output, {**files, layout.RELEASE: release.wire()})
    return release


def release_of(
    declarations: Sequence[WorkloadDeclaration], *, dags: Sequence[str] = (), files: Mapping[str, bytes] | None = None
) -> Release:
    """The release document of these declarations; both constituents listed."""
    return Release(
        native=tuple(sorted(d for d in declarations if d.constituent == "native")),
        standalone=tuple(sorted(d for d in declarations if d.constituent == "standalone")),
        dags=tuple(dags),
        files=tuple(sorted(layout.file_of(path, raw) for path, raw in (files or {}).items())),
    )


def _take(files: dict[str, bytes], folder: Path, under: str, left_out: frozenset[str] = frozenset()) -> None:
    for path, raw in layout.read_tree(folder, left_out=_LEFT_OUT | left_out).items():
        files[f"{under}/{path}"] = raw


def _write(output: Path, files: Mapping[str, bytes]) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=output.parent))
    try:
        for path, raw in files.items():
            at = building / path
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(raw)
        building.chmod(0o755)
        sync_tree(building)
        os.rename(building, output)
        sync(output.parent)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def sync_tree(root: Path) -> None:
    """Force every file and directory below a directory to disk."""
    for folder, _, names in os.walk(root):
        for name in names:
            sync(Path(folder) / name)
        sync(Path(folder))


def sync(path: Path) -> None:
    """Force one file or directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
