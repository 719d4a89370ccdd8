"""SQL Server as a target, without a server: rows as bytes and as JSON, converters, and what is rendered."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import struct
import uuid
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_dpone.contracts.columns import ValueKind
from airflow_provider_dpone.engines.mssql.json_rows import insert_sql, json_rows
from airflow_provider_dpone.engines.mssql.row_bytes import LANES, content_of_lanes, row_bytes, row_digest_sql
from airflow_provider_dpone.engines.mssql.scripts import literal, parts
from airflow_provider_dpone.engines.mssql.target_types import CONVERTERS, MssqlType, target_type, type_system
from airflow_provider_dpone.errors import TypeNotMapped
from airflow_provider_dpone.transfer.digest import DigestBuilder
from airflow_provider_dpone.transfer.values import Unfit

TYPES = {
    "bit": "bit", "tinyint": "tinyint", "bigint": "bigint", "decimal": "decimal(38,10)", "float": "float",
    "nvarchar": "nvarchar(max)", "nchar": "nchar(3)", "varbinary": "varbinary(max)", "uniqueidentifier": "uniqueidentifier",
    "date": "date", "time": "time(6)", "datetime2": "datetime2(6)", "datetimeoffset": "datetimeoffset(6)",
}  # fmt: skip
GUID = uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
ROWS: list[dict[str, Any]] = [
    {
        "bit": True, "tinyint": 255, "bigint": -(2**63), "decimal": Decimal("-0.0000000001"), "float": 0.1,
        "nvarchar": 'é😀"\\\x01\n ', "nchar": "abc", "varbinary": b"\x00\xff", "uniqueidentifier": GUID.bytes,
        "date": dt.date(1, 1, 1), "time": dt.time(23, 59, 59, 999999), "datetime2": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        "datetimeoffset": dt.datetime(2024, 3, 31, 1, 30, 0, 1, dt.UTC),
    },
    dict.fromkeys(TYPES),
    {
        "bit": False, "tinyint": 0, "bigint": 2**63 - 1, "decimal": Decimal("9" * 28 + "." + "9" * 10), "float": -1.5e300,
        "nvarchar": "", "nchar": "   ", "varbinary": b"", "uniqueidentifier": bytes(16), "date": dt.date(1970, 1, 1),
        "time": dt.time(0), "datetime2": dt.datetime(1, 1, 1), "datetimeoffset": dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    },
]  # fmt: skip


def kinds() -> dict[str, MssqlType]:
    return {name: target_type(name, declared, nullable=True) for name, declared in TYPES.items()}


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([r[n] for r in rows], k.arrow) for n, k in kinds().items()], list(kinds()))


def expected_bytes(row: dict[str, Any]) -> bytes:
    """The documented form, value by value."""
    out = b""
    epoch = dt.datetime(1970, 1, 1)
    for name, value in row.items():
        if value is None:
            out += b"\0"
            continue
        match name:
            case "bit":
                raw = bytes([value])
            case "tinyint" | "bigint":
                raw = struct.pack(">q", value)
            case "float":
                raw = struct.pack(">d", value)
            case "uniqueidentifier":
                raw = uuid.UUID(bytes=value).bytes_le
            case "date":
                raw = struct.pack(">q", (value - epoch.date()).days)
            case "time":
                raw = struct.pack(
                    ">q", ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
                )
            case "datetime2" | "datetimeoffset":
                raw = struct.pack(">q", (value.replace(tzinfo=None) - epoch) // dt.timedelta(microseconds=1))
            case "decimal":
                sign, digits, _ = value.as_tuple()
                text = "-" * sign + "".join(map(str, digits)).rjust(11, "0")
                raw = struct.pack(">i", len(text)) + text.encode()
            case "nvarchar" | "nchar":
                encoded = value.encode("utf-16-le")
                raw = struct.pack(">i", len(encoded)) + encoded
            case _:
                raw = struct.pack(">i", len(value)) + value
        out += b"\1" + raw
    return out


@pytest.mark.parametrize("start", [0, 1])  # a slice has other offsets
def test_rows_have_the_documented_bytes(start: int) -> None:
    encoded = row_bytes(batch(ROWS).slice(start), list(kinds().values()))
    data, ends = encoded.data, encoded.offsets.tolist()
    assert [data[a:b] for a, b in pairwise(ends)] == [expected_bytes(row) for row in ROWS[start:]]


@pytest.mark.parametrize("start", [0, 1])
def test_rows_travel_as_exact_texts(start: int) -> None:
    found = [
        dict(zip(TYPES, row, strict=True))
        for row in json.loads(json_rows(batch(ROWS).slice(start), list(kinds().values())))
    ]
    for row, given in zip(found, ROWS[start:], strict=True):
        if given["bit"] is None:
            assert set(row.values()) == {None}
            continue
        assert (row["bit"], row["tinyint"], row["bigint"]) == (given["bit"], given["tinyint"], given["bigint"])
        assert (row["nvarchar"], row["nchar"]) == (given["nvarchar"], given["nchar"])
        assert "e" not in row["decimal"].lower()
        assert Decimal(row["decimal"]) == given["decimal"]
        assert float(row["float"]) == given["float"]
        assert bytes.fromhex(row["varbinary"]) == given["varbinary"]
        assert uuid.UUID(row["uniqueidentifier"]).bytes == given["uniqueidentifier"]
        assert dt.date.fromisoformat(row["date"]) == given["date"]
        assert dt.time.fromisoformat(row["time"]) == given["time"]
        assert dt.datetime.fromisoformat(row["datetime2"]) == given["datetime2"]
        assert dt.datetime.fromisoformat(row["datetimeoffset"]) == given["datetimeoffset"]


def test_the_server_adds_up_the_lanes_that_are_added_up_here() -> None:
    """It reads four bytes as a number whose first byte counts most."""
    encoded = row_bytes(batch(ROWS), list(kinds().values()))
    builder = DigestBuilder(type_system({}, row_bytes).digest_order)
    builder.add(encoded)
    digests = [hashlib.sha256(expected_bytes(row)).digest() for row in ROWS]
    assert int(builder.content().row_sum, 16) == sum(int.from_bytes(d, "big") for d in digests) % 2**256
    lanes = [sum(int.from_bytes(d[at : at + 4], "big") for d in digests) for at in range(0, 32, 4)]
    assert content_of_lanes([len(ROWS), *lanes]) == builder.content()
    assert content_of_lanes([0, *[None] * 8]) == DigestBuilder("big").content()
    assert LANES.count("SUBSTRING(q.h, ") == 8


def test_a_single_large_row_is_not_cut() -> None:
    kind = target_type("nvarchar", "nvarchar(max)", nullable=False)
    rows = pa.record_batch([pa.array(["x\u00e9" * 3_000_000])], ["v"])
    assert json.loads(json_rows(rows, [kind])) == [["x\u00e9" * 3_000_000]]
    assert row_bytes(rows, [kind]).size == 1 + 4 + 12_000_000


@pytest.mark.parametrize(
    ("kind", "name", "declared", "value", "why"),
    [
        (ValueKind.TEXT, "nvarchar", "nvarchar(5)", "abcdef", "more than 5"),
        (ValueKind.TEXT, "nvarchar", "nvarchar(1)", "\U0001f600", "more than 1"),
        (ValueKind.TEXT, "nchar", "nchar(3)", "ab", "exactly 3"),
        (ValueKind.BYTES, "binary", "binary(2)", b"\0", "exactly 2"),
        (ValueKind.BYTES, "varbinary", "varbinary(1)", b"\0\0", "longer than 1"),
        (ValueKind.FLOAT64, "float", "float", float("nan"), "neither NaN"),
        (ValueKind.FLOAT64, "float", "float", 5e-324, "no number smaller"),
        (ValueKind.FLOAT64, "real", "real", 0.1, "significant bits"),
        (ValueKind.DECIMAL, "decimal", "decimal(3,2)", Decimal("1.005"), "fraction digits"),
        (ValueKind.INTEGER, "tinyint", "tinyint", -1, "range"),
        (ValueKind.TIMESTAMP, "datetime2", "datetime2(0)", dt.datetime(2024, 1, 1, 0, 0, 0, 1), "fraction digits"),
        (ValueKind.TIME, "time", "time(3)", dt.time(0, 0, 0, 1), "fraction digits"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused(kind: ValueKind, name: str, declared: str, value: Any, why: str) -> None:
    target = target_type(name, declared, nullable=True)
    with pytest.raises(Unfit, match=why) as unfit:
        CONVERTERS[kind, target.family](pa.array([None, value]), target)
    assert unfit.value.index == 1


@pytest.mark.parametrize("name", ["money", "datetime", "xml", "sql_variant", "image", "a type of tomorrow"])
def test_a_type_that_keeps_no_value_exactly_takes_none(name: str) -> None:
    system = type_system({"c": target_type(name, name, nullable=True)}, row_bytes)
    with pytest.raises(TypeNotMapped, match="takes nothing"):
        system.type_of(type("Design", (), {"name": "c"})())  # type: ignore[arg-type]


def test_names_and_values_are_quoted() -> None:
    types = {
        "a]b": target_type("int", "int", nullable=True),
        "x'y": target_type("varbinary", "varbinary(max)", nullable=True),
    }
    sql = insert_sql("[mart].[t]", types)
    assert "[a]]b] int '$[0]'" in sql
    assert "CONVERT(varbinary(max), [x'y], 2)" in sql
    assert "[a]]b]" in row_digest_sql(list(types.items()))
    assert literal("o'clock") == "N'o''clock'"
    assert literal(b"\x00\xde") == "0x00de"


def test_every_part_has_a_name_of_its_own() -> None:
    for file in ("gate_install.sql", "target_install.sql", "gate_quiet.sql", "policy.sql", "policy_server.sql"):
        assert len(parts(file)) >= 5
    gate = parts("gate_install.sql")
    assert list(gate)[-1] == "login_trigger"  # nobody is refused before all it asks is there
    assert "0x64706F6E" in gate["login_trigger"]
