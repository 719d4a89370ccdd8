"""What a ClickHouse catalog shows of the target and its generation, complete or refused.

Sees; decides nothing about outcomes. The system tables silently leave out what the reader may not see, so visibility is
proved before anything is believed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_dpone.contracts.canonical import digest_of
from airflow_provider_dpone.contracts.enrolment import ColumnDesign, TableDesign
from airflow_provider_dpone.contracts.ports import ClickHouseControl
from airflow_provider_dpone.engines.clickhouse.design import read_design
from airflow_provider_dpone.engines.clickhouse.quoting import PINNED, load
from airflow_provider_dpone.engines.clickhouse.writers import judge_writers
from airflow_provider_dpone.errors import AmbientWriter, ServerRefused, TargetUnsupported, ViewIncomplete


@dataclass(frozen=True)
class ServerStart:
    """Which server, and since when it runs (within a second or two)."""

    service_id: str
    started_at: datetime
    uptime: int
    seen_at: datetime

    def same_run(self, other: ServerStart) -> bool:
        """Whether both were seen in one run of one server, without a restart between."""
        earlier, later = sorted((self, other), key=lambda start: start.seen_at)
        return (
            earlier.service_id == later.service_id
            and earlier.uptime <= later.uptime
            and abs(earlier.started_at - later.started_at) <= timedelta(seconds=3)
        )


@dataclass(frozen=True)
class TableFacts:
    """One table as the catalog shows it."""

    name: str
    uuid: str
    engine: str
    design: TableDesign | None
    """None when the design cannot be read completely."""
    parts_sha256: str
    """Digest of the sorted hashes of the active parts."""
    rows: int
    bytes: int | None
    """Bytes on disk, outdated parts included; None when the server gives no number."""


@dataclass(frozen=True)
class CatalogView:
    """A complete view of some tables of a database."""

    start: ServerStart
    version: str
    database: str
    database_engine: str | None
    database_uuid: str | None
    tables: dict[str, TableFacts]
    features: tuple[str, ...]
    """Sorted names of everything that forbids an exact swap."""
    writers: tuple[str, ...]
    """Sorted users and roles outside the administrators that can write one of the tables."""

    def table(self, name: str) -> TableFacts:
        """A table that must exist."""
        if name not in self.tables:
            raise TargetUnsupported(f"table {self.database}.{name} does not exist")
        return self.tables[name]

    def unsupported(self, accepted: Collection[str] = ()) -> tuple[str, ...]:
        """Features and writers that are not accepted by name, sorted."""
        named = {feature for feature in self.features if feature not in accepted}
        return tuple(sorted(named | {f"ambient_writer:{name}" for name in self.writers}))

    def require_supported(self, accepted: Collection[str] = ()) -> None:
        """Refuse what forbids an exact swap.

        :raises TargetUnsupported: a feature the enrolment does not accept, or a design that cannot be copied.
        :raises AmbientWriter: somebody else can write one of the tables.
        """
        where = f"{self.database} ({', '.join(self.tables)})"
        features = [feature for feature in self.features if feature not in accepted]
        if features:
            raise TargetUnsupported(
                f"{where} cannot be swapped exactly because of {', '.join(features)}; remove it, "
                "or let an administrator accept it by name at enrolment",
                features=features,
            )
        blind = [facts.name for facts in self.tables.values() if facts.design is None]
        if blind:
            raise TargetUnsupported(f"the design of {', '.join(blind)} in {self.database} cannot be copied exactly")
        if self.writers:
            raise AmbientWriter(
                f"{', '.join(self.writers)} can write {where}; revoke that, or let an administrator accept them at "
                "enrolment (`--administrator NAME`)",
                writers=list(self.writers),
            )


def require_visible(control: ClickHouseControl) -> None:
    """Prove that the controller sees every table.

    :raises ViewIncomplete: it lacks ``SHOW ON *.*``.
    """
    if control.query("CHECK GRANT SHOW ON *.*") != [(1,)]:
        raise ViewIncomplete("the controller lacks SHOW ON *.*, so the catalog may hide tables; grant it")


def read_catalog(
    control: ClickHouseControl,
    database: str,
    tables: Sequence[str],
    *,
    administrators: Collection[str],
    issued: Collection[str] = (),
) -> CatalogView:
    """Read everything that decides about ``tables``, on the given session.

    :param administrators: users and roles that may hold write rights.
    :param issued: names of our own issued users that are open now.
    :raises ViewIncomplete: the view cannot be proved complete.
    """
    require_visible(control)
    everything = " UNION ALL ".join(map(load, ("catalog_tables.sql", "catalog_features.sql", "writers.sql")))
    kinds = _read(control, everything, {"database": database, "tables": list(tables)})
    view = _view(kinds, database)
    features = {f"unfinished_mutation:{name}" for (name,) in kinds["mutation"]}
    for kind in ("row_policy", "masking_policy", "replicated_access_storage"):
        features |= {f"{kind}:{name}" for (name,) in kinds[kind]}
    for name, source in kinds["dictionary"]:
        if any(_mentions(source, ours) for ours in tables) and (_mentions(source, database) or "." not in source):
            features.add(f"dictionary:{name}")
    for engine, name, to_database, to_table, text, refreshed in kinds["relay"]:
        if engine == "MaterializedView" and to_database == database and to_table in tables:
            features.add(f"incoming_view:{name}")
        if engine == "Merge" and text.count(",") < 2:
            continue  # only with a third argument, the table to write, does it write
        near = name.startswith(f"{database}.") or _mentions(text, database)
        if (engine != "MaterializedView" or refreshed == "1") and near and any(_mentions(text, t) for t in tables):
            features.add(f"{'refreshable_view' if refreshed == '1' else engine.lower()}:{name}")
    return replace(
        view,
        features=tuple(sorted({*view.features, *features})),
        writers=judge_writers(kinds, database, tables, {*administrators, *issued}),
    )


def read_tables(control: ClickHouseControl, database: str, tables: Sequence[str]) -> CatalogView:
    """Read what the names carry now, without what surrounds them: features and writers are not looked for."""
    return _view(_read(control, load("catalog_tables.sql"), {"database": database, "tables": list(tables)}), database)


def _read(control: ClickHouseControl, sql: str, names: dict[str, Any]) -> dict[str, list[list[str]]]:
    try:
        rows = control.query(f"{sql} SETTINGS {PINNED}", names)
    except ServerRefused as error:
        if error.details.get("server_code") in (47, 60):
            raise TargetUnsupported(f"this ClickHouse version lacks a catalog column: {error.message}") from error
        raise
    kinds: dict[str, list[list[str]]] = defaultdict(list)
    for kind, fields in rows:
        kinds[str(kind)].append([str(field) for field in fields])
    return kinds


def _view(kinds: dict[str, list[list[str]]], database: str) -> CatalogView:
    if len(kinds["control"]) != 1 or len(kinds["server"]) != 1:
        raise ViewIncomplete("the catalog does not show a table that must be there")
    service_id, uptime, now, version = kinds["server"][0]
    facts: dict[str, TableFacts] = {}
    features: set[str] = set()
    for fields in kinds["table"]:
        found, own = _table_facts(database, fields, kinds["column"], kinds["part"])
        facts[found.name] = found
        features |= own
    engine, uuid = kinds["database"][0][1:] if kinds["database"] else (None, None)
    if engine not in ("Atomic", None):
        features.add(f"database_engine:{engine}")
    return CatalogView(
        start=start_from(service_id, int(uptime), now),
        version=version,
        database=database,
        database_engine=engine,
        database_uuid=uuid,
        tables=facts,
        features=tuple(sorted(features)),
        writers=(),
    )


def start_of(control: ClickHouseControl) -> ServerStart:
    """Which server this session reaches, and since when it runs."""
    [(service_id, uptime, now)] = control.query(
        "SELECT toString(serverUUID()), toUInt64(uptime()), toString(now64(6, 'UTC'))"
    )
    return start_from(service_id, int(uptime), now)


def parts_digest(hashes: Iterable[tuple[str, int]]) -> str:
    """Digest of part hashes with their row counts; equal digests mean equal content of one design."""
    return digest_of("\n".join(f"{part} {rows}" for part, rows in sorted(hashes)).encode())


def start_from(service_id: str, uptime: int, now: str) -> ServerStart:
    """From ``serverUUID()``, ``uptime()`` and the server's UTC time."""
    seen_at = datetime.fromisoformat(now).replace(tzinfo=UTC)
    return ServerStart(service_id, seen_at - timedelta(seconds=uptime), uptime, seen_at)


