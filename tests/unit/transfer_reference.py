"""RowBinary in plain Python, one value at a time: the reference the vectorised encoder is compared with."""

from __future__ import annotations

import hashlib
import struct
from decimal import Context, Decimal
from typing import Any

from airflow_provider_dpone.transfer.target_types import TargetType, decimal_width

_WIDE = Context(prec=200)


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        group, number = number & 0x7F, number >> 7
        out.append(group | (0x80 if number else 0))
        if not number:
            return bytes(out)


def encode_value(value: Any, kind: TargetType) -> bytes:
    """One value, as ``TargetType.arrow`` gives it to Python, in RowBinary."""
    if kind.nullable:
        return b"\x01" if value is None else b"\x00" + encode_present(value, kind)
    assert value is not None
    return encode_present(value, kind)


def encode_present(value: Any, kind: TargetType) -> bytes:
    match kind.family:
        case "Int" if kind.bits > 64:
            return bytes(value)
        case "Int" | "Enum":
            return int(value).to_bytes(kind.bits // 8, "little", signed=kind.signed)
        case "Decimal":
            unscaled = int(Decimal(value).scaleb(kind.scale, _WIDE))
            return unscaled.to_bytes(decimal_width(kind.precision), "little", signed=True)
        case "Float32":
            return struct.pack("<f", value)
        case "Float64":
            return struct.pack("<d", value)
        case "Bool":
            return b"\x01" if value else b"\x00"
        case "UUID":
            return value[:8][::-1] + value[8:][::-1]
        case "IPv6" | "FixedString":
            return bytes(value)
        case "Date":
            return struct.pack("<H", value)
        case "DateTime" | "IPv4":
            return struct.pack("<I", value)
        case "Date32" | "Time":
            return struct.pack("<i", value)
        case "DateTime64" | "Time64":
            return struct.pack("<q", value)
        case "String":
            return varint(len(value)) + value
        case "Array":
            return varint(len(value)) + b"".join(encode_value(element, kind.element) for element in value)
    raise AssertionError(kind)


def digest(rows: list[bytes]) -> tuple[int, str]:
    total = sum(int.from_bytes(hashlib.sha256(row).digest(), "little") for row in rows)
    return len(rows), format(total % 2**256, "064x")
