"""What an ODBC driver says about a failure, taken apart: SQLSTATE, the server's error number, its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

#: One record of the driver: prefix in brackets, text, number in parentheses, function.
_RECORD = re.compile(r"\[SQL Server\](?P<text>.*?) \((?P<number>\d+)\)", re.DOTALL)

#: Somebody else was first, and a later try finds its turn: deadlock, lock time-out, no more locks, update conflict
#: under row versions.
BUSY: Final = frozenset({1204, 1205, 1222, 3960})
#: The server ends this session or cannot serve it now: killed, shutting down, paused, upgrading, offline, recovering,
#: read-only after a failover, or without memory, log, disk or workers.
PASSING: Final = frozenset(
    {596, 701, 802, 927, 942, 945, 976, 978, 983, 1105, 3906, 3908, 4060, 6005, 6006, 8628, 8645, 8651, 9001, 9002}
    | {10928, 10929, 17142, 18401, 40197, 40501, 40613, 49918, 49919, 49920}
)


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
