"""The encoder writes, byte for byte, what a plain reading of the RowBinary format says."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_dpone.errors import ValueNotExact
from airflow_provider_dpone.transfer.digest import DigestBuilder
from airflow_provider_dpone.transfer.rowbinary import encode_rows
from airflow_provider_dpone.transfer.target_types import TargetType, parse_type
from tests.unit.transfer_reference import digest, encode_value


def integers(kind: TargetType) -> st.SearchStrategy[int]:
    low, high = kind.integer_range
    return st.integers(low, high)


def wide(kind: TargetType) -> st.SearchStrategy[bytes]:
    return integers(kind).map(lambda n: n.to_bytes(kind.bits // 8, "little", signed=kind.signed))


def decimals(kind: TargetType) -> st.SearchStrategy[Decimal]:
    limit = 10**kind.precision - 1
    return st.integers(-limit, limit).map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -kind.scale)))


TEXTS = st.one_of(
    st.binary(max_size=12), st.integers(120, 140).map(lambda n: b"x" * n), st.just(b"y" * 16500), st.just(b"")
)
VALUES: dict[str, Any] = {
    **dict.fromkeys(("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"), integers),
    **dict.fromkeys(("Int128", "UInt128", "Int256", "UInt256"), wide),
    **dict.fromkeys(("Decimal(9, 4)", "Decimal(18, 0)", "Decimal(38, 18)", "Decimal(76, 38)"), decimals),
    "Float32": lambda kind: st.floats(width=32, allow_nan=True),
    "Float64": lambda kind: st.floats(allow_nan=True),
    "Bool": lambda kind: st.booleans(),
    "String": lambda kind: TEXTS,
    "LowCardinality(String)": lambda kind: TEXTS,
    "FixedString(3)": lambda kind: st.binary(min_size=3, max_size=3),
    "UUID": lambda kind: st.binary(min_size=16, max_size=16),
    "IPv6": lambda kind: st.binary(min_size=16, max_size=16),
    "IPv4": lambda kind: st.integers(0, 2**32 - 1),
    "Date": lambda kind: st.integers(0, 65535),
    "Date32": lambda kind: st.integers(-25567, 120529),
    "DateTime('UTC')": lambda kind: st.integers(0, 2**32 - 1),
    "DateTime64(6)": lambda kind: st.integers(-(2**62), 2**62),
    "Time": lambda kind: st.integers(0, 86400),
    "Time64(6)": lambda kind: st.integers(0, 86400 * 10**6),
    "Enum8('a' = -1, 'b' = 2)": lambda kind: st.sampled_from([-1, 2]),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[TargetType], list[pa.Array], int]:
    rows = draw(st.integers(0, 9))
    kinds, arrays = [], []
    for text in draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=6)):
        shape = draw(st.sampled_from(["plain", "nullable", "array", "array of nullable"]))
        base = VALUES[text](parse_type(text))
        if shape == "nullable":
            inner = text.removeprefix("LowCardinality(").removesuffix(")") if text.startswith("Low") else text
            kind, value = parse_type(f"Nullable({inner})"), st.none() | base
        elif shape == "array":
            kind, value = parse_type(f"Array({text})"), st.lists(base, max_size=4)
        elif shape == "array of nullable" and not text.startswith("Low"):
            kind, value = parse_type(f"Array(Nullable({text}))"), st.lists(st.none() | base, max_size=4)
        else:
            kind, value = parse_type(text), base
        kinds.append(kind)
        arrays.append(pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), kind.arrow))
    return kinds, arrays, rows


@settings(max_examples=300, deadline=None)
@given(tables(), st.integers(0, 4))
def test_encoder_writes_the_bytes_of_the_reference(table: Any, skip: int) -> None:
    kinds, arrays, _ = table
    batch = pa.RecordBatch.from_arrays(arrays, [f"c{i}" for i in range(len(arrays))]).slice(skip)
    wanted = [
        b"".join(encode_value(column[i].as_py(), kind) for column, kind in zip(batch.columns, kinds, strict=True))
        for i in range(batch.num_rows)
    ]
    encoded = encode_rows(batch, kinds)
    rows = [encoded.data[a:b] for a, b in zip(encoded.offsets, encoded.offsets[1:], strict=False)]
    assert rows == wanted
    builder = DigestBuilder()
    builder.add(encoded)
    content = builder.content()
    assert (content.rows, content.row_sum) == digest(wanted)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21])
def test_length_prefixes_are_right_at_every_boundary(length: int) -> None:
    kind = parse_type("String")
    encoded = encode_rows(pa.RecordBatch.from_arrays([pa.array([b"z" * length, b""])], ["a"]), [kind])
    assert encoded.data == encode_value(b"z" * length, kind) + b"\x00"


def test_rows_may_come_in_any_order_and_duplicates_count() -> None:
    kind = parse_type("Int64")

    def content(values: list[int]) -> str:
        builder = DigestBuilder()
        for value in values:
            builder.add(encode_rows(pa.RecordBatch.from_arrays([pa.array([value], pa.int64())], ["a"]), [kind]))
        return builder.content().digest()

    assert content([1, 2, 3]) == content([3, 1, 2])
    assert content([1, 1]) != content([1]) != content([1, 1, 1])


def test_null_never_reaches_a_column_that_does_not_take_it() -> None:
    with pytest.raises(ValueNotExact):
        encode_rows(pa.RecordBatch.from_arrays([pa.array([None], pa.int64())], ["a"]), [parse_type("Int64")])


def test_data_below_a_null_is_not_written() -> None:
    dirty = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([0, 1, 4], np.int32)), pa.py_buffer(b"abcd")]
    )
    encoded = encode_rows(pa.RecordBatch.from_arrays([dirty], ["a"]), [parse_type("Nullable(String)")])
    assert encoded.data == b"\x00\x01a\x01"
