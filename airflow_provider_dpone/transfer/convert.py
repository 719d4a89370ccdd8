"""Exact conversion of Arrow batches into the values a target table will hold.

:func:`plan_conversion` decides at preflight which column goes where and refuses what can never fit; a planned
:class:`Conversion` then checks every value. A value is kept exactly or the attempt is refused naming column, row and
value: nothing is clamped, rounded, cut or replaced. How single kinds of values convert is in ``values``; bytes are
made in ``rowbinary``.

Two rules are worth knowing. A wall clock without a zone goes only into a column without a zone or with ``UTC``, and is
stored as if it were UTC, whatever the zone of the worker, so that every worker writes the same bytes. And a ``String``
column takes a value of any type in the source's own lossless text form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from airflow_provider_dpone.contracts.choice import ColumnChoice, Constant
from airflow_provider_dpone.contracts.columns import SourceColumn, SourceTable, ValueKind
from airflow_provider_dpone.contracts.enrolment import ColumnDesign
from airflow_provider_dpone.errors import DesignMismatch, TypeNotMapped, ValueNotExact
from airflow_provider_dpone.transfer.digest import ByteOrder
from airflow_provider_dpone.transfer.rowbinary import EncodedRows, encode_rows
from airflow_provider_dpone.transfer.target_types import UTC_ZONES, TargetType, parse_type
from airflow_provider_dpone.transfer.values import CONVERTERS, Converter, Unfit, convert_list, storage_of

Form = Literal["native", "text"]
#: Names a raw value the driver delivers in a changed form, for example an infinite timestamp; None: no better name.
Explain = Callable[[ValueKind, object], str | None]


@dataclass(frozen=True)
class TypeSystem:
    """How the column types of one target engine take values: what converts into what, and the bytes it becomes."""

    type_of: Callable[[ColumnDesign], TargetType]
    converters: Mapping[tuple[ValueKind, str], Converter]
    encode: Callable[[pa.RecordBatch, Sequence[TargetType]], EncodedRows]
    nullable_type: str
    """How a type that takes NULL is written, over ``{type}``; for advice."""
    digest_order: ByteOrder = "little"
    """How the target's server reads the digest of a row as a number."""


CLICKHOUSE: Final = TypeSystem(
    lambda design: parse_type(design.type), CONVERTERS, encode_rows, "the target column Nullable({type})"
)


@dataclass(frozen=True)
class Chosen:
    """What an author's choice makes of a source table: the relation that is read instead of the table itself."""

    columns: tuple[SourceColumn, ...]
    """The columns of that relation, under their target's names."""
    renamed: tuple[tuple[str, str], ...]
    """Source and target name of each column that the source has."""
    constants: tuple[tuple[str, Constant], ...]
    """Target name and value of each that it has not."""
    left_out: tuple[str, ...]
    """Names of source columns that are not transferred, sorted."""


@dataclass(frozen=True)
class ColumnConversion:
    """One column on its way: how the source is to be read, and what each value must become."""

    source: SourceColumn
    target: TargetType
    form: Form
    kind: ValueKind
    """Kind of the values as read: TEXT when the form is text."""
    convert: Converter

    @property
    def name(self) -> str:
        return self.source.name


