"""How people write the names of tables: targets as ``database.table``, sources as ``schema.table``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from airflow_provider_dpone.errors import DeclarationInvalid, SourceMissing

_PART: Final = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


def split_table(text: str) -> tuple[str, str]:
    """Database and table of ``database.table``; a part in backticks may hold dots."""
    parts = _split(text)
    if len(parts) != 2 or not all(parts):
        raise DeclarationInvalid(f"{text!r} is not of the form database.table; put names with dots in backticks")
    return parts[0], parts[1]


def _split(text: str) -> Sequence[str]:
    parts, current, quoted = [], "", False
    position = 0
    while position < len(text):
        sign = text[position]
        if sign == "`":
            if quoted and text[position + 1 : position + 2] == "`":
                current += "`"
                position += 1
            else:
                quoted = not quoted
        elif sign == "." and not quoted:
            parts.append(current)
            current = ""
        else:
            current += sign
        position += 1
    return [*parts, current]


def parse_relation(text: str) -> tuple[str, str]:
    """Schema and name of ``schema.name``; a part in double quotes may hold dots. Case is kept as written.

    :raises SourceMissing: not two parts.
    """
    parts, position = [], 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            break
        parts.append(match[1].replace('""', '"') if match[1] is not None else match[2])
        position = match.end()
        if position < len(text):
            if text[position] != "." or position + 1 == len(text):
                break
            position += 1
    if position != len(text) or len(parts) != 2:
        raise SourceMissing(f'{text!r} is not of the form schema.name; put names with dots in quotes: "a.b"."c"')
    return parts[0], parts[1]
