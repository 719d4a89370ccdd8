"""RowBinary bytes of converted batches, made once: the same bytes are digested and sent.

Each row is cut into runs of fixed-size parts (numbers, NULL markers, length prefixes), laid out with numpy, and
variable-size parts (strings, arrays), which stay where they are; Arrow joins the pieces row by row in native code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_dpone.errors import ValueNotExact
from airflow_provider_dpone.transfer.target_types import TargetType

Bytes2D = npt.NDArray[np.uint8]
Keep = npt.NDArray[np.bool_]
_UUID_ORDER = [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8]


@dataclass(frozen=True)
class EncodedRows:
    """Rows one after another: the bytes of ``parts`` joined, where row ``i`` begins at ``offsets[i]``.

    Many rows come as one part. A single row may come as several, which are views of the batch it was made from, so
    that a very large value is never copied.
    """

    parts: tuple[bytes | memoryview, ...]
    offsets: npt.NDArray[np.int64]

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1

    @property
    def size(self) -> int:
        return int(self.offsets[-1])

    @property
    def data(self) -> bytes:
        """All bytes as one object."""
        first = self.parts[0] if self.parts else b""
        return first if len(self.parts) == 1 and isinstance(first, bytes) else b"".join(self.parts)

    def chunks(self, limit: int) -> Iterator[bytes]:
        """The bytes to send, a large part in pieces of ``limit``."""
        for part in self.parts:
            if isinstance(part, bytes):
                yield part
            else:
                for start in range(0, len(part), limit):
                    yield bytes(part[start : start + limit])


def encode_rows(batch: pa.RecordBatch, types: Sequence[TargetType]) -> EncodedRows:
    """RowBinary of a batch whose columns have the Arrow types of ``types``. The result must stay below 2 GiB.

    :raises ValueNotExact: NULL in a column whose type does not take it.
    """
    pieces = _pieces([batch.column(i) for i in range(batch.num_columns)], types, batch.num_rows)
    if batch.num_rows == 1:
        parts = [_values(piece)[0] for piece in pieces]
        total = sum(len(part) for part in parts)
        return EncodedRows(tuple(part for part in parts if len(part)), np.array([0, total], np.int64))
    joined = pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))
    values, offsets = _values(joined)
    return EncodedRows((bytes(values),), offsets)


def _values(array: pa.Array) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """A view of all bytes of a binary array, and where each value begins in it."""
    offsets = np.frombuffer(array.buffers()[1], np.int32, count=len(array) + 1, offset=array.offset * 4)
    first, last = int(offsets[0]), int(offsets[-1])
    values = array.buffers()[2]
    view = memoryview(b"") if values is None else memoryview(values.slice(first, last - first))
    return view, offsets.astype(np.int64) - first


class _Row:
    """Collects the parts of a row, column by column, as pieces that Arrow can join."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.pieces: list[pa.Array] = []
        self._blocks: list[Bytes2D] = []
        self._keeps: list[Keep | None] = []

    def fixed(self, block: Bytes2D, keep: Keep | None = None) -> None:
        """Add a column of fixed-width bytes; where ``keep`` is false the byte is left out."""
        self._blocks.append(block)
        self._keeps.append(keep)

    def varying(self, payload: pa.Array) -> None:
        """Add a column of byte strings (no NULL)."""
        self.close()
        self.pieces.append(payload)

    def close(self) -> None:
        """Turn the fixed-width parts collected so far into one piece."""
        if not self._blocks:
            return
        block = self._blocks[0] if len(self._blocks) == 1 else np.concatenate(self._blocks, axis=1)
        width = block.shape[1]
        if all(keep is None for keep in self._keeps):
            flat = np.ascontiguousarray(block).reshape(-1)
            offsets = np.arange(self.rows + 1, dtype=np.int32) * np.int32(width)
        else:
            keeps = [np.ones(part.shape, np.bool_) if keep is None else keep
                     for part, keep in zip(self._blocks, self._keeps, strict=True)]  # fmt: skip
            kept = np.concatenate(keeps, axis=1)
            flat = block[kept]
            offsets = np.zeros(self.rows + 1, dtype=np.int32)
            np.cumsum(kept.sum(axis=1), out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(flat)]
        self.pieces.append(pa.Array.from_buffers(pa.binary(), self.rows, buffers))
        self._blocks, self._keeps = [], []


