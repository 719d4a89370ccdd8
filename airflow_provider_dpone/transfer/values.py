"""How the values of one kind become the values of one target type, each checked on Arrow arrays.

A converter takes a plain Arrow array (no extension type) and returns an array of ``TargetType.arrow``, or raises
:class:`Unfit` naming the first value that the target cannot hold exactly.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_dpone.contracts.columns import ValueKind
from airflow_provider_dpone.transfer.target_types import (
    DATE32_RANGE,
    DATE_RANGE,
    DAY,
    TargetType,
)

Converter = Callable[[pa.Array, TargetType], pa.Array]
Mask = npt.NDArray[np.bool_]
_UNIT_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


class Unfit(Exception):
    """The first value marked in ``bad`` cannot be held exactly, because of ``why``. Never leaves this package."""

    def __init__(self, bad: pa.Array | Mask | int, why: str) -> None:
        super().__init__(why)
        self.why = why
        if isinstance(bad, int):
            self.index = bad
        else:
            marks = bad if isinstance(bad, np.ndarray) else pc.fill_null(bad, False).to_numpy(zero_copy_only=False)
            self.index = int(np.argmax(marks))


def storage_of(array: pa.Array) -> pa.Array:
    """The array below an extension type, with 32-bit offsets, so that converters see plain types only."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_list(array.type) and isinstance(array.type.value_type, pa.BaseExtensionType):
        values = storage_of(array.values)
        mask = array.is_null() if array.null_count else None
        array = pa.ListArray.from_arrays(array.offsets, values, mask=mask)
    return array


def as_integers(array: pa.Array) -> npt.NDArray[np.int64]:
    """Values as 64-bit integers, zero where NULL."""
    as_int = array.view(pa.int64()) if array.type.bit_width == 64 else array.view(pa.int32()).cast(pa.int64())
    return np.asarray(pc.fill_null(as_int, 0) if array.null_count else as_int)


def rebuilt(values: npt.NDArray[np.integer], like: pa.Array, to: pa.DataType) -> pa.Array:
    """An array of fixed-width ``values`` (any numpy layout of the right size) that is NULL where ``like`` is."""
    validity = None
    if like.null_count:
        validity = pa.py_buffer(np.packbits(np.asarray(like.is_valid()), bitorder="little"))
    return pa.Array.from_buffers(to, len(like), [validity, pa.py_buffer(np.ascontiguousarray(values))])


def _check(bad: Mask, why: str) -> None:
    if bad.any():
        raise Unfit(bad, why)


def _require_range(array: pa.Array, low: int, high: int) -> None:
    """Refuse the first number outside low to high (integers or decimals, compared exactly)."""
    bounds = pc.min_max(array).as_py()
    if bounds["min"] is not None and (bounds["min"] < low or bounds["max"] > high):
        outside = [value is not None and not low <= value <= high for value in array.to_pylist()]
        raise Unfit(outside.index(True), f"the range is {low} to {high}")