@dataclass(frozen=True)
class Conversion:
    """A planned conversion. Columns are in the order of the target; :meth:`convert` keeps no state."""

    source: SourceTable
    columns: tuple[ColumnConversion, ...]
    explain: Explain | None = None
    system: TypeSystem = CLICKHOUSE
    chosen: Chosen | None = None
    """The author's choice of columns, where there is one; else every column goes by its name."""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def types(self) -> list[TargetType]:
        return [column.target for column in self.columns]

    def convert(self, batch: pa.RecordBatch, rows_before: int = 0) -> pa.RecordBatch:
        """The batch with every column as its target holds it (``TargetType.arrow``), in target order.

        :param rows_before: rows of the stream before this batch, to name the row of a refused value.
        :raises ValueNotExact: a value does not fit its target exactly.
        :raises DesignMismatch: the batch does not carry exactly the planned columns.
        """
        if batch.schema.names != self.names:
            raise DesignMismatch(f"the source delivered columns {batch.schema.names}, not {self.names}; plan again")
        arrays = [self._column(column, batch.column(i), rows_before) for i, column in enumerate(self.columns)]
        fields = [pa.field(column.name, column.target.arrow) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def encode(self, batch: pa.RecordBatch, rows_before: int = 0) -> EncodedRows:
        """The batch converted (see :meth:`convert`) and as the bytes that are digested and sent."""
        return self.system.encode(self.convert(batch, rows_before), self.types)

    def _named(self, kind: ValueKind, scalar: pa.Scalar) -> str:
        if not scalar.is_valid:
            return "NULL"
        raw = scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()
        return (self.explain(kind, raw) if self.explain else None) or _shown(scalar)

    def _column(self, column: ColumnConversion, array: pa.Array, rows_before: int) -> pa.Array:
        plain = storage_of(array)
        try:
            if plain.null_count and not column.target.nullable:
                raise Unfit(plain.is_null(), "the target column does not take NULL")
            return column.convert(plain, column.target)
        except Unfit as unfit:
            index = unfit.index
            value = self._named(column.kind, plain[index])
            raise ValueNotExact(
                f"column {column.name!r}, row {rows_before + index + 1} of the snapshot: the value {value} "
                f"({column.source.declared}) does not fit {column.target.text} exactly: {unfit.why}. "
                "Nothing was published; correct the value or widen the target column.",
                column=column.name, row=rows_before + index + 1, value=value, target_type=column.target.text,
            ) from None  # fmt: skip


def _shown(scalar: pa.Scalar) -> str:
    """A value for an error text, at most 80 characters; also of times that Python's own types cannot hold."""
    if pa.types.is_temporal(scalar.type):
        if pa.types.is_time(scalar.type):
            return f"{scalar.value} {scalar.type.unit} after midnight"
        numpy_type = "datetime64[D]" if pa.types.is_date32(scalar.type) else f"datetime64[{scalar.type.unit}]"
        return str(np.array(scalar.value, np.int64).astype(numpy_type))
    value = scalar.as_py()
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def plan_conversion(
    source: SourceTable,
    target_columns: Sequence[ColumnDesign],
    explain: Explain | None = None,
    system: TypeSystem = CLICKHOUSE,
    choice: ColumnChoice | None = None,
) -> Conversion:
    """Map columns by their exact names and choose how each is read and converted.

    :param target_columns: the target's columns as its catalog gives them; their order is the order of the plan.
    :param explain: the source engine's names for values its driver cannot deliver as they are.
    :param system: the target engine's types.
    :param choice: the author's choice of columns, where there is one.
    :raises DesignMismatch: columns are missing, extra, repeated, computed, or may hold NULL where the target may not.
    :raises TypeNotMapped: a pair of types has no exact conversion; the message lists every such column.
    """
    chosen, problems = _choose(source, target_columns, choice) if choice else (None, [])
    readable = source.columns if chosen is None else chosen.columns
    problems += _name_problems(readable, target_columns)
    if problems:
        raise DesignMismatch(_listed("source and target do not fit", source, problems), problems=problems)
    by_name = {column.name: column for column in readable}
    columns, untyped = [], []
    for design in target_columns:
        try:
            columns.append(_plan_column(by_name[design.name], system.type_of(design), system))
        except TypeNotMapped as error:
            untyped.append(f"{design.name!r}: {error.message}")
    if untyped:
        raise TypeNotMapped(_listed("types are not mapped", source, untyped), problems=untyped)
    for column in columns:
        if column.source.nullable and not column.target.nullable:
            advice = f" or {system.nullable_type.format(type=column.target.text)}"
            cure = "" if column.target.family == "Array" else advice
            problems.append(
                f"{column.name!r} may hold NULL in the source, but {column.target.text} cannot; declare the source "
                f"column NOT NULL{cure}"
            )
        if column.target.family == "Array" and "." in column.name:
            problems.append(f"{column.name!r} would be read as part of a Nested column; rename it")
    if problems:
        raise DesignMismatch(_listed("source and target do not fit", source, problems), problems=problems)
    return Conversion(source, tuple(columns), explain, system, chosen)


def _listed(what: str, source: SourceTable, problems: list[str]) -> str:
    return f"{source.namespace}.{source.name}: {what}: " + "; ".join(problems)


def _choose(
    source: SourceTable, target_columns: Sequence[ColumnDesign], choice: ColumnChoice
) -> tuple[Chosen, list[str]]:
    """The relation an author chose, and what of the choice cannot be."""
    by_name = {column.name: column for column in source.columns}
    targets = {design.name for design in target_columns}
    named = choice.exclude if choice.columns is None else [name for name, _ in choice.columns]
    problems = [f"the source has no column {name!r}, which the task names" for name in named if name not in by_name]
    if choice.columns is not None:
        renamed = [pair for pair in choice.columns if pair[0] in by_name]
    else:
        taken = [name for name in by_name if name not in choice.exclude]
        renamed = [(name, name) for name in taken if name in targets or choice.on_new == "refuse"]
    problems += [
        f"target column {name!r} has a default in the task, and a column of the source"
        for name, _ in choice.defaults
        if name in {target for _, target in renamed}
    ]
    constants = [_constant_column(name, value) for name, value in choice.defaults]
    columns = [*(by_name[name].model_copy(update={"name": target}) for name, target in renamed), *constants]
    left_out = sorted(set(by_name) - {name for name, _ in renamed})
    return Chosen(tuple(columns), tuple(renamed), choice.defaults, tuple(left_out)), problems


def _constant_column(name: str, value: Constant) -> SourceColumn:
    """A column that has one value in every row."""
    kind = {bool: ValueKind.BOOL, int: ValueKind.INTEGER}.get(type(value), ValueKind.TEXT)
    return SourceColumn(
        name=name,
        declared=f"default {value!r}",
        kind=kind,
        nullable=value is None,
        text_read="{c}" if kind is ValueKind.TEXT else None,
    )


def _name_problems(readable: Sequence[SourceColumn], target_columns: Sequence[ColumnDesign]) -> list[str]:
    ours, theirs = [column.name for column in readable], [design.name for design in target_columns]
    problems = [f"column {name!r} appears twice in the {side}"
                for side, names in (("source", ours), ("target", theirs))
                for name, count in Counter(names).items() if count > 1]  # fmt: skip
    problems += [f"source column {name!r} has no column of exactly that name in the target"
                 for name in ours if name not in theirs]  # fmt: skip
    problems += [f"target column {name!r} has no column of exactly that name in the source"
                 for name in theirs if name not in ours]  # fmt: skip
    problems += [
        f"target column {design.name!r} is {design.default_kind} and cannot be written"
        for design in target_columns
        if design.default_kind in ("MATERIALIZED", "ALIAS", "EPHEMERAL")
    ]
    return problems


def _plan_column(source: SourceColumn, target: TargetType, system: TypeSystem) -> ColumnConversion:
    def refuse(why: str) -> TypeNotMapped:
        return TypeNotMapped(f"{source.declared} into {target.text}: {why}")

    if source.kind is None:
        raise refuse(source.refusal or "the source type is not supported")
    if source.array:
        if target.family == "Array" and target.element is not None:
            inner = _plan_column(source.model_copy(update={"array": False, "text_read": None}), target.element, system)
            return ColumnConversion(source, target, "native", source.kind, convert_list(inner.convert))
    elif target.family != "Array":
        native = system.converters.get((source.kind, target.family))
        if native is not None:
            if source.kind is ValueKind.TIMESTAMP and target.zone not in UTC_ZONES:
                raise refuse(
                    "a timestamp without time zone is no point in time, so it cannot go into a column with a zone; "
                    "use DateTime64(6) or DateTime64(6, 'UTC'), or a timestamptz source column"
                )
            return ColumnConversion(source, target, "native", source.kind, native)
    if source.text_read is not None and target.takes_text_of(source):
        return ColumnConversion(source, target, "text", ValueKind.TEXT, system.converters[ValueKind.TEXT, "String"])
    raise refuse("no exact conversion exists; see docs/types.md")
