"""The physical design of a MergeTree table: read from the catalog's own text, completely, and written back exactly.

The design is taken from ``create_table_query``. Every element of that statement is either represented in
:class:`TableDesign` or named as a feature, and a design that would not render to the very statement it was read from is
not a design. So an attribute nobody thought of is refused, not lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from airflow_provider_dpone.contracts.enrolment import ColumnDesign, TableDesign
from airflow_provider_dpone.engines.clickhouse.quoting import identifier, literal, table
from airflow_provider_dpone.errors import DesignMismatch

_CLAUSES: Final = ("PARTITION BY", "PRIMARY KEY", "ORDER BY", "SAMPLE BY", "TTL", "SETTINGS")
_CLAUSE = re.compile(r" (" + "|".join(_CLAUSES) + r") ")
_MOVE_OR_RECOMPRESS = re.compile(r" (?:TO (?:DISK|VOLUME) '(?:[^'\\]|\\.)*'|RECOMPRESS CODEC\(.*\))\Z", re.DOTALL)
_SETTING_THAT_BUFFERS = re.compile(r"\basync_insert = (?:1|true)\b")
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def read_design(
    database: str, name: str, create_query: str, comment: str, columns: Sequence[ColumnDesign]
) -> tuple[TableDesign | None, tuple[str, ...]]:
    """The design of a plain ``MergeTree`` table and the features in it that forbid an exact swap.

    :param create_query: ``system.tables.create_table_query``.
    :param columns: the rows of ``system.columns``, by position.
    :returns: no design when the statement holds something :class:`TableDesign` cannot say.
    """
    features: set[str] = set()
    taken = _take_apart(create_query, comment)
    if taken is None:
        return None, ("unrepresentable_design",)
    head, elements, engine, clauses = taken
    indices: list[str] = []
    constraints: list[str] = []
    rendered = {_column(column): column for column in columns}
    for element in elements:
        kind, _, rest = element.partition(" ")
        if kind == "INDEX":
            indices.append(element)
        elif kind == "CONSTRAINT":
            constraints.append(element)
        elif kind == "PROJECTION":
            features.add(f"projection:{_first_name(rest)}")
        elif element not in rendered:
            features.add(f"column_attribute:{_first_name(element)}")
    for column in columns:
        if column.default_kind:
            features.add(f"computed_column:{column.name}:{column.default_kind}")
    if any(not _MOVE_OR_RECOMPRESS.search(rule) for rule in split_top(clauses.get("TTL", ""))):
        features.add("ttl")
    settings = clauses.get("SETTINGS", "")
    if _SETTING_THAT_BUFFERS.search(settings):
        features.add("table_setting:async_insert")
    design = TableDesign(
        engine=engine,
        columns=tuple(columns),
        partition_key=clauses.get("PARTITION BY", ""),
        sorting_key=clauses.get("ORDER BY", ""),
        primary_key=clauses.get("PRIMARY KEY", ""),
        sampling_key=clauses.get("SAMPLE BY", ""),
        settings=settings,
        ttl=clauses.get("TTL", ""),
        indices=tuple(indices),
        constraints=tuple(constraints),
        comment=comment,
    )
    exact = head + render_body(design) == create_query and engine == "MergeTree"
    if not exact and not features:
        features.add("unrepresentable_design")
    return (design if exact else None), tuple(sorted(features))


def render_create(database: str, name: str, design: TableDesign) -> str:
    """The ``CREATE TABLE`` that makes a table of exactly this design under another name."""
    return f"CREATE TABLE {table(database, name)} {render_body(design)}"


def render_body(design: TableDesign) -> str:
    """Everything after the table's name, in the server's own form."""
    elements = [_column(column) for column in design.columns] + list(design.indices) + list(design.constraints)
    text = f"({', '.join(elements)}) ENGINE = {design.engine}"
    values = (
        design.partition_key,
        design.primary_key,
        design.sorting_key,
        design.sampling_key,
        design.ttl,
        design.settings,
    )
    for clause, value in zip(_CLAUSES, values, strict=True):
        if value:
            text += f" {clause} {value}"
    return text + (f" COMMENT {literal(design.comment)}" if design.comment else "")


def require_same_design(found: TableDesign | None, wanted: TableDesign, where: str) -> None:
    """Refuse a table whose read-back design differs from the wanted one; names what differs.

    :raises DesignMismatch: any difference.
    """
    if found is None:
        raise DesignMismatch(f"the design of {where} cannot be read back completely")
    if found.digest() != wanted.digest():
        ours, theirs = wanted.model_dump(), found.model_dump()
        differs = sorted(key for key in ours if ours[key] != theirs[key])
        raise DesignMismatch(f"the design of {where} is not the accepted one: {', '.join(differs)}", differs=differs)


def split_top(text: str, separator: str = ", ") -> list[str]:
    """Split at ``separator`` outside quotes and brackets."""
    parts: list[str] = []
    start = 0
    for position, depth in _outside(text):
        if depth == 0 and text.startswith(separator, position):
            parts.append(text[start:position])
            start = position + len(separator)
    return [*parts, text[start:]] if text else []


def _take_apart(create_query: str, comment: str) -> tuple[str, list[str], str, Mapping[str, str]] | None:
    """Head, column elements, engine and clauses of a CREATE TABLE as the server prints it; None when it is another."""
    tail = f" COMMENT {literal(comment)}" if comment else ""
    opening = closing = -1
    for position, depth in _outside(create_query):
        if opening < 0 and create_query[position] == "(":
            opening = position
        elif opening >= 0 and closing < 0 and create_query[position] == ")" and depth == 0:
            closing = position
    if opening < 0 or not create_query.startswith(") ENGINE = ", closing) or not create_query.endswith(tail):
        return None
    body = create_query[closing + len(") ENGINE = ") : len(create_query) - len(tail)]
    marks = [
        (position, match)
        for position, depth in _outside(body)
        if depth == 0 and body[position] == " " and (match := _CLAUSE.match(body, position))
    ]
    ends = [position for position, _ in marks[1:]] + [len(body)]
    clauses = {match[1]: body[match.end() : end] for (_, match), end in zip(marks, ends, strict=True)}
    engine = body[: marks[0][0]] if marks else body
    return create_query[:opening], split_top(create_query[opening + 1 : closing]), engine, clauses


def _outside(text: str) -> Iterator[tuple[int, int]]:
    """Positions outside quotes with the bracket depth there (a closing bracket counts as outside its pair)."""
    depth, position, quote = 0, 0, ""
    while position < len(text):
        char = text[position]
        if quote:
            if char == "\\":
                position += 1
            elif char == quote:
                quote = ""
        elif char in "'`\"":
            quote = char
        else:
            if char in ")]}":
                depth -= 1
            yield position, depth
            if char in "([{":
                depth += 1
        position += 1


def _column(column: ColumnDesign) -> str:
    text = f"{identifier(column.name)} {column.type}"
    if column.default_kind:
        text += f" {column.default_kind}" + (f" {column.default_expression}" if column.default_expression else "")
    if column.comment:
        text += f" COMMENT {literal(column.comment)}"
    return text + (f" {column.codec}" if column.codec else "")


def _first_name(text: str) -> str:
    if text.startswith("`"):
        end = next(i for i in range(1, len(text)) if text[i] == "`" and text[i - 1] != "\\")
        return text[1:end].replace("\\`", "`").replace("\\\\", "\\")
    return text.split(" ")[0]
