"""Where things lie in a release directory, and how such a directory is read without trusting it."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Final

from airflow_provider_dpone.contracts.release import ReleaseFile
from airflow_provider_dpone.errors import ReleaseAltered

RELEASE: Final = "release.json"
DAGS: Final = "dags"
PACKS: Final = "packs"
MANIFESTS: Final = "manifests"
#: Manifests as they are run: the same content in JSON, which a scheduler reads fifty times faster.
RUNTIME: Final = "runtime"
SQL: Final = "sql"
NATIVE: Final = "native"
#: A DAG file of ours that makes the DAGs of the manifests.
GENERATED_DAGS: Final = "dags/dpone_transfers.py"


def pack_path(workload_id: str) -> str:
    """Where the pack of a workload lies; workload ids may hold what file names cannot."""
    return f"{PACKS}/{hashlib.sha256(workload_id.encode()).hexdigest()[:32]}.json"


def read_tree(root: Path, *, left_out: frozenset[str] = frozenset()) -> dict[str, bytes]:
    """Every file below a directory by its relative path, each read once.

    :param left_out: names of files and directories that are passed over.
    :raises ReleaseAltered: something is neither a plain file nor a directory (a link could change under us).
    """
    found: dict[str, bytes] = {}
    if not root.is_dir() or root.is_symlink():
        raise ReleaseAltered(f"there is no release directory {root}")
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in left_out]
        files = [name for name in files if name not in left_out]
        for name in folders:
            if (Path(folder) / name).is_symlink():
                raise ReleaseAltered(f"{Path(folder) / name} is a link; a release holds plain files only")
        for name in files:
            path = Path(folder) / name
            if not stat.S_ISREG(path.lstat().st_mode):
                raise ReleaseAltered(f"{path} is no plain file; a release holds plain files only")
            found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def file_of(path: str, raw: bytes) -> ReleaseFile:
    """The inventory line of a file."""
    return ReleaseFile(path=path, sha256="sha256:" + hashlib.sha256(raw).hexdigest(), bytes=len(raw))
