"""Who can write a table, judged from grants, partial revokes, wildcards and roles as the server judges them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_dpone.engines.clickhouse.writers import judge_writers
from airflow_provider_dpone.errors import ViewIncomplete

PRIVILEGES = [
    ["ALL", ""],
    ["SELECT", "ALL"],
    ["INSERT", "ALL"],
    ["TRUNCATE", "ALL"],
    ["OPTIMIZE", "ALL"],
    ["ALTER", "ALL"],
    ["ALTER TABLE", "ALTER"],
    ["ALTER COLUMN", "ALTER TABLE"],
    ["ALTER DROP COLUMN", "ALTER COLUMN"],
    ["ALTER DELETE", "ALTER TABLE"],
    ["ALTER VIEW", "ALTER"],
    ["ALTER VIEW MODIFY QUERY", "ALTER VIEW"],
    ["CREATE", "ALL"],
    ["CREATE TABLE", "CREATE"],
    ["CREATE VIEW", "CREATE"],
    ["DROP", "ALL"],
    ["DROP TABLE", "DROP"],
    ["DROP DATABASE", "DROP"],
]


def grant(
    holder: str,
    privilege: str,
    on: str = "mart.orders",
    *,
    column: str = "",
    revoked: bool = False,
    wildcard: bool = False,
) -> tuple[str, list[str]]:
    kind, _, name = holder.partition(":")
    database, _, table = on.partition(".")
    scope = ["" if part == "*" else part for part in (database, table)]
    names = [name, ""] if kind == "user" else ["", name]
    return "grant", [*names, privilege, *scope, column, str(int(revoked)), str(int(wildcard))]


def role(holder: str, granted: str) -> tuple[str, list[str]]:
    kind, _, name = holder.partition(":")
    return "role", [name if kind == "user" else "", "" if kind == "user" else name, granted]


def writers(*rows: Any, allowed: tuple[str, ...] = (), users: tuple[str, ...] = ("ann", "bob")) -> tuple[str, ...]:
    kinds: dict[str, list[list[str]]] = {"privilege": PRIVILEGES, "user": [[u, "0"] for u in users]}
    for kind, fields in rows:
        kinds.setdefault(kind, []).append(fields)
    return judge_writers(kinds, "mart", ("orders", "dpone_g_1"), allowed)


@pytest.mark.parametrize(
    "privilege",
    [
        "INSERT",
        "TRUNCATE",
        "OPTIMIZE",
        "ALTER DELETE",
        "ALTER DROP COLUMN",
        "ALTER COLUMN",
        "ALTER",
        "CREATE TABLE",
        "DROP TABLE",
        "DROP",
        "DROP DATABASE",
        "CREATE",
        "ALL",
    ],
)
def test_every_right_that_changes_rows_or_swaps_tables_is_a_write_right(privilege: str) -> None:
    assert writers(grant("user:ann", privilege)) == ("ann",)


@pytest.mark.parametrize("privilege", ["SELECT", "CREATE VIEW", "ALTER VIEW", "ALTER VIEW MODIFY QUERY"])
def test_a_right_that_cannot_change_the_table_is_none(privilege: str) -> None:
    assert writers(grant("user:ann", privilege)) == ()


@pytest.mark.parametrize(
    ("on", "wildcard", "reaches"),
    [
        ("*.*", False, True),
        ("mart.*", False, True),
        ("mart.orders", False, True),
        ("mart.dpone_g_1", False, True),
        ("mart.order", False, False),
        ("mart.order", True, True),
        ("mar.*", True, True),
        ("ma.*", False, False),
        ("other.*", False, False),
        ("mart.orders_old", True, False),
    ],
)
def test_scope_of_a_grant(on: str, wildcard: bool, reaches: bool) -> None:
    assert writers(grant("user:ann", "INSERT", on, wildcard=wildcard)) == (("ann",) if reaches else ())


def test_the_most_specific_grant_or_partial_revoke_decides() -> None:
    everywhere = grant("user:ann", "INSERT", "*.*")
    no_mart = grant("user:ann", "INSERT", "mart.*", revoked=True)
    assert writers(everywhere, no_mart) == ()
    assert writers(everywhere, no_mart, grant("user:ann", "INSERT", "mart.orders")) == ("ann",)
    assert writers(everywhere, grant("user:ann", "INSERT", "mart.orders", revoked=True)) == ("ann",)  # the other name


def test_a_partial_revoke_takes_only_what_it_names_from_a_wider_right() -> None:
    rows = [grant("user:ann", "ALL", "*.*"), grant("user:ann", "INSERT", "mart.*", revoked=True)]
    assert writers(*rows) == ("ann",)
    gone = [grant("user:ann", p, "mart.*", revoked=True) for p in ("TRUNCATE", "OPTIMIZE", "ALTER", "CREATE", "DROP")]
    assert writers(*rows, *gone) == ()


def test_some_columns_are_enough_to_write() -> None:
    assert writers(grant("user:ann", "INSERT", "mart.orders", column="id")) == ("ann",)


def test_a_right_comes_through_roles_of_roles_whether_default_or_not() -> None:
    rows = [grant("role:etl", "INSERT", "mart.*"), role("role:team", "etl"), role("user:bob", "team")]
    assert writers(*rows) == ("bob", "etl")


def test_a_revoke_inside_one_role_does_not_bind_another() -> None:
    rows = [
        grant("role:a", "INSERT", "*.*"),
        grant("role:a", "INSERT", "mart.*", revoked=True),
        grant("user:ann", "INSERT", "mart.orders"),
        role("user:ann", "a"),
        role("user:bob", "a"),
    ]
    assert writers(*rows) == ("ann",)


def test_an_allowed_role_covers_its_members_but_not_their_own_rights() -> None:
    rows = [grant("role:dba", "ALL", "*.*"), role("user:ann", "dba"), role("user:bob", "dba")]
    assert writers(*rows, allowed=("dba",)) == ()
    assert writers(*rows, grant("user:bob", "INSERT"), allowed=("dba",)) == ("bob",)


def test_an_allowed_user_is_not_named() -> None:
    assert writers(grant("user:ann", "ALL", "*.*"), allowed=("ann",)) == ()


def test_a_tombstone_cannot_log_in_but_an_issued_user_can() -> None:
    name = "dpone_publisher_" + "a" * 32
    rows = {"privilege": PRIVILEGES, "user": [[name, "1"]], "grant": [grant(f"user:{name}", "INSERT")[1]]}
    assert judge_writers(rows, "mart", ("orders",), ()) == ()
    assert judge_writers({**rows, "user": [[name, "0"]]}, "mart", ("orders",), ()) == (name,)
    other = {**rows, "user": [["ann", "1"]], "grant": [grant("user:ann", "INSERT")[1]]}
    assert judge_writers(other, "mart", ("orders",), ()) == ("ann",)


def test_a_view_without_users_or_privileges_is_not_believed() -> None:
    with pytest.raises(ViewIncomplete):
        judge_writers({"privilege": PRIVILEGES}, "mart", ("orders",), ())
    with pytest.raises(ViewIncomplete):
        judge_writers({"user": [["ann", "0"]]}, "mart", ("orders",), ())
