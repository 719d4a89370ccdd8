"""What dbt left in its target directory, and how its process ended, as one document: a hint, never the outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.dbt import DbtRun, NodeResult

_LARGEST: Final = 256 * 2**20


def read_run(target: Path, *, attempt_sha256: str, plan_sha256: str, exit_code: int) -> DbtRun:
    """The artifacts of a finished process; a missing, cut or foreign ``run_results.json`` gives no results."""
    manifest, results = _bytes(target / "manifest.json"), _bytes(target / "run_results.json")
    return DbtRun(
        attempt_sha256=attempt_sha256,
        plan_sha256=plan_sha256,
        exit_code=exit_code,
        manifest_sha256=None if manifest is None else digest_of(manifest),
        run_results_sha256=None if results is None else digest_of(results),
        results=None if results is None else _results(results),
    )


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.stat().st_size <= _LARGEST else None
    except FileNotFoundError:
        return None


def _results(raw: bytes) -> tuple[NodeResult, ...] | None:
    try:
        found = sorted(_result(row) for row in json.loads(raw)["results"])
    except (ValueError, KeyError, TypeError):
        return None
    return tuple(found) if len({r.unique_id for r in found}) == len(found) else None


def _result(row: dict[str, Any]) -> NodeResult:
    message = " ".join(str(row.get("message") or "").split())
    return NodeResult(
        unique_id=row["unique_id"],
        status=row["status"],
        message=message.encode("utf-8", "replace").decode()[:512],
        failures=row.get("failures"),
        milliseconds=round(float(row["execution_time"]) * 1000),
    )
