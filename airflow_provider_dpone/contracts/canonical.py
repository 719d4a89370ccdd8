"""Canonical documents: one byte form per meaning, strict parsing, SHA-256 identity.

A document is a frozen pydantic model whose canonical form is UTF-8 JSON with sorted ASCII keys and no white space.
Only objects, arrays, strings, integers, booleans and null appear; a float, a duplicate, missing, unknown or
non-canonically written member is refused. The digest of a document is SHA-256 over exactly those bytes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Annotated, Any, ClassVar, NoReturn, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
)

from airflow_provider_dpone.errors import DocumentInvalid

MAX_COUNTER = 2**63 - 1

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$", strict=True)]
Uuid = Annotated[
    str, StringConstraints(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", strict=True)
]
#: A random UUID: what names one occurrence must not be derived from anything.
Uuid4 = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$", strict=True),
]
Text = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]+$", strict=True)]
Counter = Annotated[int, Field(ge=0, le=MAX_COUNTER, strict=True)]
Epoch = Annotated[int, Field(ge=1, le=MAX_COUNTER, strict=True)]
#: A sum of 256-bit row digests modulo 2^256, as 64 lower-case hexadecimal digits.
ContentSum = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", strict=True)]


def digest_of(raw: bytes) -> str:
    """SHA-256 of ``raw`` as ``sha256:`` and 64 hexadecimal digits."""
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def digest_bytes(digest: str) -> bytes:
    """The 32 bytes of a ``sha256:...`` text."""
    return bytes.fromhex(digest.removeprefix("sha256:"))


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise DocumentInvalid("a document repeats a member")
    return members


def _refuse_number(text: str) -> NoReturn:
    raise DocumentInvalid("a document holds a number that is not an integer", number=text[:40])


class Document(BaseModel):
    """Base of every document. Subclasses add ``schema_name: Literal[...]`` so that two kinds never share bytes."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", hide_input_in_errors=True)

    max_bytes: ClassVar[int] = 8 * 1024 * 1024
    #: Members that are not written while they have their default: documents of before they existed keep their bytes.
    written_unless_default: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        members: dict[str, Any] = handler(self)
        for name in self.written_unless_default:
            if getattr(self, name) == type(self).model_fields[name].default:
                del members[name]
        return members

    def wire(self) -> bytes:
        """The canonical bytes.

        :raises DocumentInvalid: a text cannot be written as UTF-8 (a lone surrogate) or the document is too large.
        """
        try:
            raw = json.dumps(
                self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
            ).encode("utf-8")
        except (UnicodeEncodeError, ValueError) as error:
            raise DocumentInvalid(f"{type(self).__name__} cannot be written canonically: {error}") from error
        if len(raw) > self.max_bytes:
            raise DocumentInvalid(f"{type(self).__name__} is larger than {self.max_bytes} bytes", bytes=len(raw))
        return raw

    def digest(self) -> str:
        """Identity of the document: ``sha256:`` of :meth:`wire`."""
        return digest_of(self.wire())

    @classmethod
    def of(cls, **members: Any) -> Self:
        """A document from what a person gave.

        :raises DocumentInvalid: names the member that is missing, unknown or out of range.
        """
        try:
            return cls(**members)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or cls.__name__
            raise DocumentInvalid(f"{where}: {first['msg']}", where=where) from error

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Read canonical bytes back, refusing anything that is not exactly what :meth:`wire` would write.

        :raises DocumentInvalid: not UTF-8, not JSON, float, duplicate, missing, unknown or noncanonical member,
            a value out of range, or too large.
        """
        if len(raw) > cls.max_bytes:
            raise DocumentInvalid(f"{cls.__name__} is larger than {cls.max_bytes} bytes", bytes=len(raw))
        try:
            text = raw.decode("utf-8")
            json.loads(
                text, object_pairs_hook=_no_duplicates, parse_float=_refuse_number, parse_constant=_refuse_number
            )
            document = cls.model_validate_json(text)
        except (UnicodeDecodeError, json.JSONDecodeError, ValidationError, RecursionError) as error:
            raise DocumentInvalid(f"bytes are not a {cls.__name__}: {error}") from error
        if document.wire() != raw:
            raise DocumentInvalid(f"{cls.__name__} is not written canonically")
        return document


def require_sorted_unique(values: tuple[Any, ...], what: str) -> None:
    """Refuse a sequence that stands for a set but is unsorted or repeats a member."""
    if any(not left < right for left, right in itertools.pairwise(values)):
        raise ValueError(f"{what} must be sorted and unique")
