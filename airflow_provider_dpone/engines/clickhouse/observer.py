"""Fresh, complete observations of a target and its generation, and the last look before dispatch.

An observation is a sandwich: the complete catalog, the content when the part hashes do not already prove it, and the
tables and parts again on another connection. Unless both ends are equal, and of one run of one server, it is repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from airflow_provider_dpone.contracts.enrolment import TargetEnrolment
from airflow_provider_dpone.contracts.ports import ClickHouseControl
from airflow_provider_dpone.contracts.publication import CatalogObservation, Content, SnapshotIntent
from airflow_provider_dpone.engines.clickhouse.catalog import (
    CatalogView,
    ServerStart,
    TableFacts,
    read_catalog,
    read_tables,
)
from airflow_provider_dpone.engines.clickhouse.content import read_content, stored_columns
from airflow_provider_dpone.engines.clickhouse.storage import read_storage
from airflow_provider_dpone.errors import DocumentInvalid, TargetChanged, ViewIncomplete

_TRIES = 5
#: Names are chosen by anybody; a document holds none of these.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class SnapshotCatalog:
    """The catalog port of the publisher.

    :param enrolment: the target's accepted design, administrators and features.
    :param require_owned: proves on the session given that the database still belongs to this ledger.
    :param retained: names of earlier generations of the target that are still kept.
    :param budget_since: the run of the server under which the publisher was issued; a restart since then would have
        renewed its budget, and so refuses the dispatch. None when this process does not dispatch.
    """

    def __init__(
        self,
        control: ClickHouseControl,
        enrolment: TargetEnrolment,
        *,
        retained: Sequence[str] = (),
        budget_since: ServerStart | None = None,
        require_owned: Callable[[ClickHouseControl], None] = lambda control: None,
    ) -> None:
        self._control = control
        self._enrolment = enrolment
        self._retained = retained
        self._budget_since = budget_since
        self._require_owned = require_owned

    def observe(self, intent: SnapshotIntent) -> CatalogObservation:
        """What both names carry, equal before and after the content was read.

        :raises ViewIncomplete: the two views kept differing.
        """
        at = intent.target
        for _ in range(_TRIES):
            with self._control.fresh() as control:
                before = self._view(control, intent)
                content = {
                    facts.name: self._content(control, intent, facts)
                    for facts in before.tables.values()
                    if facts.uuid == intent.generation_uuid
                }
            with self._control.fresh() as control:
                after = read_tables(control, at.database, (at.target_table, at.generation_table))
            if _equal(before, after):
                return self._observation(intent, before, after.start, content)
        raise ViewIncomplete(
            f"{intent.target.database}.{intent.target.target_table} kept changing while it was observed; try again"
        )

    def require_ready(self, intent: SnapshotIntent) -> None:
        """Exactly A and B under the two names, as sealed, with nothing new attached and all counters within limits.

        :raises Refused: anything is otherwise; nothing was sent.
        """
        at = intent.target
        with self._control.fresh() as control:
            self._require_owned(control)
            view = self._view(control, intent, issued=(intent.publisher.name,))
            view.require_supported(self._enrolment.accepted_features)
            storage = read_storage(control, at.database, at.target_table, at.generation_table, self._retained)
            target, generation = view.table(at.target_table), view.table(at.generation_table)
            differs = {
                "server": view.start.service_id != at.service_id,
                "database": view.database_uuid != at.database_id or view.database_engine != "Atomic",
                "target table": target.uuid != intent.old_target_uuid,
                "generation table": generation.uuid != intent.generation_uuid,
                "target design": _design(target) != intent.design_sha256,
                "generation design": _design(generation) != intent.design_sha256,
                "server restarted since the publisher was issued": self._budget_since is not None
                and not view.start.same_run(self._budget_since),
                "generation content": generation.parts_sha256 != intent.parts_sha256
                and self._content(control, intent, generation) != intent.content,
            }
        wrong = [what for what, changed in differs.items() if changed]
        if wrong:
            raise TargetChanged(
                f"{at.database}.{at.target_table} is not as the snapshot was prepared for: {', '.join(wrong)}; "
                "nothing was sent, a new try copies again",
                differs=wrong,
            )
        storage.require_within(intent.limits)

    def _view(self, control: ClickHouseControl, intent: SnapshotIntent, issued: Collection[str] = ()) -> CatalogView:
        at = intent.target
        if self._enrolment.digest() != at.enrolment_sha256:
            raise DocumentInvalid("the enrolment is not the one the intent was made under")
        return read_catalog(
            control,
            at.database,
            (at.target_table, at.generation_table),
            administrators=self._enrolment.administrators,
            issued=issued,
        )

    def _content(self, control: ClickHouseControl, intent: SnapshotIntent, facts: TableFacts) -> Content | None:
        """Content of B wherever it is; None when equal part hashes make reading it needless or it cannot be read."""
        if facts.parts_sha256 == intent.parts_sha256 or _design(facts) != intent.design_sha256 or not facts.design:
            return None
        return read_content(control, intent.target.database, facts.name, stored_columns(facts.design))

    def _observation(
        self, intent: SnapshotIntent, view: CatalogView, end: ServerStart, content: dict[str, Content | None]
    ) -> CatalogObservation:
        at = intent.target
        target, generation = view.tables.get(at.target_table), view.tables.get(at.generation_table)
        unsupported = set(view.unsupported(self._enrolment.accepted_features))
        if view.database_uuid != at.database_id:
            unsupported.add("foreign_database")
        return CatalogObservation(
            target=at,
            service_id=view.start.service_id,
            database_engine=view.database_engine or "missing",
            target_uuid=target.uuid if target else None,
            generation_uuid=generation.uuid if generation else None,
            target_design_sha256=_design(target),
            generation_design_sha256=_design(generation),
            target_content=content.get(at.target_table),
            generation_content=content.get(at.generation_table),
            target_parts_sha256=target.parts_sha256 if target else None,
            generation_parts_sha256=generation.parts_sha256 if generation else None,
            unsupported=tuple(sorted({_CONTROL.sub("?", name)[:200] for name in unsupported})),
            observed_at=end.seen_at.isoformat(),
        )


def _design(facts: TableFacts | None) -> str | None:
    return facts.design.digest() if facts is not None and facts.design is not None else None


def _equal(before: CatalogView, after: CatalogView) -> bool:
    """Same run of the same server, same database, tables and parts."""
    return before.start.same_run(after.start) and (
        (before.database_engine, before.database_uuid, before.tables)
        == (after.database_engine, after.database_uuid, after.tables)
    )
