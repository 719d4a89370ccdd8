"""Every PostgreSQL type: what its values are, how they are read, or why they are refused.

``docs/types.md`` is written from this table and checked against a live server's ``pg_type``. Types not listed by name
fall under a rule for their class (:data:`CLASSES`), so that a type of an extension or a user is covered as well.

The text form is what ``pg_dump`` stores a value in: a type's output function, whose input function gives the same
value back. It is the only form of most types, and any type that has it may go into a ``String`` column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from airflow_provider_dpone.contracts.columns import ValueKind


@dataclass(frozen=True)
class TypeRule:
    """How values of a type are read. ``native`` and ``text`` are SQL over ``{c}``, the quoted column."""

    kind: ValueKind | None
    note: str = ""
    native: str = "{c}"
    text: str | None = "{c}::text"
    listable: bool = False
    """Whether a list of it can be read natively into an Array column."""


def _refused(why: str) -> TypeRule:
    return TypeRule(None, why, text=None)


_TEXT_ONLY: Final = TypeRule(ValueKind.OTHER)
_STATISTICS: Final = _refused("internal statistics; its input function refuses every value, so no form gives it back")
_INDEX: Final = _refused("internal to an index; no column can usefully hold it and it has no input function")
_PSEUDO: Final = _refused("a pseudo-type; no column can hold it")
_RANGE: Final = TypeRule(ValueKind.OTHER, "a range in its text form, bounds marked inclusive or exclusive")
_MULTIRANGE: Final = TypeRule(ValueKind.OTHER, "a multirange in its text form")
_CATALOG: Final = TypeRule(
    ValueKind.OTHER, "name of a catalog object, qualified unless it is in pg_catalog, as pg_dump writes it"
)

#: Types of ``pg_catalog`` by their internal name.
TYPES: Final[dict[str, TypeRule]] = {
    "bool": TypeRule(ValueKind.BOOL, listable=True),
    "int2": TypeRule(ValueKind.INTEGER, listable=True),
    "int4": TypeRule(ValueKind.INTEGER, listable=True),
    "int8": TypeRule(ValueKind.INTEGER, listable=True),
    "oid": TypeRule(ValueKind.INTEGER, "unsigned, 0 to 4294967295", native="{c}::bigint"),
    "float4": TypeRule(ValueKind.FLOAT32, "every bit kept, NaN and infinities included", listable=True),
    "float8": TypeRule(ValueKind.FLOAT64, "every bit kept, NaN and infinities included", listable=True),
    "numeric": TypeRule(
        ValueKind.DECIMAL,
        "each value checked digit by digit; NaN and Infinity refused; scale from the target, never guessed",
        listable=True,
    ),
    "money": TypeRule(
        ValueKind.DECIMAL, "amount in the database's lc_monetary fraction digits; its text form depends on the "
        "session's locale, so it never goes into String", native="{c}::numeric", text=None,
    ),
    "text": TypeRule(ValueKind.TEXT, text="{c}", listable=True),
    "varchar": TypeRule(ValueKind.TEXT, text="{c}", listable=True),
    "bpchar": TypeRule(
        ValueKind.TEXT, "with its blank padding, as stored",
        text="CASE WHEN {c} IS NOT NULL THEN format('%s', {c}) END",  # a cast to text strips the padding
    ),
    "name": TypeRule(ValueKind.TEXT),
    "refcursor": TypeRule(ValueKind.TEXT),
    "bytea": TypeRule(ValueKind.BYTES, "raw bytes, never hexadecimal text"),
    "uuid": TypeRule(ValueKind.UUID, listable=True),
    "date": TypeRule(ValueKind.DATE, "infinity refused; BC and years outside the target refused", listable=True),
    "time": TypeRule(ValueKind.TIME, "24:00:00 included"),
    "timestamp": TypeRule(
        ValueKind.TIMESTAMP, "wall clock, stored as if UTC on every worker; infinity refused", listable=True
    ),
    "timestamptz": TypeRule(ValueKind.INSTANT, "point in time, stored as UTC; infinity refused", listable=True),
    "timetz": TypeRule(ValueKind.OTHER, "time of day with its own offset"),
    "interval": TypeRule(ValueKind.OTHER, "months, days and microseconds kept apart, IntervalStyle postgres"),
    "inet": TypeRule(ValueKind.ADDRESS, "into IPv4/IPv6 only single hosts of that family", native="{c}::text"),
    "cidr": TypeRule(ValueKind.OTHER, "network with its mask"),
    "macaddr": _TEXT_ONLY,
    "macaddr8": _TEXT_ONLY,
    "json": TypeRule(ValueKind.OTHER, "the document's stored text, white space and key order included"),
    "jsonb": TypeRule(ValueKind.OTHER, "PostgreSQL's normal form of the document, numbers with all digits"),
    "jsonpath": _TEXT_ONLY,
    "xml": TypeRule(ValueKind.OTHER, "the stored text"),
    "bit": TypeRule(ValueKind.OTHER, "digits 0 and 1"),
    "varbit": TypeRule(ValueKind.OTHER, "digits 0 and 1"),
    **dict.fromkeys(("point", "line", "lseg", "box", "path", "polygon", "circle"),
                    TypeRule(ValueKind.OTHER, "coordinates in their shortest exact decimal form")),
    "tsvector": _TEXT_ONLY,
    "tsquery": _TEXT_ONLY,
    "pg_lsn": _TEXT_ONLY,
    "pg_snapshot": _TEXT_ONLY,
    "txid_snapshot": _TEXT_ONLY,
    "xid": _TEXT_ONLY,
    "xid8": _TEXT_ONLY,
    "cid": _TEXT_ONLY,
    "tid": _TEXT_ONLY,
    "char": TypeRule(ValueKind.OTHER, 'the one-byte "char"; bytes above 127 as a backslash and three octal digits'),
    "aclitem": _TEXT_ONLY,
    "int2vector": _TEXT_ONLY,
    "oidvector": _TEXT_ONLY,
    **dict.fromkeys(("regclass", "regcollation", "regconfig", "regdictionary", "regnamespace", "regoper",
                     "regoperator", "regproc", "regprocedure", "regrole", "regtype", "regdatabase"), _CATALOG),
    "gtsvector": _INDEX,
    **dict.fromkeys(("pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "pg_brin_bloom_summary",
                     "pg_brin_minmax_multi_summary"), _STATISTICS),
    **dict.fromkeys(("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"), _RANGE),
    **dict.fromkeys(("int4multirange", "int8multirange", "nummultirange", "tsmultirange", "tstzmultirange",
                     "datemultirange"), _MULTIRANGE),
    **dict.fromkeys(("any", "anyarray", "anycompatible", "anycompatiblearray", "anycompatiblemultirange",
                     "anycompatiblenonarray", "anycompatiblerange", "anyelement", "anyenum", "anymultirange",
                     "anynonarray", "anyrange", "cstring", "event_trigger", "fdw_handler", "index_am_handler",
                     "internal", "language_handler", "pg_ddl_command", "record", "_record", "table_am_handler",
                     "trigger", "tsm_handler", "unknown", "void"), _PSEUDO),
}  # fmt: skip
#: Types of extensions that have no input function.
EXTENSION_TYPES: Final[dict[tuple[str, str], TypeRule]] = {
    ("hstore", "ghstore"): _INDEX,
    ("ltree", "ltree_gist"): _INDEX,
    ("pg_trgm", "gtrgm"): _INDEX,
    ("intarray", "intbig_gkey"): _INDEX,
    **dict.fromkeys((("btree_gist", f"gbtreekey{size}") for size in ("2", "4", "8", "16", "32", "_var")), _INDEX),
    ("citext", "citext"): TypeRule(ValueKind.TEXT, "as stored, upper and lower case kept", native="{c}::text"),
}
#: Rules by ``pg_type.typtype`` for what is not listed: base types of extensions, enumerations, and so on.
CLASSES: Final[dict[str, TypeRule]] = {
    "b": TypeRule(ValueKind.OTHER, "a base type of an extension or a user, in its text form"),
    "e": TypeRule(ValueKind.TEXT, "the label"),
    "d": TypeRule(ValueKind.OTHER, "elements of an array that are of a domain, in their text form"),
    "c": TypeRule(ValueKind.OTHER, "a composite value in its text form"),
    "r": _RANGE,
    "m": _MULTIRANGE,
    "p": _PSEUDO,
}
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_RAW_DATES: Final = {-2147472692: "infinity", -2147472691: "-infinity"}
_RAW_MOMENTS: Final = {-9222425352054775809: "infinity", -9222425352054775808: "-infinity"}
_RAW_NUMBERS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def rule_of(namespace: str, name: str, type_class: str, extension: str | None) -> TypeRule:
    """The rule for a base type (domains are followed and arrays opened by the catalog)."""
    if namespace == "pg_catalog" and name in TYPES:
        return TYPES[name]
    if extension is not None and (extension, name) in EXTENSION_TYPES:
        return EXTENSION_TYPES[extension, name]
    return CLASSES[type_class]


def numeric_modifier(base: str) -> tuple[int, int] | None:
    """Precision and scale of ``numeric(p,s)``, or None without a modifier."""
    match = _NUMERIC.match(base)
    return (int(match[1]), int(match[2])) if match else None


def explain(kind: ValueKind, raw: object) -> str | None:
    """PostgreSQL's name for a value that its Arrow driver delivers in a changed form.

    The driver moves dates and timestamps from PostgreSQL's epoch to 1970 without a check, so that the infinities and
    the far ends wrap around into years no target type holds; there they are refused, and named here.
    """
    if isinstance(raw, int):
        if kind is ValueKind.DATE:
            return _RAW_DATES.get(raw)
        if kind in (ValueKind.TIMESTAMP, ValueKind.INSTANT):
            return _RAW_MOMENTS.get(raw)
    if isinstance(raw, str) and kind is ValueKind.DECIMAL:
        return _RAW_NUMBERS.get(raw)
    return None
