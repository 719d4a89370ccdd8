"""Blocks of the Native format: where one ends, its column headers, and compressed frames. Values are never decoded."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

import lz4.block
import zstd
from clickhouse_cityhash.cityhash import CityHash128

from airflow_provider_dpone.local.clickhouse.errors import ServerError, not_implemented

#: BlockInfo: field 1 is_overflows, field 2 bucket_num -1, end
BLOCK_INFO = b"\x01\x00\x02\xff\xff\xff\xff\x00"
_LZ4, _ZSTD, _NONE = 0x82, 0x90, 0x02
_SIZES = {
    "Bool": 1,
    "Date": 2,
    "Date32": 4,
    "DateTime": 4,
    "DateTime64": 8,
    "Time": 4,
    "Time64": 8,
    "UUID": 16,
    "IPv4": 4,
}
_SIZES |= {"IPv6": 16, "Enum8": 1, "Enum16": 2, "Nothing": 1, "BFloat16": 2, "Float32": 4, "Float64": 8}
_SIZES |= {f"{sign}Int{bits}": bits // 8 for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)}
_SIZES |= {f"Decimal{bits}": bits // 8 for bits in (32, 64, 128, 256)}


class Source:
    """A buffer over ``more()``, which returns the next bytes and raises at the end of the connection."""

    def __init__(self, more: Callable[[], bytes]) -> None:
        self._more = more
        self._buffer = bytearray()
        self._position = 0

    def mark(self) -> None:
        """Forget what was read before; :meth:`since_mark` starts here."""
        del self._buffer[: self._position]
        self._position = 0

    def since_mark(self) -> bytes:
        return bytes(self._buffer[: self._position])

    @property
    def position(self) -> int:
        """Bytes read since the mark."""
        return self._position

    def skip(self, count: int) -> None:
        while len(self._buffer) - self._position < count:
            self._buffer += self._more()
        self._position += count

    def take(self, count: int) -> bytes:
        self.skip(count)
        return bytes(self._buffer[self._position - count : self._position])

    def varint(self) -> int:
        result = shift = 0
        while True:
            byte = self.take(1)[0]
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    def text(self) -> str:
        return self.take(self.varint()).decode("utf-8", "surrogateescape")

    def skip_texts(self, count: int) -> None:
        """Skip strings; the loop over them is the slow part of an uncompressed INSERT of text."""
        buffer = self._buffer
        at, end = self._position, len(buffer)
        for _ in range(count):
            if at < end and buffer[at] < 0x80:
                at += buffer[at] + 1
                continue
            self._position = min(at, end)
            self.skip(at - self._position)
            self.skip(self.varint())
            at, end = self._position, len(buffer)
        self._position = min(at, end)
        self.skip(at - self._position)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogateescape")
    return varint(len(data)) + data


def header_block(columns: list[tuple[str, str]]) -> bytes:
    """A block of these names and types without rows."""
    return varint(len(columns)) + varint(0) + b"".join(text(name) + text(kind) for name, kind in columns)


class Block:
    """The extent of one block and its column headers: (start, end, name, type) within :attr:`data`."""

    def __init__(self, source: Source) -> None:
        source.mark()
        self.columns = source.varint()
        self.rows = source.varint()
        self.headers: list[tuple[int, int, str, str]] = []
        for _ in range(self.columns):
            start = source.position
            name, kind = source.text(), source.text()
            self.headers.append((start, source.position, name, kind))
            if self.rows:
                _skip_prefix(source, kind)
                _skip_data(source, kind, self.rows)
        self.data = source.since_mark()

    def with_types(self, types: list[str]) -> bytes:
        """The block with other type names in its column headers."""
        pieces, done = [], 0
        for (start, end, name, _), kind in zip(self.headers, types, strict=True):
            pieces += [self.data[done:start], text(name), text(kind)]
            done = end
        return b"".join(pieces) + self.data[done:]


def blocks(data: bytes) -> Iterator[Block]:
    """Every block of a complete Native answer."""
    rest = [data]
    source = Source(lambda: rest.pop())  # an incomplete answer of the engine would raise IndexError
    taken = 0
    while taken < len(data):
        block = Block(source)
        taken += len(block.data)
        yield block


def _parse(kind: str) -> tuple[str, list[str]]:
    name, _, rest = kind.partition("(")
    if not rest:
        return name, []
    arguments, depth, start = [], 0, 0
    inner = rest[:-1]
    for match in re.finditer(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|[(),]", inner):
        mark = match.group()
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if mark == "," and depth == 0:
            arguments.append(inner[start : match.start()].strip())
            start = match.end()
    return name, [*arguments, inner[start:].strip()]


def _element(argument: str) -> str:
    """The type of a Tuple element, which may carry a name."""
    match = re.match(r"(?:\w+|`(?:[^`\\]|\\.)*`) +(?=\w)", argument)
    return argument[match.end() :] if match else argument


def _inner(kind: str) -> list[str]:
    name, arguments = _parse(kind)
    if name == "Nested":
        return [f"Array({_element(argument)})" for argument in arguments]
    if name == "SimpleAggregateFunction":
        return arguments[1:]
    return [_element(a) for a in arguments] if name in ("Tuple", "Array", "Map", "Nullable") else []


def _skip_prefix(source: Source, kind: str) -> None:
    if kind.startswith("LowCardinality("):
        source.skip(8)
    for inner in _inner(kind):
        _skip_prefix(source, inner)


def _skip_data(source: Source, kind: str, rows: int) -> None:
    name, arguments = _parse(kind)
    if name == "String":
        source.skip_texts(rows)
    elif name in _SIZES:
        source.skip(_SIZES[name] * rows)
    elif name == "Decimal":
        precision = int(arguments[0])
        source.skip(rows * (4 if precision <= 9 else 8 if precision <= 18 else 16 if precision <= 38 else 32))
    elif name == "FixedString":
        source.skip(int(arguments[0]) * rows)
    elif name.startswith("Interval"):
        source.skip(8 * rows)
    elif name == "Nullable":
        source.skip(rows)
        _skip_data(source, arguments[0], rows)
    elif name in ("Array", "Map"):
        source.skip(8 * (rows - 1))
        total = struct.unpack("<Q", source.take(8))[0]
        for inner in _inner(kind) if total else ():
            _skip_data(source, inner, total)
    elif name == "LowCardinality":
        _skip_low_cardinality(source, arguments[0])
    elif name in ("Tuple", "Nested", "SimpleAggregateFunction"):
        for inner in _inner(kind):
            _skip_data(source, inner, rows)
    else:
        raise not_implemented(f"the type {kind} over the native protocol")


def _skip_low_cardinality(source: Source, kind: str) -> None:
    flags, keys = struct.unpack("<QQ", source.take(16))
    nested = _parse(kind)[1][0] if kind.startswith("Nullable(") else kind
    _skip_data(source, nested, keys)
    (rows,) = struct.unpack("<Q", source.take(8))
    source.skip(rows << (flags & 0xFF))


def unpack_frame(source: Source) -> bytes:
    """Read and open one compressed frame."""
    source.mark()
    checksum = struct.unpack("<QQ", source.take(16))
    method, size, raw_size = struct.unpack("<BII", source.take(9))
    body = source.take(size - 9)
    high, low = checksum
    if CityHash128(struct.pack("<BII", method, size, raw_size) + body) != (low | high << 64):
        raise ServerError(40, "Checksum doesn't match: corrupted data", "CHECKSUM_DOESNT_MATCH")
    source.mark()
    if method == _LZ4:
        return bytes(lz4.block.decompress(body, uncompressed_size=raw_size))
    if method == _ZSTD:
        return bytes(zstd.decompress(body))
    if method == _NONE:
        return body
    raise ServerError(89, f"Unknown codec {method}", "UNKNOWN_COMPRESSION_METHOD")


def pack_frames(data: bytes, step: int = 1 << 20) -> bytes:
    """``data`` as lz4 frames."""
    frames = []
    for start in range(0, len(data), step):
        piece = data[start : start + step]
        body = lz4.block.compress(piece, store_size=False)
        frame = struct.pack("<BII", _LZ4, len(body) + 9, len(piece)) + body
        value = CityHash128(frame)
        frames.append(struct.pack("<QQ", value >> 64, value & (1 << 64) - 1) + frame)
    return b"".join(frames)
