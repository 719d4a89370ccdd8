"""How people write the name of a table: ``database.table``, a part in backticks when it holds dots."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_dpone.errors import DeclarationInvalid


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
