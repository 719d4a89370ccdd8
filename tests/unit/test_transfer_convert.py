"""Conversion agrees with exact arithmetic: it keeps a value or refuses it, and never does anything else."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_dpone.contracts.columns import SourceColumn, SourceTable, ValueKind
from airflow_provider_dpone.contracts.enrolment import ColumnDesign
from airflow_provider_dpone.errors import DesignMismatch, TypeNotMapped, ValueNotExact
from airflow_provider_dpone.transfer.convert import Conversion, plan_conversion
from airflow_provider_dpone.transfer.target_types import parse_type

K = ValueKind


def table(*columns: SourceColumn) -> SourceTable:
    return SourceTable(
        connector="postgres",
        service_id="1",
        database="d",
        database_id="1",
        namespace="public",
        name="t",
        relation_id="1",
        relation_kind="table",
        columns=columns,
    )


def source(kind: ValueKind | None, name: str = "a", **more: Any) -> SourceColumn:
    return SourceColumn(name=name, declared=str(kind), kind=kind, nullable=more.pop("nullable", True), **more)


def design(kind: str, name: str = "a", default_kind: str = "") -> ColumnDesign:
    return ColumnDesign(name=name, type=kind, default_kind=default_kind, default_expression="", codec="", comment="")


def plan(kind: ValueKind, target: str) -> Conversion:
    return plan_conversion(table(source(kind)), [design(target)])


def convert(kind: ValueKind, target: str, array: pa.Array) -> pa.Array:
    padded = pa.concat_arrays([array.slice(0, 0), array])
    return plan(kind, target).convert(pa.RecordBatch.from_arrays([padded], ["a"])).column(0)


def agrees(kind: ValueKind, target: str, array: pa.Array, exact: list[Any], show: Callable[[Any], Any]) -> None:
    """``exact`` holds what each value must become, or Ellipsis where it must be refused."""
    bad = [i for i, value in enumerate(exact) if value is ...]
    if bad:
        with pytest.raises(ValueNotExact) as caught:
            convert(kind, target, array)
        assert caught.value.details["row"] == bad[0] + 1
    else:
        assert [None if v is None else show(v) for v in convert(kind, target, array).to_pylist()] == exact


def written(value: Any) -> str | None:
    """A drawn decimal the way PostgreSQL prints it."""
    if value is None or isinstance(value, str):
        return value
    sign, whole, fraction = value
    return f"{sign}{whole or '0'}" + (f".{fraction}" if fraction else "")


DIGITS = st.text("0123456789", max_size=45)


@settings(max_examples=400, deadline=None)
@example((38, 38), [("", "11", "")])  # Arrow's own cast wraps around silently
@example((38, 37), [("-", "110", "")])
@example((38, 0), [("", str(2**128), ""), ("", "1", "")])
@example((76, 0), [("", str(2**256), "")])
@given(
    st.integers(1, 76).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))),
    st.lists(
        st.none() | st.tuples(st.sampled_from(["", "-"]), DIGITS, DIGITS) | st.sampled_from(["nan", "inf", "-inf"]),
        max_size=4,
    ),
)
def test_decimal_text_is_kept_to_the_last_digit_or_refused(shape: tuple[int, int], values: list[Any]) -> None:
    precision, scale = shape
    texts = [written(value) for value in values]

    def exact(text: str | None) -> Any:
        if text is None:
            return None
        if text.strip("-") in ("nan", "inf"):
            return ...
        number = Fraction(text) * 10**scale
        return Fraction(text) if number.denominator == 1 and abs(number) < 10**precision else ...

    agrees(K.DECIMAL, f"Nullable(Decimal({precision}, {scale}))", pa.array(texts, pa.string()),
           [exact(text) for text in texts], Fraction)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([8, 16, 32, 64, 128, 256]),
    st.booleans(),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300), max_size=5),
    st.booleans(),
)
def test_whole_numbers_are_kept_or_refused(bits: int, signed: bool, values: list[Any], as_decimal: bool) -> None:
    name = f"{'' if signed else 'U'}Int{bits}"
    low, high = parse_type(name).integer_range
    exact = [v if v is None or low <= v <= high else ... for v in values]

    def show(value: Any) -> int:
        return int.from_bytes(value, "little", signed=signed) if isinstance(value, bytes) else int(value)

    if as_decimal:
        array = pa.array([None if v is None else f"{v}.000" for v in values], pa.string())
        agrees(K.DECIMAL, f"Nullable({name})", array, exact, show)
    else:
        agrees(K.INTEGER, f"Nullable({name})", pa.array(values, pa.int64()), exact, show)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 9),
    st.lists(
        st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**7), 10**7).map(lambda n: n * 1000), max_size=4
    ),
    st.sampled_from([K.TIMESTAMP, K.INSTANT]),
)
def test_points_in_time_are_kept_or_refused(scale: int, values: list[Any], kind: ValueKind) -> None:
    target = parse_type(f"DateTime64({scale}, 'UTC')")
    first, last = target.second_range

    def exact(micros: int | None) -> Any:
        if micros is None:
            return None
        ticks = Fraction(micros, 10**6) * 10**scale
        return int(ticks) if ticks.denominator == 1 and first <= Fraction(micros, 10**6) < last else ...

    array = pa.array(values, pa.int64()).cast(pa.timestamp("us", "UTC" if kind is K.INSTANT else None))
    refused = [value for value in map(exact, values) if value is ...]
    if refused:
        with pytest.raises(ValueNotExact):
            convert(kind, f"Nullable({target.text})", array)
    else:
        agrees(kind, f"Nullable({target.text})", array, [exact(value) for value in values], int)


def test_converted_values_never_leave_the_range_the_server_shows_right() -> None:
    assert parse_type("DateTime64(9)").second_range[1] * 10**9 <= 2**63 - 1
    assert parse_type("DateTime64(6, 'Asia/Tokyo')").second_range == (-2208988800 + 86400, 10413792000 - 86400)


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("Nullable(DateTime64(6, 'UTC'))", "DateTime64"),
        ("LowCardinality(Nullable(String))", "String"),
        ("Array(Nullable(Decimal(38, 10)))", "Array"),
        (r"Enum8('a\'b' = 1, 'c\\d' = -2, '' = 0)", "Enum"),
        ("Decimal64(4)", "Decimal"),
        ("DateTime('Europe/Helsinki')", "DateTime"),
    ],
)
def test_types_are_parsed(text: str, family: str) -> None:
    assert parse_type(text).family == family


def test_enum_labels_are_unescaped() -> None:
    assert parse_type(r"Enum8('a\'b' = 1, 'c\\d' = -2, '' = 0, 'x''y' = 3)").members == (
        ("a'b", 1), ("c\\d", -2), ("", 0), ("x'y", 3),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["JSON", "Object('json')", "AggregateFunction(sum, UInt64)", "SimpleAggregateFunction(sum, UInt64)", "Dynamic",
     "Variant(String, Int8)", "Tuple(a Int8)", "Map(String, String)", "Nested(a Int8)", "Array(Array(Int8))", "Nothing",
     "Nullable(Nullable(Int8))", "Nullable(Array(Int8))", "Decimal(77, 0)", "Decimal(10, 11)", "FixedString(0)",
     "DateTime64(10)", "BFloat16", "Point", "IntervalDay", "Int8)", "Int", "Int8 Int8", "", "Enum8(",
     "QBit(Float32, 8)", "DateTime64(6", "$"],
)  # fmt: skip
def test_a_type_without_an_exact_reading_is_refused(text: str) -> None:
    with pytest.raises(TypeNotMapped):
        parse_type(text)


def test_all_problems_of_a_table_are_listed_at_once() -> None:
    with pytest.raises(TypeNotMapped) as caught:
        plan_conversion(
            table(source(K.FLOAT64, "a"), source(None, "b", refusal="it is a statistic"), source(K.DATE, "c")),
            [design("Nullable(Decimal(9, 2))", "a"), design("String", "b"), design("JSON", "c")],
        )
    assert all(part in caught.value.message for part in ("'a'", "'b'", "it is a statistic", "'c'", "String"))


def test_names_are_compared_exactly() -> None:
    with pytest.raises(DesignMismatch) as caught:
        plan_conversion(
            table(source(K.INTEGER, "Name"), source(K.INTEGER, "x")),
            [design("Int8", "name"), design("Int8", "x", "ALIAS"), design("Int8", "x")],
        )
    assert len(caught.value.details["problems"]) == 4  # type: ignore[arg-type]


def test_null_that_the_catalog_excluded_is_still_refused() -> None:
    conversion = plan_conversion(table(source(K.INTEGER, nullable=False)), [design("Int8")])
    with pytest.raises(ValueNotExact) as caught:
        conversion.convert(pa.RecordBatch.from_arrays([pa.array([1, None])], ["a"]), rows_before=10)
    assert caught.value.details["row"] == 12


def test_a_batch_with_other_columns_is_refused() -> None:
    with pytest.raises(DesignMismatch):
        plan(K.INTEGER, "Nullable(Int8)").convert(pa.RecordBatch.from_arrays([pa.array([1])], ["b"]))


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(ValueNotExact) as caught:
        convert(K.TEXT, "Nullable(FixedString(3))", pa.array(["x" * 10**6]))
    assert len(caught.value.message) < 500
    assert "1000002 characters" in caught.value.message
