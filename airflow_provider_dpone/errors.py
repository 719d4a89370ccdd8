"""Every error this provider raises: one class per meaning, each with a stable code.

The message says what happened, where, and what to do. Details are structured and never carry a secret. Codes are
public API: they begin with ``DPONE_`` and do not change between releases.
"""

from __future__ import annotations

from typing import ClassVar


class DponeError(Exception):
    """Base of every error of this provider.

    :param message: one or two sentences for a person: what, where, what to do.
    :param details: structured facts (JSON values), without secrets.
    """

    code: ClassVar[str] = "DPONE_ERROR"
    #: True when a later try of the same task may succeed without anybody changing anything.
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Refused(DponeError):
    """The request was refused; nothing was reserved, created or changed by the refused step."""

    code = "DPONE_REFUSED"


# --- documents ------------------------------------------------------------------------------------------------


class DocumentInvalid(Refused):
    """Bytes that should be one of our documents are missing, altered, not canonical or out of range."""

    code = "DPONE_DOCUMENT_INVALID"


class LimitsInvalid(Refused):
    """A ceiling is missing, not positive, not a size, or contradicts another."""

    code = "DPONE_LIMITS_INVALID"


# --- values and types (transfer) ------------------------------------------------------------------------------


class TypeNotMapped(Refused):
    """A source or target column type has no exact mapping; see docs/types.md."""

    code = "DPONE_TYPE_NOT_MAPPED"


class DesignMismatch(Refused):
    """Source and target columns do not fit: missing, extra, ambiguous or nullable against not nullable."""

    code = "DPONE_DESIGN_MISMATCH"


class ValueNotExact(Refused):
    """A value cannot be held exactly by the target type; names column and value."""

    code = "DPONE_VALUE_NOT_EXACT"


class CeilingExceeded(Refused):
    """A ceiling (rows, source bytes, wire bytes, generation, retained or transient storage) was passed."""

    code = "DPONE_CEILING_EXCEEDED"


class CounterUnreadable(Refused):
    """A number a ceiling or a proof rests on could not be read; it is never taken as zero."""

    code = "DPONE_COUNTER_UNREADABLE"


class TooFewRows(Refused):
    """The source has fewer rows than the author's ``min_rows`` guard."""

    code = "DPONE_TOO_FEW_ROWS"
