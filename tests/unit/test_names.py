"""Every public name: imported from where the page says, with the arguments the page says, and called."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_dpone.contracts import composition_control
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.errors import AdmissionUnavailable, DocumentInvalid, DponeError, ReleaseAltered

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "names.md").read_text()
ROW = re.compile(r"^\| (?:.+? \| )?(.+?) \| `(airflow_provider_dpone\.[a-z_.]+)` \|$", re.M)
NAME = re.compile(r"`([A-Za-z_]+(?:\.[a-z_]+)?)(\([^`]*\))?`")
NAMES = [
    (module, name, None if arguments is None else [a for a in arguments[1:-1].split(", ") if a])
    for names, module in ROW.findall(PAGE)
    for name, arguments in [(n, a or None) for n, a in NAME.findall(names) if n != "__all__"]
]

#: What the documents of the contracts name; each must be on the page.
REQUIRED = [
    "ClickHouseAtomicSnapshotPublisher",
    "SnapshotPublicationAuthority",
    "SnapshotPublicationStore",
    "ClickHouseSnapshotCatalog",
    "ClickHouseSnapshotExecutor",
    "SnapshotLimits",
    "CompositionAttemptIdentity",
    "MssqlCompositionActivationStore",
    "render_composition_mssql_schema",
    "MssqlCompositionAttemptStore",
    "MssqlCompositionLoginGate",
    "render_composition_mssql_login_gate",
    "build_composition_source_reader",
    "CompositionSourceSnapshot",
    "plan_composition_execution",
    "CompositionPhysicalAdmissionService",
    "CompositionActivationPreparation",
    "CompositionActivationCoordinator",
    "DeploymentCacheMaterializer",
    "AirflowCompactPackBuilder",
]
MODULES = [
    "dpone.contracts.composition_control",
    "dpone.contracts.composition_snapshot",
    "dpone.ports.composition_snapshot",
    "dpone.runtime.composition_snapshot",
    "dpone.adapters.composition_mssql_schema",
    "dpone.adapters.composition_mssql_store",
    "dpone.adapters.composition_mssql_attempts",
    "dpone.adapters.composition_mssql_login_gate",
    "dpone.adapters.composition_mssql_gate_schema",
    "dpone.app.release_composition",
    "dpone.manifest.composition_execution_plan",
    "dpone.services.composition_activation_coordinator",
]


def _found(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def test_the_page_has_every_name_and_module_of_the_contracts() -> None:
    assert set(REQUIRED) <= {name for _, name, _ in NAMES}
    assert [module for module in MODULES if f"| `{module}` |" not in PAGE] == []
    assert len(NAMES) >= 70


@pytest.mark.parametrize(("module", "name", "arguments"), NAMES, ids=[name for _, name, _ in NAMES])
def test_a_name_is_there_and_takes_what_the_page_says(module: str, name: str, arguments: list[str] | None) -> None:
    found = _found(module, name)
    assert getattr(found, "__module__", module) in (module, "builtins") or "." in name, f"{name} has another home"
    if arguments is None:
        return
    signature = inspect.signature(found)
    bound = [None] if "." in name else []  # self
    positional = [*bound, *(None for a in arguments if not a.endswith("="))]
    keywords = {a[:-1]: None for a in arguments if a.endswith("=")}
    if issubclass(found, _operators()) if inspect.isclass(found) else False:
        keywords["task_id"] = None
    signature.bind(*positional, **keywords)
    own = [
        name
        for cls in (found.__mro__ if inspect.isclass(found) else [found])
        for name in inspect.signature(cls).parameters
    ]
    assert [k for k in keywords if k not in own] == [], "it would only be swallowed"


def _operators() -> Any:
    from airflow.sdk import BaseOperator

    return BaseOperator


def _declaration() -> WorkloadDeclaration:
    return WorkloadDeclaration(
        workload_id="d.t", constituent="native", kind="snapshot", source_conn_id="s", source_relation="a.b",
        target_conn_id="t", target_relation="c.d", control_conn_id="c", options={},
    )  # fmt: skip


def _no_connection() -> Any:
    raise OSError("no server")


#: A call of each callable that needs no server, and what it must give: a value of a kind, or a refusal of ours.
CALLS: dict[str, tuple[Callable[[Any], Any], type | tuple[type, ...]]] = {
    "SnapshotLimits": (lambda f: f(max_source_bytes="1 GiB").effective().max_source_bytes, int),
    "ClickHouseAtomicSnapshotPublisher": (lambda f: f(authority=1, store=2, catalog=3, executor=4), object),
    "render_composition_mssql_schema": (lambda f: f(control_schema="other"), str),
    "render_composition_postgres_schema": (lambda f: f(control_schema="other"), str),
    "render_composition_mssql_login_gate": (lambda f: f(control_database="control"), str),
    "render_mssql_controller_rights": (lambda f: f(control_database="control", controller="c"), str),
    "render_composition_postgres_login_gate": (lambda f: f(database="d", controller="c"), str),
    "MssqlCompositionActivationStore": (lambda f: f(_no_connection, expected_service_id=uuid.uuid4(), control_schema="x"), object),
    "MssqlCompositionAttemptStore": (lambda f: f(_no_connection, expected_service_id=uuid.uuid4(), control_schema="x"), object),
    "PostgresCompositionActivationStore": (lambda f: f(_no_connection, expected_service_id=uuid.uuid4(), control_schema="x"), object),
    "PostgresCompositionAttemptStore": (lambda f: f(_no_connection, expected_service_id=uuid.uuid4(), control_schema="x"), object),
    "build_composition_source_reader": (lambda f: f().read_sources(ROOT / "docs", expected_release_id="sha256:" + "0" * 64), ReleaseAltered),
    "CompositionActivationCoordinator": (lambda f: f(inputs=None, preparation=None, stores=None).retire("x"), AdmissionUnavailable),
    "CompositionActivationPreparation": (lambda f: f(physical=1).physical, int),
    "CompositionPhysicalAdmissionService": (lambda f: f(backend=1).backend, int),
    "DeploymentCacheMaterializer": (
        lambda f: f(ROOT / "nowhere", composition_activation_coordinator=None).materialize(ROOT, environment="x", expected_release_id="y"),
        AdmissionUnavailable,
    ),
    "AirflowCompactPackBuilder": (lambda f: f().build(_declaration(), outlet_binding="logical").outlet, str),
    "CompositionAttemptIdentity": (lambda f: f.parse(b"{}"), DocumentInvalid),
    "SnapshotIntent": (lambda f: f.parse(b"{}"), DocumentInvalid),
    "PublicationRecord": (lambda f: f.parse(b"{}"), DocumentInvalid),
    "GenerationRecord": (lambda f: f.parse(b"{}"), DocumentInvalid),
    "TrustPolicy": (lambda f: f.parse(b"{}"), DocumentInvalid),
    "Grant": (lambda f: f.parse(b"{}"), DocumentInvalid),
    "get_provider_info": (lambda f: f(), dict),
    "ReleaseDagBundle": (lambda f: f(name="r", cache="/nowhere", environment="x"), object),
    "DponeClickHouseHook": (lambda f: f(clickhouse_conn_id="x"), object),
    "DponeControlHook": (lambda f: f(control_conn_id="x"), object),
    "ClickHouseSnapshotOperator": (lambda f: f(task_id="t", **_copy()).declaration("d.t").kind, str),
    "SqlLoadOperator": (lambda f: f(task_id="t", **_copy()).declaration("d.t").kind, str),
    "RetentionOperator": (lambda f: f(task_id="t", target_conn_id="t", target_table="c.d", keep=1).declaration("d.t").kind, str),
    "DbtBuildOperator": (lambda f: f(task_id="t", project_dir="p", target_conn_id="t", target_schema="m"), object),
}  # fmt: skip


def _copy() -> dict[str, Any]:
    return {"source_conn_id": "s", "source_table": "a.b", "target_conn_id": "t", "target_table": "c.d",
            "control_conn_id": "c", "limits": {"max_source_bytes": 5}, "min_rows": 0}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_name_does_what_it_is_for(name: str) -> None:
    [module] = {m for m, n, _ in NAMES if n == name}
    call, gives = CALLS[name]
    kinds = gives if isinstance(gives, tuple) else (gives,)
    if any(issubclass(kind, DponeError) for kind in kinds):
        with pytest.raises(kinds):  # type: ignore[arg-type]
            call(_found(module, name))
    else:
        assert isinstance(call(_found(module, name)), kinds)


@pytest.mark.parametrize("name", ["prepare", "activate", "require_active", "begin_retirement", "finalize_retirement"])
def test_no_operation_of_the_coordinator_goes_without_its_projection(name: str) -> None:
    found = _found("airflow_provider_dpone.activation.coordinator", f"CompositionActivationCoordinator.{name}")
    given = inspect.signature(found).parameters["projection_root"]
    assert (given.default, given.kind) == (inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY)


def test_the_boundary_re_exports_and_does_nothing_else() -> None:
    """Everything in ``__all__`` is defined elsewhere in the contracts, and importing it loads no driver and no Airflow."""
    for name in composition_control.__all__:
        found = getattr(composition_control, name)
        home = getattr(found, "__module__", None)
        assert home is None or home.startswith("airflow_provider_dpone.contracts."), name
        assert home != composition_control.__name__, name
    code = (
        "import sys, airflow_provider_dpone.contracts.composition_control;"
        "print([m for m in ('psycopg', 'pyodbc', 'clickhouse_driver', 'sqlalchemy', 'airflow', 'pyarrow') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_the_synthetic_tool_takes_its_four_profiles_and_a_directory() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "composition_mssql_synthetic.py"), "--help"]
    text = subprocess.run(tool, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert all(profile in text for profile in ("store", "gate", "trust", "registration"))
    assert "--output-dir" in text
