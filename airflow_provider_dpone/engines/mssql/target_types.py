"""SQL Server column types as targets: what converts into each, and the bytes a row of them is digested as.

The staging table has the same types. A type of a code page is **carried**: its text goes into a Unicode column of the
staging table, and the cast to it must give the same text back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_dpone.contracts.columns import SourceColumn, ValueKind
from airflow_provider_dpone.contracts.enrolment import ColumnDesign
from airflow_provider_dpone.engines.mssql.row_bytes import utf16_lengths
from airflow_provider_dpone.errors import TypeNotMapped
from airflow_provider_dpone.transfer.convert import TypeSystem
from airflow_provider_dpone.transfer.rowbinary import EncodedRows
from airflow_provider_dpone.transfer.target_types import TargetType
from airflow_provider_dpone.transfer.values import (
    Converter,
    Unfit,
    as_integers,
    decimal_to_decimal,
    decimal_to_integer,
    float_to_float,
    integer_to_decimal,
    integer_to_integer,
    same,
)

_MODIFIER = re.compile(r"\((max|\d+(?:,\d+)?)\)")
_DAY_MICROS: Final = 86400 * 10**6
#: First and last day since 1970, and microsecond, that SQL Server has: years 1 to 9999.
_DATES: Final = (-719162, 2932896)
_MOMENTS: Final = (_DATES[0] * _DAY_MICROS, (_DATES[1] + 1) * _DAY_MICROS - 1)
_SMALLEST: Final = {"Float32": float(np.finfo(np.float32).tiny), "Float64": float(np.finfo(np.float64).tiny)}
_ARROW: Final = {
    "Bool": pa.bool_(), "Float32": pa.float32(), "Float64": pa.float64(), "String": pa.string(), "Varchar": pa.string(),
    "Char": pa.string(), "Carried": pa.string(), "Bytes": pa.binary(), "FixedBytes": pa.binary(), "UUID": pa.binary(16),
    "Date": pa.date32(), "Time64": pa.time64("us"), "Timestamp": pa.timestamp("us"),
    "Instant": pa.timestamp("us", "UTC"),
}  # fmt: skip
#: Names in ``sys.types``: family, bits of a whole number and whether it has a sign.
_FAMILIES: Final[dict[str, tuple[str, int]]] = {
    "bit": ("Bool", 0), "tinyint": ("Int", 8), "smallint": ("Int", 16), "int": ("Int", 32), "bigint": ("Int", 64),
    "decimal": ("Decimal", 0), "numeric": ("Decimal", 0), "real": ("Float32", 0), "float": ("Float64", 0),
    "nvarchar": ("Varchar", 0), "nchar": ("Char", 0), "sysname": ("Varchar", 0), "varchar": ("Carried", 0),
    "char": ("Carried", 0), "varbinary": ("Bytes", 0), "binary": ("FixedBytes", 0), "uniqueidentifier": ("UUID", 0),
    "date": ("Date", 0), "time": ("Time64", 0), "datetime2": ("Timestamp", 0), "datetimeoffset": ("Instant", 0),
}  # fmt: skip
Encode = Callable[[pa.RecordBatch, Sequence[TargetType]], EncodedRows]
#: Why a type takes nothing, and what does instead.
REFUSED: Final = {
    "money": "its range is no number of digits; use decimal(19,4)",
    "smallmoney": "its range is no number of digits; use decimal(10,4)",
    "datetime": "it rounds to 1/300 of a second; use datetime2(3)",
    "smalldatetime": "it rounds to a minute; use datetime2(0)",
    "text": "it is deprecated; use nvarchar(max)",
    "ntext": "it is deprecated; use nvarchar(max)",
    "image": "it is deprecated; use varbinary(max)",
    "xml": "it stores a parsed form of a document, not the document; use nvarchar(max)",
    "json": "it stores a parsed form of a document, not the document; use nvarchar(max)",
    "vector": "no source type maps onto it exactly",
    "sql_variant": "the type of each value would be guessed",
    "hierarchyid": "no source type maps onto it exactly; use nvarchar(max)",
    "geometry": "no source type maps onto it exactly; use nvarchar(max)",
    "geography": "no source type maps onto it exactly; use nvarchar(max)",
    "timestamp": "the server makes its values (rowversion)",
}


@dataclass(frozen=True)
class MssqlType(TargetType):
    """A column type of a target table. ``text`` is the type as it is declared; lengths count UTF-16 units or bytes."""

    collation: str = ""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a converted value."""
        if self.family == "Int" and self.bits == 8:
            return pa.uint8()
        return _ARROW[self.family] if self.family in _ARROW else super().arrow

    @property
    def staged(self) -> str:
        """The type of the column in the staging table."""
        if self.family == "Carried":
            return "nvarchar(max)"
        if self.family in ("Time64", "Timestamp", "Instant"):
            return f"{self.text.partition('(')[0]}({min(self.scale, 6)})"  # no source has a seventh digit
        return self.text

    def takes_text_of(self, source: SourceColumn) -> bool:
        """A text column without a limit takes the text form of any value."""
        return self.family == "String"


