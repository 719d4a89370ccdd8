"""Releases on disk: built whole, read back to the last byte, manifests with file and line, DAGs from the current one."""

from __future__ import annotations

import copy
import dataclasses
import json
import secrets
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_dpone.activation.cache import CurrentPointer, DeploymentCacheMaterializer
from airflow_provider_dpone.bundles.release import ReleaseDagBundle
from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.release import ActivationRequest, WorkloadAdmission, WorkloadDeclaration
from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.errors import (
    ActivationMissing,
    ActivationRefused,
    DeclarationInvalid,
    DocumentInvalid,
    ManifestInvalid,
    ReleaseAltered,
)
from airflow_provider_dpone.operators.declarations import loaded_dags, producers_in, require_declared
from airflow_provider_dpone.releases import manifest as manifests
from airflow_provider_dpone.releases.builder import Producers, build_release
from airflow_provider_dpone.releases.generated_transfer import GeneratedTransfer
from airflow_provider_dpone.releases.packs import AirflowCompactPackBuilder
from airflow_provider_dpone.releases.plan import CompositionExecutionPlan, plan_composition_execution
from airflow_provider_dpone.releases.sources import CompositionSourceSnapshot, build_composition_source_reader

GOOD = {
    "version": 1,
    "id": "rates",
    "kind": "snapshot",
    "source": {"conn_id": "erp", "table": "public.rates"},
    "target": {"conn_id": "dwh", "table": "mart.rates"},
    "limits": {"max_source_bytes": "1 GiB"},
    "sql_files": ["checks/after.sql"],
}
GENERATED: dict[str, Any] = {
    "version": 1,
    "producer": "native",
    "id": "stock",
    "source": {"conn_id": "erp", "table": "dbo.stock", "options": {"isolation": "snapshot"}},
    "sink": {"conn_id": "dwh", "table": "mart.stock", "mode": "full_refresh"},
    "runtime": {"environment": "prod", "schedule": "@daily", "retries": 4},
    "quality": {"min_rows": 3},
    "gitops": {"repository": "analytics", "revision": "a" * 40, "path": "models/stock.sql"},
    "budget": {"max_source_bytes": "1 GiB"},
}
DAG_FILE = """
from airflow.sdk import DAG
from airflow_provider_dpone.operators.snapshot import ClickHouseSnapshotOperator
with DAG('orders', schedule=None):
    ClickHouseSnapshotOperator(
        task_id='publish', source_conn_id='erp', source_table='public.orders', target_conn_id='dwh',
        target_table='mart.orders', limits={'max_source_bytes': '1 GiB'})
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "orders.py").write_text(DAG_FILE)
    (tmp_path / "manifests" / "checks").mkdir(parents=True)
    (tmp_path / "manifests" / "rates.yaml").write_text(yaml.safe_dump(GOOD, sort_keys=False))
    (tmp_path / "manifests" / "checks" / "after.sql").write_text("SELECT 1")
    return tmp_path


@pytest.fixture
def built(project: Path) -> tuple[Path, str]:
    output = project / "release"
    release = build_release(producers_in(project / "dags", project / "manifests"), output)
    return output, release.digest()


def _read(path: Path, release_id: str) -> CompositionSourceSnapshot:
    return build_composition_source_reader().read_sources(path, expected_release_id=release_id)


# --- directories ------------------------------------------------------------------------------------------------


def test_a_release_holds_everything_its_producers_declare(built: tuple[Path, str]) -> None:
    sources = _read(*built)
    assert set(sources.pins) == {"orders.publish", "rates.transfer"}
    assert sources.release.dags == ("orders", "rates")
    assert sources.writes["rates.transfer"] == ("mart.rates",)
    assert sources.reads == {"orders.publish": ("public.orders",), "rates.transfer": ("public.rates",)}
    assert list(sources.manifests) == ["manifests/rates.yaml"]
    assert sources.files["sql/rates/checks/after.sql"] == b"SELECT 1"
    assert (sources.native_id, sources.standalone_id)[0] != sources.standalone_id


def test_the_same_producers_give_the_same_release(project: Path, built: tuple[Path, str]) -> None:
    again = build_release(producers_in(project / "dags", project / "manifests"), project / "again")
    assert again.digest() == built[1]
    with pytest.raises(ReleaseAltered, match="never written over"):
        build_release(Producers(), project / "again")


def test_generated_dags_and_files_load_exactly(built: tuple[Path, str]) -> None:
    assert loaded_dags(built[0] / "dags") == {"orders", "rates"}


@pytest.mark.parametrize(
    "path",
    ["release.json", "dags/orders.py", "dags/dpone_transfers.py", "manifests/rates.yaml", "runtime/rates.json", "pack"],
)
@pytest.mark.parametrize("change", ["byte", "missing", "more", "link"])
def test_one_byte_or_one_file_more_or_less_is_refused(built: tuple[Path, str], path: str, change: str) -> None:
    root, release_id = built
    at = next((root / "packs").glob("*.json")) if path == "pack" else root / path
    raw = at.read_bytes()
    if change == "byte":
        at.write_bytes(raw[:-2] + bytes([raw[-2] ^ 1]) + raw[-1:])
    elif change == "missing":
        at.unlink()
    elif change == "more":
        at.with_name("more").write_bytes(raw)
    else:
        at.rename(root.parent / "elsewhere")
        at.symlink_to(root.parent / "elsewhere")
    with pytest.raises(ReleaseAltered):
        _read(root, release_id)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_changed_byte_is_refused(built: tuple[Path, str], data: st.DataObject) -> None:
    root, release_id = built
    at = data.draw(st.sampled_from(sorted(p for p in root.rglob("*") if p.is_file())))
    raw = at.read_bytes()
    place = data.draw(st.integers(0, len(raw) - 1))
    at.write_bytes(raw[:place] + bytes([raw[place] ^ data.draw(st.integers(1, 255))]) + raw[place + 1 :])
    try:
        with pytest.raises(ReleaseAltered):
            _read(root, release_id)
    finally:
        at.write_bytes(raw)
    assert _read(root, release_id).release_id == release_id


def test_a_release_that_lists_its_own_forgery_is_still_another_release(built: tuple[Path, str]) -> None:
    """Whoever changes the inventory too has made another release; a pack that no declaration gives is refused even so."""
    root, release_id = built
    release = json.loads((root / "release.json").read_bytes())
    pack = next((root / "packs").glob("*.json"))
    pack.write_bytes(pack.read_bytes().replace(b"logical/", b"physica/"))
    for line in release["files"]:
        if line["path"] == f"packs/{pack.name}":
            line["sha256"] = digest_of(pack.read_bytes())
    forged = json.dumps(release, sort_keys=True, separators=(",", ":")).encode()
    (root / "release.json").write_bytes(forged)
    with pytest.raises(ReleaseAltered, match="not the expected"):
        _read(root, release_id)
    with pytest.raises(ReleaseAltered, match="not what its declaration gives"):
        _read(root, digest_of(forged))


def test_an_outlet_gives_no_authority(built: tuple[Path, str]) -> None:
    [declaration, _] = _read(*built).release.workloads()
    pack = AirflowCompactPackBuilder().build(declaration, outlet_binding="logical")
    assert pack.outlet == "dpone://logical/orders.publish"
    with pytest.raises(DeclarationInvalid, match="authority"):
        AirflowCompactPackBuilder().build(declaration, outlet_binding="physical")  # type: ignore[arg-type]


# --- manifests --------------------------------------------------------------------------------------------------


def test_the_published_schema_is_the_one_in_force() -> None:
    for name, model in (("transfer_manifest", manifests.TransferManifest), ("generated_transfer", GeneratedTransfer)):
        published = Path(manifests.__file__).with_name(f"{name}.schema.json")
        written = manifests.json_schema(model)
        assert published.read_text() == written, "write it again: dpone-airflow release manifest-schema"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version: 1\nid: a\nkind: snapshot\n", "m.yaml:1: source"),
        ("version: 1\nid: a\nkind: swap\n", "m.yaml:3: kind"),
        ("version: 1\nid: a\nid: b\n", "m.yaml:3: id is given twice"),
        ("version: 1\n  id: a\n", "m.yaml:2"),
        ("version: 2\n", "m.yaml:1: version"),
        ("version: 1\nquery: SELECT 1\n", "m.yaml:2: query"),
        (yaml.safe_dump(GOOD, sort_keys=False).replace("max_source_bytes: 1 GiB", "max_rows: 5"), "m.yaml:10: limits"),
        (yaml.safe_dump(GOOD, sort_keys=False).replace("max_source_bytes", "max_sauce"), "m.yaml:10: limits"),
        (yaml.safe_dump(GOOD, sort_keys=False).replace("1 GiB", "many"), "m.yaml:11: "),
        (yaml.safe_dump(GOOD, sort_keys=False).replace("public.rates", "'{{ ds }}'"), "m.yaml:6: source.table"),
        (yaml.safe_dump(GOOD, sort_keys=False).replace("checks/after.sql", "../after.sql"), "sql_files"),
    ],
)
def test_a_bad_manifest_names_file_and_line(text: str, says: str) -> None:
    with pytest.raises(ManifestInvalid) as caught:
        manifests.parse_manifest(text.encode(), "m.yaml")
    assert says in str(caught.value)


def test_manifests_of_one_id_or_with_missing_sql_are_refused(project: Path) -> None:
    (project / "manifests" / "checks" / "after.sql").unlink()
    with pytest.raises(ManifestInvalid, match=r"after\.sql"):
        build_release(producers_in(None, project / "manifests"), project / "x")
    shutil.copy(project / "manifests" / "rates.yaml", project / "manifests" / "again.yml")
    with pytest.raises(ManifestInvalid, match="is taken by"):
        manifests.manifests_in(project / "manifests")


def test_a_manifest_declares_what_its_operator_would(built: tuple[Path, str]) -> None:
    from airflow.dag_processing.dagbag import DagBag

    from airflow_provider_dpone.operators.declarations import declarations_of

    dag = DagBag(dag_folder=str(built[0] / "dags"), safe_mode=False).dags["rates"]
    [declared] = declarations_of("rates", dag.tasks[0])
    assert declared.digest() == _read(*built).pins["rates.transfer"]


# --- transfers that a native project generates --------------------------------------------------------------------


def test_a_generated_transfer_keeps_every_member_and_runs_as_declared(project: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    from airflow_provider_dpone.operators.declarations import declarations_of

    (project / "manifests" / "stock.yaml").write_text(yaml.safe_dump(GENERATED, sort_keys=False))
    built = build_release(producers_in(None, project / "manifests"), project / "release")
    sources = _read(project / "release", built.digest())
    [declared] = [w for w in sources.release.native if w.workload_id == "stock.transfer"]
    assert declared.options["sink.mode"] == "full_refresh"
    assert declared.options["gitops.revision"] == "a" * 40
    assert declared.options["runtime.schedule"] == "@daily"
    assert declared.options["quality.min_rows"] == 3
    assert declared.options["max_source_bytes"] == 2**30
    assert declared.options["source.options.isolation"] == "snapshot"
    [task] = DagBag(dag_folder=str(project / "release" / "dags"), safe_mode=False).dags["stock"].tasks
    assert (task.environment, task.min_rows, task.retries) == ("prod", 3, 4)
    assert [d.digest() for d in declarations_of("stock", task)] == [declared.digest()]
    require_declared(sources)
    other = {**GENERATED, "gitops": {**GENERATED["gitops"], "revision": "b" * 40}}  # type: ignore[dict-item]
    assert GeneratedTransfer.model_validate(other).declaration().digest() != declared.digest()


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("sink", "mode"), "append", "sink.mode"), (("sink", "mode"), None, "sink.mode"),
        (("sink", "options"), {"engine": "Log"}, "sink.options.engine"),
        (("sink", "options"), {"publication": "rename"}, "sink.options.publication"),
        (("source", "options"), {"isolation": "read uncommitted"}, "source.options.isolation"),
        (("source", "options"), {"query": "SELECT 1"}, "source.options.query"),
        (("runtime", "image"), "x", "runtime.image"), (("quality", "reconciliation"), "none", "quality.reconciliation"),
        (("gitops", "revision"), "main", "gitops.revision"), (("gitops",), None, "gitops"),
        (("budget",), {"max_rows": 5}, "max_source_bytes"), (("budget", "max_source_bytes"), 0, "max_source_bytes"),
        (("producer",), "standalone", "producer"), (("limits",), {"max_source_bytes": 1}, "limits"),
    ],
)  # fmt: skip
def test_what_a_generated_transfer_says_has_an_effect_or_is_refused(
    place: tuple[str, ...], value: Any, says: str
) -> None:
    text = copy.deepcopy(GENERATED)
    inner: Any = text
    for step in place[:-1]:
        inner = inner[step]
    if value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    with pytest.raises(ManifestInvalid, match=says):
        manifests.parse_manifest(yaml.safe_dump(text, sort_keys=False).encode(), "m.yaml")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sink.mode": "append"}, "only full_refresh"), ({"sink.mode": None}, "only full_refresh"),
        ({"sink.options.engine": "Log"}, "no effect"), ({"source.options.query": "SELECT 1"}, "no effect"),
    ],
)  # fmt: skip
def test_the_plan_admits_no_member_without_an_effect(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    """However a declaration came to be, what it says about being generated is validated before anything is reserved."""
    declared = GeneratedTransfer.model_validate(GENERATED).declaration()
    forged = declared.model_copy(update={"options": {**declared.options, **change}})
    with pytest.raises(ActivationRefused, match=says):
        _plan(tmp_path, forged)
    stripped = {name: value for name, value in declared.options.items() if name != "sink.mode"}
    with pytest.raises(ActivationRefused, match=r"sink\.mode is missing"):
        _plan(tmp_path, declared.model_copy(update={"options": stripped}))
    assert [w.cell for w in _plan(tmp_path, declared).workloads] == ["mssql_clickhouse_full_refresh"]


def test_an_ordinary_declaration_is_not_eligible_for_the_generated_cell(tmp_path: Path) -> None:
    """The cell's name admits nobody: neither by route, nor by constituent, nor in an activation request."""
    declared = GeneratedTransfer.model_validate(GENERATED).declaration()
    for ordinary in (
        declared.model_copy(update={"constituent": "standalone"}),
        declared.model_copy(update={"constituent": "standalone", "options": {"max_source_bytes": 5}}),
        declared.model_copy(update={"constituent": "standalone", "kind": "load"}),
    ):
        with pytest.raises(ActivationRefused, match="not a supported cell"):
            _plan(tmp_path, ordinary)
    admitted = {"workload_id": "a.b", "pack_sha256": digest_of(b"1"), "guard_id": digest_of(b"2")}
    WorkloadAdmission.of(**admitted, constituent="native", cell="mssql_clickhouse_full_refresh")
    for constituent, cell in (("standalone", "mssql_clickhouse_full_refresh"), ("standalone", "dbt_native"),
                              ("native", "postgres_mssql_full_refresh")):  # fmt: skip
        with pytest.raises(DocumentInvalid, match="is not for a"):
            WorkloadAdmission.of(**admitted, constituent=constituent, cell=cell)


