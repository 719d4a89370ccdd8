"""Which aggregates a pair of source kind and target type has, and their one canonical text.

Both engines compute them in their own SQL (``engines/postgres/aggregates.py`` and its twin for ClickHouse), each by
the shapes defined here, so that equal tables give equal documents. Nothing is computed here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from decimal import Context, Decimal
from enum import StrEnum
from typing import Final

from airflow_provider_dpone.contracts.columns import ColumnAggregate, TableAggregates, ValueKind
from airflow_provider_dpone.errors import CounterUnreadable
from airflow_provider_dpone.transfer.convert import ColumnConversion, Conversion

#: Characters (text) or bytes (binary) of a smallest and largest value that are compared; order keeps prefixes.
PREFIX: Final = 64
_EXACT: Final = Context(prec=200)


class Shape(StrEnum):
    """How low, high and total of a column are computed and written."""

    NUMBER = "number"
    """Whole numbers and decimals: smallest, largest, exact sum."""
    FLOAT = "float"
    """Smallest and largest of what is not NaN; total is the number of NaN (a sum would depend on order)."""
    BOOL = "bool"
    """Total is the number of true values."""
    TEXT = "text"
    """Bytewise smallest and largest by their first characters; total is the sum of lengths in bytes."""
    BYTES = "bytes"
    """Smallest and largest by their first bytes in hexadecimal; total is the sum of lengths."""
    LABEL = "label"
    """Enumerations and UUIDs: smallest and largest in text order."""
    DATE = "date"
    MICROS = "micros"
    """Points in time: microseconds since 1970."""
    TIME = "time"
    """Times of day: microseconds since midnight."""
    ADDRESS = "address"
    LIST = "list"
    """Total is the number of elements."""


def shape_of(column: ColumnConversion) -> Shape:
    """The shape both engines use for this column."""
    match column.target.family:
        case "Array":
            return Shape.LIST
        case "Int" | "Decimal":
            return Shape.NUMBER
        case "Float32" | "Float64":
            return Shape.FLOAT
        case "Bool":
            return Shape.BOOL
        case "String" | "FixedString":
            return Shape.BYTES if column.kind is ValueKind.BYTES else Shape.TEXT
        case "Enum" | "UUID":
            return Shape.LABEL
        case "Varchar" | "Char" | "Carried":
            return Shape.TEXT
        case "Bytes" | "FixedBytes":
            return Shape.BYTES
        case "Date" | "Date32":
            return Shape.DATE
        case "IPv4" | "IPv6":
            return Shape.ADDRESS
        case "Time" | "Time64":
            return Shape.TIME
    return Shape.MICROS


def canonical(shape: Shape, text: str | None) -> str | None:
    """One text for a value, whichever engine printed it."""
    if text is None:
        return None
    match shape:
        case Shape.NUMBER:
            number = Decimal(text)
            if number == 0:
                return "0"
            return format(number.normalize(_EXACT), "f")
        case Shape.FLOAT:
            return repr(float(text) + 0.0)
        case Shape.TIME:
            hours, minutes, seconds = text.split(":")
            return str((int(hours) * 60 + int(minutes)) * 60 * 10**6 + int(Decimal(seconds).scaleb(6)))
        case Shape.ADDRESS:
            return str(ipaddress.ip_address(text.partition("/")[0]))
    return text


def table_aggregates(conversion: Conversion, rows: int, values: Sequence[Sequence[str | None]]) -> TableAggregates:
    """Build the document from what an engine answered.

    :param values: per column, in target order: nulls, low, high, total, each as the engine's text.
    :raises CounterUnreadable: a count or total is missing.
    """
    columns = []
    for column, (nulls, low, high, total) in zip(conversion.columns, values, strict=True):
        shape = shape_of(column)
        if nulls is None:
            raise CounterUnreadable(
                f"the count of NULLs of column {column.name!r} could not be read", column=column.name
            )
        total_shape = Shape.NUMBER if total is not None else shape
        columns.append(
            ColumnAggregate(
                name=column.name,
                nulls=int(nulls),
                low=canonical(shape, low),
                high=canonical(shape, high),
                total=canonical(total_shape, total),
            )
        )
    return TableAggregates(rows=rows, columns=tuple(columns))
