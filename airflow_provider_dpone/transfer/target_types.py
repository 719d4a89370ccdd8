"""ClickHouse column types as text, parsed: every type is described exactly or refused with its reason.

What a value must look like to fit is in ``convert``; how it is written is in ``rowbinary``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from airflow_provider_dpone.contracts.columns import SourceColumn
from airflow_provider_dpone.errors import TypeNotMapped

_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>-?\d+)|(?P<text>'(?:[^'\\]|\\.|'')*')|(?P<sign>[(),=]))"
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)|''", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "a": "\a", "v": "\v"}

_INTEGERS: Final = {f"{sign}Int{bits}": (bits, sign == "") for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)}
_DECIMALS: Final = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}
_PLAIN: Final = {"Float32", "Float64", "Bool", "String", "UUID", "Date", "Date32", "IPv4", "IPv6", "Time"}
_REFUSED: Final = {
    "AggregateFunction": "it holds states of an aggregation, not values",
    "SimpleAggregateFunction": "its rows change when the engine merges",
    "JSON": "it stores a parsed form of a document, not the document; use String",
    "Object": "it stores a parsed form of a document, not the document; use String",
    "Dynamic": "the type of each value would be guessed",
    "Variant": "the type of each value would be guessed",
    "BFloat16": "it holds 8 significant bits of a float; use Float32",
    "Tuple": "no source type maps onto it exactly",
    "Map": "no source type maps onto it exactly",
    "Nested": "it is several columns under one name; declare the columns",
    "Nothing": "it holds no value",
}
#: Smallest and largest day of Date and Date32, counted from 1970-01-01, and seconds of DateTime.
DATE_RANGE: Final = (0, 65535)
DATE32_RANGE: Final = (-25567, 120529)
DATETIME_RANGE: Final = (0, 2**32 - 1)
DAY: Final = 86400
#: Zones in which a wall clock is stored as it reads; None is a column without a zone.
UTC_ZONES: Final = (None, "UTC", "Etc/UTC")
#: Largest absolute second of Time and Time64 (999:59:59).
TIME_LIMIT: Final = 3599999


@dataclass(frozen=True)
class TargetType:
    """A parsed column type. ``family`` is the type's name without parameters; Decimal32... are ``Decimal``."""

    text: str
    family: str
    nullable: bool = False
    bits: int = 0
    signed: bool = False
    precision: int = 0
    scale: int = 0
    length: int = 0
    zone: str | None = None
    members: tuple[tuple[str, int], ...] = ()
    element: TargetType | None = None

    @property
    def integer_range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        return (-(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1) if self.signed else (0, 2**self.bits - 1)

    @property
    def second_range(self) -> tuple[int, int]:
        """First second (inclusive) and last second (exclusive) since 1970 that DateTime or DateTime64 shows right.

        DateTime64 shows 1900-01-01 to 2299-12-31 of its own zone, and ends at 2262-04-11 with 9 digits; with a zone
        other than UTC a day on either side is left out, so that no offset can pass the end of its tables.
        """
        if self.family == "DateTime":
            return DATETIME_RANGE[0], DATETIME_RANGE[1] + 1
        margin = 0 if self.zone in UTC_ZONES else DAY
        first, last = DATE32_RANGE[0] * DAY + margin, (DATE32_RANGE[1] + 1) * DAY - margin
        return first, min(last, (2**63 - 1) // 10**self.scale)

    def takes_text_of(self, source: SourceColumn) -> bool:
        """Whether the source's own text form of a value may go into a column of this type."""
        return self.family == "String"

    @property
    def width(self) -> int:
        """Bytes of a value in RowBinary, 0 when the length varies."""
        match self.family:
            case "Int" | "Enum":
                return self.bits // 8
            case "Decimal":
                return decimal_width(self.precision)
            case "FixedString":
                return self.length
            case "String" | "Array":
                return 0
        return _WIDTHS[self.family]

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a converted value: exactly the values RowBinary holds, UUID and IPv6 in reading order."""
        match self.family:
            case "Int" if self.bits > 64:
                return pa.binary(self.bits // 8)
            case "Int" | "Enum":
                return _ARROW_INTEGERS[self.bits, self.signed]
            case "Decimal":
                wide = self.precision > 38
                return pa.decimal256(self.precision, self.scale) if wide else pa.decimal128(self.precision, self.scale)
            case "FixedString":
                return pa.binary(self.length)
            case "Array":
                assert self.element is not None
                return pa.list_(self.element.arrow)
        return _ARROW[self.family]


_WIDTHS: Final = {
    "Float32": 4, "Float64": 8, "Bool": 1, "UUID": 16, "Date": 2, "Date32": 4, "DateTime": 4, "DateTime64": 8,
    "IPv4": 4, "IPv6": 16, "Time": 4, "Time64": 8,
}  # fmt: skip
_ARROW: Final = {
    "Float32": pa.float32(), "Float64": pa.float64(), "Bool": pa.bool_(), "UUID": pa.binary(16), "Date": pa.uint16(),
    "Date32": pa.int32(), "DateTime": pa.uint32(), "DateTime64": pa.int64(), "IPv4": pa.uint32(),
    "IPv6": pa.binary(16), "Time": pa.int32(), "Time64": pa.int64(), "String": pa.binary(),
}  # fmt: skip
_ARROW_INTEGERS: Final = {
    (8, True): pa.int8(), (16, True): pa.int16(), (32, True): pa.int32(), (64, True): pa.int64(),
    (8, False): pa.uint8(), (16, False): pa.uint16(), (32, False): pa.uint32(), (64, False): pa.uint64(),
}  # fmt: skip


def decimal_width(precision: int) -> int:
    """Bytes ClickHouse stores a decimal of this precision in."""
    return 4 if precision <= 9 else 8 if precision <= 18 else 16 if precision <= 38 else 32


def parse_type(text: str) -> TargetType:
    """Parse a type as ``system.columns`` prints it.

    :raises TypeNotMapped: the type is unknown, malformed or refused; the message says why.
    """
    parser = _Parser(text)
    parsed = parser.type()
    if parser.position != len(parser.tokens):
        raise parser.refuse("it could not be read to its end")
    return parsed


class _Parser:
    """Recursive descent over the tokens of one type."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        self.position = 0
        at = 0
        end = len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.refuse(f"it could not be read at {text[at : at + 20]!r}")
            self.tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
            at = match.end()

    def refuse(self, why: str) -> TypeNotMapped:
        return TypeNotMapped(
            f"the target type {self.text!r} is not supported: {why}", target_type=self.text, reason=why
        )

    def take(self, group: str, value: str | None = None) -> str:
        if self.position < len(self.tokens):
            found, token = self.tokens[self.position]
            if found == group and value in (None, token):
                self.position += 1
                return token
        raise self.refuse(f"{value or group} was expected")

    def at(self, sign: str) -> bool:
        return self.position < len(self.tokens) and self.tokens[self.position] == ("sign", sign)

    def number(self) -> int:
        return int(self.take("number"))

    def string(self) -> str:
        raw = self.take("text")[1:-1]

        def unescape(match: re.Match[str]) -> str:
            code = match[1]
            if code is None:
                return "'"
            return chr(int(code[1:], 16)) if len(code) == 3 else _ESCAPED.get(code, code)

        return _ESCAPE.sub(unescape, raw)

    def type(self) -> TargetType:
        start = self.position
        name = self.take("word")
        if name in _INTEGERS:
            bits, signed = _INTEGERS[name]
            return TargetType(name, "Int", bits=bits, signed=signed)
        if name in _PLAIN:
            return TargetType(name, name)
        if name == "DateTime":
            return self._datetime(start)
        if name in _REFUSED:
            raise self.refuse(_REFUSED[name])
        if name not in _PARAMETRIC and name not in _DECIMALS:
            raise self.refuse("no source type maps onto it exactly")
        self.take("sign", "(")
        parsed = self._decimal(_DECIMALS.get(name)) if name.startswith("Decimal") else _PARAMETRIC[name](self)
        self.take("sign", ")")
        return replace(parsed, text=self._text(start))

    def _text(self, start: int) -> str:
        """The type's own text, normalised in spacing."""
        return "".join(
            ", " if token == "," else " = " if token == "=" else token
            for _, token in self.tokens[start : self.position]
        )

    def _datetime(self, start: int) -> TargetType:
        zone = None
        if self.at("("):
            self.take("sign", "(")
            zone = self.string()
            self.take("sign", ")")
        return TargetType(self._text(start), "DateTime", zone=zone)

    def _decimal(self, fixed: int | None) -> TargetType:
        precision = fixed or self.number()
        scale = 0
        if fixed or self.at(","):
            if not fixed:
                self.take("sign", ",")
            scale = self.number()
        if not (1 <= precision <= 76 and 0 <= scale <= precision):
            raise self.refuse("precision is 1 to 76 and scale 0 to precision")
        return TargetType("", "Decimal", precision=precision, scale=scale)

    def _fixed_string(self) -> TargetType:
        length = self.number()
        if length < 1:
            raise self.refuse("the length must be positive")
        return TargetType("", "FixedString", length=length)

    def _datetime64(self) -> TargetType:
        scale = self._scale()
        zone = None
        if self.at(","):
            self.take("sign", ",")
            zone = self.string()
        return TargetType("", "DateTime64", scale=scale, zone=zone)

    def _time64(self) -> TargetType:
        return TargetType("", "Time64", scale=self._scale())

    def _scale(self) -> int:
        scale = self.number()
        if not 0 <= scale <= 9:
            raise self.refuse("fraction digits are 0 to 9")
        return scale

    def _enum(self, bits: int) -> TargetType:
        members: list[tuple[str, int]] = []
        while True:
            label = self.string()
            self.take("sign", "=")
            members.append((label, self.number()))
            if not self.at(","):
                break
            self.take("sign", ",")
        return TargetType("", "Enum", bits=bits, signed=True, members=tuple(members))

    def _nullable(self) -> TargetType:
        inner = self.type()
        if inner.nullable or inner.family == "Array":
            raise self.refuse("such a type cannot be Nullable")
        return replace(inner, nullable=True)

    def _low_cardinality(self) -> TargetType:
        return self.type()

    def _array(self) -> TargetType:
        inner = self.type()
        if inner.family == "Array":
            raise self.refuse("only one-dimensional arrays are supported")
        return TargetType("", "Array", element=inner)


_PARAMETRIC: Final = {
    "Decimal": lambda parser: parser._decimal(None),
    "FixedString": _Parser._fixed_string,
    "DateTime64": _Parser._datetime64,
    "Time64": _Parser._time64,
    "Enum8": lambda parser: parser._enum(8),
    "Enum16": lambda parser: parser._enum(16),
    "Nullable": _Parser._nullable,
    "LowCardinality": _Parser._low_cardinality,
    "Array": _Parser._array,
}
