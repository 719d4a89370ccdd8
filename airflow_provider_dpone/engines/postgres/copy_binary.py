"""Rows in the binary form of PostgreSQL's COPY: per row the number of columns, per value its length and its bytes.

The number of columns is framing; what follows is what the server digests itself from the send functions of its types.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_dpone.transfer.rowbinary import (
    EncodedRows,
    RowPieces,
    byte_strings,
    join_rows,
    offsets_of,
)
from airflow_provider_dpone.transfer.target_types import TargetType

#: What stands before the first row and after the last.
HEADER: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
TRAILER: Final = struct.pack(">h", -1)
_FRAMING: Final = 2
_NULL: Final = -1
_BASE: Final = 10000
Bytes2D = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


def encode_copy(batch: pa.RecordBatch, types: Sequence[TargetType]) -> EncodedRows:
    """The rows of a batch whose columns have the Arrow types of ``types``. The result must stay below 2 GiB."""
    row = RowPieces(batch.num_rows)
    row.fixed(np.tile(np.frombuffer(struct.pack(">h", batch.num_columns), np.uint8), (batch.num_rows, 1)))
    for index, kind in enumerate(types):
        _add_value(row, batch.column(index), kind)
    row.close()
    return join_rows(row.pieces, batch.num_rows, framing=_FRAMING)


def _add_value(row: RowPieces, array: pa.Array, kind: TargetType) -> None:
    present = np.asarray(array.is_valid()) if array.null_count else None
    if kind.family == "Decimal":
        _add_decimal(row, array, kind, present)
    elif pa.types.is_binary(array.type):
        payload = array if present is None else pc.fill_null(array, pa.scalar(b"", pa.binary()))
        lengths = np.diff(offsets_of(payload))
        row.fixed(_big(lengths if present is None else np.where(present, lengths, _NULL), ">i4"))
        row.varying(payload)
    else:
        block = _fixed_block(array, kind)
        width = block.shape[1]
        lengths = np.full(row.rows, width) if present is None else np.where(present, width, _NULL)
        row.fixed(_big(lengths, ">i4"))
        if present is None:
            row.fixed(block)
        else:
            row.optional(block, present)


def _big(values: npt.NDArray[np.integer], kind: str) -> Bytes2D:
    """Numbers in big-endian order, one row each."""
    cast = np.ascontiguousarray(values.astype(kind))
    return cast.view(np.uint8).reshape(len(values), -1)


def _fixed_block(array: pa.Array, kind: TargetType) -> Bytes2D:
    """The bytes of fixed-width values, one row each; what stands under a NULL is arbitrary."""
    rows = len(array)
    if pa.types.is_boolean(array.type):
        filled = pc.fill_null(array, False) if array.null_count else array
        return np.asarray(filled.cast(pa.uint8())).reshape(rows, 1)
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros((rows, width), np.uint8)
    block = np.frombuffer(buffer, np.uint8, count=rows * width, offset=array.offset * width).reshape(rows, width)
    return block if kind.family == "UUID" else block[:, ::-1]


def _add_decimal(row: RowPieces, array: pa.Array, kind: TargetType, present: Mask | None) -> None:
    """numeric: digits to the base of 10,000 without leading and trailing zeros, their weight, the sign, the scale."""
    negative, groups, whole = _digit_groups(array, kind)
    if present is not None:
        groups[:, ~present] = 0
    used = groups != 0
    first = np.argmax(used, axis=0)
    last = len(groups) - np.argmax(used[::-1], axis=0)
    some = used.any(axis=0)
    count = np.where(some, last - first, 0)
    lengths = 8 + 2 * count
    row.fixed(_big(lengths if present is None else np.where(present, lengths, _NULL), ">i4"))
    head = np.concatenate(
        [
            _big(count, ">i2"),
            _big(np.where(some, whole - 1 - first, 0), ">i2"),
            _big(np.where(negative & some, 0x4000, 0), ">u2"),
            _big(np.full(row.rows, kind.scale), ">i2"),
        ],
        axis=1,
    )
    if present is None:
        row.fixed(head)
    else:
        row.optional(head, present)
    places = np.arange(len(groups))[:, None]
    kept = (places >= first) & (places < first + count)
    digits = np.ascontiguousarray(groups.T.astype(">i2")).view(np.uint8).reshape(row.rows, -1, 2)
    offsets = np.zeros(row.rows + 1, np.int32)
    np.cumsum(2 * count, out=offsets[1:])
    row.varying(byte_strings(offsets, digits[kept.T]))


def _digit_groups(array: pa.Array, kind: TargetType) -> tuple[Mask, npt.NDArray[np.int64], int]:
    """Sign, groups of four digits from the highest (one row per group), and how many stand before the point."""
    rows, width = len(array), array.type.bit_width // 8
    raw = np.frombuffer(array.buffers()[1], "<u4", count=rows * width // 4, offset=array.offset * width)
    limbs = raw.reshape(rows, width // 4).T.astype(np.uint64)
    negative = (limbs[-1] >> np.uint64(31)).astype(bool)
    limbs = _magnitude(limbs, negative)
    fraction = -(-kind.scale // 4)
    whole = -(-(kind.precision - kind.scale) // 4)
    needed = min(len(limbs), int((kind.precision + 3) * 3.3219281 / 32) + 1)
    limbs = _times(limbs[:needed], 10 ** (4 * fraction - kind.scale))
    groups = np.zeros((whole + fraction, rows), np.int64)
    base = np.uint64(_BASE)
    for place in range(len(groups) - 1, -1, -1):
        rest = np.zeros(rows, np.uint64)
        for index in range(len(limbs) - 1, -1, -1):
            current = (rest << np.uint64(32)) | limbs[index]
            limbs[index] = current // base
            rest = current - limbs[index] * base
        groups[place] = rest.astype(np.int64)
    return negative, groups, whole


def _magnitude(limbs: npt.NDArray[np.uint64], negative: Mask) -> npt.NDArray[np.uint64]:
    """The absolute value of little-endian 32-bit limbs in two's complement."""
    mask = np.uint64(0xFFFFFFFF)
    out = np.where(negative, limbs ^ mask, limbs)
    carry = negative.astype(np.uint64)
    for index in range(len(out)):
        out[index] += carry
        carry = out[index] >> np.uint64(32)
        out[index] &= mask
    return out


def _times(limbs: npt.NDArray[np.uint64], factor: int) -> npt.NDArray[np.uint64]:
    """Limbs times a small number, with one limb more."""
    out = np.zeros((len(limbs) + 1, limbs.shape[1]), np.uint64)
    carry = np.zeros(limbs.shape[1], np.uint64)
    for index, limb in enumerate(limbs):
        current = limb * np.uint64(factor) + carry
        out[index] = current & np.uint64(0xFFFFFFFF)
        carry = current >> np.uint64(32)
    out[-1] = carry
    return out
