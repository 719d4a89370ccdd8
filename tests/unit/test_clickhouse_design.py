"""Reading a design from the catalog's text: exact, or not a design at all."""

from __future__ import annotations

import pytest

from airflow_provider_dpone.contracts.enrolment import ColumnDesign
from airflow_provider_dpone.engines.clickhouse.design import read_design, split_top


def column(name: str, type_name: str = "Int64") -> ColumnDesign:
    return ColumnDesign(name=name, type=type_name, default_kind="", default_expression="", codec="", comment="")


PLAIN = "CREATE TABLE d.t (`a` Int64, `b` Int64) ENGINE = MergeTree ORDER BY a SETTINGS index_granularity = 8192"


def test_a_plain_table_is_read_completely() -> None:
    design, features = read_design("d", "t", PLAIN, "", [column("a"), column("b")])
    assert features == ()
    assert design is not None
    assert (design.sorting_key, design.settings) == ("a", "index_granularity = 8192")


@pytest.mark.parametrize(
    ("text", "comment", "columns"),
    [
        (PLAIN, "", ["a", "b", "hidden"]),
        (PLAIN, "", ["b", "a"]),
        (PLAIN, "a comment the text lacks", ["a", "b"]),
        (PLAIN.replace("MergeTree", "MergeTree()"), "", ["a", "b"]),
        (PLAIN.replace("MergeTree", "ReplacingMergeTree"), "", ["a", "b"]),
        ("CREATE VIEW d.t (`a` Int64, `b` Int64) AS SELECT 1", "", ["a", "b"]),
        ("CREATE TABLE d.t", "", ["a", "b"]),
    ],
)
def test_a_text_that_a_design_does_not_render_to_is_no_design(text: str, comment: str, columns: list[str]) -> None:
    design, features = read_design("d", "t", text, comment, [column(name) for name in columns])
    assert design is None
    assert features == ("unrepresentable_design",)


def test_text_is_split_outside_quotes_and_brackets_only() -> None:
    assert split_top("a, f(b, c), 'd, \\', e', `f, g`, [h, i]") == ["a", "f(b, c)", "'d, \\', e'", "`f, g`", "[h, i]"]
    assert split_top("") == []
