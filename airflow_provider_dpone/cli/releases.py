"""Commands about releases: build, verify, activate, show what is active, retire."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_dpone.errors import DeclarationInvalid, RunsActive

if TYPE_CHECKING:
    from airflow_provider_dpone.activation.physical import PhysicalAdmission
    from airflow_provider_dpone.contracts.release import ActivationRequest, Release


def add_release_commands(commands: Any) -> None:
    """Add them to a subparsers object."""
    _add_release(commands)
    activate = commands.add_parser("activate", help="make a release current in an environment")
    what = activate.add_mutually_exclusive_group(required=True)
    what.add_argument("--dags-folder", type=Path, help="the workloads of every DAG file below it, as they are now")
    what.add_argument("--release", type=Path, help="a directory that `release build` wrote")
    activate.add_argument("--release-id", help="with --release: the release it must be (default: what it says it is)")
    activate.add_argument(
        "--cache", type=Path, help="with --release: the deployment cache that ReleaseDagBundle serves"
    )
    activate.add_argument("--dry-run", action="store_true", help="only say what would be owned, or why it is refused")
    activate.add_argument("--json", action="store_true", help="the complete activation request")
    _environment(activate, "which active release to replace")
    activate.set_defaults(handler=_activate)
    prepare = commands.add_parser(
        "prepare", help="verify, admit and reserve a release: PREPARED; `activate` goes on from there"
    )
    prepare.add_argument("--release", type=Path, required=True, help="a directory that `release build` wrote")
    prepare.add_argument("--release-id", help="the release it must be (default: what it says it is)")
    prepare.add_argument("--cache", type=Path, required=True, help="the cache that ReleaseDagBundle serves")
    prepare.add_argument("--dry-run", action="store_true", help="only say what would be owned, or why it is refused")
    prepare.add_argument("--json", action="store_true", help="the complete activation request")
    _environment(prepare, "which active release is drained and retired")
    prepare.set_defaults(handler=_prepare)
    active = commands.add_parser("require-active", help="exit 0 only when exactly this release is active, re-verified")
    active.add_argument("--release-id", required=True)
    active.add_argument("--cache", type=Path, required=True, help="the deployment cache")
    active.add_argument("--json", action="store_true")
    _environment(active, "where it must be active")
    active.set_defaults(handler=_require_active)
    retire = commands.add_parser("retire", help="retire the active release; its guards become free")
    retire.add_argument("--now", action="store_true", help="do not pause its DAGs and wait for their active runs first")
    retire.add_argument(
        "--wait", type=int, default=3600, metavar="SECONDS", help="how long to wait for active runs (3600)"
    )
    retire.add_argument(
        "--dry-run", action="store_true", help="only say what would be freed and what stands in the way"
    )
    retire.add_argument("--json", action="store_true")
    _environment(retire, "which active release to retire")
    retire.set_defaults(handler=_retire)


def _environment(parser: argparse.ArgumentParser, help_text: str) -> None:
    from airflow_provider_dpone.cli import add_control

    parser.add_argument("--environment", default="default", help=f"{help_text} (default)")
    add_control(parser)


def _add_release(commands: Any) -> None:
    group = commands.add_parser("release", help="build and verify immutable release directories")
    actions = group.add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="write a release directory from DAG files and transfer manifests")
    build.add_argument("--dags-folder", type=Path)
    build.add_argument("--manifests", type=Path, help="folder of transfer manifests (*.yaml)")
    build.add_argument("--output", type=Path, required=True, help="new directory; never written over")
    build.add_argument("--dry-run", action="store_true", help="only say what it would contain, or why it is refused")
    build.add_argument("--json", action="store_true")
    build.set_defaults(handler=_build)
    verify = actions.add_parser("verify", help="read a release back and derive its inventory from its files again")
    verify.add_argument("release", type=Path)
    verify.add_argument("--release-id", help="the release it must be (default: what it says it is)")
    verify.add_argument("--json", action="store_true")
    verify.set_defaults(handler=_verify)
    schema = actions.add_parser("manifest-schema", help="print the JSON Schema of transfer manifests")
    schema.add_argument("--generated", action="store_true", help="of transfers that a native project generates")
    schema.set_defaults(handler=_schema)
    prune = actions.add_parser("prune", help="remove projections from a deployment cache that nothing needs any more")
    prune.add_argument("--cache", type=Path, required=True)
    prune.add_argument("--keep", type=int, default=5, help="newest projections to keep besides the current ones (5)")
    prune.add_argument("--dry-run", action="store_true")
    prune.set_defaults(handler=_prune)


def _build(options: argparse.Namespace) -> None:
    import tempfile

    from airflow_provider_dpone.operators.declarations import producers_in
    from airflow_provider_dpone.releases.builder import build_release

    if options.dags_folder is None and options.manifests is None:
        raise DeclarationInvalid("give --dags-folder, --manifests, or both")
    producers = producers_in(options.dags_folder, options.manifests)
    if options.dry_run:
        with tempfile.TemporaryDirectory() as folder:
            release = build_release(producers, Path(folder) / "release")
    else:
        release = build_release(producers, options.output)
    if options.json:
        print(json.dumps({"release_id": release.digest(), "release": release.model_dump(mode="json")}))
        return
    word = "would be" if options.dry_run else "is"
    print(f"release {word} {release.digest()}")
    print(f"  native {len(release.native)}, standalone {len(release.standalone)}, DAGs {len(release.dags)}, "
          f"files {len(release.files)}")  # fmt: skip
    _workloads(release)


def _verify(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.operators.declarations import require_declared
    from airflow_provider_dpone.releases.sources import build_composition_source_reader

    sources = build_composition_source_reader().read_sources(
        options.release, expected_release_id=options.release_id or _says(options.release)
    )
    require_declared(sources)
    if options.json:
        print(json.dumps({"release_id": sources.release_id, "native_id": sources.native_id,
                          "standalone_id": sources.standalone_id, "pins": sources.pins, "writes": sources.writes,
                          "reads": sources.reads}))  # fmt: skip
        return
    print(f"verified {sources.release_id}: {len(sources.files)} files, {len(sources.pins)} workloads")
    print(f"  native {sources.native_id}\n  standalone {sources.standalone_id}")


def _schema(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.releases.generated_transfer import GeneratedTransfer
    from airflow_provider_dpone.releases.manifest import TransferManifest, json_schema

    print(json_schema(GeneratedTransfer if options.generated else TransferManifest), end="")


def _prune(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.activation.cache import DeploymentCacheMaterializer

    for name in DeploymentCacheMaterializer(options.cache).prune(options.keep, dry_run=options.dry_run):
        print(f"{'would remove' if options.dry_run else 'removed'} {name[:12]}")


def _activate(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.operators import handover

    if options.release is not None and options.cache is None and not options.dry_run:
        raise DeclarationInvalid("--release needs --cache, the directory that ReleaseDagBundle serves")
    where = {"environment": options.environment, "control_conn_id": options.control_conn_id}
    if options.dry_run:
        if options.release is not None:
            release_id = options.release_id or _says(options.release)
            look = handover.look_at_release(options.release, release_id=release_id, **where)
        else:
            look = handover.look_at_dags_folder(options.dags_folder, **where)
        _would_own(look, options)
        return
    if options.release is not None:
        release_id = options.release_id or _says(options.release)
        stored = handover.activate_release(
            options.release, release_id=release_id, cache=options.cache, **where
        ).activation
    else:
        stored = handover.activate_dags_folder(options.dags_folder, **where)
    if options.json:
        _print_request(stored.sha256, stored.state.name, stored.request)
        return
    release = stored.release
    print(f"release {release.digest()[7:19]} in environment {options.environment}: {stored.state.name}")
    _workloads(release)


def _prepare(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.operators import handover

    if options.dry_run:
        return _activate(argparse.Namespace(**{**vars(options), "dags_folder": None}))
    prepared = handover.prepare_release(
        options.release,
        release_id=options.release_id or _says(options.release),
        cache=options.cache,
        environment=options.environment,
        control_conn_id=options.control_conn_id,
    )
    if options.json:
        _print_request(prepared.sha256, prepared.state.name, prepared.request)
        return
    print(f"release {prepared.request.release_id[7:19]} in environment {options.environment}: {prepared.state.name}")
    _workloads(prepared.release)


def _would_own(look: PhysicalAdmission, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({"state": "would be ACTIVE", "deployment_id": look.deployment.digest(),
                          "workloads": [w.model_dump(mode="json") for w in look.workloads],
                          "resources": [r.model_dump(mode="json") for r in look.resources],
                          "observation": look.observation.model_dump(mode="json")}))  # fmt: skip
        return
    print(f"release {look.deployment.release_id[7:19]} in environment {options.environment}: would be ACTIVE")
    subjects = {r.guard_id: r for r in look.resources}
    for workload in look.workloads:
        resource = subjects[workload.guard_id]
        print(f"  {workload.workload_id}: {workload.cell}, would own {resource.subject} on {resource.connector} "
              f"{resource.service_id[:18]}")  # fmt: skip


def _print_request(sha256: str, state: str, request: ActivationRequest) -> None:
    print(json.dumps({"activation": sha256, "state": state, "request": request.model_dump(mode="json")}))


def _workloads(release: Release) -> None:
    for declaration in release.workloads():
        word = "of" if declaration.kind == "retention" else "into"
        print(f"  {declaration.workload_id}: {declaration.kind} {word} {declaration.target_relation}")


def _require_active(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.operators import handover

    active = handover.require_active_release(
        options.release_id,
        cache=options.cache,
        environment=options.environment,
        control_conn_id=options.control_conn_id,
    )
    if options.json:
        _print_request(active.sha256, active.state.name, active.request)
    else:
        print(f"release {options.release_id[7:19]} is ACTIVE in environment {options.environment}, re-verified")


def _retire(options: argparse.Namespace) -> None:
    from airflow_provider_dpone.cli.runs import pause_and_wait
    from airflow_provider_dpone.hooks.bindings import coordinator

    work = coordinator(options.control_conn_id)
    dags = work.dags_in_force(options.environment)
    if options.dry_run:
        waiting = work.unresolved(options.environment)
        report = {"environment": options.environment, "dags": dags, "unresolved_attempts": waiting}
        if options.json:
            print(json.dumps(report))
        else:
            print(f"would retire what is active in {options.environment}: DAGs {', '.join(dags) or 'none'}")
            print("  stands in the way: " + (", ".join(a[7:19] for a in waiting) or "nothing"))
        return
    if not options.now:
        busy = pause_and_wait(dags, options.wait)
        if busy:
            raise RunsActive(f"after {options.wait} s runs are still active: {busy}; its DAGs stay paused", runs=busy)
    retired = work.retire(options.environment)
    if options.json:
        print(json.dumps([{"activation": a.sha256, "state": a.state.name} for a in retired]))
        return
    for activation in retired:
        print(f"retired {activation.sha256[7:19]}; its guards are free")


def _says(release_dir: Path) -> str:
    from airflow_provider_dpone.contracts.canonical import digest_of
    from airflow_provider_dpone.errors import ReleaseAltered
    from airflow_provider_dpone.releases.layout import RELEASE

    at = release_dir / RELEASE
    if not at.is_file():
        raise ReleaseAltered(f"{release_dir} holds no {RELEASE}; it is no release directory")
    return digest_of(at.read_bytes())