def target_type(name: str, declared: str, *, nullable: bool, collation: str = "") -> MssqlType:
    """The type of a column.

    :param name: its system type in ``sys.types``. :param declared: the type as it is declared, with its parameters.
    """
    family, bits = _FAMILIES.get(name, ("Refused", 0))
    found = _MODIFIER.search(declared)
    numbers = [] if found is None or found[1] == "max" else [int(number) for number in found[1].split(",")]
    if family == "Varchar" and not numbers and name == "nvarchar":
        family = "String"
    plain = MssqlType(declared, family, nullable, bits=bits, signed=bits > 8, collation=collation)
    if family == "Decimal":
        return MssqlType(declared, family, nullable, precision=numbers[0], scale=numbers[1])
    if family in ("Time64", "Timestamp", "Instant"):
        return MssqlType(declared, family, nullable, scale=numbers[0])
    if family in ("Varchar", "Char", "Bytes", "FixedBytes"):
        return MssqlType(declared, family, nullable, length=numbers[0] if numbers else 0, collation=collation)
    return plain


def type_system(types: Mapping[str, MssqlType], encode: Encode) -> TypeSystem:
    """The types of one table's columns, by their names.

    :param encode: the bytes rows are digested as, and those they are sent as.
    """

    def type_of(design: ColumnDesign) -> TargetType:
        found = types[design.name]
        if found.family == "Refused":
            why = REFUSED.get(found.text.partition("(")[0], "no source type maps onto it exactly")
            raise TypeNotMapped(f"the target type {found.text} takes nothing: {why}", target_type=found.text)
        return found

    return TypeSystem(type_of, CONVERTERS, encode, "let the target column {type} take NULL", "big")


def text_to_limited(array: pa.Array, target: TargetType) -> pa.Array:
    """Text of at most the declared number of UTF-16 units, of exactly that for a padded type."""
    texts = array.cast(pa.string())
    lengths = utf16_lengths(texts)
    present = np.asarray(array.is_valid()) if array.null_count else np.True_
    if target.family == "Char":
        bad, why = (lengths != target.length) & present, f"it has not exactly {target.length} UTF-16 units"
    else:
        limit = target.length or 128  # sysname
        bad, why = (lengths > limit) & present, f"it has more than {limit} UTF-16 units"
    if bad.any():
        raise Unfit(bad, why)
    return texts


def bytes_to_limited(array: pa.Array, target: TargetType) -> pa.Array:
    """Bytes of at most the declared number, of exactly that for a padded type."""
    raw = array.cast(pa.binary())
    lengths = pc.binary_length(raw)
    if target.family == "FixedBytes":
        bad, why = pc.not_equal(lengths, target.length), f"it is not exactly {target.length} bytes long"
    else:
        bad, why = pc.greater(lengths, target.length or 2**31 - 1), f"it is longer than {target.length} bytes"
    if pc.any(bad).as_py():
        raise Unfit(bad, why)
    return raw


