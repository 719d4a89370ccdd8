"""Releases on disk: built whole, read back to the last byte, manifests with file and line, DAGs from the current one."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_dpone.activation.cache import CurrentPointer, DeploymentCacheMaterializer
from airflow_provider_dpone.bundles.release import ReleaseDagBundle
from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.states import Family
from airflow_provider_dpone.errors import (
    ActivationMissing,
    ActivationRefused,
    DeclarationInvalid,
    ManifestInvalid,
    ReleaseAltered,
)
from airflow_provider_dpone.operators.declarations import loaded_dags, producers_in
from airflow_provider_dpone.releases import manifest as manifests
from airflow_provider_dpone.releases.builder import Producers, build_release
from airflow_provider_dpone.releases.packs import AirflowCompactPackBuilder
from airflow_provider_dpone.releases.plan import plan_composition_execution
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
    published = Path(manifests.__file__).with_name("transfer_manifest.schema.json")
    assert published.read_text() == manifests.json_schema(), "write it again: dpone-airflow release manifest-schema"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version: 1\nid: a\nkind: snapshot\n", "m.yaml:1: source"),
        ("version: 1\nid: a\nkind: swap\n", "m.yaml:3: kind"),
        ("version: 1\nid: a\nid: b\n", "m.yaml:3: id is given twice"),
        ("version: 1\n  id: a\n", "m.yaml:2"),
        ("version: 2\n", "m.yaml:1: version"),
        ("version: 1\nquery: SELECT 1\n", "m.yaml:2: query"),
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
        (folder / f"t{number}.json").write_bytes(manifest.runtime())
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
