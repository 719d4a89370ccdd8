"""Which columns are transferred is the author's choice: renamed, left out, defaulted, and never silently."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_dpone.contracts.choice import ColumnChoice
from airflow_provider_dpone.errors import DeclarationInvalid, DesignMismatch
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator
from airflow_provider_dpone.releases.manifest import TransferManifest
from tests.schema_world import SchemaWorld
from tests.snapshot_world import SnapshotWorld


@pytest.fixture
def orders(world: SnapshotWorld) -> SnapshotWorld:
    """A source with two columns more than its target, which has one that the source has not."""
    world.pg(
        'CREATE TABLE orders (id bigint NOT NULL, a text NOT NULL, b text NOT NULL, tags text[] NOT NULL, "né""w" int)'
    )
    world.pg("INSERT INTO orders SELECT i, 'a' || i, 'b' || i, ARRAY['x', 'y' || i], i FROM generate_series(1, 2000) i")
    world.ch(f"CREATE TABLE {world.database}.orders (id Int64, a String, b String) ENGINE = MergeTree ORDER BY id")
    world.activate("orders")
    return world


def _published(world: SnapshotWorld, choice: ColumnChoice) -> Any:
    receipt = world.cell("orders", choice=choice).run()
    assert (receipt.state, receipt.rows) == ("PUBLISHED", 2000)
    assert world.exchanges() == 1
    return receipt


def test_without_a_choice_one_more_column_in_the_source_is_refused(orders: SnapshotWorld) -> None:
    with pytest.raises(DesignMismatch, match="source column 'tags' has no column of exactly that name"):
        orders.cell("orders").run()
    assert orders.ledger_counts()["failed"] == 0  # before anything was reserved


def test_new_source_columns_are_ignored_by_choice_and_named_in_the_receipt(orders: SnapshotWorld) -> None:
    receipt = _published(orders, ColumnChoice.of(on_new="ignore"))
    assert receipt.left_out == ('né"w', "tags")
    assert orders.rows("orders")[0] == (1, "a1", "b1")
    orders.pg("ALTER TABLE orders ADD COLUMN later int")
    again = orders.cell("orders", run_id="next", choice=ColumnChoice.of(on_new="ignore")).run()
    assert again.left_out == ("later", 'né"w', "tags")


def test_excluded_columns_are_not_read(orders: SnapshotWorld) -> None:
    assert _published(orders, ColumnChoice.of(exclude=["tags", 'né"w'])).left_out == ('né"w', "tags")
    with pytest.raises(DesignMismatch, match="has no column of exactly that name in the target"):
        orders.cell("orders", run_id="third", choice=ColumnChoice.of(exclude=["tags"])).run()
    with pytest.raises(DesignMismatch, match="no column 'gone', which the task names"):
        orders.cell("orders", run_id="other", choice=ColumnChoice.of(exclude=["gone", "tags", 'né"w'])).run()


def test_columns_are_renamed_whatever_they_are_called(orders: SnapshotWorld) -> None:
    """Two swap their names: each value lands under the target's name, and both proofs look there."""
    _published(orders, ColumnChoice.of(columns={"id": "id", "a": "b", "b": "a"}))
    assert orders.rows("orders")[1] == (2, "b2", "a2")


def test_defaults_fill_target_columns_that_the_source_has_not(world: SnapshotWorld) -> None:
    world.pg('CREATE TABLE orders (id bigint NOT NULL, "Näme" text NOT NULL, tags text[] NOT NULL)')
    world.pg("INSERT INTO orders SELECT i, 'n' || i, ARRAY['t' || i] FROM generate_series(1, 2000) i")
    world.ch(
        f"CREATE TABLE {world.database}.orders (id Int64, `it's` String, labels Array(String), region LowCardinality(String), "
        "tier UInt8, live Bool, gone Nullable(String)) ENGINE = MergeTree ORDER BY id"
    )
    world.activate("orders")
    choice = ColumnChoice.of(
        columns={"id": "id", "Näme": "it's", "tags": "labels"},
        defaults={"region": "it's {c} %s", "tier": 3, "live": True, "gone": None},
    )
    assert _published(world, choice).left_out == ()
    assert world.rows("orders")[4] == (5, "n5", ["t5"], "it's {c} %s", 3, True, None)
    empty = ColumnChoice.of(dict(choice.columns or ()), defaults={**dict(choice.defaults), "region": None})
    with pytest.raises(DesignMismatch, match="may hold NULL"):
        world.cell("orders", run_id="x", choice=empty).run()
    with pytest.raises(DesignMismatch, match="'id' has a default in the task, and a column of the source"):
        world.cell("orders", run_id="y", choice=ColumnChoice.of(on_new="ignore", defaults={"id": 5})).run()


