"""Publishing: at most one EXCHANGE, and an outcome that is seen, whatever happens in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from airflow_provider_dpone.contracts.publication import CatalogObservation
from airflow_provider_dpone.contracts.states import PublicationState
from airflow_provider_dpone.engines.clickhouse.executor import ClickHouseExchangeExecutor, exchange_sql
from airflow_provider_dpone.engines.clickhouse.observer import SnapshotCatalog
from airflow_provider_dpone.errors import (
    AlreadyClaimed,
    ClaimUncertain,
    Fenced,
    GateNotClosed,
    GateRefused,
    PublicationUnknown,
    ServerRefused,
    ServerUnreachable,
    TargetChanged,
    ViewIncomplete,
)
from tests.live_clickhouse.product import Product, Slot, Store, slot


@pytest.fixture
def sealed(product: Product) -> Iterator[Slot]:
    with slot(product) as made:
        made.seal()
        yield made


def swapped(made: Slot) -> bool:
    return made.uuids() == (made.intent.generation_uuid, made.intent.old_target_uuid)


def untouched(made: Slot) -> bool:
    return made.uuids() == (made.intent.old_target_uuid, made.intent.generation_uuid)


def test_a_publication_swaps_once_closes_its_user_and_keeps_the_old_table(sealed: Slot) -> None:
    record = sealed.publisher.publish(sealed.intent_sha256)
    assert record.state is PublicationState.PUBLISHED
    assert record.revision == 3
    assert swapped(sealed)
    assert sealed.exchanges() == 1
    rows = f"SELECT (SELECT count() FROM {sealed.database}.orders), (SELECT count() FROM {sealed.database}.dpone_g_1)"
    assert sealed.product.rows(rows) == [(5, 3)]
    assert sealed.publisher.publish(sealed.intent_sha256) == record
    assert sealed.publisher.reconcile(sealed.intent_sha256) == record


def test_an_empty_snapshot_publishes_an_empty_target(product: Product) -> None:
    with slot(product, new=0) as made:
        made.seal()
        assert made.publisher.publish(made.intent_sha256).state is PublicationState.PUBLISHED
        assert product.rows(f"SELECT count() FROM {made.database}.orders") == [(0,)]


def test_a_terminal_record_is_history_for_publish_but_reconcile_asks_for_ownership(sealed: Slot) -> None:
    record = sealed.publisher.publish(sealed.intent_sha256)
    sealed.authority.current = sealed.authority.retained = False
    assert sealed.publisher.publish(sealed.intent_sha256) == record
    with pytest.raises(Fenced):
        sealed.publisher.reconcile(sealed.intent_sha256)


def test_the_credential_is_used_once(sealed: Slot) -> None:
    executor = ClickHouseExchangeExecutor(sealed.product.http, sealed.credential)
    assert executor.exchange(sealed.intent) == "answered"
    with pytest.raises(GateRefused):
        executor.exchange(sealed.intent)
    assert swapped(sealed)
    assert sealed.exchanges() == 1


def test_a_repeated_request_is_refused_by_the_server(sealed: Slot) -> None:
    sealed.product.send(sealed.credential, exchange_sql(sealed.intent), query_id=sealed.intent.query_id())
    with pytest.raises(ServerRefused) as caught:
        sealed.product.send(sealed.credential, exchange_sql(sealed.intent), query_id=sealed.intent.query_id())
    assert caught.value.details["server_code"] == 201
    assert swapped(sealed)


def test_a_claim_found_never_grants_another_exchange(sealed: Slot) -> None:
    sealed.store.claim(sealed.intent, sealed.record)
    with pytest.raises(AlreadyClaimed):
        sealed.publisher.publish(sealed.intent_sha256)
    assert sealed.product.rows(f"SELECT count() FROM system.users WHERE name = '{sealed.credential.name}'") == [(1,)]
    assert untouched(sealed)
    record = sealed.publisher.reconcile(sealed.intent_sha256)
    assert record.state is PublicationState.NOT_PUBLISHED
    assert sealed.exchanges() == 0


def test_the_loser_of_two_callers_leaves_the_winners_publisher_alone(sealed: Slot) -> None:
    outcomes: list[object] = []

    def call() -> None:
        try:
            outcomes.append(sealed.new_publisher().publish(sealed.intent_sha256).state)
        except AlreadyClaimed:
            outcomes.append("lost")

    class Together(Store):
        """Lets both callers read PREPARED before either claims."""

        def __init__(self, store: Store) -> None:
            self.intent, self.history = store.intent, store.history
            self.barrier = threading.Barrier(2, timeout=10)
            self.lock = threading.Lock()

        def claim(self, intent, before):  # type: ignore[no-untyped-def]
            self.barrier.wait()
            with self.lock:
                return super().claim(intent, before)

    sealed.store = Together(sealed.store)
    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(map(str, outcomes)) == sorted([str(PublicationState.PUBLISHED), "lost"])
    assert sealed.exchanges() == 1


def test_an_uncertain_claim_sends_nothing(sealed: Slot) -> None:
    def uncertain(*_: object) -> None:
        raise ClaimUncertain("no read-back")

    sealed.store.claim = uncertain  # type: ignore[method-assign, assignment]
    with pytest.raises(ClaimUncertain):
        sealed.publisher.publish(sealed.intent_sha256)
    assert untouched(sealed)
    assert sealed.exchanges() == 0


def test_an_attempt_fenced_after_its_claim_sends_nothing_and_is_settled(sealed: Slot) -> None:
    sealed.authority.current = False
    record = sealed.publisher.publish(sealed.intent_sha256)
    assert record.state is PublicationState.NOT_PUBLISHED
    assert str(record.reason).startswith("not sent: DPONE_FENCED")
    assert sealed.exchanges() == 0


def test_a_prepared_publication_is_cancelled_at_revision_two(sealed: Slot) -> None:
    record = sealed.publisher.reconcile(sealed.intent_sha256)
    assert (record.state, record.revision) == (PublicationState.NOT_PUBLISHED, 2)
    assert untouched(sealed)
    assert sealed.product.rows(f"SELECT count() FROM system.users WHERE name = '{sealed.credential.name}'") == [(0,)]


def test_a_prepared_publication_that_cannot_be_observed_stays_prepared(sealed: Slot) -> None:
    sealed.product.run(f"DROP TABLE {sealed.database}.{sealed.generation} SYNC")
    with pytest.raises(PublicationUnknown):
        sealed.publisher.reconcile(sealed.intent_sha256)
    assert sealed.record.state is PublicationState.PREPARED

    def away(*_: object) -> None:
        raise ServerUnreachable("away")

    sealed.authority.close_publisher = away  # type: ignore[method-assign, assignment]
    with pytest.raises(ServerUnreachable):
        sealed.publisher.reconcile(sealed.intent_sha256)
    assert sealed.record.state is PublicationState.PREPARED


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO {db}.dpone_g_1 SELECT 99, 'more'",
        "CREATE MATERIALIZED VIEW {db}.v ENGINE = MergeTree ORDER BY id AS SELECT id FROM {db}.orders",
        "ALTER TABLE {db}.orders ADD COLUMN extra Int8",
        "DROP TABLE {db}.dpone_g_1 SYNC",
        "GRANT INSERT ON {db}.orders TO dpone_eve",
    ],
)
def test_what_changed_since_the_seal_is_seen_before_dispatch(sealed: Slot, change: str) -> None:
    sealed.product.run("DROP USER IF EXISTS dpone_eve", "CREATE USER dpone_eve")
    sealed.product.run(change.format(db=sealed.database))
    record = sealed.publisher.publish(sealed.intent_sha256)
    gone = "DROP TABLE" in change  # then B is not in its place, which a person must look at
    assert record.state is (PublicationState.COMMIT_UNKNOWN if gone else PublicationState.NOT_PUBLISHED)
    assert record.reason is not None
    assert "not sent: DPONE_" in record.reason
    assert sealed.exchanges() == 0
    assert sealed.uuids()[0] == sealed.intent.old_target_uuid
    sealed.product.run("DROP USER dpone_eve")


def test_an_obstacle_that_was_removed_lets_reconcile_decide(sealed: Slot) -> None:
    view = f"{sealed.database}.v"
    sealed.product.run(
        f"CREATE MATERIALIZED VIEW {view} ENGINE = MergeTree ORDER BY id AS SELECT id FROM {sealed.database}.orders"
    )
    sealed.store.claim(sealed.intent, sealed.record)  # whether its process sent it is not known
    assert sealed.publisher.reconcile(sealed.intent_sha256).state is PublicationState.COMMIT_UNKNOWN
    assert sealed.publisher.reconcile(sealed.intent_sha256).state is PublicationState.COMMIT_UNKNOWN
    sealed.product.run(f"DROP TABLE {view} SYNC")
    record = sealed.publisher.reconcile(sealed.intent_sha256)
    assert (record.state, record.revision) == (PublicationState.NOT_PUBLISHED, 5)


def test_a_merge_between_sealing_and_observation_is_still_published(sealed: Slot) -> None:
    sealed.store.claim(sealed.intent, sealed.record)
    ClickHouseExchangeExecutor(sealed.product.http, sealed.credential).exchange(sealed.intent)
    sealed.product.run(f"OPTIMIZE TABLE {sealed.database}.orders FINAL SETTINGS optimize_skip_merged_partitions = 0")
    record = sealed.publisher.reconcile(sealed.intent_sha256)
    assert record.state is PublicationState.PUBLISHED
    assert record.observation is not None
    assert record.observation.target_parts_sha256 != sealed.intent.parts_sha256
    assert record.observation.target_content == sealed.intent.content


def test_a_row_added_to_the_published_table_before_observation_is_unknown(sealed: Slot) -> None:
    sealed.store.claim(sealed.intent, sealed.record)
    ClickHouseExchangeExecutor(sealed.product.http, sealed.credential).exchange(sealed.intent)
    sealed.product.run(f"INSERT INTO {sealed.database}.orders SELECT 99, 'more'")
    record = sealed.publisher.reconcile(sealed.intent_sha256)
    assert record.state is PublicationState.COMMIT_UNKNOWN
    assert str(record.reason).startswith(f"content_differs; {sealed.database}.orders carries the new table, ")


def test_tables_exchanged_back_by_hand_are_seen_as_they_are(sealed: Slot) -> None:
    assert sealed.publisher.publish(sealed.intent_sha256).state is PublicationState.PUBLISHED
    sealed.product.run(exchange_sql(sealed.intent))
    assert sealed.publisher.publish(sealed.intent_sha256).state is PublicationState.PUBLISHED  # history
    seen = sealed.catalog().observe(sealed.intent)
    assert (seen.target_uuid, seen.generation_uuid) == (sealed.intent.old_target_uuid, sealed.intent.generation_uuid)


def test_a_foreign_table_under_the_name_is_unknown(sealed: Slot) -> None:
    sealed.store.claim(sealed.intent, sealed.record)
    sealed.product.run(
        f"CREATE TABLE {sealed.database}.other AS {sealed.database}.orders",
        f"EXCHANGE TABLES {sealed.database}.other AND {sealed.database}.orders",
    )
    record = sealed.publisher.reconcile(sealed.intent_sha256)
    assert record.state is PublicationState.COMMIT_UNKNOWN
    assert str(record.reason).startswith(f"foreign_uuid; {sealed.database}.orders carries another table (")


def test_a_closure_that_cannot_be_proved_is_unknown_and_later_settled(sealed: Slot) -> None:
    closing = sealed.authority.close_publisher

    def stuck(*_: object) -> None:
        raise GateNotClosed("a statement is still running")

    sealed.authority.close_publisher = stuck  # type: ignore[method-assign, assignment]
    record = sealed.publisher.publish(sealed.intent_sha256)
    assert (record.state, record.reason) == (PublicationState.COMMIT_UNKNOWN, "DPONE_GATE_NOT_CLOSED; answered")
    assert record.observation is None
    sealed.authority.close_publisher = closing  # type: ignore[method-assign]
    assert sealed.publisher.reconcile(sealed.intent_sha256).state is PublicationState.PUBLISHED
    assert sealed.exchanges() == 1


def test_readiness_refuses_a_server_restarted_since_the_issue(sealed: Slot) -> None:
    catalog = sealed.catalog()
    catalog.require_ready(sealed.intent)
    since = sealed.gate.start_at_issue(sealed.credential.name)
    catalog._budget_since = type(since)(
        since.service_id, since.started_at.replace(year=since.started_at.year - 1), since.uptime, since.seen_at
    )
    with pytest.raises(TargetChanged, match="restarted"):
        catalog.require_ready(sealed.intent)


def test_an_observation_that_changed_under_way_is_repeated_until_it_stands_still(sealed: Slot) -> None:
    inserts = [0]

    def insert() -> None:
        inserts[0] += 1
        sealed.product.run(f"INSERT INTO {sealed.database}.orders SELECT {inserts[0]}, 'more'")

    def observe(times: int) -> CatalogObservation:
        control = sealed.product.meddled("system.parts", insert, times)
        return SnapshotCatalog(control, sealed.enrolment).observe(sealed.intent)

    observe(2)
    assert inserts == [2]
    with pytest.raises(ViewIncomplete):
        observe(1000)
    assert inserts == [12]  # bounded


# --- with hold points ---


@pytest.fixture
def held(local: Product) -> Iterator[Slot]:
    with slot(local) as made:
        made.seal()
        yield made
        local.server.holds.clear()


def test_an_exchange_whose_answer_was_cut_is_found_published_with_one_statement(held: Slot) -> None:
    held.product.server.holds.set("answer", "cut", kind="Exchange", user_prefix=held.credential.name)
    record = held.publisher.publish(held.intent_sha256)
    assert record.state is PublicationState.PUBLISHED
    assert swapped(held)
    assert held.exchanges() == 1


def test_an_exchange_cut_before_its_effect_is_found_not_published(held: Slot) -> None:
    held.product.server.holds.set("registered", "cut", kind="Exchange", user_prefix=held.credential.name)
    record = held.publisher.publish(held.intent_sha256)
    assert record.state is PublicationState.NOT_PUBLISHED
    assert record.reason == "DPONE_ANSWER_LOST"
    assert untouched(held)


def test_an_exchange_still_under_way_keeps_the_outcome_open_until_it_ended(held: Slot) -> None:
    rule = held.product.server.holds.set("checked", kind="Exchange", user_prefix=held.credential.name)
    publishing = threading.Thread(
        target=lambda: held.new_publisher(
            type(held.product.http)(held.product.server.host, held.product.server.http_port, answer_within=0.3)
        ).publish(held.intent_sha256),
        daemon=True,
    )
    publishing.start()
    held.product.server.holds.wait(rule)
    time.sleep(0.6)  # the client gave up; the statement has passed its check and can still swap
    assert publishing.is_alive()
    assert held.record.state is PublicationState.EXCHANGE_INTENT
    held.product.server.holds.clear(rule)
    publishing.join(15)
    assert held.record.state is PublicationState.PUBLISHED
    assert swapped(held)


def test_a_duplicate_that_arrives_after_the_closure_finds_no_user(held: Slot) -> None:
    rule = held.product.server.holds.set("authenticated", user_prefix=held.credential.name, count=1)
    copy = threading.Thread(target=lambda: _ignore(held), daemon=True)
    copy.start()
    held.product.server.holds.wait(rule)
    assert held.publisher.publish(held.intent_sha256).state is PublicationState.PUBLISHED
    held.product.server.holds.clear(rule)
    copy.join(15)
    assert swapped(held)


def _ignore(made: Slot) -> None:
    try:
        made.product.send(made.credential, exchange_sql(made.intent), query_id="copy")
    except ServerRefused:
        return
