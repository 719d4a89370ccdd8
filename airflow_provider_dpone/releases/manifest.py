"""Transfer manifests: a transfer in a few lines of YAML, without Python. Errors name file and line.

The JSON Schemas beside this module are what editors and other producers validate against; a test keeps them equal to
:class:`TransferManifest` and :class:`GeneratedTransfer`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError

from airflow_provider_dpone.contracts.choice import ColumnChoice
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.release import WorkloadDeclaration
from airflow_provider_dpone.errors import DponeError, ManifestInvalid
from airflow_provider_dpone.releases.endpoint import Ceilings, Endpoint, Environment, Name, Plain
from airflow_provider_dpone.releases.generated_transfer import GeneratedTransfer

#: The safe loader, in C where PyYAML has it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Bounds of a release's manifests, before anything is made of them.
MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 8
MAX_MANIFESTS: Final = 8192
_SqlFile = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*\.sql$")]


class TransferManifest(BaseModel):
    """One transfer: a complete refresh of one table."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="dpone transfer manifest")

    version: Literal[1]
    id: Name
    """Becomes the DAG's id; its one task is called ``transfer``."""
    kind: Literal["snapshot", "load"]
    source: Endpoint
    target: Endpoint
    limits: Ceilings
    """Ceilings by name, as ``SnapshotLimits`` takes them; ``max_source_bytes`` is required."""
    min_rows: Annotated[int, Field(ge=0)] = 0
    schedule: Annotated[str, Field(max_length=512)] | None = None
    retries: Annotated[int, Field(ge=0, le=100)] = 2
    sql_files: tuple[_SqlFile, ...] = Field(default=(), max_length=256)
    """SQL files kept with the release, beside the manifest; kept as they are, run by nobody."""
    control_conn_id: Plain = "dpone_control"
    environment: Environment = "default"
    columns: list[str] | dict[str, str] | None = None
    """What is transferred: names, or source name to target name; default every column by its name."""
    exclude: tuple[str, ...] = Field(default=(), max_length=8192)
    on_new_source_column: Literal["refuse", "ignore"] = "refuse"
    defaults: dict[str, StrictBool | StrictInt | str | None] | None = None
    """Target columns that the source has not, each with the value every row gets."""

    @property
    def workload_id(self) -> str:
        return f"{self.id}.transfer"

    def written(self) -> bytes:
        """The same content as the scheduler reads it."""
        members = self.model_dump(mode="json")
        chosen = {n: members.pop(n) for n in ("columns", "exclude", "on_new_source_column", "defaults")}
        if self.choice():
            members |= chosen
        return json.dumps(members, sort_keys=True, separators=(",", ":")).encode()

    def choice(self) -> ColumnChoice:
        """Which columns are transferred."""
        return ColumnChoice.of(self.columns, self.exclude, self.on_new_source_column, self.defaults)

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
            options={"min_rows": str(self.min_rows), **limits, **self.choice().declared()},
        )


#: Either kind; a generated one says ``producer: native``.
Transfer = TransferManifest | GeneratedTransfer


def parse_manifest(raw: bytes, where: str) -> Transfer:
    """Read one manifest, of either kind.

    :param where: its path, for messages.
    :raises ManifestInvalid: not UTF-8 YAML, too large, a member is missing, unknown or out of range; names file and
        line.
    """
    if len(raw) > MAX_BYTES:
        raise ManifestInvalid(f"{where}: {len(raw)} bytes; a manifest has at most {MAX_BYTES}")
    try:
        text = raw.decode("utf-8")
        _bounded(text, where)
        node = yaml.compose(text, Loader=_LOADER)
        _no_duplicates(node, where)
        read = yaml.load(text, Loader=_LOADER)
        generated = isinstance(read, dict) and "producer" in read
        manifest: Transfer = (GeneratedTransfer if generated else TransferManifest).model_validate(read)
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
        place = ("budget" if generated else "limits", error.message.partition(" ")[0])
        raise ManifestInvalid(f"{where}:{_line(node, place)}: {error.message}") from error
    return manifest


def read_written(raw: bytes) -> Transfer:
    """A manifest as a release keeps it for the scheduler; verified with the release."""
    generated = "producer" in json.loads(raw)
    return (GeneratedTransfer if generated else TransferManifest).model_validate_json(raw)


def manifests_in(folder: Path) -> list[tuple[Path, bytes, Transfer]]:
    """Every ``*.yaml`` and ``*.yml`` below a folder, in order of their paths.

    :raises ManifestInvalid: one cannot be read, two have one id, or there are too many.
    """
    if not folder.is_dir():
        raise ManifestInvalid(f"there is no folder {folder}")
    found: list[tuple[Path, bytes, Transfer]] = []
    first: dict[str, Path] = {}
    paths = sorted(p for p in folder.rglob("*") if p.suffix in (".yaml", ".yml") and p.is_file())
    if len(paths) > MAX_MANIFESTS:
        raise ManifestInvalid(f"{folder}: {len(paths)} manifests; a release has at most {MAX_MANIFESTS}")
    for path in paths:
        raw = path.read_bytes()
        manifest = parse_manifest(raw, str(path))
        if manifest.id in first:
            raise ManifestInvalid(f"{path}: id {manifest.id!r} is taken by {first[manifest.id]}")
        first[manifest.id] = path
        found.append((path, raw, manifest))
    return found


def json_schema(model: type[Transfer] = TransferManifest) -> str:
    """The JSON Schema of a kind of manifest, as published."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def _bounded(text: str, where: str) -> None:
    """Refuse nesting and repetition by reference before a tree is built of them."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise ManifestInvalid(f"{where}:{line}: an alias; write every value where it belongs")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise ManifestInvalid(f"{where}:{line}: nested deeper than {MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


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