def _plan(folder: Path, *declarations: WorkloadDeclaration) -> CompositionExecutionPlan:
    output = folder / secrets.token_hex(4)
    built = build_release(Producers(declarations=declarations), output)
    kinds = {"erp": "mssql", "dwh": "clickhouse"}
    return plan_composition_execution(
        _read(output, built.digest()), family=Family.PRODUCTION, connector=kinds.__getitem__
    )


# --- bounds -------------------------------------------------------------------------------------------------------


def test_manifests_are_bounded_before_anything_is_made_of_them(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = yaml.safe_dump(GOOD, sort_keys=False)
    for text, says in (
        (good + "#" * manifests.MAX_BYTES, "bytes"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n", "alias"),
        ("[" * 20 + "]" * 20, "nested deeper"),
        (good.replace("limits:", "limits:\n  a: {b: {c: {d: {e: {f: {g: {h: 1}}}}}}}"), "nested deeper"),
        (good.replace("- checks/after.sql", "\n".join(f"- s{n}.sql" for n in range(300))), "sql_files"),
    ):
        with pytest.raises(ManifestInvalid, match=says):
            manifests.parse_manifest(text.encode(), "m.yaml")
    monkeypatch.setattr(manifests, "MAX_MANIFESTS", 1)
    manifests.manifests_in(project / "manifests")
    (project / "manifests" / "more.yaml").write_text(good.replace("id: rates", "id: more"))
    with pytest.raises(ManifestInvalid, match="at most 1"):
        manifests.manifests_in(project / "manifests")


def test_an_occurrence_is_a_random_uuid(tmp_path: Path) -> None:
    members = {"environment": "default", "activation_sha256": digest_of(b"1"), "deployment_id": digest_of(b"2"),
               "release_id": digest_of(b"3")}  # fmt: skip
    CurrentPointer.of(**members, activation_id=str(uuid.uuid4()))
    for other in (uuid.uuid1(), uuid.uuid5(uuid.NAMESPACE_DNS, "x"), uuid.UUID(int=0), uuid.UUID(int=7 << 76)):
        with pytest.raises(DocumentInvalid, match="activation_id"):
            CurrentPointer.of(**members, activation_id=str(other))
        with pytest.raises(DocumentInvalid, match="occurrence_id"):
            ActivationRequest.of(
                family=Family.NONPRODUCTION, occurrence_id=str(other), environment="default", release_id=digest_of(b"1"),
                deployment_id=digest_of(b"2"), observation_sha256=digest_of(b"3"), previous_activation_sha256=None,
                workloads=(), resources=(),
            )  # fmt: skip


# --- derived again ------------------------------------------------------------------------------------------------


def test_verify_derives_the_inventory_from_the_pinned_files_again(project: Path, built: tuple[Path, str]) -> None:
    """A release whose inventory was written by another hand than its files: every digest is right, and it is refused."""
    require_declared(_read(*built))
    honest = producers_in(project / "dags", project / "manifests")
    [declared] = honest.declarations
    forgeries = {
        "declared otherwise": {"declarations": [declared.model_copy(update={"target_relation": "mart.other"})]},
        "orders.more is not declared": {"declarations": [declared, declared.model_copy(update={"workload_id": "orders.more"})]},
        "orders.publish is not in the inventory": {"declarations": []},
        "DAG ghost": {"dags": [*honest.dags, "ghost"]},
    }  # fmt: skip
    for number, (says, change) in enumerate(forgeries.items()):
        forged = build_release(dataclasses.replace(honest, **change), project / f"forged-{number}")
        with pytest.raises(ReleaseAltered, match=says):
            require_declared(_read(project / f"forged-{number}", forged.digest()))


# --- plan -------------------------------------------------------------------------------------------------------


def test_the_plan_names_every_workload_without_a_cell(built: tuple[Path, str]) -> None:
    sources = _read(*built)
    kinds = {"erp": "postgres", "dwh": "clickhouse"}
    plan = plan_composition_execution(sources, family=Family.NONPRODUCTION, connector=kinds.__getitem__)
    assert {w.cell for w in plan.workloads} == {"mssql_clickhouse_full_refresh"}
    with pytest.raises(ActivationRefused) as caught:
        plan_composition_execution(sources, family=Family.PRODUCTION, connector=kinds.__getitem__)
    assert len(caught.value.details["problems"]) == 2  # type: ignore[arg-type]


# --- the bundle -------------------------------------------------------------------------------------------------


def _current(cache: Path, built: tuple[Path, str], deployment: str, environment: str = "default") -> None:
    projection = DeploymentCacheMaterializer(cache).projection(deployment)
    shutil.copytree(built[0], projection / "release")
    pointer = CurrentPointer(
        environment=environment,
        activation_id="0" * 8 + "-0000-4000-8000-" + "0" * 12,
        activation_sha256=deployment,
        deployment_id=deployment,
        release_id=built[1],
    )
    (cache / "current").mkdir(parents=True, exist_ok=True)
    (cache / "current" / f"{environment}.json").write_bytes(pointer.wire())


def test_a_bundle_follows_the_pointer_and_a_version_stays(tmp_path: Path, built: tuple[Path, str]) -> None:
    cache = tmp_path / "cache"
    bundle = ReleaseDagBundle(name="releases", cache=str(cache))
    assert bundle.get_current_version().version == "nothing-is-current"
    assert list(bundle.path.iterdir()) == []
    first, second = digest_of(b"1"), digest_of(b"2")
    _current(cache, built, first)
    version = bundle.get_current_version()
    assert version.version == first[7:]
    assert (bundle.path / "orders.py").is_file()
    _current(cache, built, second)
    assert bundle.get_current_version().version == second[7:]
    pinned = ReleaseDagBundle(name="releases", cache=str(cache), version=first[7:])
    assert pinned.path == cache / "projections" / first[7:] / "release" / "dags"
    assert DeploymentCacheMaterializer(cache).prune(0, dry_run=True) == [first[7:]]
    assert DeploymentCacheMaterializer(cache).prune(0) == [first[7:]]
    with pytest.raises(ActivationMissing, match="not in the cache"):
        _ = pinned.path
    assert bundle.path.is_dir()


def test_two_hundred_workloads_parse_in_a_moment_and_one_task_parses_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_dpone.operators import generated

    folder = tmp_path / "release" / "runtime"
    folder.mkdir(parents=True)
    for number in range(200):
        manifest = manifests.TransferManifest(**{**GOOD, "id": f"t{number}", "sql_files": []})  # type: ignore[arg-type]
        (folder / f"t{number}.json").write_bytes(manifest.written())
    dag_file = str(tmp_path / "release" / "dags" / "dpone_transfers.py")
    generated.transfer_dags(dag_file)
    started = time.process_time()
    assert len(generated.transfer_dags(dag_file)) == 200
    print(f"200 transfers parsed in {time.process_time() - started:.3f} s of processor time")
    monkeypatch.setattr(
        generated, "get_parsing_context", lambda: type("Context", (), {"dag_id": "t7", "task_id": "transfer"})()
    )
    made: list[str] = []
    real = generated._dag
    monkeypatch.setattr(generated, "_dag", lambda manifest: made.append(manifest.id) or real(manifest))
    assert list(generated.transfer_dags(dag_file)) == made == ["t7"]
