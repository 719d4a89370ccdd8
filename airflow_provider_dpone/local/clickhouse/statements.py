"""What a statement is: its kind, clauses and where its inline data begins. Says nothing about who may run it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from airflow_provider_dpone.local.clickhouse.errors import ServerError, not_implemented
from airflow_provider_dpone.local.clickhouse.lexer import Cursor, Token, tokens

_ENTITIES = ("USER", "QUOTA", "DATABASE", "TABLE", "VIEW", "DICTIONARY", "FUNCTION")
_SIMPLE = {
    "SELECT": "Select",
    "WITH": "Select",
    "FROM": "Select",
    "(": "Select",
    "INSERT": "Insert",
    "DESCRIBE": "Describe",
    "DESC": "Describe",
    "EXPLAIN": "Explain",
    "EXISTS": "Exists",
    "USE": "Use",
    "SET": "Set",
    "SYSTEM": "System",
    "OPTIMIZE": "Optimize",
    "TRUNCATE": "Truncate",
    "RENAME": "Rename",
    "EXCHANGE": "Exchange",
    "GRANT": "Grant",
    "REVOKE": "Revoke",
    "DELETE": "Delete",
    "UPDATE": "Update",
    "ATTACH": "Attach",
}
#: kinds answered by the principal store, not by the engine
RBAC = {
    "CreateUser",
    "AlterUser",
    "DropUser",
    "CreateQuota",
    "DropQuota",
    "Grant",
    "Revoke",
    "ShowGrants",
    "CheckGrant",
}
READS = {"Select", "Show", "Describe", "Explain", "Exists", "Check", "ShowProcesslist"}
#: kinds whose run stops when it is killed or when its client goes away; anything else runs to its end
CANCELLABLE = {*READS, "Insert"}
_LOG_KIND = {"Exchange": "Rename", "Detach": "Drop", "Delete": "Delete", "Update": "Update", "CheckGrant": "Check"}
_SHOW_REFUSED = {
    "USER",
    "USERS",
    "QUOTA",
    "QUOTAS",
    "ROLE",
    "ROLES",
    "ACCESS",
    "PROFILE",
    "PROFILES",
    "POLICY",
    "POLICIES",
}
_SHOW_REFUSED |= {"ROW", "CURRENT", "ENABLED", "SETTINGS", "MASKING"}


@dataclass
class Statement:
    """One parsed statement.

    :ivar text: the statement without inline data, without FORMAT clause and closing semicolon.
    :ivar kind: our name, such as ``Exchange`` or ``CreateUser``; hold points select by it.
    :ivar settings: the SETTINGS clause of a query, values as written (quoted or not).
    :ivar data_format: of an INSERT with data: the format; None when there is none.
    :ivar inline: first bytes of an INSERT's data that came with the statement.
    """

    text: str
    tokens: list[Token]
    kind: str
    settings: dict[str, str] = field(default_factory=dict)
    format: str | None = None
    data_format: str | None = None
    inline: bytes = b""
    full_text: str = ""

    @property
    def query_kind(self) -> str:
        """The kind as system.query_log and system.processes show it."""
        if self.kind in _LOG_KIND:
            return _LOG_KIND[self.kind]
        for prefix in ("Create", "Alter", "Drop", "Show", "Set", "Kill"):
            if self.kind.startswith(prefix):
                return "KillQuery" if prefix == "Kill" else prefix
        return self.kind

    def cursor(self) -> Cursor:
        return Cursor(self.tokens)


def split(head: bytes) -> tuple[str, str | None, bytes]:
    """Split the beginning of a request into statement, format of its INSERT data (or None) and the data found in it."""
    text = head.decode("latin-1")  # one character per byte, so that positions agree
    previous: Token | None = None
    depth, is_insert = 0, False
    for token in tokens(text):
        if previous is None:
            is_insert = token.word == "INSERT"
        if not is_insert or (depth == 0 and token.word in ("SELECT", "WITH")):
            return head.decode(), None, b""
        if token.kind == "char":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        elif depth == 0 and previous is not None and previous.word == "FORMAT" and token.kind == "word":
            rest = re.match(r"[ \t\f]*\r?\n?", text[token.end :])
            start = token.end + (rest.end() if rest else 0)
            return head[: previous.start].decode(), token.text, head[start:]
        elif depth == 0 and token.word == "VALUES" and previous is not None:
            return head[: token.start].decode(), "Values", head[token.end :]
        previous = token
    return head.decode(), None, b""


def parse(text: str, data_format: str | None = None, inline: bytes = b"") -> Statement:
    """Parse one statement as :func:`split` left it."""
    found = list(tokens(text))
    while found and found[-1].text == ";":
        found.pop()
    if not found:
        raise ServerError(62, "Syntax error: empty query")
    if any(token.text == ";" for token in found):
        raise ServerError(62, "Syntax error (Multi-statements are not allowed)")
    text = text[found[0].start : found[-1].end]
    found = list(tokens(text))
    full_text = text
    words = [token.word for token in found]
    if any(words[at : at + 2] == ["ON", "CLUSTER"] for at in range(len(words))):
        raise not_implemented("ON CLUSTER")
    kind = _kind(Cursor(found))
    out_format = None
    if kind not in ("Insert", *RBAC) or kind.startswith("Show") or kind == "CheckGrant":
        if ["INTO", "OUTFILE"] in [words[at : at + 2] for at in range(len(words))]:
            raise ServerError(48, "INTO OUTFILE is not allowed on a server")
        text, found, out_format = _take_format(text, found)
    settings = (
        _settings(found) if kind not in ("CreateTable", "CreateView", "CreateDatabase", "AlterTable", *RBAC) else {}
    )
    if data_format is not None and settings:
        text, found = _drop_settings(text, found)
    return Statement(text, found, kind, settings, out_format, data_format, inline, full_text)


def _take_format(text: str, found: list[Token]) -> tuple[str, list[Token], str | None]:
    """Remove ``FORMAT name`` from the end (a SETTINGS clause may follow it)."""
    depth = 0
    for at in range(len(found) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(found[at].text, 0)
        if depth == 0 and found[at - 1].word == "FORMAT" and found[at].kind == "word":
            after = found[at + 1 :]
            if after and after[0].word != "SETTINGS":
                break
            start, end = found[at - 1].start, found[at].end
            blank = text[:start] + " " * (end - start) + text[end:]
            return blank, found[: at - 1] + after, found[at].text
    return text, found, None


def _settings(found: list[Token]) -> dict[str, str]:
    """Every ``SETTINGS name = value, ...`` of a query, also in subqueries."""
    settings: dict[str, str] = {}
    for at, token in enumerate(found):
        if token.word != "SETTINGS":
            continue
        cursor = Cursor(found, at + 1)
        while cursor.peek().kind == "word" and cursor.peek(1).text == "=":
            name = cursor.next().text
            cursor.next()
            sign = "-" if cursor.accept("-") else ""
            settings[name] = sign + cursor.next().text
            if not cursor.accept(","):
                break
    return settings


def _drop_settings(text: str, found: list[Token]) -> tuple[str, list[Token]]:
    """Cut the SETTINGS clause of an INSERT with data; it is applied to the session instead."""
    at = max(index for index, token in enumerate(found) if token.word == "SETTINGS")
    return text[: found[at].start].rstrip(), found[:at]


def _kind(cursor: Cursor) -> str:
    first = cursor.next()
    word = first.word or first.text
    if word in _SIMPLE:
        return _SIMPLE[word]
    if word in ("CREATE", "ALTER", "DROP", "DETACH"):
        return _entity_kind(word, cursor)
    if word == "SHOW":
        return _show_kind(cursor)
    if word == "CHECK":
        return "CheckGrant" if cursor.accept("GRANT") else "Check"
    if word == "KILL":
        if cursor.accept("QUERY"):
            return "KillQuery"
        raise not_implemented("KILL of anything but QUERY")
    raise not_implemented(f"statements beginning with {word}")


def _entity_kind(verb: str, cursor: Cursor) -> str:
    cursor.accept("OR REPLACE")
    cursor.accept("TEMPORARY")
    word = cursor.next().word
    if word == "MATERIALIZED" and cursor.accept("VIEW"):
        word = "VIEW"
    if word not in _ENTITIES:
        raise not_implemented(f"{verb} {word}")
    kind = f"{verb.capitalize()}{word.capitalize()}"
    if kind in ("AlterQuota", "AlterView", "AlterDictionary", "AlterFunction", "DetachUser", "DetachQuota"):
        raise not_implemented(f"{verb} {word}")
    return kind


def _show_kind(cursor: Cursor) -> str:
    word = cursor.peek(1).word if cursor.peek().word == "CREATE" else cursor.peek().word
    if word in ("GRANTS", "PROCESSLIST") and cursor.peek().word == word:
        return f"Show{word.capitalize()}"
    if word in _SHOW_REFUSED:
        raise not_implemented(f"SHOW {word}")
    return "Show"
