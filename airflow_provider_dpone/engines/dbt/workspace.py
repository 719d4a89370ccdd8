"""The private directory of one attempt, and parses kept for later attempts.

A workspace is readable by its owner only, holds no secret, and goes when the attempt ends. One that a killed task left
is removed by the next task on that machine: whoever works in one holds a lock that no death survives.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.errors import DbtUnusable

_PREFIX: Final = "dpone-dbt-"
_KEPT_PARSES: Final = 16


class Workspace:
    """A fresh private directory below ``root``.

    :raises DbtUnusable: no directory can be made there.
    """

    def __init__(self, root: Path) -> None:
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        except OSError as error:
            raise DbtUnusable(f"no working directory can be made in {root}: {error}") from error
        self._lock = _locked(self.directory)
        self.project = self.directory / "project"
        self.profiles, self.target, self.logs = (self._sub(name) for name in ("profiles", "target", "logs"))
        _sweep(root)

    def _sub(self, name: str) -> Path:
        path = self.directory / name
        path.mkdir(mode=0o700)
        return path

    def remove(self) -> None:
        """Remove the directory; may be called again."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _locked(directory: Path) -> int | None:
    """An exclusive lock on a workspace, or None when somebody works in it."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _sweep(root: Path) -> None:
    """Remove workspaces of ours in which nobody works any more."""
    for left in root.glob(_PREFIX + "*"):
        try:
            if left.stat().st_uid != os.getuid() or not (left / "lock").exists():
                continue
            lock = _locked(left)
        except OSError:  # it went meanwhile
            continue
        if lock is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)


class ParseCache:
    """dbt's saved parses, one file per sealed project, place and dbt version; written whole, never in place.

    dbt itself compares every file, variable and connection setting with what it saved and parses anew what differs.
    The login is the same placeholder in every parse. A directory that others can write is not used.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = directory.stat()
        self._usable = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    @staticmethod
    def key(*parts: str) -> str:
        """The name of a saved parse."""
        return digest_of("\x00".join(("dpone.dbt_parse.v1", *parts)).encode()).removeprefix("sha256:")

    def take(self, key: str, target: Path) -> bool:
        """Copy a saved parse to where dbt looks for it; False when there is none."""
        if not self._usable:
            return False
        try:
            shutil.copyfile(self._directory / key, target / "partial_parse.msgpack")
        except FileNotFoundError:
            return False
        os.utime(self._directory / key)
        return True

    def keep(self, key: str, target: Path) -> None:
        """Keep what dbt saved; the least recently used go."""
        saved = target / "partial_parse.msgpack"
        if not self._usable or not saved.exists():
            return
        descriptor, name = tempfile.mkstemp(dir=self._directory, prefix="new-")
        os.close(descriptor)
        shutil.copyfile(saved, name)
        os.replace(name, self._directory / key)
        kept = sorted(self._directory.iterdir(), key=_used, reverse=True)
        for old in kept[_KEPT_PARSES:]:
            old.unlink(missing_ok=True)


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
