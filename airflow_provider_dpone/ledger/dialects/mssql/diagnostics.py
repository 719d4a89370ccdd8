"""What an ODBC driver says about a failure, taken apart: SQLSTATE, the server's error number, its text."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: One record of the driver: prefix in brackets, text, number in parentheses, function.
_RECORD = re.compile(r"\[SQL Server\](?P<text>.*?) \((?P<number>\d+)\)", re.DOTALL)


@dataclass(frozen=True)
class Diagnostic:
    """The first error of a failure; ``number`` is None when no server answered."""

    sqlstate: str
    number: int | None
    text: str


def diagnose(error: BaseException) -> Diagnostic:
    """Take a ``pyodbc.Error`` apart."""
    sqlstate, message = (str(part) for part in (*error.args, "", "")[:2])
    found = _RECORD.search(message)
    if found is None:
        return Diagnostic(sqlstate, None, " ".join(message.split()))
    return Diagnostic(sqlstate, int(found["number"]), " ".join(found["text"].split()))
