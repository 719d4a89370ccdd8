"""Rows on their way into a staging table: one JSON document for many rows, which the server takes apart by itself.

One statement with one parameter per piece: every value travels as its exact text, whatever the driver and the code
pages of client and server, and no driver guesses a type. Measured against the other ways in docs/loads.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_dpone.engines.mssql.row_bytes import unscaled
from airflow_provider_dpone.engines.mssql.scripts import quoted
from airflow_provider_dpone.engines.mssql.target_types import MssqlType
from airflow_provider_dpone.transfer.rowbinary import byte_strings, offsets_of
from airflow_provider_dpone.transfer.target_types import TargetType

#: What JSON escapes: the backslash first.
_ESCAPES: Final = [("\\", "\\\\"), ('"', '\\"'), *((chr(code), f"\\u{code:04x}") for code in range(32))]
#: Where the dashes of a UUID's text stand between its 32 digits.
_DASHES: Final = (8, 12, 16, 20)
_BYTES: Final = ("Bytes", "FixedBytes")


def json_rows(batch: pa.RecordBatch, types: Sequence[TargetType]) -> bytes:
    """A JSON array of one array per row."""
    columns = [_values(batch.column(index), kind) for index, kind in enumerate(types)]
    joined = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, ",")
    rows = pc.binary_join_element_wise(",[", joined, "]", "")
    offsets = offsets_of(rows)
    body = memoryview(rows.buffers()[2])[int(offsets[0]) + 1 : int(offsets[-1])]
    return b"".join((b"[", body, b"]"))


def insert_sql(relation: str, types: Mapping[str, MssqlType]) -> str:
    """The statement that takes such a document, its one parameter, apart."""
    names = ", ".join(quoted(name) for name in types)
    values = ", ".join(
        f"CONVERT(varbinary(max), {quoted(name)}, 2)" if kind.family in _BYTES else quoted(name)
        for name, kind in types.items()
    )
    given = ", ".join(
        f"{quoted(name)} {'nvarchar(max)' if kind.family in _BYTES else kind.staged} '$[{place}]'"
        for place, (name, kind) in enumerate(types.items())
    )
    return f"INSERT INTO {relation} WITH (TABLOCK) ({names}) SELECT {values} FROM OPENJSON(?) WITH ({given})"  # noqa: S608


def _values(array: pa.Array, kind: TargetType) -> pa.Array:
    """Each value as JSON."""
    text = _text(array, kind)
    if kind.family not in ("Int", "Bool"):
        text = pc.binary_join_element_wise('"', text, '"', "")
    return pc.fill_null(text, "null") if text.null_count else text


def _text(array: pa.Array, kind: TargetType) -> pa.Array:
    match kind.family:
        case "Decimal":
            digits = unscaled(array, kind).cast(pa.string())
            if kind.scale:
                whole = pc.utf8_slice_codeunits(digits, 0, -kind.scale)
                digits = pc.binary_join_element_wise(whole, pc.utf8_slice_codeunits(digits, -kind.scale), ".")
            return _null_as(array, digits)
        case "Float32" | "Float64":
            return array.cast(pa.float64()).cast(pa.string())  # the shortest text that is exactly this float
        case "Bytes" | "FixedBytes":
            return _null_as(array, _hexadecimal(pc.fill_null(array, b"") if array.null_count else array))
        case "UUID":
            return _null_as(array, _uuids(array))
        case "Instant":
            return pc.binary_join_element_wise(array.cast(pa.timestamp("us")).cast(pa.string()), "+00:00", "")
        case "String" | "Varchar" | "Char" | "Carried":
            return _escaped(array)
    return array.cast(pa.string())


def _null_as(like: pa.Array, text: pa.Array) -> pa.Array:
    return pc.if_else(like.is_valid(), text, pa.scalar(None, pa.string())) if like.null_count else text


def _escaped(array: pa.Array) -> pa.Array:
    offsets = offsets_of(array)
    buffer = array.buffers()[2]
    raw = np.frombuffer(b"" if buffer is None else buffer, np.uint8)[int(offsets[0]) : int(offsets[-1])]
    present = np.flatnonzero(np.bincount(raw, minlength=93)[:93])
    for character, escape in _ESCAPES:
        if ord(character) in present:
            array = pc.replace_substring(array, character, escape)
    return array


def _hexadecimal(array: pa.Array) -> pa.Array:
    offsets = offsets_of(array)
    buffer = array.buffers()[2]
    first, last = int(offsets[0]), int(offsets[-1])
    digits = b"" if buffer is None else memoryview(buffer)[first:last].hex().encode()
    return byte_strings(((offsets - first) * 2).astype(np.int32), digits).cast(pa.string())


def _uuids(array: pa.Array) -> pa.Array:
    raw = np.frombuffer(array.buffers()[1], np.uint8, count=16 * len(array), offset=16 * array.offset)
    digits = np.frombuffer(raw.tobytes().hex().encode(), np.uint8).reshape(-1, 32)
    dashed = np.ascontiguousarray(np.insert(digits, _DASHES, ord("-"), axis=1))
    return byte_strings(np.arange(len(array) + 1, dtype=np.int32) * 36, dashed.reshape(-1)).cast(pa.string())
