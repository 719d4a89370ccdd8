"""Transfer manifests: a transfer in a few lines of YAML, without Python. Errors name file and line.

The JSON Schema beside this module is what editors and other producers validate against; a test keeps it equal to
:class:`TransferManifest`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.errors import DponeError, ManifestInvalid

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,250}$")]
_Plain = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f{}]+$")]


#: The safe loader, in C where PyYAML has it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Endpoint(BaseModel):
    """A table behind an Airflow connection."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    conn_id: _Plain
    table: _Plain
    """``schema.table`` or ``database.table``; a whole table, never a query."""


class TransferManifest(BaseModel):
    """One transfer: a complete refresh of one table."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="dpone transfer manifest")

    version: Literal[1]
    id: _Name
    """Becomes the DAG's id; its one task is called ``transfer``."""
    kind: Literal["snapshot", "load"]
    source: Endpoint
    target: Endpoint
    limits: dict[str, int | str]
    """Ceilings by name, as ``SnapshotLimits`` takes them; ``max_source_bytes`` is required."""
    min_rows: Annotated[int, Field(ge=0)] = 0
    schedule: str | None = None
    retries: Annotated[int, Field(ge=0, le=100)] = 2
    sql_files: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*\.sql$")], ...] = ()
    """SQL files kept with the release, beside the manifest; kept as they are, run by nobody."""
    control_conn_id: _Plain = "dpone_control"
    environment: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")] = "default"

    @property
    def workload_id(self) -> str:
        return f"{self.id}.transfer"

    def runtime(self) -> bytes:
        """The same content as the scheduler reads it."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()

    def declaration(self) -> WorkloadDeclaration:
        """What the transfer declares to a release: the same as its operator would."""
        limits = SnapshotLimits(**self.limits).effective().model_dump(exclude={"schema_name"})  # type: ignore[arg-type]
        return WorkloadDeclaration(
            workload_id=self.workload_id,
            constituent="native" if self.kind == "snapshot" else "standalone",
            kind=self.kind,
            source_conn_id=self.source.conn_id,
            source_relation=self.source.table,
            target_conn_id=self.target.conn_id,
            target_relation=self.target.table,
            control_conn_id=self.control_conn_id,
            options={"min_rows": str(self.min_rows), **limits},
        )


def parse_manifest(raw: bytes, where: str) -> TransferManifest:
    """Read one manifest.

    :param where: its path, for messages.
    :raises ManifestInvalid: not UTF-8 YAML, a member is missing, unknown or out of range; names file and line.
    """
    try:
        text = raw.decode("utf-8")
        node = yaml.compose(text, Loader=_LOADER)
        _no_duplicates(node, where)
        manifest = TransferManifest.model_validate(yaml.load(text, Loader=_LOADER))
        manifest.declaration()
    except UnicodeDecodeError as error:
        raise ManifestInvalid(f"{where}: not UTF-8 ({error.reason} at byte {error.start})") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ManifestInvalid(f"{where}:{line}: {error.problem or error}", line=line) from error
    except ValidationError as error:
        lines = [f"{where}:{_line(node, e['loc'])}: {'.'.join(map(str, e['loc'])) or 'manifest'}: {e['msg']}"
                 for e in error.errors()]  # fmt: skip
        raise ManifestInvalid("\n  ".join(lines)) from None
    except ManifestInvalid:
        raise
    except DponeError as error:  # a ceiling that is no size, for example
        place = ("limits", error.message.partition(" ")[0])
        raise ManifestInvalid(f"{where}:{_line(node, place)}: {error.message}") from error
    return manifest


def manifests_in(folder: Path) -> list[tuple[Path, bytes, TransferManifest]]:
    """Every ``*.yaml`` and ``*.yml`` below a folder, in order of their paths.

    :raises ManifestInvalid: one cannot be read, or two have one id.
    """
    if not folder.is_dir():
        raise ManifestInvalid(f"there is no folder {folder}")
    found: list[tuple[Path, bytes, TransferManifest]] = []
    first: dict[str, Path] = {}
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".yaml", ".yml") and p.is_file()):
        raw = path.read_bytes()
        manifest = parse_manifest(raw, str(path))
        if manifest.id in first:
            raise ManifestInvalid(f"{path}: id {manifest.id!r} is taken by {first[manifest.id]}")
        first[manifest.id] = path
        found.append((path, raw, manifest))
    return found


def json_schema() -> str:
    """The JSON Schema of a manifest, as published."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **TransferManifest.model_json_schema()}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def _no_duplicates(node: Any, where: str) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                raise ManifestInvalid(f"{where}:{key.start_mark.line + 1}: {key.value} is given twice")
            seen.add(key.value)
            _no_duplicates(value, where)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _no_duplicates(value, where)


def _line(node: Any, place: tuple[int | str, ...]) -> int:
    """Line of a member, or of the innermost one that exists around it."""
    line = int(node.start_mark.line) + 1 if node is not None else 1
    for step in place:
        if not isinstance(node, yaml.MappingNode):
            break
        inner = [(key, value) for key, value in node.value if key.value == str(step)]
        if not inner:
            break
        line, node = inner[0][0].start_mark.line + 1, inner[0][1]
    return line