def _table_facts(
    database: str, fields: list[str], columns: list[list[str]], parts: list[list[str]]
) -> tuple[TableFacts, set[str]]:
    name, uuid, engine, create_query, comment, total_bytes, readers, dictionaries = fields
    own = sorted(row[1:] for row in columns if row[0] == name)
    design: TableDesign | None = None
    features = {f"outgoing_view:{reader}" for reader in readers.split("\n") if reader}
    features |= {f"dictionary:{dependent}" for dependent in dictionaries.split("\n") if dependent}
    if engine == "MergeTree":
        keys = ("name", "type", "default_kind", "default_expression", "codec", "comment")
        listed = [ColumnDesign(**dict(zip(keys, row[1:], strict=True))) for row in own]
        design, found = read_design(database, name, create_query, comment, listed)
        features |= set(found)
    else:
        features.add(f"table_engine:{engine}")
    active = [(row[2], int(row[3])) for row in parts if row[0] == name and row[1] == "1"]
    on_disk = sum(int(row[4]) for row in parts if row[0] == name)
    return TableFacts(
        name=name,
        uuid=uuid,
        engine=engine,
        design=design,
        parts_sha256=parts_digest(active),
        rows=sum(rows for _, rows in active),
        bytes=max(on_disk, int(total_bytes)) if total_bytes else None,
    ), features


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