def integer_to_integer(array: pa.Array, target: TargetType) -> pa.Array:
    """Any integers of at most 64 bits (or booleans) into an integer type, inside its range."""
    wide = array.cast(pa.uint8() if pa.types.is_boolean(array.type) else pa.int64())
    _require_range(wide, *target.integer_range)
    if target.bits <= 64:
        return wide.cast(target.arrow)
    values = as_integers(wide.cast(pa.int64()))
    lanes = np.repeat((values >> 63)[:, None], target.bits // 64, axis=1)
    lanes[:, 0] = values
    return rebuilt(lanes, array, target.arrow)


def integer_to_decimal(array: pa.Array, target: TargetType) -> pa.Array:
    """Whole numbers into a decimal with enough digits before the point."""
    return decimal_to_decimal(array.cast(pa.decimal128(20, 0)), target)


def decimal_to_decimal(array: pa.Array, target: TargetType) -> pa.Array:
    """Decimals, or their text, into a decimal: every digit kept, NaN and infinities refused."""
    try:
        # Below the target's range Arrow is exact or raises; far above it, it wraps around without a word: 11 becomes
        # 0.79 as Decimal(38, 38). What is not provably small, or raised on, is judged digit by digit.
        greatest = pc.max(pc.abs(array.cast(pa.float64()))).as_py()
        if greatest is None or greatest < 1.5 * 10.0 ** (target.precision - target.scale):
            return array.cast(target.arrow)
    except pa.ArrowInvalid:
        pass
    return _unscaled_to_arrow(_unscale(array, target.precision, target.scale), array, target.arrow)


def decimal_to_integer(array: pa.Array, target: TargetType) -> pa.Array:
    """Decimals without a fraction into an integer type. Numbers of more than 76 digits are refused."""
    whole = TargetType("", "Decimal", precision=38 if target.bits <= 64 else 76)
    decimals = decimal_to_decimal(array, whole)
    _require_range(decimals, *target.integer_range)
    if target.bits <= 64:
        return decimals.cast(target.arrow)
    width = 32  # a decimal of 76 digits is a little-endian number of two's complement, as the wide integers are
    raw = np.frombuffer(decimals.buffers()[1], np.uint8, count=len(decimals) * width, offset=decimals.offset * width)
    return rebuilt(raw.reshape(-1, width)[:, : target.bits // 8], array, target.arrow)


def _unscale(array: pa.Array, precision: int, scale: int) -> list[int]:
    """Each decimal as a whole number of its last fraction digit; the slow and final judge of what fits."""
    out = []
    for index, value in enumerate(array.to_pylist()):
        if value is None:
            out.append(0)
            continue
        text = format(value, "f") if not isinstance(value, str) else value
        sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
        whole, _, fraction = digits.partition(".")
        whole, fraction = whole.lstrip("0"), fraction.rstrip("0")
        if not f"{whole}{fraction}0".isdecimal():
            raise Unfit(index, "it is not a finite number")
        if len(fraction) > scale:
            raise Unfit(index, f"it has {len(fraction)} fraction digits, the target {scale}")
        if len(whole) > precision - scale:
            raise Unfit(index, f"it has {len(whole)} digits before the point, the target {precision - scale}")
        out.append(sign * int((whole + fraction.ljust(scale, "0")) or "0"))
    return out


def _unscaled_to_arrow(values: list[int], like: pa.Array, kind: pa.DataType) -> pa.Array:
    width = kind.bit_width // 8
    raw = b"".join(value.to_bytes(width, "little", signed=True) for value in values)
    return rebuilt(np.frombuffer(raw, np.uint8), like, kind)


def float_to_float(array: pa.Array, target: TargetType) -> pa.Array:
    """Floats into the same or a wider type; into a narrower one only when the value survives the way back."""
    out = array.cast(target.arrow)
    if array.type == pa.float64() and target.family == "Float32":
        before, after = np.asarray(pc.fill_null(array, 0.0)), np.asarray(pc.fill_null(out, 0.0))
        _check((after.astype(np.float64) != before) & ~np.isnan(before), "a Float32 has fewer significant bits")
    return out


def same(array: pa.Array, target: TargetType) -> pa.Array:
    """Values that are already what the target holds (booleans, UUIDs, text and bytes as bytes)."""
    return array if array.type == target.arrow else array.cast(target.arrow)


def bytes_to_fixed(array: pa.Array, target: TargetType) -> pa.Array:
    """Bytes of exactly the declared length; a shorter value would be padded, which changes it."""
    raw = array.cast(pa.binary())
    bad = pc.not_equal(pc.binary_length(raw), target.length)
    if pc.any(bad).as_py():
        raise Unfit(bad, f"it is not exactly {target.length} bytes long")
    return raw.cast(target.arrow)


def text_to_enum(array: pa.Array, target: TargetType) -> pa.Array:
    """Text that is a member of the enumeration."""
    labels = pa.array([label for label, _ in target.members], pa.string())
    found = pc.index_in(array.cast(pa.string()), value_set=labels)
    bad = pc.and_(pc.is_valid(array), pc.is_null(found))
    if pc.any(bad).as_py():
        raise Unfit(bad, "it is not a member of the enumeration")
    return pa.array([number for _, number in target.members], target.arrow).take(found)


def date_to_date(array: pa.Array, target: TargetType) -> pa.Array:
    """Days into Date (1970-01-01 to 2149-06-06) or Date32 (1900-01-01 to 2299-12-31)."""
    low, high = DATE_RANGE if target.family == "Date" else DATE32_RANGE
    days = as_integers(array)
    bad = (days < low) | (days > high)
    if array.null_count:
        bad &= np.asarray(array.is_valid())
    _check(
        bad,
        "the range is 1970-01-01 to 2149-06-06" if high == DATE_RANGE[1] else "the range is 1900-01-01 to 2299-12-31",
    )
    return rebuilt(days.astype(np.uint16 if target.family == "Date" else np.int32), array, target.arrow)


def moment_to_datetime(array: pa.Array, target: TargetType) -> pa.Array:
    """Points in time, or wall clocks taken as UTC, into DateTime or DateTime64 with enough fraction digits."""
    first, last = target.second_range
    return _ticks(array, target, first, last)


def time_to_time(array: pa.Array, target: TargetType) -> pa.Array:
    """Times of day, 00:00:00 to 24:00:00, into Time or Time64 with enough fraction digits."""
    return _ticks(array, target, 0, DAY + 1)


def _ticks(array: pa.Array, target: TargetType, first: int, last: int) -> pa.Array:
    """Check seconds in [first, last) and move from the source's fraction digits to the target's without loss."""
    digits = _UNIT_DIGITS[array.type.unit]
    values = as_integers(array)
    bad = (values < first * 10**digits) | (values >= last * 10**digits)
    if array.null_count:
        bad &= np.asarray(array.is_valid())
    _check(bad, f"it lies outside what {target.text} can show")
    if target.scale >= digits:
        ticks = values * 10 ** (target.scale - digits)
    else:
        ticks, rest = np.divmod(values, 10 ** (digits - target.scale))
        _check(rest != 0, f"it has more than {target.scale} fraction digits of a second")
    kind = {"DateTime": np.uint32, "Time": np.int32}.get(target.family, np.int64)
    return rebuilt(ticks.astype(kind), array, target.arrow)


def text_to_address(array: pa.Array, target: TargetType) -> pa.Array:
    """Host addresses, with or without a full-length mask, into IPv4 or IPv6; the families are never mixed."""
    version, width, kind = (4, 32, pa.uint32()) if target.family == "IPv4" else (6, 128, pa.binary(16))
    encoded = array.dictionary_encode()
    hosts = [ipaddress.ip_interface(text) for text in encoded.dictionary.to_pylist()]
    fits = [host.version == version and host.network.prefixlen == width for host in hosts]
    if not all(fits):
        raise Unfit(pc.invert(pa.array(fits).take(encoded.indices)), f"it is not a single IPv{version} address")
    values = [int(host) if version == 4 else host.packed for host in hosts]
    return pa.array(values, kind).take(encoded.indices)


def convert_list(element: Converter) -> Converter:
    """A converter of one-dimensional lists, given the one of their elements."""

    def convert(array: pa.Array, target: TargetType) -> pa.Array:
        assert target.element is not None
        offsets = np.asarray(array.offsets)
        first, last = int(offsets[0]), int(offsets[-1])
        values = storage_of(array.values).slice(first, last - first)

        def row_of(index: int) -> int:
            return int(np.searchsorted(offsets - first, index, side="right")) - 1

        try:
            if values.null_count and not target.element.nullable:
                raise Unfit(values.is_null(), "an element is NULL")
            converted = element(values, target.element)
        except Unfit as unfit:
            raise Unfit(row_of(unfit.index), f"element: {unfit.why}") from None
        return pa.ListArray.from_arrays(pa.array(offsets - first, pa.int32()), converted)

    return convert


#: What converts into what, by kind and target family; a pair not listed has no exact conversion.
CONVERTERS: Final[dict[tuple[ValueKind, str], Converter]] = {
    (ValueKind.BOOL, "Bool"): same,
    (ValueKind.BOOL, "Int"): integer_to_integer,
    (ValueKind.INTEGER, "Int"): integer_to_integer,
    (ValueKind.INTEGER, "Decimal"): integer_to_decimal,
    (ValueKind.FLOAT32, "Float32"): float_to_float,
    (ValueKind.FLOAT32, "Float64"): float_to_float,
    (ValueKind.FLOAT64, "Float64"): float_to_float,
    (ValueKind.FLOAT64, "Float32"): float_to_float,
    (ValueKind.DECIMAL, "Decimal"): decimal_to_decimal,
    (ValueKind.DECIMAL, "Int"): decimal_to_integer,
    (ValueKind.TEXT, "String"): same,
    (ValueKind.TEXT, "FixedString"): bytes_to_fixed,
    (ValueKind.TEXT, "Enum"): text_to_enum,
    (ValueKind.BYTES, "String"): same,
    (ValueKind.BYTES, "FixedString"): bytes_to_fixed,
    (ValueKind.UUID, "UUID"): same,
    (ValueKind.DATE, "Date"): date_to_date,
    (ValueKind.DATE, "Date32"): date_to_date,
    (ValueKind.TIME, "Time"): time_to_time,
    (ValueKind.TIME, "Time64"): time_to_time,
    (ValueKind.TIMESTAMP, "DateTime"): moment_to_datetime,
    (ValueKind.TIMESTAMP, "DateTime64"): moment_to_datetime,
    (ValueKind.INSTANT, "DateTime"): moment_to_datetime,
    (ValueKind.INSTANT, "DateTime64"): moment_to_datetime,
    (ValueKind.ADDRESS, "IPv4"): text_to_address,
    (ValueKind.ADDRESS, "IPv6"): text_to_address,
}
