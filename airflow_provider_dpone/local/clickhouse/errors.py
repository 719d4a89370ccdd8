"""Exceptions of the local server as ClickHouse words them: code, text, name, HTTP status. Not the provider's."""

from __future__ import annotations

import re

VERSION_COMMENT = "dpone-local development stand-in"

NAMES = {
    27: "CANNOT_PARSE_INPUT_ASSERTION_FAILED",
    33: "CANNOT_READ_ALL_DATA",
    36: "BAD_ARGUMENTS",
    48: "NOT_IMPLEMENTED",
    62: "SYNTAX_ERROR",
    81: "UNKNOWN_DATABASE",
    101: "UNEXPECTED_PACKET_FROM_CLIENT",
    164: "READONLY",
    192: "UNKNOWN_USER",
    194: "REQUIRED_PASSWORD",
    199: "UNKNOWN_QUOTA",
    201: "QUOTA_EXCEEDED",
    209: "SOCKET_TIMEOUT",
    210: "NETWORK_ERROR",
    216: "QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING",
    394: "QUERY_WAS_CANCELLED",
    452: "SETTING_CONSTRAINT_VIOLATION",
    493: "ACCESS_ENTITY_ALREADY_EXISTS",
    495: "ACCESS_STORAGE_READONLY",
    497: "ACCESS_DENIED",
    509: "INVALID_GRANT",
    511: "UNKNOWN_ROLE",
    516: "AUTHENTICATION_FAILED",
    720: "USER_EXPIRED",
}

_STATUS = {
    **dict.fromkeys((192, 193, 516), 403),
    194: 401,
    **dict.fromkeys((6, 25, 26, 27, 36, 38, 41, 53, 62, 72, 117, 321, 427), 400),
    **dict.fromkeys((46, 47, 50, 56, 60, 63, 73, 78, 81, 115), 404),
    48: 501,
    159: 408,
    203: 503,
    209: 503,
    1000: 500,
}
_CODE = re.compile(r"Code: (\d+)\.")
_NAME = re.compile(r"\(([A-Z][A-Z0-9_]+)\)")


class ServerError(Exception):
    """One exception of the server; ``text`` is what goes over the wire."""

    def __init__(self, code: int, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.name = name or NAMES[code]

    @property
    def text(self) -> str:
        return f"Code: {self.code}. DB::Exception: {self.message}. ({self.name}) (version {VERSION_COMMENT})"

    @property
    def http_status(self) -> int:
        return _STATUS.get(self.code, 500)


class Cut(Exception):
    """A hold point wants the client's connection closed without an answer."""


class ClientGone(Exception):
    """The client closed its connection in the middle of a request."""


def from_engine(error: Exception) -> ServerError:
    """Translate the embedded engine's exception text; a text without a code is reported as code 1000."""
    text = str(error)
    code = _CODE.search(text)
    names = _NAME.findall(text)
    message = text.split("DB::Exception: ", 1)[-1].strip()
    if names:
        message = message.rsplit(f"({names[-1]})", 1)[0].strip()
    message = message.removesuffix(".")
    return ServerError(int(code.group(1)) if code else 1000, message, names[-1] if names else "POCO_EXCEPTION")


def not_implemented(what: str) -> ServerError:
    return ServerError(48, f"The local development server does not implement {what}")


def denied(user: str, privilege: str, scope: str) -> ServerError:
    text = f"To execute this query, it's necessary to have the grant {privilege} ON {scope}"
    return ServerError(497, f"{user}: Not enough privileges. {text}")
