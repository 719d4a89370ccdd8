"""A dbt project sealed for one attempt: a private copy and the digest of exactly what was copied."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.errors import DbtProjectInvalid

#: Never part of a project: what dbt writes, what version control keeps, and files that would set variables.
LEFT_OUT: Final = frozenset(
    {"target", "logs", ".git", ".venv", "venv", "__pycache__", ".env", "profiles.yml", ".user.yml"}
)


def seal(project_dir: Path, copy: Path) -> str:
    """Copy the project and return the digest of the copy.

    Links are followed, so that nothing outside can change what was sealed.

    :param copy: directory that does not exist yet.
    :raises DbtProjectInvalid: not a dbt project, or a file cannot be read.
    """
    if not (project_dir / "dbt_project.yml").is_file():
        raise DbtProjectInvalid(f"{project_dir} is not a dbt project: it has no dbt_project.yml")
    lines = []
    try:
        for source in _files(project_dir):
            relative = source.relative_to(project_dir)
            content = source.read_bytes()
            target = copy / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            lines.append(f"{relative.as_posix()}\x00{hashlib.sha256(content).hexdigest()}")
    except OSError as error:
        raise DbtProjectInvalid(f"{project_dir} cannot be read: {error}") from error
    return digest_of("\n".join(["dpone.dbt_project.v1", *sorted(lines)]).encode("utf-8", "surrogateescape"))


def _files(root: Path) -> list[Path]:
    found: list[Path] = []
    for directory, below, names in os.walk(root, followlinks=True):
        below[:] = sorted(name for name in below if name not in LEFT_OUT)
        if len(Path(directory).relative_to(root).parts) > 64:
            raise DbtProjectInvalid(f"{directory} is nested too deeply; does a link lead back into the project?")
        found += [Path(directory, name) for name in names if name not in LEFT_OUT]
    return found
