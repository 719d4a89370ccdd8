"""The extra fields of Airflow connections: each declared once with its meaning, its default and its reader.

``null``, an empty text and an absent field all mean the default; a word or a field that is not known is refused by
connection and field, before anything is connected. Nothing here imports Airflow: the same tables make the forms.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol
from uuid import UUID

from airflow_provider_dpone.errors import ConnectionInvalid

Kind = Literal["flag", "integer", "text", "choice", "names", "uuid", "object"]
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")


class HasExtra(Protocol):
    """What is used of an Airflow connection."""

    @property
    def conn_id(self) -> str | None: ...
    @property
    def extra(self) -> str | None: ...


@dataclass(frozen=True)
class Field:
    """One extra field of a connection type."""

    name: str
    kind: Kind
    default: Any
    meaning: str
    label: str = ""
    """In the form; a field without a label is given in the extra's JSON only."""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fields:
    """The fields of one connection type.

    :param ours: what this provider reads.
    :param others: fields that other hooks of the same type read; accepted here and without effect.
    :param refused: fields that cannot be honoured, each with the reason.
    :param folded: names are compared without regard to case, as ODBC does.
    """

    ours: tuple[Field, ...]
    others: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    folded: bool = False

    def read(self, connection: HasExtra, nested: str | None = None) -> dict[str, Any]:
        """Every field of ours with its value or its default.

        :param nested: a field that holds further fields as an object, such as ``connect_kwargs``.
        :raises ConnectionInvalid: the extra is not a JSON object, a field is unknown, or a value cannot be read.
        """
        conn_id = str(connection.conn_id)
        given = _object(conn_id, "extra", connection.extra)
        if nested is not None:
            given = {**_object(conn_id, nested, given.pop(nested, None)), **given}
        known = {self._key(field.name): field for field in self.ours}
        reasons = {self._key(name): reason for name, reason in self.refused}
        ignored = {self._key(name) for name in self.others}
        found = {field.name: field.default for field in self.ours}
        for name, value in given.items():
            key = self._key(name)
            if value is None or value == "" or key in ignored:
                continue
            if key in reasons:
                raise ConnectionInvalid(
                    f"connection {conn_id!r}: {name} {reasons[key]}", connection=conn_id, field=name
                )
            if key not in known:
                raise ConnectionInvalid(
                    f"connection {conn_id!r} has an extra field {name!r} that is not known; known are "
                    f"{', '.join(sorted(field.name for field in self.ours))}",
                    connection=conn_id,
                    field=name,
                )
            found[known[key].name] = _value(conn_id, known[key], value)
        return found

    def form(self) -> dict[str, dict[str, Any]]:
        """The form's fields in Airflow's ``conn-fields`` schema, each with its default."""
        types = {"flag": "boolean", "integer": "integer"}
        shown: dict[str, dict[str, Any]] = {}
        for field in self.ours:
            if field.label:
                schema: dict[str, Any] = {"type": [types.get(field.kind, "string"), "null"]}
                if field.choices:
                    schema["enum"] = list(field.choices)
                if field.default not in (None, ()):
                    schema["default"] = field.default
                shown[field.name] = {"label": field.label, "description": field.meaning, "schema": schema}
        return shown

    def _key(self, name: str) -> str:
        return name.lower() if self.folded else name


def unreadable(conn_id: str, name: str, value: object, wanted: str) -> ConnectionInvalid:
    """The refusal of a value."""
    return ConnectionInvalid(
        f"connection {conn_id!r}: {name} is {value!r}; it must be {wanted}", connection=conn_id, field=name
    )


def _value(conn_id: str, field: Field, value: Any) -> Any:
    if field.kind == "flag":
        word = str(value).strip().lower()
        if word not in (*_TRUE, *_FALSE):
            raise unreadable(conn_id, field.name, value, "true or false")
        return word in _TRUE
    if field.kind == "integer":
        text = str(value).strip()
        if isinstance(value, bool) or not text.isascii() or not text.isdecimal():
            raise unreadable(conn_id, field.name, value, "a whole number")
        return int(text)
    if field.kind == "choice":
        word = str(value).strip().lower()
        if word not in field.choices:
            raise unreadable(conn_id, field.name, value, f"one of {', '.join(field.choices)}")
        return word
    if field.kind == "names":
        return _names(conn_id, field, value)
    if field.kind == "uuid":
        try:
            return UUID(str(value).strip())
        except ValueError:
            raise unreadable(conn_id, field.name, value, "a UUID, as printed at installation") from None
    if field.kind == "object":
        return _object(conn_id, field.name, value)
    if not isinstance(value, str | int):
        raise unreadable(conn_id, field.name, value, "text")
    return str(value)


def _names(conn_id: str, field: Field, value: Any) -> tuple[str, ...]:
    """A list of names, or one text with commas between them."""
    parts: Sequence[Any] = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) and part.strip() for part in parts):
        raise unreadable(conn_id, field.name, value, "a list of texts")
    return tuple(part.strip() for part in parts)


def _object(conn_id: str, name: str, value: Any) -> dict[str, Any]:
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ConnectionInvalid(
                f"connection {conn_id!r}: its {name} is not JSON", connection=conn_id, field=name
            ) from None
    if not isinstance(value, Mapping):
        raise ConnectionInvalid(
            f"connection {conn_id!r}: its {name} is not a JSON object", connection=conn_id, field=name
        )
    return dict(value)


def table(*groups: Iterable[Field]) -> tuple[Field, ...]:
    """Fields of several groups as one table."""
    return tuple(field for group in groups for field in group)
