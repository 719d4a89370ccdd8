"""Arguments of operators, checked by name while the DAG file is parsed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, Final

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.naming import parse_relation
from airflow_provider_dpone.errors import DeclarationInvalid, DponeError, LimitsInvalid

_ENVIRONMENT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION: Final = re.compile(
    r"\s*(\d{1,9})\s*(seconds?|sec|s|minutes?|min|m|hours?|h|days?|d)(?![a-z])", re.IGNORECASE
)


def literal(name: str, value: Any) -> str:
    """A field that decides ownership must be literal: it is read before anything is rendered.

    :raises DeclarationInvalid: it is no text, empty, or a template.
    """
    if not isinstance(value, str) or not value or templated(value):
        raise DeclarationInvalid(f"{name} must be a literal text, not {value!r}; it decides who owns the target")
    return value


def templated(value: Any) -> bool:
    """Whether a text is rendered later."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def environment(value: Any) -> str:
    """The name of an environment."""
    if not _ENVIRONMENT.fullmatch(literal("environment", value)):
        raise DeclarationInvalid(
            f"environment {value!r} is not a name: lower-case letters, digits, - and _, at most 63 characters"
        )
    return str(value)


def duration(name: str, value: Any) -> timedelta:
    """A duration: a ``timedelta``, or a text such as ``"90 s"``, ``"1h"`` or ``"1h 30m"``.

    :raises DeclarationInvalid: neither, or negative.
    """
    if isinstance(value, timedelta) and value >= timedelta():
        return value
    total, position = timedelta(), 0
    if isinstance(value, str):
        while match := _DURATION.match(value, position):
            total += timedelta(**{_UNITS[match[2][0].lower()]: int(match[1])})
            position = match.end()
        if position and not value[position:].strip():
            return total
    raise DeclarationInvalid(f"{name} must be a timedelta or a text such as '90 s', '1h' or '1h 30m', not {value!r}")


def limits(value: Any) -> SnapshotLimits:
    """Ceilings, as ``SnapshotLimits`` or a dict of its arguments.

    :raises LimitsInvalid: neither; a ceiling is unknown, missing or no size.
    """
    if isinstance(value, SnapshotLimits):
        return value
    if not isinstance(value, Mapping):
        raise LimitsInvalid(
            f"limits must be SnapshotLimits(max_source_bytes=...) or a dict of its arguments, not {value!r}"
        )
    known = {field.name for field in fields(SnapshotLimits)}
    unknown = sorted(set(map(str, value)) - known)
    if unknown or "max_source_bytes" not in value:
        what = f"unknown: {', '.join(unknown)}" if unknown else "max_source_bytes is missing"
        raise LimitsInvalid(f"limits: {what}; ceilings are {', '.join(sorted(known))}")
    return SnapshotLimits(**value)


def count(name: str, value: Any) -> int:
    """A whole number of at least 0, or a text of one (a rendered template is a text).

    :raises DeclarationInvalid: anything else.
    """
    text = str(value).strip()
    if isinstance(value, bool) or not isinstance(value, int | str) or not (text.isascii() and text.isdecimal()):
        raise DeclarationInvalid(f"{name} must be a whole number of at least 0, not {value!r}")
    return int(text)


def relation(name: str, value: Any) -> tuple[str, str]:
    """Schema and table of a source table.

    :raises DeclarationInvalid: it is not of the form ``schema.table``.
    """
    if not isinstance(value, str):
        raise DeclarationInvalid(f"{name} must be a text such as 'public.orders', not {value!r}")
    try:
        return parse_relation(value)
    except DponeError as error:
        raise DeclarationInvalid(f"{name}: {error.message}") from None


def flag(name: str, value: Any) -> bool:
    """True or False.

    :raises DeclarationInvalid: anything else, a text such as ``"False"`` among it.
    """
    if not isinstance(value, bool):
        raise DeclarationInvalid(f"{name} is True or False, not {value!r}")
    return value
