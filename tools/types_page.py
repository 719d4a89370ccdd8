"""Writes docs/types.md from the tables the code itself uses: ``python tools/types_page.py`` (a test compares them)."""

# ruff: noqa: E501 - lines of a table

from __future__ import annotations

from pathlib import Path

from airflow_provider_dpone.contracts.columns import ValueKind
from airflow_provider_dpone.engines.mssql.target_types import CONVERTERS as MSSQL_CONVERTERS
from airflow_provider_dpone.engines.mssql.target_types import REFUSED
from airflow_provider_dpone.engines.mssql.types import TYPES as MSSQL_TYPES
from airflow_provider_dpone.engines.mssql.types import TypeRule as MssqlRule
from airflow_provider_dpone.engines.postgres.types import CLASSES, EXTENSION_TYPES, TYPES, TypeRule
from airflow_provider_dpone.transfer.values import CONVERTERS

PAGE = Path(__file__).parents[1] / "docs" / "types.md"
FAMILIES = {
    "Int": "Int8 to Int256, UInt8 to UInt256",
    "Decimal": "Decimal(P, S)",
    "Enum": "Enum8, Enum16",
    "FixedString": "FixedString(N)",
    "DateTime64": "DateTime64(0 to 9)",
    "Time64": "Time64(0 to 9)",
}
LIMITS = {
    ValueKind.INTEGER: "inside the target's range",
    ValueKind.FLOAT64: "into Float32 only values it holds exactly",
    ValueKind.DECIMAL: "no digit may be lost, before or after the point; into whole numbers at most 76 digits",
    ValueKind.TEXT: "FixedString: exactly N bytes; Enum: a member",
    ValueKind.BYTES: "FixedString: exactly N bytes",
    ValueKind.DATE: "Date 1970-01-01 to 2149-06-06, Date32 1900-01-01 to 2299-12-31",
    ValueKind.TIME: "no fraction digit may be lost",
    ValueKind.TIMESTAMP: "column without a zone or with UTC; DateTime 1970 to 2106-02-07, DateTime64 1900 to 2299 "
    "(9 digits: to 2262-04-11); no fraction digit may be lost",
    ValueKind.INSTANT: "any zone; DateTime 1970 to 2106-02-07, DateTime64 1900 to 2299 (9 digits: to 2262-04-11; a zone "
    "other than UTC: one day less on either side); no fraction digit may be lost",
}
CLASS_NAMES = {
    "b": "any other base type, such as those of extensions (`cube`, `hstore`, `isbn`, `ltree`, `vector`, ...)",
    "e": "enumerations",
    "d": "domains: as the type below them; arrays of a domain",
    "c": "composite types and the row types of tables",
    "r": "other ranges",
    "m": "other multiranges",
    "p": "other pseudo-types",
}
HEAD = """# Types

Every value arrives exactly or the attempt is refused before it can be published; nothing is clamped, rounded, cut,
padded or replaced. A column maps by its exact name. A target column that is `LowCardinality(T)` takes what `T` takes, and
`Nullable(T)` takes NULL besides. A source column that is not declared `NOT NULL` (validated) needs a Nullable target.

Two rules:

- **A wall clock stays a wall clock.** A `timestamp` (without time zone) goes only into a column without a zone or with
  `UTC`, and is stored as if it were UTC. The bytes are the same on every worker, whatever its `TZ`.
- **A `String` column takes any type in PostgreSQL's own text form**, which is what `pg_dump` writes: a type's output
  that its input gives back. The session is pinned for it: `DateStyle ISO`, `IntervalStyle postgres`, `TimeZone UTC`,
  `extra_float_digits 1`, empty `search_path`. In that form NaN and the infinities are ordinary texts.

Target types that no source type maps onto: `JSON`, `Object`, `Dynamic`, `Variant`, `Tuple`, `Map`, `Nested`,
`AggregateFunction`, `SimpleAggregateFunction`, `BFloat16`, geometric types, intervals, arrays of arrays.

This page is written by `tools/types_page.py` from the tables in the code, and checked against `pg_type` of a live server.

## PostgreSQL

| PostgreSQL type | goes into | remarks |
|---|---|---|
"""
TAIL = """
### Arrays

| PostgreSQL type | goes into | remarks |
|---|---|---|
| arrays of {listable} | Array(T) with T as above; String | the column must be NOT NULL; NULL elements need Array(Nullable(T)); \
an array of several dimensions, or whose first subscript is not 1, is refused for Array(T), never flattened |
| arrays of any other type that has a text form | String | text form, such as `{{1,NULL,3}}` |
| arrays of types without a text form | refused | as their elements |
"""
MSSQL_SOURCE = """
## SQL Server

Moments with a seventh fraction digit are read in nanoseconds and need a target with 7 digits or more.

| SQL Server type | goes into | remarks |
|---|---|---|
"""
MSSQL_TARGET = """
## Into SQL Server

Loads into SQL Server take the same values into these types. A length counts UTF-16 units (`nvarchar`) or bytes (`varbinary`). `nvarchar(max)`
takes the text form of any PostgreSQL type. Text in `varchar` and `char` must come back from their code page as it was, blanks included;
`char(n)`, `nchar(n)` and `binary(n)` take exactly n. Computed columns and rowversions are left out; identity columns are refused.

| PostgreSQL type | goes into | remarks |
|---|---|---|
"""
MSSQL_FAMILIES = {
    "Bool": "bit", "Int": "tinyint to bigint", "Decimal": "decimal(P, S)", "Float32": "real", "Float64": "float",
    "String": "nvarchar(max)", "Varchar": "nvarchar(n)", "Char": "nchar(n)", "Carried": "varchar, char",
    "Bytes": "varbinary", "FixedBytes": "binary(n)", "UUID": "uniqueidentifier", "Date": "date", "Time64": "time",
    "Timestamp": "datetime2", "Instant": "datetimeoffset, in UTC",
}  # fmt: skip
MSSQL_LIMITS = {
    ValueKind.INTEGER: "inside the target's range",
    ValueKind.FLOAT32: "NaN, infinities and subnormal numbers refused",
    ValueKind.FLOAT64: "NaN, infinities and subnormal numbers refused; into real only values it holds exactly",
    ValueKind.DECIMAL: "no digit may be lost; NaN and Infinity refused",
    ValueKind.TEXT: "never cut, never padded",
    ValueKind.BYTES: "never cut, never padded",
    ValueKind.DATE: "years 1 to 9999",
    ValueKind.TIME: "24:00:00 refused; no fraction digit may be lost",
    ValueKind.TIMESTAMP: "years 1 to 9999; no fraction digit may be lost; never into datetimeoffset",
    ValueKind.INSTANT: "years 1 to 9999; no fraction digit may be lost; never into datetime2",
}


