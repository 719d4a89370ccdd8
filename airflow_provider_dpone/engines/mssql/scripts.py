"""The T-SQL of the files beside this module, cut into named parts.

A part is a batch that begins with ``-- name: what it says``; batches are separated by GO. Every question to a catalog
view is a part of its own, so that what a server must offer can be listed.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Final

_GO: Final = re.compile(r"^GO\s*$", re.MULTILINE)
_NAMED: Final = re.compile(r"\A-- (?P<name>[a-z_]+): ")


def parts(file: str) -> dict[str, str]:
    """The parts of a file by their names, in order."""
    found: dict[str, str] = {}
    for batch in (part.strip() for part in _GO.split(statement(file))):
        named = _NAMED.match(batch)
        assert named is not None, f"{file}: a batch without a name"
        found[named["name"]] = batch
    return found


def quoted(*names: str) -> str:
    """A quoted, qualified identifier, whatever the names contain."""
    return ".".join("[" + name.replace("]", "]]") + "]" for name in names)


def statement(name: str) -> str:
    """The SQL of a file beside this module."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def literal(value: str | int | bytes) -> str:
    """A value as T-SQL text, for statements that take no parameters."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, int):
        return str(value)
    return "N'" + value.replace("'", "''") + "'"
