"""What a person reads last when a task fails: one block, the cause first, without frames."""

from __future__ import annotations

import textwrap

from airflow_provider_dpone.errors import DponeError
from airflow_provider_dpone.guidance import what_to_do

#: What holds when nothing was admitted.
NOTHING_RESERVED = "Nothing was reserved, created or changed."


def first_cause(error: DponeError) -> DponeError:
    """The failure that came first, when another one came up while it was being handled (a gate that could not be closed
    after its server was killed); one that explains another (``raise ... from``) is not looked behind."""
    seen = error
    while seen.__cause__ is None and not seen.__suppress_context__ and isinstance(seen.__context__, DponeError):
        seen = seen.__context__
    return seen


def block(error: DponeError, standing: str) -> str:
    """The block.

    :param standing: what is true of the attempt and its target now.
    """
    cause = first_cause(error)
    happened = cause.message if cause is error else f"{cause.message}. Then {error.code}: {error.message}"
    rows = (
        ("what happened", happened),
        ("what is true now", standing),
        ("what to do", what_to_do(cause.code)),
        ("more", f"docs/codes.md#{cause.code.lower()}"),
    )
    lines = [cause.code]
    for name, text in rows:
        paragraphs = text.splitlines() or [""]
        wrapped = [part for p in paragraphs for part in textwrap.wrap(p, 96, break_long_words=False) or [""]]
        lines.append(f"  {name + ':':18}{wrapped[0]}")
        lines += [" " * 20 + part for part in wrapped[1:]]
    return "\n".join(lines)
