"""How names and values enter a ClickHouse statement: one function each, and the binding of ``.sql`` files.

Statement files use the server's own parameter form, ``{name:Type}``. Values are bound here, because native sessions of
older revisions carry no parameters. A ``{`` that does not start a parameter stands as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

_ESCAPES = {ord("\\"): r"\\", ord("'"): r"\'", ord("\n"): r"\n", ord("\r"): r"\r", ord("\t"): r"\t", 0: r"\0"}
_PARAMETER = re.compile(r"\{(\w+):(Identifier|String|UInt64|Array\(String\))\}")

#: Reading for a proof: nothing filtered, cached, sampled, limited or silently cut.
PINNED = (
    "final = 0, additional_table_filters = {}, additional_result_filter = '', use_query_cache = 0, limit = 0, "
    "offset = 0, max_rows_to_read = 0, max_bytes_to_read = 0, max_result_rows = 0, max_execution_time = 0, "
    "read_overflow_mode = 'throw', result_overflow_mode = 'throw', timeout_overflow_mode = 'throw', "
    "apply_deleted_mask = 1, enable_parallel_replicas = 0, empty_result_for_aggregation_by_empty_set = 0, "
    "aggregate_functions_null_for_empty = 0, output_format_binary_encode_types_in_binary_format = 0, "
    "output_format_binary_write_json_as_string = 0"
)


def identifier(name: str) -> str:
    """A name in backquotes, whatever it contains."""
    if not name or "\0" in name:
        raise ValueError("a ClickHouse name is not empty and holds no NUL")
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def table(database: str, name: str) -> str:
    """A table's qualified name."""
    return f"{identifier(database)}.{identifier(name)}"


def literal(text: str) -> str:
    """A string literal."""
    return "'" + text.translate(_ESCAPES) + "'"


def bind(statement: str, values: Mapping[str, Any]) -> str:
    """Put ``values`` in place of the ``{name:Type}`` parameters of ``statement``; each must be given."""

    def one(match: re.Match[str]) -> str:
        value, kind = values[match[1]], match[2]
        if kind == "Identifier":
            return identifier(value)
        if kind == "UInt64":
            return str(int(value))
        if kind == "String":
            return literal(value)
        if isinstance(value, str):
            raise TypeError(f"parameter {match[1]} must be a list of texts")
        return f"[{', '.join(map(literal, value))}]" if value else "emptyArrayString()"

    return _PARAMETER.sub(one, statement)


@cache
def load(name: str) -> str:
    """The text of a ``.sql`` file of this package, without its comment lines."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--")).strip()
