"""A row as bytes, written the same way here from Arrow and by the server from its columns, to be digested by either.

Per value one byte, 0 for NULL and 1 else; then fixed bytes, or for text (UTF-16LE), bytes and decimals a length of
four bytes and the bytes. Whole numbers are eight bytes, big-endian; moments are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.engines.mssql.scripts import quoted
from airflow_provider_dpone.transfer.digest import content_of
from airflow_provider_dpone.transfer.rowbinary import EncodedRows, RowPieces, byte_strings, join_rows, offsets_of
from airflow_provider_dpone.transfer.target_types import TargetType
from airflow_provider_dpone.transfer.values import as_integers

Bytes2D = npt.NDArray[np.uint8]
_EPOCH: Final = "CONVERT(datetime2(7), '19700101', 112)"
_WHOLE: Final = "CONVERT(binary(8), CONVERT(bigint, {c}))"
_TEXT: Final = "CONVERT(varbinary(max), CONVERT(nvarchar(max), {c}))"
#: The bytes of a value that is there, by family; the length stands before what is in ``VARYING``.
FORMS: Final[dict[str, str]] = {
    "Bool": "CONVERT(binary(1), CONVERT(tinyint, {c}))",
    "Int": _WHOLE,
    "Decimal": "CONVERT(varbinary(60), REPLACE(CONVERT(varchar(60), {c}), '.', ''))",
    "Float32": "CONVERT(binary(4), {c})",
    "Float64": "CONVERT(binary(8), {c})",
    "String": _TEXT,
    "Varchar": _TEXT,
    "Char": _TEXT,
    "Carried": _TEXT,
    "Bytes": "CONVERT(varbinary(max), {c})",
    "FixedBytes": "CONVERT(varbinary(max), {c})",
    "UUID": "CONVERT(binary(16), {c})",
    "Date": f"CONVERT(binary(8), CONVERT(bigint, DATEDIFF(day, {_EPOCH}, {{c}})))",
    "Time64": "CONVERT(binary(8), DATEDIFF_BIG(microsecond, CONVERT(datetime2(7), '19000101', 112), "
    "CONVERT(datetime2(7), {c})))",
    "Timestamp": f"CONVERT(binary(8), DATEDIFF_BIG(microsecond, {_EPOCH}, {{c}}))",
    "Instant": f"CONVERT(binary(8), DATEDIFF_BIG(microsecond, {_EPOCH}, "
    "CONVERT(datetime2(7), SWITCHOFFSET({c}, '+00:00'))))",
}
VARYING: Final = ("Decimal", "String", "Varchar", "Char", "Carried", "Bytes", "FixedBytes")
#: Where the sixteen bytes of a UUID stand when SQL Server writes a uniqueidentifier as bytes.
_GUID: Final = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]


def row_digest_sql(columns: Sequence[tuple[str, TargetType]]) -> str:
    """SQL of the SHA-256 of a row's bytes."""
    parts = []
    for name, kind in columns:
        column = quoted(name)
        value = FORMS[kind.family].format(c=column)
        if kind.family in VARYING:
            value = f"CONVERT(binary(4), CONVERT(int, DATALENGTH({value}))) + {value}"
        parts.append(f"CASE WHEN {column} IS NULL THEN 0x00 ELSE 0x01 + {value} END")
    return f"HASHBYTES('SHA2_256', CONVERT(varbinary(max), 0x) + {' + '.join(parts)})"


#: Four bytes of a digest ``q.h`` as a number, the first counting most, which the server reads at the least cost. A sum
#: of them does not overflow 64 bits below two thousand million rows; beyond, the server refuses.
LANES: Final = ", ".join(f"SUM(CONVERT(bigint, SUBSTRING(q.h, {at}, 4)))" for at in range(1, 32, 4))


def content_of_lanes(row: Sequence[int | None]) -> Content:
    """What the number of rows and :data:`LANES` stand for; no row has no sums."""
    rows, *sums = (int(value or 0) for value in row)
    return content_of(rows, sum(lane << (32 * i) for i, lane in enumerate(reversed(sums))))