def targets(rule: TypeRule | MssqlRule) -> str:
    """What a rule's values go into."""
    if rule.kind is None:
        return "refused"
    native = [FAMILIES.get(family, family) for kind, family in CONVERTERS if kind is rule.kind]
    text = ["String"] if rule.text is not None and "String" not in native else []
    return ", ".join(native + text)


def remarks(rule: TypeRule | MssqlRule) -> str:
    """Limits and notes of a rule."""
    text_only = "in its text form" if rule.kind is ValueKind.OTHER and not rule.note else ""
    limit = LIMITS.get(rule.kind, "") if rule.kind is not None else ""
    return "; ".join(part for part in (rule.note or text_only, limit) if part)


def render() -> str:
    """The whole page."""
    rows: dict[TypeRule, list[str]] = {}
    for name, rule in TYPES.items():
        rows.setdefault(rule, []).append(f"`{name}`")
    for (extension, name), rule in EXTENSION_TYPES.items():
        rows.setdefault(rule, []).append(f"`{name}` ({extension})")
    lines = [f"| {', '.join(names)} | {targets(rule)} | {remarks(rule)} |" for rule, names in rows.items()]
    lines += [f"| {CLASS_NAMES[key]} | {targets(rule)} | {remarks(rule)} |" for key, rule in CLASSES.items()]
    listable = ", ".join(f"`{name}`" for name, rule in TYPES.items() if rule.listable)
    return HEAD + "\n".join(lines) + "\n" + TAIL.format(listable=listable) + mssql()


def mssql() -> str:
    """SQL Server as a source and as a target."""
    read: dict[MssqlRule, list[str]] = {}
    for name, rule in MSSQL_TYPES.items():
        read.setdefault(rule, []).append(f"`{name}`")
    source = [f"| {', '.join(names)} | {targets(rule)} | {remarks(rule)} |" for rule, names in read.items()]
    written: dict[tuple[ValueKind | None, bool], list[str]] = {}
    for name, found in TYPES.items():
        written.setdefault((found.kind, found.text is not None), []).append(f"`{name}`")
    target = [
        f"| {', '.join(names)} | {_mssql_targets(kind, text)} | {MSSQL_LIMITS.get(kind, '') if kind else ''} |"
        for (kind, text), names in written.items()
    ]
    refused = "\n".join(f"- `{name}`: {why}" for name, why in REFUSED.items())
    rows = f"{MSSQL_SOURCE}{chr(10).join(source)}\n{MSSQL_TARGET}{chr(10).join(target)}\n"
    return f"{rows}\nTarget types that take nothing:\n\n{refused}\n"


def _mssql_targets(kind: ValueKind | None, text: bool) -> str:
    if kind is None:
        return "refused"
    native = [MSSQL_FAMILIES[family] for source, family in MSSQL_CONVERTERS if source is kind]
    return ", ".join([*native, *(["nvarchar(max) as text"] if text and "nvarchar(max)" not in native else [])])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