def test_a_load_takes_the_same_choice(schema_world: SchemaWorld) -> None:
    schema_world.make_load(
        "rates", "id bigint NOT NULL, a text NOT NULL, extra int", "SELECT i, 'a' || i, i FROM generate_series(1, 500) i",
        target_columns="id bigint NOT NULL, renamed text NOT NULL, region text NOT NULL, live boolean NOT NULL, n bigint",
    )  # fmt: skip
    choice = ColumnChoice.of(columns={"id": "id", "a": "renamed"}, defaults={"region": "{c}'", "live": False, "n": -7})
    receipt = schema_world.cell("rates", choice=choice).run()
    assert (receipt.state, receipt.rows, receipt.left_out) == ("LOADED", 500, ("extra",))
    assert schema_world.rows("rates")[2] == (3, "a3", "{c}'", False, -7)


# --- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"columns": []}, "columns is empty"), ({"columns": "id"}, "columns must be a list"),
        ({"columns": ["id", "id"]}, "columns names a column twice"), ({"columns": {"a": "x", "b": "x"}}, "more than once"),
        ({"columns": ["a"], "exclude": ["b"]}, "columns names everything"),
        ({"columns": ["a"], "on_new_source_column": "ignore"}, "columns names everything"),
        ({"columns": [1]}, "columns holds 1"), ({"columns": {"a": ""}}, "columns holds ''"),
        ({"exclude": "a"}, "exclude must be a list"), ({"exclude": ["a", "a"]}, "exclude names a column twice"),
        ({"on_new_source_column": "drop"}, "on_new_source_column is"),
        ({"defaults": ["a"]}, "defaults must be a dict"), ({"defaults": {"a": 1.5}}, "defaults: 'a' is 1.5"),
        ({"defaults": {"a": 2**64}}, "defaults: 'a'"), ({"columns": ["a"], "defaults": {"a": 1}}, "more than once"),
    ],
)  # fmt: skip
def test_a_choice_is_checked_while_the_file_is_parsed(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationInvalid, match=says):
        _operator(**arguments)


def _operator(**arguments: Any) -> ClickHouseSnapshotOperator:
    return ClickHouseSnapshotOperator(
        task_id="t", source_conn_id="s", source_table="a.b", target_conn_id="t", target_table="c.d",
        limits={"max_source_bytes": 5}, **arguments,
    )  # fmt: skip


def test_the_choice_is_part_of_the_declaration() -> None:
    plain = _operator().declaration("d.t")
    choices: list[dict[str, Any]] = [
        {"columns": ["a"]}, {"columns": {"a": "b"}}, {"exclude": ["a"]}, {"on_new_source_column": "ignore"}, {"defaults": {"a": 1}},
        {"defaults": {"a": "1"}}, {"defaults": {"a": True}}, {"columns": [f"column_{n}" for n in range(300)]},
    ]  # fmt: skip
    digests = {plain.digest(), *(_operator(**choice).declaration("d.t").digest() for choice in choices)}
    assert len(digests) == len(choices) + 1
    assert _operator(columns=None, exclude=[], defaults={}).declaration("d.t") == plain


def test_a_manifest_takes_the_same_choice_and_one_without_keeps_its_bytes() -> None:
    members: dict[str, Any] = {
        "version": 1, "id": "t", "kind": "snapshot", "source": {"conn_id": "s", "table": "a.b"},
        "target": {"conn_id": "t", "table": "c.d"}, "limits": {"max_source_bytes": 5},
    }  # fmt: skip
    assert b"columns" not in TransferManifest.model_validate(members).written()
    chosen = TransferManifest.model_validate({**members, "columns": {"a": "b"}, "defaults": {"c": True, "d": 1}})
    assert TransferManifest.model_validate_json(chosen.written()) == chosen
    assert chosen.declaration().options["columns"] == '"a" -> "b"'
    assert chosen.declaration().options["defaults"] == '"c" = True, "d" = 1'