def finite(array: pa.Array, target: TargetType) -> pa.Array:
    """Floats; SQL Server has neither NaN nor infinities, and nothing between zero and the smallest normal number."""
    bad = pc.invert(pc.is_finite(array))
    if pc.any(bad).as_py():
        raise Unfit(bad, "SQL Server has neither NaN nor infinities")
    size, smallest = pc.abs(array.cast(pa.float64())), _SMALLEST[target.family]
    bad = pc.and_(pc.greater(size, 0.0), pc.less(size, smallest))
    if pc.any(bad).as_py():
        raise Unfit(bad, f"SQL Server holds no number smaller than {smallest:.3g}")
    return float_to_float(array, target)


def date_to_date(array: pa.Array, target: TargetType) -> pa.Array:
    """Days of the years 1 to 9999."""
    _require(as_integers(array), array, _DATES, target, 0)
    return array.cast(target.arrow)


def moment_to_moment(array: pa.Array, target: TargetType) -> pa.Array:
    """Microseconds of the years 1 to 9999, with no more fraction digits than declared."""
    micros = _micros(array)
    _require(as_integers(micros), micros, _MOMENTS, target, target.scale)
    return micros.cast(target.arrow)


def time_to_time(array: pa.Array, target: TargetType) -> pa.Array:
    """Microseconds since midnight; 24:00:00 is no time there."""
    micros = _micros(array)
    _require(as_integers(micros), micros, (0, _DAY_MICROS - 1), target, target.scale)
    return micros.cast(target.arrow)


def _micros(array: pa.Array) -> pa.Array:
    kind = array.type
    if kind.unit == "us":
        return array
    to = pa.time64("us") if pa.types.is_time(kind) else pa.timestamp("us", kind.tz)
    try:
        return array.cast(to)
    except pa.ArrowInvalid:
        raise Unfit(0, "a value has more than 6 fraction digits of a second, or lies outside") from None


def _require(values: np.ndarray, like: pa.Array, bounds: tuple[int, int], target: TargetType, scale: int) -> None:
    present = np.asarray(like.is_valid()) if like.null_count else np.True_
    bad = ((values < bounds[0]) | (values > bounds[1])) & present
    if bad.any():
        raise Unfit(bad, f"it lies outside what {target.text} can hold")
    if target.family != "Date" and scale < 6:
        bad = (values % 10 ** (6 - scale) != 0) & present
        if bad.any():
            raise Unfit(bad, f"it has more than {scale} fraction digits of a second")


#: What converts into what, by kind and target family; a pair not listed has no exact conversion.
CONVERTERS: Final[dict[tuple[ValueKind, str], Converter]] = {
    (ValueKind.BOOL, "Bool"): same,
    (ValueKind.INTEGER, "Int"): integer_to_integer,
    (ValueKind.INTEGER, "Decimal"): integer_to_decimal,
    (ValueKind.FLOAT32, "Float32"): finite,
    (ValueKind.FLOAT32, "Float64"): finite,
    (ValueKind.FLOAT64, "Float64"): finite,
    (ValueKind.FLOAT64, "Float32"): finite,
    (ValueKind.DECIMAL, "Decimal"): decimal_to_decimal,
    (ValueKind.DECIMAL, "Int"): decimal_to_integer,
    (ValueKind.TEXT, "String"): same,
    (ValueKind.TEXT, "Varchar"): text_to_limited,
    (ValueKind.TEXT, "Char"): text_to_limited,
    (ValueKind.TEXT, "Carried"): same,
    (ValueKind.BYTES, "Bytes"): bytes_to_limited,
    (ValueKind.BYTES, "FixedBytes"): bytes_to_limited,
    (ValueKind.UUID, "UUID"): same,
    (ValueKind.DATE, "Date"): date_to_date,
    (ValueKind.TIME, "Time64"): time_to_time,
    (ValueKind.TIMESTAMP, "Timestamp"): moment_to_moment,
    (ValueKind.INSTANT, "Instant"): moment_to_moment,
}
