"""PostgreSQL column types as targets: what converts into each, and the binary form it is sent and digested in.

Common types are sent in COPY's binary form. A type without an encoder here is **carried**: the source's own text form
of the very same type goes into a text column of the staging table and is cast by the server, which must give the same
text back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_dpone.contracts.columns import SourceColumn, ValueKind
from airflow_provider_dpone.contracts.enrolment import ColumnDesign
from airflow_provider_dpone.engines.postgres.copy_binary import encode_copy
from airflow_provider_dpone.transfer.convert import TypeSystem
from airflow_provider_dpone.transfer.target_types import TargetType
from airflow_provider_dpone.transfer.values import (
    CONVERTERS,
    Converter,
    Unfit,
    as_integers,
    decimal_to_decimal,
    decimal_to_integer,
    float_to_float,
    integer_to_decimal,
    integer_to_integer,
    rebuilt,
    same,
)

_MODIFIER = re.compile(r"\(([0-9, -]+)\)")
_EPOCH_DAYS: Final = 10957
_EPOCH_MICROS: Final = _EPOCH_DAYS * 86400 * 10**6
#: First and last day and microsecond since 2000 that PostgreSQL has, infinities left out.
_DATES: Final = (-2451545, 2145031948)
_MOMENTS: Final = (-211813488000000000, 9223371331200000000 - 1)
_DAY_MICROS: Final = 86400 * 10**6
#: Internal name of a type in ``pg_catalog``: family, send function, and for integers their bits.
_BINARY: Final[dict[str, tuple[str, str, int]]] = {
    "bool": ("Bool", "boolsend", 0),
    "int2": ("Int", "int2send", 16),
    "int4": ("Int", "int4send", 32),
    "int8": ("Int", "int8send", 64),
    "float4": ("Float32", "float4send", 0),
    "float8": ("Float64", "float8send", 0),
    "numeric": ("Decimal", "numeric_send", 0),
    "text": ("String", "textsend", 0),
    "varchar": ("Varchar", "varcharsend", 0),
    "bpchar": ("Char", "bpcharsend", 0),
    "bytea": ("Bytes", "byteasend", 0),
    "uuid": ("UUID", "uuid_send", 0),
    "date": ("Date", "date_send", 0),
    "time": ("Time64", "time_send", 0),
    "timestamp": ("Timestamp", "timestamp_send", 0),
    "timestamptz": ("Instant", "timestamptz_send", 0),
}
_ARROW: Final = {
    "Bool": pa.bool_(), "Float32": pa.float32(), "Float64": pa.float64(), "String": pa.binary(),
    "Varchar": pa.binary(), "Char": pa.binary(), "Carried": pa.binary(), "Bytes": pa.binary(), "UUID": pa.binary(16),
    "Date": pa.int32(), "Time64": pa.int64(), "Timestamp": pa.int64(), "Instant": pa.int64(),
}  # fmt: skip


@dataclass(frozen=True)
class PostgresType(TargetType):
    """A column type of a target table. ``text`` is the type as the server prints it, domains followed to their base."""

    send: str = "textsend"
    """The function of ``pg_catalog`` whose bytes are the binary form of a staged value."""
    numeric_text: bool = False
    """A numeric without a declared scale takes the text of any number."""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a converted value."""
        return _ARROW[self.family] if self.family in _ARROW else super().arrow

    @property
    def staged(self) -> str:
        """The type of the column in the staging table."""
        return "text" if self.family == "Carried" else self.text

    def takes_text_of(self, source: SourceColumn) -> bool:
        """A text column takes the text form of any value, a carried one that of the very same type."""
        if self.family == "Carried":
            number = self.numeric_text and not source.array and source.kind in (ValueKind.INTEGER, ValueKind.DECIMAL)
            return number or _bare(source.declared) == _bare(self.text)
        return self.family == "String"


def _bare(declared: str) -> str:
    return _MODIFIER.sub("", declared)


def target_type(base: str, namespace: str, name: str, *, array: bool, nullable: bool) -> PostgresType:
    """The type of a column.

    :param base: the type below its domains as ``format_type`` prints it, with modifiers.
    :param namespace, name: of that type, or of an array's elements.
    """
    modifier = _MODIFIER.search(base)
    numbers = [int(number) for number in modifier[1].split(",")] if modifier else []
    known = _BINARY.get(name) if namespace == "pg_catalog" and not array else None
    if known is not None:
        family, send, bits = known
        if family in ("Int", "Bool", "Float32", "Float64", "String", "Bytes", "UUID", "Date"):
            return PostgresType(base, family, nullable, bits=bits, signed=True, send=send)
        if family == "Decimal" and len(numbers) == 2 and 0 <= numbers[1] <= numbers[0] <= 76:
            return PostgresType(base, family, nullable, precision=numbers[0], scale=numbers[1], send=send)
        if family in ("Varchar", "Char"):
            family = family if numbers else "String"
            return PostgresType(base, family, nullable, length=numbers[0] if numbers else 0, send=send)
        if family in ("Time64", "Timestamp", "Instant"):
            return PostgresType(base, family, nullable, scale=numbers[0] if numbers else 6, send=send)
    free = name == "numeric" and namespace == "pg_catalog" and not array and not numbers
    return PostgresType(base, "Carried", nullable, numeric_text=free)


