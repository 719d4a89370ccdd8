"""Which columns of a source an author transfers, under which names, and what stands where the source has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from airflow_provider_dpone.contracts.canonical import MAX_COUNTER, digest_of
from airflow_provider_dpone.errors import DeclarationInvalid

Constant: TypeAlias = str | int | bool | None
OnNewColumn = Literal["refuse", "ignore"]
ON_NEW: Final = ("refuse", "ignore")


@dataclass(frozen=True)
class ColumnChoice:
    """An author's choice. Without one, every source column goes to the target column of exactly its name.

    :param columns: source and target name of each column that is transferred; None takes every one by its name.
    :param exclude: source columns that are not transferred.
    :param on_new: what a source column without a target column means: ``refuse``, or ``ignore`` and name it.
    :param defaults: target columns that the source has not, each with the value every row gets.
    """

    columns: tuple[tuple[str, str], ...] | None = None
    exclude: tuple[str, ...] = ()
    on_new: OnNewColumn = "refuse"
    defaults: tuple[tuple[str, Constant], ...] = ()

    def __bool__(self) -> bool:
        return self != ColumnChoice()

    @classmethod
    def of(
        cls, columns: object = None, exclude: object = (), on_new: object = "refuse", defaults: object = None
    ) -> ColumnChoice:
        """The choice as an operator is given it.

        :param columns: a list of names, or a dict of source name to target name.
        :param exclude: a list of names.
        :param defaults: a dict of target name to a text, a whole number, a boolean or None.
        :raises DeclarationInvalid: names the argument that is malformed, repeats a name, or contradicts another.
        """
        pairs = None if columns is None else _pairs(columns)
        left_out = _names("exclude", exclude)
        if on_new not in ON_NEW:
            raise DeclarationInvalid(f"on_new_source_column is 'refuse' or 'ignore', not {on_new!r}")
        if pairs is not None and (left_out or on_new != "refuse"):
            raise DeclarationInvalid(
                "columns names everything that is transferred; exclude and on_new_source_column are for tables "
                "whose columns are taken by name"
            )
        if defaults is not None and not isinstance(defaults, Mapping):
            raise DeclarationInvalid(f"defaults must be a dict of target column to value, not {defaults!r}")
        constants = tuple(
            sorted((_name("defaults", name), _constant(name, value)) for name, value in (defaults or {}).items())
        )
        targets = [target for _, target in pairs or ()] + [name for name, _ in constants]
        twice = sorted({name for name in targets if targets.count(name) > 1})
        if twice:
            raise DeclarationInvalid(f"columns and defaults fill target column {', '.join(twice)} more than once")
        return cls(pairs, left_out, "ignore" if on_new == "ignore" else "refuse", constants)

    def declared(self) -> dict[str, str]:
        """The choice as a declaration binds it; empty without one."""
        members: dict[str, str] = {}
        if self.columns is not None:
            members["columns"] = ", ".join(f"{_quoted(source)} -> {_quoted(target)}" for source, target in self.columns)
        if self.exclude:
            members["exclude"] = ", ".join(map(_quoted, self.exclude))
        if self.on_new != "refuse":
            members["on_new_source_column"] = self.on_new
        if self.defaults:
            members["defaults"] = ", ".join(f"{_quoted(name)} = {value!r}" for name, value in self.defaults)
        # a text of a declaration is bounded; a long one is bound by its digest
        return {n: text if len(text) <= 400 else digest_of(text.encode()) for n, text in members.items()}


def _pairs(columns: object) -> tuple[tuple[str, str], ...]:
    if isinstance(columns, Mapping):
        pairs = tuple((_name("columns", source), _name("columns", target)) for source, target in columns.items())
    else:
        pairs = tuple((name, name) for name in _names("columns", columns))
    if not pairs:
        raise DeclarationInvalid("columns is empty; leave it out to transfer every column")
    sources = [source for source, _ in pairs]
    if len(set(sources)) != len(sources):
        raise DeclarationInvalid("columns names a source column twice")
    return pairs


def _names(argument: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise DeclarationInvalid(f"{argument} must be a list of column names, not {value!r}")
    names = tuple(_name(argument, name) for name in value)
    if len(set(names)) != len(names):
        raise DeclarationInvalid(f"{argument} names a column twice")
    return names


def _name(argument: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise DeclarationInvalid(f"{argument} holds {value!r}, which is not a column name")
    return value


def _constant(name: object, value: object) -> Constant:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int) and -MAX_COUNTER <= value <= MAX_COUNTER:
        return value
    raise DeclarationInvalid(
        f"defaults: {name!r} is {value!r}; a default is a text, a whole number of 64 bits, True, False or None"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
