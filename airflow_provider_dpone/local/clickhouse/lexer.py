"""Tokens of ClickHouse SQL, enough to find statement kinds, names, clauses and inline data. Not a parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from airflow_provider_dpone.local.clickhouse.errors import ServerError

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|\#[!\ ][^\n]*|/\*.*?\*/)
    |(?P<string>'(?:[^'\\]|\\.|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    |(?P<quoted>`(?:[^`\\]|\\.|``)*`|"(?:[^"\\]|\\.|"")*")
    |(?P<number>\d(?:[eE][+-]\d|[\w.])*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<char>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "e": "\x1b"}


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The keyword in capitals, or '' for anything that cannot be a keyword."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def is_name(self) -> bool:
        return self.kind in ("word", "quoted")

    @property
    def value(self) -> str:
        """The identifier or string meant by this token."""
        if self.kind == "word" or self.kind == "number":
            return self.text
        if self.text.startswith("$"):
            return self.text.split("$", 2)[2].rsplit("$", 2)[0]
        return unquote(self.text)


def unquote(text: str) -> str:
    """Undo ClickHouse quoting of a string or identifier: backslash escapes and doubled quotes."""
    quote, body = text[0], text[1:-1].replace(text[0] * 2, text[0])

    def plain(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if code[0] == "x" and len(code) == 3 else _ESCAPES.get(code, code)

    return re.sub(r"\\(x[0-9a-fA-F]{2}|.)", plain, body, flags=re.DOTALL) if quote else body


def quote_string(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_if_needed(value: str) -> str:
    return value if value.isidentifier() else quote_name(value)


def quote_name(value: str) -> str:
    return "`" + value.replace("\\", "\\\\").replace("`", "\\`") + "`"


def tokens(text: str) -> Iterator[Token]:
    """Significant tokens of ``text``; raises SYNTAX_ERROR for an unterminated quote or comment."""
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup if match.lastgroup != "tag" else "string"
        if kind == "space":
            continue
        token = Token(str(kind), match.group(), match.start(), match.end())
        if kind == "char" and (token.text in "'`\"" or text.startswith("/*", token.start)):
            raise ServerError(62, f"Syntax error: unterminated {token.text} at position {token.start}")
        yield token


class Cursor:
    """A position in a list of tokens; every method moves on only when it matches."""

    def __init__(self, found: list[Token], position: int = 0) -> None:
        self.tokens = found
        self.position = position

    @property
    def done(self) -> bool:
        return self.position >= len(self.tokens)

    def peek(self, ahead: int = 0) -> Token:
        at = self.position + ahead
        return self.tokens[at] if at < len(self.tokens) else Token("end", "", -1, -1)

    def next(self) -> Token:
        token = self.peek()
        if token.kind == "end":
            raise ServerError(62, "Syntax error: unexpected end of query")
        self.position += 1
        return token

    def accept(self, phrase: str) -> bool:
        """Move over the words or single characters of ``phrase`` if they come next."""
        parts = phrase.split()
        for ahead, part in enumerate(parts):
            token = self.peek(ahead)
            if (token.word or token.text) != part:
                return False
        self.position += len(parts)
        return True

    def expect(self, phrase: str) -> None:
        if not self.accept(phrase):
            raise ServerError(62, f"Syntax error: expected {phrase} before {self.peek().text or 'end of query'}")

    def name(self) -> str:
        token = self.next()
        if not token.is_name and token.kind != "string":
            raise ServerError(62, f"Syntax error: expected a name before {token.text}")
        return token.value

    def table(self, database: str) -> tuple[str, str]:
        """``[database.]table``."""
        first = self.name()
        return (first, self.name()) if self.accept(".") else (database, first)