def type_system(types: Mapping[str, PostgresType]) -> TypeSystem:
    """The types of one table's columns, by their names."""

    def type_of(design: ColumnDesign) -> TargetType:
        return types[design.name]

    return TypeSystem(type_of, _CONVERTERS, encode_copy, "let the target column {type} take NULL")


def text_to_limited(array: pa.Array, target: TargetType) -> pa.Array:
    """Text of at most the declared number of characters, of exactly that for a padded type."""
    lengths = pc.utf8_length(array.cast(pa.string()))
    if target.family == "Char":
        bad, why = pc.not_equal(lengths, target.length), f"it has not exactly {target.length} characters"
    else:
        bad, why = pc.greater(lengths, target.length), f"it has more than {target.length} characters"
    if pc.any(bad).as_py():
        raise Unfit(bad, why)
    return array.cast(target.arrow)


def date_to_date(array: pa.Array, target: TargetType) -> pa.Array:
    """Days since 1970 into days since 2000."""
    return _shifted(array, target, as_integers(array) - _EPOCH_DAYS, _DATES, np.int32)


def moment_to_moment(array: pa.Array, target: TargetType) -> pa.Array:
    """Microseconds since 1970 into microseconds since 2000, with no more fraction digits than declared."""
    micros = as_integers(_micros(array))
    with np.errstate(over="ignore"):
        shifted = micros - _EPOCH_MICROS
    # what wraps around has no value in the target either way
    return _shifted(array, target, np.where(micros < shifted, np.int64(-(2**63)), shifted), _MOMENTS, np.int64)


def time_to_time(array: pa.Array, target: TargetType) -> pa.Array:
    """Microseconds since midnight, 24:00:00 included."""
    return _shifted(array, target, as_integers(_micros(array)), (0, _DAY_MICROS), np.int64)


def _micros(array: pa.Array) -> pa.Array:
    kind = array.type
    if kind.unit == "us":
        return array
    to = pa.time64("us") if pa.types.is_time(kind) else pa.timestamp("us", kind.tz)
    try:
        return array.cast(to)
    except pa.ArrowInvalid:
        raise Unfit(0, "a value has more than 6 fraction digits of a second") from None


def _shifted(
    array: pa.Array, target: TargetType, values: np.ndarray, bounds: tuple[int, int], kind: type[np.integer]
) -> pa.Array:
    present = np.asarray(array.is_valid()) if array.null_count else np.True_
    bad = ((values < bounds[0]) | (values > bounds[1])) & present
    if bad.any():
        raise Unfit(bad, f"it lies outside what {target.text} can hold")
    if target.family != "Date" and target.scale < 6:
        bad = (values % 10 ** (6 - target.scale) != 0) & present
        if bad.any():
            raise Unfit(bad, f"it has more than {target.scale} fraction digits of a second")
    return rebuilt(values.astype(kind), array, target.arrow)


_CONVERTERS: Final[dict[tuple[ValueKind, str], Converter]] = {
    (ValueKind.BOOL, "Bool"): same,
    (ValueKind.INTEGER, "Int"): integer_to_integer,
    (ValueKind.INTEGER, "Decimal"): integer_to_decimal,
    (ValueKind.FLOAT32, "Float32"): float_to_float,
    (ValueKind.FLOAT32, "Float64"): float_to_float,
    (ValueKind.FLOAT64, "Float64"): float_to_float,
    (ValueKind.FLOAT64, "Float32"): float_to_float,
    (ValueKind.DECIMAL, "Decimal"): decimal_to_decimal,
    (ValueKind.DECIMAL, "Int"): decimal_to_integer,
    (ValueKind.TEXT, "String"): same,
    (ValueKind.TEXT, "Varchar"): text_to_limited,
    (ValueKind.TEXT, "Char"): text_to_limited,
    (ValueKind.BYTES, "Bytes"): same,
    (ValueKind.UUID, "UUID"): CONVERTERS[ValueKind.UUID, "UUID"],
    (ValueKind.DATE, "Date"): date_to_date,
    (ValueKind.TIME, "Time64"): time_to_time,
    (ValueKind.TIMESTAMP, "Timestamp"): moment_to_moment,
    (ValueKind.INSTANT, "Instant"): moment_to_moment,
}
