"""The complete set of relations a dbt run may write, computed from the manifest of dbt's own parser.

Per adapter this follows the names the materialisations of dbt-adapters 1.24, dbt-postgres 1.11 and dbt-sqlserver 1.12
use. A node whose names cannot be known (another materialisation, a Python model) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_dpone.contracts.dbt import PlannedRelation, RelationKind, RelationRole
from airflow_provider_dpone.errors import DbtRelationOutside, DbtRelationRefused

_VIEW_OF: Final = "__dbt_tmp_vw"
_NAMING: Final = re.compile(r"(^|__)make_(intermediate|backup|temp)_relation$")
_SWAP: Final = (("__dbt_tmp", "table"), ("__dbt_backup", "table"))


@dataclass(frozen=True)
class Names:
    """How one adapter names things."""

    max_length: int
    same: Callable[[str], str]
    """The form under which two names are one for the server."""
    helpers: Mapping[str, tuple[tuple[str, RelationKind], ...]]
    """Suffixes per materialisation (and per ``snapshot``, ``unit_test``) with what stands under them."""
    patterns: tuple[str, ...]
    """Prefixes of random names, written in the target schema by tests."""
    truncates: bool
    """Whether dbt cuts the name so that the suffix fits; otherwise a name without room for it is refused."""
    grants: frozenset[str]
    """Privileges a ``grants`` config may hand out."""


def _with_views(*suffixes: str) -> tuple[tuple[str, RelationKind], ...]:
    tables: list[tuple[str, RelationKind]] = [(suffix, "table") for suffix in suffixes]
    views: list[tuple[str, RelationKind]] = [(suffix + _VIEW_OF, "view") for suffix in suffixes]
    return (*tables, *views)


_POSTGRES = Names(
    max_length=63,
    same=lambda name: name,
    helpers={
        "view": _SWAP,
        "table": _SWAP,
        "incremental": _SWAP,
        "materialized_view": _SWAP,
        "seed": (),
        "snapshot": (),
        "unit_test": (),
    },
    patterns=(),
    truncates=True,
    grants=frozenset({"select"}),
)
_SQLSERVER = Names(
    max_length=127,
    same=str.casefold,
    helpers={
        "view": _SWAP,
        "table": (*_with_views("__dbt_tmp", "__dbt_refresh"), ("__dbt_backup", "table")),
        "incremental": (*_with_views("__dbt_tmp", "__dbt_temp"), ("__dbt_backup", "table")),
        "seed": (("__dbt_backup", "table"),),
        "snapshot": (*_with_views("__dbt_tmp", "__dbt_temp"), ("_snapshot_staging_temp_view", "view")),
        "unit_test": _with_views("__dbt_tmp", "__dbt_temp"),
    },
    patterns=("testview_", "expectedview_"),
    truncates=False,
    grants=frozenset(),
)
ADAPTERS: Final[Mapping[str, Names]] = {"postgres": _POSTGRES, "sqlserver": _SQLSERVER}


def plan_relations(
    manifest: Mapping[str, Any], *, adapter: str, database: str, schema: str, selected: frozenset[str]
) -> tuple[PlannedRelation, ...]:
    """Every relation of the project, helpers included, sorted.

    :param manifest: ``manifest.json`` as parsed JSON.
    :param database: database of the connection; a node in another is outside.
    :param selected: unique ids this run builds.
    :raises DbtRelationOutside: nodes write outside ``schema``; names every one.
    :raises DbtRelationRefused: relations that cannot be known, collide, or are too long; names every one.
    """
    names = ADAPTERS[adapter]
    problems: list[str] = []
    outside: list[str] = []
    relations: list[PlannedRelation] = []
    custom, naming = _overridden(manifest, adapter)
    problems += [f"macro {macro} changes the names of helper relations" for macro in naming]
    for unique_id, node in sorted({**manifest["nodes"], **manifest.get("unit_tests", {})}.items()):
        found = _permanent(node)
        if found is None:
            continue
        identifier, kind, role, materialization = found
        if role != "helper" and (node["database"], node["schema"]) != (database, schema):
            outside.append(f"{unique_id} writes {node['database']}.{node['schema']}.{identifier}")
            continue
        suffixes = names.helpers.get(materialization)
        if role == "failures":
            suffixes = ()
        if suffixes is None or materialization in custom or node.get("language", "sql") != "sql":
            what = "a Python model" if node.get("language", "sql") != "sql" else f"materialized as {materialization!r}"
            problems.append(f"{unique_id} is {what}; what that writes on {adapter} is not known")
            continue
        problems += _grants(unique_id, node, names)
        if (node["config"].get("latest_version_pointer") or {}).get("enabled"):
            problems.append(f"{unique_id} asks for a latest-version pointer, a relation that is not planned")
        chosen = unique_id in selected
        if role != "helper":
            relations.append(PlannedRelation(name=identifier, kind=kind, role=role, node=unique_id, selected=chosen))
        for suffix, helper_kind in suffixes:
            if len(identifier + suffix) > names.max_length and not names.truncates:
                problems.append(f"{unique_id}: {identifier}{suffix} is longer than {names.max_length} characters")
                continue
            helper = identifier[: names.max_length - len(suffix)] + suffix
            relations.append(
                PlannedRelation(name=helper, kind=helper_kind, role="helper", node=unique_id, selected=chosen)
            )
        if len(identifier) > names.max_length:
            problems.append(f"{unique_id}: {identifier} is longer than {names.max_length} characters")
    if outside:
        raise DbtRelationOutside(
            f"the managed schema is {database}.{schema}, but: {'; '.join(outside)}. Set their schema (a "
            "generate_schema_name macro that returns target.schema keeps everything in one) or exclude them from the "
            "project; nothing was run",
            nodes=outside,
        )
    for functions in manifest.get("functions", {}):
        problems.append(f"{functions} is a function; only relations can be planned")
    problems += _collisions(relations, names)
    if problems:
        raise DbtRelationRefused(
            "the relations of the project cannot be admitted: " + "; ".join(problems), problems=problems
        )
    relations += [
        PlannedRelation(name=prefix + "*", kind="view", role="pattern", node="tests", selected=True)
        for prefix in names.patterns
    ]
    return tuple(sorted(relations))


def _permanent(node: Mapping[str, Any]) -> tuple[str, RelationKind, RelationRole, str] | None:
    """Identifier, kind, role and materialisation of what a node leaves, or None when it leaves nothing."""
    config = node["config"]
    match node["resource_type"]:
        case "model" if config["materialized"] != "ephemeral":
            materialization = str(config["materialized"])
            kinds: dict[str, RelationKind] = {"view": "view", "materialized_view": "materialized_view"}
            return node["alias"], kinds.get(materialization, "table"), "model", materialization
        case "seed":
            return node["alias"], "table", "seed", "seed"
        case "snapshot":
            return node["alias"], "table", "snapshot", "snapshot"
        case "test" if _stores_failures(config):
            kind: RelationKind = "view" if config.get("store_failures_as") == "view" else "table"
            return node["alias"], kind, "failures", "test"
        case "unit_test":
            return node["name"], "table", "helper", "unit_test"
        case _:
            return None


def _stores_failures(config: Mapping[str, Any]) -> bool:
    stored_as = config.get("store_failures_as")
    return stored_as in ("table", "view") or (stored_as is None and bool(config.get("store_failures")))


def _overridden(manifest: Mapping[str, Any], adapter: str) -> tuple[set[str], list[str]]:
    """Materialisations, and macros that make helper names, which the project or a package defines itself."""
    internal = ("dbt", f"dbt_{adapter}", "dbt_postgres")
    own = [m for m in manifest["macros"].values() if m["package_name"] not in internal]
    made = {str(m["name"]).removeprefix("materialization_") for m in own if m["name"].startswith("materialization_")}
    naming = sorted(f"{m['package_name']}.{m['name']}" for m in own if _NAMING.search(m["name"]))
    return {name.rpartition("_")[0] for name in made}, naming


def _grants(unique_id: str, node: Mapping[str, Any], names: Names) -> list[str]:
    beyond = sorted(set(node["config"].get("grants") or {}) - names.grants)
    if not beyond:
        return []
    allowed = ", ".join(sorted(names.grants)) or "none"
    return [f"{unique_id} grants {', '.join(beyond)} (allowed here: {allowed})"]


def _collisions(relations: list[PlannedRelation], names: Names) -> list[str]:
    taken: dict[str, PlannedRelation] = {}
    problems = []
    for relation in relations:
        other = taken.setdefault(names.same(relation.name), relation)
        if other is not relation:
            problems.append(f"{relation.node} and {other.node} both write {relation.name}")
        if relation.role != "helper" and any(names.same(relation.name).startswith(p) for p in names.patterns):
            problems.append(f"{relation.node} is called {relation.name}, a name tests use")
    return problems
