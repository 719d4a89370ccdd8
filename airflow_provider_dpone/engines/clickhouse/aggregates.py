"""Aggregates of a ClickHouse table, the twin of ``engines/postgres/aggregates.py``.

Shapes and canonical texts come from ``transfer.aggregates``; every value is asked for as text.
"""

from __future__ import annotations

from typing import Final

from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.contracts.ports import ClickHouseControl
from airflow_provider_dpone.engines.clickhouse.quoting import identifier, table
from airflow_provider_dpone.errors import CounterUnreadable
from airflow_provider_dpone.transfer.aggregates import PREFIX, Shape, shape_of, table_aggregates
from airflow_provider_dpone.transfer.convert import ColumnConversion, Conversion

_AT_ONCE: Final = 300
#: Nothing may filter, cache or cut what a proof rests on.
_SETTINGS: Final = (
    "final = 0, additional_table_filters = {}, use_query_cache = 0, max_rows_to_read = 0, max_bytes_to_read = 0, "
    "read_overflow_mode = 'throw', timeout_overflow_mode = 'throw', result_overflow_mode = 'throw', "
    "max_rows_to_group_by = 0"
)
_SQL: Final[dict[Shape, tuple[str, str, str]]] = {
    Shape.NUMBER: ("min({c})", "max({c})", "sum({wide})"),
    Shape.FLOAT: (
        "minIf(toFloat64(assumeNotNull({c})), isNotNull({c}) AND NOT isNaN(assumeNotNull({c})))",
        "maxIf(toFloat64(assumeNotNull({c})), isNotNull({c}) AND NOT isNaN(assumeNotNull({c})))",
        "countIf(isNotNull({c}) AND isNaN(assumeNotNull({c})))",
    ),
    Shape.BOOL: ("", "", "countIf({c})"),
    Shape.TEXT: (
        f"substringUTF8(min({{s}}), 1, {PREFIX})",
        f"substringUTF8(max({{s}}), 1, {PREFIX})",
        "sum(length({c}))",
    ),
    Shape.BYTES: (
        f"lower(hex(substring(min({{s}}), 1, {PREFIX})))",
        f"lower(hex(substring(max({{s}}), 1, {PREFIX})))",
        "sum(length({c}))",
    ),
    Shape.LABEL: ("min(toString({c}))", "max(toString({c}))", ""),
    Shape.DATE: ("min({c})", "max({c})", ""),
    Shape.MICROS: ("min({micros})", "max({micros})", ""),
    Shape.TIME: ("min({c})", "max({c})", ""),
    Shape.ADDRESS: ("min({c})", "max({c})", ""),
    Shape.LIST: ("", "", "sum(length({c}))"),
}


def read_aggregates(control: ClickHouseControl, database: str, name: str, conversion: Conversion) -> TableAggregates:
    """Rows, and per column NULLs, low, high and total of ``database.name``, in one or a few reading statements.

    :raises CounterUnreadable: the server did not answer with exactly one row, or the table changed in between.
    """
    rows: int | None = None
    values: list[list[str | None]] = []
    for start in range(0, len(conversion.columns), _AT_ONCE):
        statement = aggregates_sql(database, name, conversion.columns[start : start + _AT_ONCE])
        answer = control.query(statement)
        if len(answer) != 1 or rows not in (None, int(answer[0][0])):
            raise CounterUnreadable(f"the aggregates of {database}.{name} could not be read", table=name)
        rows = int(answer[0][0])
        cells = answer[0][1:]
        values += [list(cells[i : i + 4]) for i in range(0, len(cells), 4)]
    assert rows is not None
    return table_aggregates(conversion, rows, values)


def aggregates_sql(database: str, name: str, columns: tuple[ColumnConversion, ...]) -> str:
    """One SELECT: the number of rows, then nulls, low, high and total of each column, all as text."""
    wanted = ["toString(count())", *(part for column in columns for part in _column(column))]
    return f"SELECT {', '.join(wanted)} FROM {table(database, name)} SETTINGS {_SETTINGS}"  # noqa: S608


def _column(column: ColumnConversion) -> list[str]:
    name = identifier(column.name)
    shape = shape_of(column)
    parts = {
        "c": name,
        "wide": _wide(column, name),
        "micros": _micros(column, name),
        "s": f"substring({name}, 1)" if column.target.family == "FixedString" else name,
    }
    present = f"count() - countIf(isNull({name}))"
    low, high, total = (sql.format(**parts) for sql in _SQL[shape])
    bounds = [f"if({present} = 0, NULL, toString({sql}))" if sql else "NULL" for sql in (low, high)]
    if shape is Shape.FLOAT:
        bounds = [f"if({present} = {total}, NULL, toString({sql}))" for sql in (low, high)]
    return [f"toString(countIf(isNull({name})))", *bounds, f"toString(ifNull({total}, 0))" if total else "NULL"]


def _wide(column: ColumnConversion, name: str) -> str:
    """The column in a type whose sum cannot overflow before 10^19 rows of the largest value."""
    if column.target.family == "Decimal":
        return f"toDecimal256({name}, {column.target.scale})"
    return f"to{'Int' if column.target.signed else 'UInt'}256({name})"


def _micros(column: ColumnConversion, name: str) -> str:
    if column.target.family == "DateTime":
        return f"toInt64(toUnixTimestamp({name})) * 1000000"
    return f"toUnixTimestamp64Micro({name})" if column.target.family == "DateTime64" else name