def row_bytes(batch: pa.RecordBatch, types: Sequence[TargetType]) -> EncodedRows:
    """The rows of a batch as they are digested."""
    row = RowPieces(batch.num_rows)
    for index, kind in enumerate(types):
        _add_value(row, batch.column(index), kind)
    row.close()
    return join_rows(row.pieces, batch.num_rows)


def _add_value(row: RowPieces, array: pa.Array, kind: TargetType) -> None:
    present = np.asarray(array.is_valid()) if array.null_count else None
    row.fixed(np.ones((row.rows, 1), np.uint8) if present is None else present.view(np.uint8)[:, None])
    if kind.family in VARYING:
        payload = _payload(array, kind)
        lengths = _big(np.diff(offsets_of(payload)), ">i4")
        if present is None:
            row.fixed(lengths)
        else:
            row.optional(lengths, present)
        row.varying(payload)
        return
    block = _block(array, kind)
    if present is None:
        row.fixed(block)
    else:
        row.optional(block, present)


def _payload(array: pa.Array, kind: TargetType) -> pa.Array:
    """Varying bytes of each value, none where NULL."""
    if kind.family == "Decimal":
        return unscaled(array, kind)
    filled = pc.fill_null(array, pa.scalar("" if pa.types.is_string(array.type) else b"", array.type))
    return utf16(filled) if pa.types.is_string(array.type) else filled


def _block(array: pa.Array, kind: TargetType) -> Bytes2D:
    """The bytes of fixed-width values, one row each; what stands under a NULL is arbitrary."""
    if kind.family == "Bool":
        return np.asarray(pc.fill_null(array, False).cast(pa.uint8())).reshape(len(array), 1)
    if kind.family == "UUID":
        buffer = array.buffers()[1]
        raw = np.frombuffer(buffer, np.uint8, count=16 * len(array), offset=16 * array.offset)
        return np.ascontiguousarray(raw.reshape(-1, 16)[:, _GUID])
    if kind.family in ("Float32", "Float64"):
        return _big(np.asarray(pc.fill_null(array, 0.0)), ">f4" if kind.family == "Float32" else ">f8")
    whole = array.cast(pa.int64()) if pa.types.is_integer(array.type) else array
    return _big(as_integers(whole), ">i8")


def _big(values: npt.NDArray[np.generic], kind: str) -> Bytes2D:
    cast = np.ascontiguousarray(values.astype(kind))
    return cast.view(np.uint8).reshape(len(values), -1)


def unscaled(array: pa.Array, kind: TargetType) -> pa.Array:
    """Digits of a decimal without its point, at least one before it: what the server prints, less the point."""
    whole = pa.Array.from_buffers(pa.decimal128(38, 0), len(array), array.buffers(), offset=array.offset)
    digits = pc.fill_null(whole.cast(pa.string()), "")
    negative = pc.starts_with(digits, "-")
    padded = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), kind.scale + 1, "0")
    signed = pc.if_else(negative, pc.binary_join_element_wise("-", padded, ""), padded)
    return pc.if_else(array.is_null(), "", signed).cast(pa.binary()) if array.null_count else signed.cast(pa.binary())


def utf16(array: pa.Array) -> pa.Array:
    """Text as UTF-16LE bytes (no NULL)."""
    starts, units = _units(array)
    values = array.buffers()[2]
    raw = b"" if values is None else values[starts[0] : starts[-1]].to_pybytes()
    wide = raw.decode("utf-8").encode("utf-16-le")
    return byte_strings((2 * (units - units[0])).astype(np.int32), wide)


def utf16_lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """UTF-16 units of each text; of a NULL nothing that matters."""
    return np.diff(_units(pc.fill_null(array, "") if array.null_count else array)[1])


def _units(array: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Where each text begins in the UTF-8 bytes, and how many UTF-16 units lie before that."""
    starts = offsets_of(array)
    values = array.buffers()[2]
    raw = np.frombuffer(b"" if values is None else values, np.uint8)
    counted = np.zeros(len(raw) + 1, np.int64)  # a character of four UTF-8 bytes is two units, any other is one
    np.cumsum(((raw & 0xC0) != 0x80).astype(np.int64) + (raw >= 0xF0), out=counted[1:])
    return starts, counted[starts]
