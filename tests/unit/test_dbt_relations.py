"""The planned relations of a dbt project, on both adapters, and everything that refuses a project."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_dpone.contracts.dbt import PlannedRelation
from airflow_provider_dpone.engines.dbt.relations import plan_relations
from airflow_provider_dpone.errors import DbtRelationOutside, DbtRelationRefused


def node(kind: str, name: str, materialized: str = "table", **values: Any) -> dict[str, Any]:
    config = {"materialized": materialized, **values.pop("config", {})}
    return {
        "resource_type": kind, "name": name, "alias": name, "database": "shop", "schema": "mart", "config": config,
        "language": "sql", **values,
    }  # fmt: skip


def manifest(**nodes: dict[str, Any]) -> dict[str, Any]:
    found = {f"{n['resource_type']}.shop.{key}": n for key, n in nodes.items()}
    return {
        "nodes": {k: n for k, n in found.items() if n["resource_type"] != "unit_test"},
        "unit_tests": {k: n for k, n in found.items() if n["resource_type"] == "unit_test"},
        "macros": {}, "functions": {},
    }  # fmt: skip


def plan(document: dict[str, Any], adapter: str = "postgres", *selected: str) -> tuple[PlannedRelation, ...]:
    return plan_relations(document, adapter=adapter, database="shop", schema="mart", selected=frozenset(selected))


def names(relations: tuple[PlannedRelation, ...], role: str | None = None) -> list[str]:
    return [r.name for r in relations if role is None or r.role == role]


def test_every_materialisation_of_postgres_has_its_helpers() -> None:
    relations = plan(
        manifest(
            a=node("model", "a_table"), b=node("model", "b_view", "view"), c=node("model", "c_inc", "incremental"),
            d=node("model", "d_eph", "ephemeral"), e=node("model", "e_mv", "materialized_view"),
            f=node("seed", "f_seed", "seed"), g=node("snapshot", "g_snap", "snapshot"),
            h=node("test", "h_test", "test", config={"store_failures": True}),
            i=node("test", "i_test", "test", config={"store_failures": False}),
            j=node("test", "j_test", "test", config={"store_failures_as": "view"}),
            k=node("test", "k_test", "test", config={"store_failures": True, "store_failures_as": "ephemeral"}),
        )
    )  # fmt: skip
    permanent = ["a_table", "b_view", "c_inc", "e_mv"]
    assert names(relations, "model") == permanent
    assert names(relations, "helper") == sorted(
        n + suffix for n in permanent for suffix in ("__dbt_tmp", "__dbt_backup")
    )
    assert names(relations, "seed") == ["f_seed"]
    assert names(relations, "snapshot") == ["g_snap"]
    assert {r.name: r.kind for r in relations if r.role == "failures"} == {"h_test": "table", "j_test": "view"}
    assert list(relations) == sorted(relations)


def test_sqlserver_names_its_views_refreshes_and_random_test_views() -> None:
    relations = plan(
        manifest(a=node("model", "a"), s=node("snapshot", "s", "snapshot"), u=node("unit_test", "u", "unit")),
        "sqlserver",
    )
    assert {
        "a__dbt_tmp", "a__dbt_tmp__dbt_tmp_vw", "a__dbt_backup", "a__dbt_refresh", "a__dbt_refresh__dbt_tmp_vw",
        "s_snapshot_staging_temp_view", "s__dbt_temp", "s__dbt_temp__dbt_tmp_vw", "u__dbt_temp",
    } <= set(names(relations, "helper"))  # fmt: skip
    assert names(relations, "pattern") == ["expectedview_*", "testview_*"]


def test_a_long_name_is_cut_on_postgres_as_dbt_cuts_it_and_refused_on_sqlserver() -> None:
    long = "m" * 60
    assert long[: 63 - len("__dbt_backup")] + "__dbt_backup" in names(plan(manifest(a=node("model", long))))
    with pytest.raises(DbtRelationRefused, match="longer than 127"):
        plan(manifest(a=node("model", "m" * 110)), "sqlserver")
    with pytest.raises(DbtRelationRefused, match="longer than 63"):
        plan(manifest(a=node("model", "m" * 64)))


def test_every_node_outside_the_managed_schema_is_named() -> None:
    document = manifest(
        a=node("model", "a", schema="mart_other"), b=node("seed", "b", "seed", database="elsewhere"), c=node("model", "c"),
        t=node("test", "t", "test", schema="mart_dbt_test__audit", config={"store_failures": True}),
    )  # fmt: skip
    with pytest.raises(DbtRelationOutside) as caught:
        plan(document)
    assert "model.shop.a" in caught.value.message
    assert "seed.shop.b" in caught.value.message
    assert "test.shop.t" in caught.value.message
    assert "model.shop.c" not in caught.value.message


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (manifest(a=node("model", "orders"), b=node("model", "orders__dbt_tmp")), "both write orders__dbt_tmp"),
        (manifest(a=node("model", "m" * 55), b=node("model", "m" * 56)), "both write"),
        (manifest(a=node("model", "a", "lambda_view")), "materialized as 'lambda_view'"),
        (manifest(a=node("model", "a", language="python")), "a Python model"),
        (manifest(a=node("model", "a", config={"grants": {"insert": ["x"]}})), "grants insert"),
        (manifest(a=node("model", "a", config={"latest_version_pointer": {"enabled": True}})), "pointer"),
        ({**manifest(a=node("model", "a")), "functions": {"function.shop.f": {}}}, "function.shop.f is a function"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_or_collides_is_refused(document: dict[str, Any], words: str) -> None:
    with pytest.raises(DbtRelationRefused, match=words):
        plan(document)


def test_select_may_be_granted_on_postgres_only() -> None:
    document = manifest(a=node("model", "a", config={"grants": {"select": ["reader"]}}))
    assert names(plan(document), "model") == ["a"]
    with pytest.raises(DbtRelationRefused, match="grants select"):
        plan(document, "sqlserver")


def test_names_that_the_server_takes_for_one_collide() -> None:
    document = manifest(a=node("model", "Orders"), b=node("model", "orders"))
    assert names(plan(document), "model") == ["Orders", "orders"]
    with pytest.raises(DbtRelationRefused, match="both write"):
        plan(document, "sqlserver")
    with pytest.raises(DbtRelationRefused, match="a name tests use"):
        plan(manifest(a=node("model", "TestView_x")), "sqlserver")


@pytest.mark.parametrize(
    ("macro", "words"),
    [
        ("materialization_table_default", "materialized as 'table'"),
        ("postgres__make_backup_relation", "changes the names"),
    ],
)
def test_a_project_that_redefines_materialisations_or_names_is_refused(macro: str, words: str) -> None:
    document = manifest(a=node("model", "a"))
    document["macros"] = {"x": {"name": macro, "package_name": "dbt_postgres"}}
    assert names(plan(document), "model") == ["a"]  # dbt's own
    document["macros"] = {"x": {"name": macro, "package_name": "dbt_utils"}}
    with pytest.raises(DbtRelationRefused, match=words):
        plan(document)


def test_only_selected_nodes_are_expected() -> None:
    relations = plan(manifest(a=node("model", "a"), b=node("model", "b")), "postgres", "model.shop.a")
    assert {r.name: r.selected for r in relations if r.role == "model"} == {"a": True, "b": False}
