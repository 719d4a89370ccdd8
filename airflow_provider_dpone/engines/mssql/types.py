"""Every SQL Server type: what its values are, how they are read, or why they are refused.

``docs/types.md`` is written from this table. Moments are read as whole microseconds or nanoseconds since 1970, so that
no driver can round or wrap them; text of code pages is read as Unicode, as the server converts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airflow_provider_dpone.contracts.columns import ValueKind

_EPOCH: Final = "CONVERT(datetime2(7), '19700101', 112)"
_MIDNIGHT: Final = "CONVERT(datetime2(7), '19000101', 112)"
#: Reads of values that may carry a seventh fraction digit, by unit.
MICROSECONDS: Final = "microsecond"
NANOSECONDS: Final = "nanosecond"


@dataclass(frozen=True)
class TypeRule:
    """How values of a type are read. ``native`` and ``text`` are SQL over ``{c}``, the quoted column."""

    kind: ValueKind | None
    note: str = ""
    native: str = "{c}"
    text: str | None = None


def _refused(why: str) -> TypeRule:
    return TypeRule(None, why)


def _moment(kind: ValueKind, note: str, value: str, start: str, text: str) -> TypeRule:
    return TypeRule(kind, note, native=f"DATEDIFF_BIG(microsecond, {start}, {value})", text=text)


_WHOLE: Final = TypeRule(ValueKind.INTEGER, text="CONVERT(nvarchar(20), {c})")
_EXACT_TEXT: Final = "CONVERT(nvarchar(60), {c})"
_UNICODE: Final = TypeRule(ValueKind.TEXT, "as stored", text="{c}")
_SEVENTH: Final = "a seventh fraction digit only between 1677 and 2262"
_LONG: Final = "CONVERT(nvarchar(max), {c})"
#: ``{n}`` is the declared length, or ``max``; a byte of a code page is at most one UTF-16 unit.
_SIZED_TEXT: Final = "CONVERT(nvarchar({n}), {c})"
_GEO: Final = _refused("its text form loses digits; publish what is wanted of it as columns of plain types")

#: System types by their name in ``sys.types``.
TYPES: Final[dict[str, TypeRule]] = {
    "bit": TypeRule(ValueKind.BOOL, text="CONVERT(nvarchar(1), {c})"),
    "tinyint": TypeRule(
        ValueKind.INTEGER, "unsigned, 0 to 255", native="CONVERT(smallint, {c})", text="CONVERT(nvarchar(20), {c})"
    ),
    "smallint": _WHOLE,
    "int": _WHOLE,
    "bigint": _WHOLE,
    "decimal": TypeRule(ValueKind.DECIMAL, "all 38 digits", text=_EXACT_TEXT),
    "numeric": TypeRule(ValueKind.DECIMAL, "all 38 digits", text=_EXACT_TEXT),
    "money": TypeRule(
        ValueKind.DECIMAL, "four fraction digits", native="CONVERT(decimal(19, 4), {c})",
        text="CONVERT(nvarchar(60), CONVERT(decimal(19, 4), {c}))",
    ),
    "smallmoney": TypeRule(
        ValueKind.DECIMAL, "four fraction digits", native="CONVERT(decimal(10, 4), {c})",
        text="CONVERT(nvarchar(60), CONVERT(decimal(10, 4), {c}))",
    ),
    "real": TypeRule(ValueKind.FLOAT32, "every bit kept", text="CONVERT(nvarchar(60), {c}, 3)"),
    "float": TypeRule(ValueKind.FLOAT64, "every bit kept", text="CONVERT(nvarchar(60), {c}, 3)"),
    "char": TypeRule(ValueKind.TEXT, "with its blank padding", native=_SIZED_TEXT, text=_SIZED_TEXT),
    "varchar": TypeRule(ValueKind.TEXT, "as stored", native=_SIZED_TEXT, text=_SIZED_TEXT),
    "text": TypeRule(ValueKind.TEXT, "as stored", native=_LONG, text=_LONG),
    "nchar": TypeRule(ValueKind.TEXT, "with its blank padding", text="{c}"),
    "nvarchar": _UNICODE,
    "sysname": _UNICODE,
    "ntext": TypeRule(ValueKind.TEXT, "as stored", native=_LONG, text=_LONG),
    "binary": TypeRule(ValueKind.BYTES, "with its zero padding"),
    "varbinary": TypeRule(ValueKind.BYTES, "raw bytes"),
    "image": TypeRule(ValueKind.BYTES, "raw bytes", native="CONVERT(varbinary(max), {c})"),
    "timestamp": TypeRule(ValueKind.BYTES, "rowversion: eight bytes", native="CONVERT(binary(8), {c})"),
    "uniqueidentifier": TypeRule(
        ValueKind.UUID, native="CONVERT(binary(16), {c})", text="LOWER(CONVERT(nvarchar(36), {c}))"
    ),
    "date": TypeRule(ValueKind.DATE, "years outside the target refused", text="CONVERT(nvarchar(10), {c}, 23)"),
    "time": _moment(
        ValueKind.TIME, "", "CONVERT(datetime2(7), {c})", _MIDNIGHT, "CONVERT(nvarchar(16), {c}, 121)"
    ),
    "smalldatetime": _moment(
        ValueKind.TIMESTAMP, "wall clock to the minute", "CONVERT(datetime2(0), {c})", _EPOCH,
        "CONVERT(nvarchar(19), CONVERT(datetime2(0), {c}), 121)",
    ),
    "datetime": _moment(
        ValueKind.TIMESTAMP, "wall clock in the milliseconds the server shows (.000, .003, .007)",
        "CONVERT(datetime2(3), {c})", _EPOCH, "CONVERT(nvarchar(23), CONVERT(datetime2(3), {c}), 121)",
    ),
    "datetime2": _moment(
        ValueKind.TIMESTAMP, f"wall clock; {_SEVENTH}", "{c}", _EPOCH, "CONVERT(nvarchar(27), {c}, 121)"
    ),
    "datetimeoffset": _moment(
        ValueKind.INSTANT, f"point in time, the offset kept only in String; {_SEVENTH}",
        "CONVERT(datetime2(7), SWITCHOFFSET({c}, '+00:00'))", _EPOCH, "CONVERT(nvarchar(34), {c}, 121)",
    ),
    "xml": TypeRule(ValueKind.OTHER, "the document as the server stores it", text=_LONG),
    "json": TypeRule(ValueKind.OTHER, "the document as the server stores it (2025)", text=_LONG),
    "vector": TypeRule(ValueKind.OTHER, "a list of numbers in its text form (2025)", text=_LONG),
    "hierarchyid": TypeRule(ValueKind.OTHER, "the path, such as /1/2/", text="{c}.ToString()"),
    "sql_variant": _refused("the type of each value would be guessed; publish it as columns of plain types"),
    "geometry": _GEO,
    "geography": _GEO,
}  # fmt: skip
#: A user-defined CLR type; an alias type counts as the type below it.
ASSEMBLY_TYPE: Final = _refused("a type of an assembly; publish what is wanted of it as columns of plain types")
#: Types whose seventh fraction digit decides the unit they are read in.
FINE: Final = ("time", "datetime2", "datetimeoffset")
_SIZED: Final = {"char": 1, "varchar": 1, "nchar": 2, "nvarchar": 2, "sysname": 2, "binary": 1, "varbinary": 1}


def declared(name: str, max_length: int, precision: int, scale: int) -> str:
    """The type as it is declared."""
    if name in ("decimal", "numeric"):
        return f"{name}({precision},{scale})"
    if name in FINE:
        return f"{name}({scale})"
    if name in _SIZED and name != "sysname":
        return f"{name}(max)" if max_length == -1 else f"{name}({max_length // _SIZED[name]})"
    return name


def rule_of(name: str, assembly: bool) -> TypeRule:
    """The rule for a system type (alias types are followed by the catalog)."""
    if name in TYPES:
        return TYPES[name]
    return ASSEMBLY_TYPE if assembly else _refused("an unknown type; tell the maintainers")


def explain(kind: ValueKind, raw: object) -> str | None:
    """No value arrives under another name."""
    return None