def _pieces(columns: Sequence[pa.Array], types: Sequence[TargetType], rows: int) -> list[pa.Array]:
    row = _Row(rows)
    for array, kind in zip(columns, types, strict=True):
        _add_column(row, array, kind)
    row.close()
    return row.pieces


def _add_column(row: _Row, array: pa.Array, kind: TargetType) -> None:
    nulls: npt.NDArray[np.uint8] | None = None
    if array.null_count:
        if not kind.nullable:
            raise ValueNotExact(f"NULL reached a column of type {kind.text}, which does not take it")
        nulls = np.asarray(array.is_null()).astype(np.uint8)
    if kind.width:
        _add_fixed(row, _fixed_block(array, kind), kind, nulls)
    elif kind.family == "Array":
        payload, counts = _list_payload(array, kind)
        row.fixed(*_leb128(counts))
        row.varying(payload)
    else:
        _add_strings(row, array, kind, nulls)


def _add_fixed(row: _Row, block: Bytes2D, kind: TargetType, nulls: npt.NDArray[np.uint8] | None) -> None:
    if not kind.nullable:
        row.fixed(block)
        return
    flag = np.zeros((row.rows, 1), np.uint8) if nulls is None else nulls[:, None]
    row.fixed(flag)
    row.fixed(block, None if nulls is None else np.broadcast_to(flag == 0, block.shape))


def _fixed_block(array: pa.Array, kind: TargetType) -> Bytes2D:
    """The bytes of fixed-width values, one row each; what stands under a NULL is arbitrary."""
    rows = len(array)
    if pa.types.is_boolean(array.type):
        filled = pc.fill_null(array, False) if array.null_count else array
        return np.asarray(filled.cast(pa.uint8())).reshape(rows, 1)
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros((rows, kind.width), np.uint8)
    block = np.frombuffer(buffer, np.uint8, count=rows * width, offset=array.offset * width).reshape(rows, width)
    if kind.family == "UUID":
        return block[:, _UUID_ORDER]
    return block[:, : kind.width]


def _add_strings(row: _Row, array: pa.Array, kind: TargetType, nulls: npt.NDArray[np.uint8] | None) -> None:
    payload = array
    if nulls is not None:
        payload = pc.fill_null(array, pa.scalar(b"", pa.binary()))
    offsets = np.frombuffer(payload.buffers()[1], np.int32, count=len(payload) + 1, offset=payload.offset * 4)
    prefix, keep = _leb128(np.diff(offsets))
    if kind.nullable:
        flag = np.zeros((row.rows, 1), np.uint8) if nulls is None else nulls[:, None]
        row.fixed(flag)
        if nulls is not None:
            present = np.broadcast_to(flag == 0, prefix.shape)
            keep = present if keep is None else keep & present
    row.fixed(prefix, keep)
    row.varying(payload)


def _leb128(lengths: npt.NDArray[np.integer]) -> tuple[Bytes2D, Keep | None]:
    """Variable-length prefixes, seven bits a byte; without a mask when all fit one byte."""
    longest = int(lengths.max(initial=0))
    if longest < 0x80:
        return lengths.astype(np.uint8)[:, None], None
    size = (longest.bit_length() + 6) // 7
    shifts = np.arange(size, dtype=np.int64) * 7
    groups = lengths.astype(np.int64)[:, None] >> shifts
    keep = groups > 0
    keep[:, 0] = True
    more = np.zeros_like(groups)
    more[:, :-1] = np.where(keep[:, 1:], 0x80, 0)
    return ((groups & 0x7F) | more).astype(np.uint8), keep


def _list_payload(array: pa.Array, kind: TargetType) -> tuple[pa.Array, npt.NDArray[np.integer]]:
    """The encoded elements of each list as one byte string, and the number of elements."""
    assert kind.element is not None
    offsets = np.asarray(array.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    elements = array.values.slice(first, last - first)
    encoded = encode_rows(pa.RecordBatch.from_arrays([elements], ["element"]), [kind.element])
    bounds = encoded.offsets[offsets - first].astype(np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(encoded.data)]
    return pa.Array.from_buffers(pa.binary(), len(array), buffers), np.diff(offsets)
