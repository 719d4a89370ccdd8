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
Mask = npt.NDArray[np.bool_]
_UUID_ORDER = [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8]


@dataclass(frozen=True)
class EncodedRows:
    """Rows one after another: the bytes of ``parts`` joined, where row ``i`` begins at ``offsets[i]``.

    Many rows come as one part. A single row may come as several, which are views of the batch it was made from, so
    that a very large value is never copied.
    """

    parts: tuple[bytes | memoryview, ...]
    offsets: npt.NDArray[np.int64]
    framing: int = 0
    """Bytes at the beginning of each row that are framing of the wire format and not content."""
    wire: bytes | None = None
    """What is sent, where that is not what is digested."""

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1

    @property
    def size(self) -> int:
        return int(self.offsets[-1]) if self.wire is None else int(self.offsets[-1]) + len(self.wire)

    @property
    def data(self) -> bytes:
        """All bytes as one object."""
        first = self.parts[0] if self.parts else b""
        return first if len(self.parts) == 1 and isinstance(first, bytes) else b"".join(self.parts)

    def chunks(self, limit: int) -> Iterator[bytes]:
        """The bytes to send, a large part in pieces of ``limit``; what is not the digested rows stays in one."""
        if self.wire is not None:
            yield self.wire
            return
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
    return join_rows(
        _pieces([batch.column(i) for i in range(batch.num_columns)], types, batch.num_rows), batch.num_rows
    )


def join_rows(pieces: Sequence[pa.Array], rows: int, framing: int = 0) -> EncodedRows:
    """Rows made of their pieces; a single row is left as views of them."""
    if rows == 1:
        parts = [_values(piece)[0] for piece in pieces]
        total = sum(len(part) for part in parts)
        return EncodedRows(tuple(part for part in parts if len(part)), np.array([0, total], np.int64), framing)
    joined = pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))
    values, offsets = _values(joined)
    return EncodedRows((bytes(values),), offsets, framing)


def _values(array: pa.Array) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """A view of all bytes of a binary array, and where each value begins in it."""
    offsets = offsets_of(array)
    first, last = int(offsets[0]), int(offsets[-1])
    values = array.buffers()[2]
    view = memoryview(b"") if values is None else memoryview(values.slice(first, last - first))
    return view, offsets.astype(np.int64) - first


def offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """Where the values of a binary array begin in its data."""
    return np.frombuffer(array.buffers()[1], np.int32, count=len(array) + 1, offset=array.offset * 4)


class RowPieces:
    """Collects the parts of a row, column by column, as pieces that Arrow can join."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.pieces: list[pa.Array] = []
        self._blocks: list[Bytes2D] = []

    def fixed(self, block: Bytes2D) -> None:
        """Add bytes that every row has."""
        self._blocks.append(block)

    def optional(self, block: Bytes2D, present: Mask) -> None:
        """Add bytes that only some rows have; a row has all of its ``block`` or none."""
        width = block.shape[1]
        offsets = np.zeros(self.rows + 1, np.int32)
        np.cumsum(present, out=offsets[1:])
        self.varying(byte_strings(offsets * np.int32(width), block[present]))

    def varying(self, payload: pa.Array) -> None:
        """Add a column of byte strings (no NULL)."""
        self.close()
        self.pieces.append(payload)

    def close(self) -> None:
        """Turn the fixed-width parts collected so far into one piece."""
        if self._blocks:
            block = self._blocks[0] if len(self._blocks) == 1 else np.concatenate(self._blocks, axis=1)
            offsets = np.arange(self.rows + 1, dtype=np.int32) * np.int32(block.shape[1])
            self.pieces.append(byte_strings(offsets, np.ascontiguousarray(block)))
            self._blocks = []


def byte_strings(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8] | bytes) -> pa.Array:
    """An array of byte strings that lie one after another in ``data``."""
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _pieces(columns: Sequence[pa.Array], types: Sequence[TargetType], rows: int) -> list[pa.Array]:
    row = RowPieces(rows)
    for array, kind in zip(columns, types, strict=True):
        _add_column(row, array, kind)
    row.close()
    return row.pieces


def _add_column(row: RowPieces, array: pa.Array, kind: TargetType) -> None:
    present: Mask | None = None
    if array.null_count:
        if not kind.nullable:
            raise ValueNotExact(f"NULL reached a column of type {kind.text}, which does not take it")
        present = np.asarray(array.is_valid())
    if kind.nullable:
        row.fixed(np.zeros((row.rows, 1), np.uint8) if present is None else (~present).view(np.uint8)[:, None])
    if kind.width:
        block = _fixed_block(array, kind)
        if present is None:
            row.fixed(block)
        else:
            row.optional(block, present)
        return
    if kind.family == "Array":
        payload, lengths = _list_payload(array, kind)
    else:
        payload = array if present is None else pc.fill_null(array, pa.scalar(b"", pa.binary()))
        lengths = np.diff(offsets_of(payload))
    _add_lengths(row, lengths, present)
    row.varying(payload)


def _add_lengths(row: RowPieces, lengths: npt.NDArray[np.integer], present: Mask | None) -> None:
    """LEB128 of each length (seven bits a byte), where ``present``."""
    longest = int(lengths.max(initial=0))
    if longest < 0x80:
        block = lengths.astype(np.uint8)[:, None]
        if present is None:
            row.fixed(block)
        else:
            row.optional(block, present)
        return
    shifts = np.arange((longest.bit_length() + 6) // 7, dtype=np.int64) * 7
    groups = lengths.astype(np.int64)[:, None] >> shifts
    keep = groups > 0
    keep[:, 0] = True if present is None else present
    more = np.zeros_like(groups)
    more[:, :-1] = np.where(groups[:, 1:] > 0, 0x80, 0)
    offsets = np.zeros(row.rows + 1, np.int32)
    np.cumsum(np.count_nonzero(keep, axis=1), out=offsets[1:])
    row.varying(byte_strings(offsets, ((groups & 0x7F) | more).astype(np.uint8)[keep]))


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


def _list_payload(array: pa.Array, kind: TargetType) -> tuple[pa.Array, npt.NDArray[np.integer]]:
    """The encoded elements of each list as one byte string, and the number of elements."""
    assert kind.element is not None
    offsets = np.asarray(array.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    elements = array.values.slice(first, last - first)
    encoded = encode_rows(pa.RecordBatch.from_arrays([elements], ["element"]), [kind.element])
    bounds = encoded.offsets[offsets - first].astype(np.int32)
    return byte_strings(bounds, encoded.data), np.diff(offsets)
