"""What the ledger promises about trust: one function per case, the same on either database."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, text, update

from airflow_provider_dpone.contracts.authority import TrustPolicy
from airflow_provider_dpone.contracts.canonical import digest_bytes, digest_of
from airflow_provider_dpone.errors import (
    DocumentInvalid,
    DponeError,
    LedgerMismatch,
    LedgerRule,
    LedgerUnavailable,
    TrustChanged,
    TrustRefused,
)
from airflow_provider_dpone.ledger.authority import AuthorityStore
from airflow_provider_dpone.ledger.authority_log import trust_in
from airflow_provider_dpone.ledger.schema import EvidenceKind, authority_log, evidence
from airflow_provider_dpone.ledger.transaction import Ledger, Tx
from tests.authority_world import ENVIRONMENT, MIB8, AuthorityWorld, bare, raw_refused, refused, together
from tests.cutting_proxy import CuttingProxy


def _row(policy: TrustPolicy, **changes: Any) -> dict[str, Any]:
    sha256 = digest_bytes(policy.digest())
    values = {"entry_sha256": sha256, "kind": 1, "environment": policy.environment, "revision": policy.revision,
              "epoch": policy.revocation_epoch, "document_sha256": sha256}  # fmt: skip
    return values | changes


def _appended(world: AuthorityWorld, policy: TrustPolicy, **changes: Any) -> str:
    """The rule by which the database refuses a policy whose original is there."""

    def change(tx: Tx) -> None:
        tx.record(EvidenceKind.TRUST_POLICY, policy.digest(), policy)
        tx.insert(authority_log, **_row(policy, **changes))

    return refused(lambda: world.database.admin().write(change))


def documents_are_read_back_to_the_byte(world: AuthorityWorld) -> None:
    policy = world.trusted()
    [(stored,)] = world.database.as_admin("SELECT document FROM dpone.evidence WHERE kind = 22")
    assert bytes(stored) == policy.wire()
    assert world.store().trust(ENVIRONMENT) == policy
    assert AuthorityStore(world.database.runtime()).trust(ENVIRONMENT) == policy
    ledger = world.exact.database.admin()
    [(pinned,)] = world.database.as_admin("SELECT layout_sha256 FROM dpone.ledger_meta")
    assert ledger.read(ledger.dialect.layout) == bytes(pinned)
    elsewhere = Ledger(world.connect, world.database.dialect(), uuid.uuid4())
    with pytest.raises(LedgerMismatch, match="pinned"):
        AuthorityStore(elsewhere).trust(ENVIRONMENT)


def history_is_only_ever_appended_to(world: AuthorityWorld) -> None:
    first = world.trusted()
    second = world.trusted(first)
    before = world.snapshot()
    assert world.refusal(update(authority_log).values(epoch=9)) == "authority_log_append_only"
    assert world.refusal(delete(authority_log)) == "authority_log_append_only"
    assert world.refusal(update(evidence).values(document=b"{}")) in ("evidence_append_only", "ck_evidence_hash")
    again = world.policy(first, max_workloads=3)
    assert _appended(world, again) in ("authority_trust_revision", "uq_authority_trust")
    assert _appended(world, world.policy(second, revision=4)) == "authority_trust_revision"
    assert refused(lambda: world.store().set_trust(again)) == "DPONE_TRUST_CHANGED"
    assert world.snapshot() == before
    assert world.store().trust_history(ENVIRONMENT) == [first, second]


def a_policy_that_came_and_went_and_came_again_is_another(world: AuthorityWorld) -> None:
    first = world.trusted(max_workloads=5)
    away = world.trusted(first, max_workloads=6)
    back = world.trusted(away, max_workloads=5)
    with pytest.raises(TrustChanged):  # made against the first, whose content is in force again
        world.store().set_trust(world.policy(first, max_workloads=7))
    with pytest.raises(TrustChanged):
        world.store().set_trust(world.policy(first, max_workloads=7, revision=back.revision + 1))
    assert world.store().trust(ENVIRONMENT) == back
    refusal: list[str] = []

    def meanwhile(tx: Tx) -> None:
        assert trust_in(tx, ENVIRONMENT) == back
        document = world.here(r"'\x7b7d'", "0x7b7d")
        refusal.append(
            raw_refused(
                world,
                "INSERT INTO dpone.evidence (evidence_sha256, kind, subject, document)"
                f" SELECT {world.here('sha256(' + document + ')', 'HASHBYTES(N' + repr('SHA2_256') + ', ' + document + ')')},"
                f" 22, document_sha256, {document} FROM dpone.authority_log WHERE revision = 1",
            )
        )
        assert trust_in(tx, ENVIRONMENT) == back

    world.ledger().write(meanwhile)
    assert any(word in refusal[0] for word in ("ledger_lock", "APPLOCK_MODE", "transaction"))


def concurrent_writers_of_one_revision_have_one_winner(world: AuthorityWorld) -> None:
    offers = [world.policy(max_workloads=n) for n in range(1, 7)]
    results = together([lambda p=p: world.store().set_trust(p) for p in offers])  # type: ignore[misc]
    assert results == ["DPONE_TRUST_CHANGED"] * 5 + ["done"]
    assert len(world.store().trust_history()) == 1


def the_database_takes_no_invalid_row(world: AuthorityWorld) -> None:
    first = world.trusted(revocation_epoch=3)
    sha256 = digest_bytes(first.digest())
    original = {"kind": 22, "subject": sha256}
    assert world.refusal(insert(evidence).values(evidence_sha256=sha256[::-1], document=b"{}", **original)) == (
        "ck_evidence_hash"
    )
    for document in (b"", b"x" * (MIB8 + 1)):
        key = digest_bytes(digest_of(document))
        assert world.refusal(insert(evidence).values(evidence_sha256=key, document=document, **original)) == (
            "ck_evidence_hash"
        )
    with pytest.raises(TrustRefused):
        world.store().set_trust(world.policy(first, revocation_epoch=2))
    assert _appended(world, world.policy(first, revocation_epoch=2)) == "authority_revocation_epoch"
    assert _appended(world, world.policy(first), campaign=uuid.uuid4()) == "ck_authority_shape"
    assert world.refusal(insert(authority_log).values(**_row(world.policy(first)))) in (
        "authority_document", "authority_log_document_sha256_fkey"
    )  # fmt: skip
    second = world.policy(first)
    third = world.policy(second)

    def two(tx: Tx) -> None:
        for policy in (second, third):
            tx.record(EvidenceKind.TRUST_POLICY, policy.digest(), policy)
        tx.connection.execute(insert(authority_log).values([_row(second), _row(third)]))

    assert refused(lambda: world.database.admin().write(two)) == "authority_one_policy"
    assert world.store().trust_history() == [first]


def nothing_is_read_while_the_schema_is_altered(world: AuthorityWorld) -> None:
    policy = world.trusted()
    store = AuthorityStore(world.exact.database.admin())

    def unreadable(alter: str, *restore: str) -> None:
        world.database.as_admin(alter)
        with pytest.raises(LedgerMismatch, match="altered"):
            store.trust(ENVIRONMENT)
        world.database.as_admin(*restore)
        assert store.trust(ENVIRONMENT) == policy

    table, rule = "dpone.authority_log", "authority_log_rule"
    unreadable(
        world.here(f"ALTER TABLE {table} DISABLE TRIGGER {rule}", f"DISABLE TRIGGER dpone.{rule} ON {table}"),
        world.here(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {rule}", f"ENABLE TRIGGER dpone.{rule} ON {table}"),
    )
    definition = world.definition(rule)
    unreadable(f"ALTER TABLE {table} ADD more int", *world.without_column(table, rule))
    changed = definition.replace("authority_trust_moved", "authority_trust_left")
    for body, readable in ((changed, False), (definition, True)):
        if world.database.engine == "mssql":
            world.database.as_admin(f"DROP TRIGGER dpone.{rule}")
        world.database.as_admin(body)
        if readable:
            assert store.trust(ENVIRONMENT) == policy
        else:
            with pytest.raises(LedgerMismatch, match="altered"):
                store.trust(ENVIRONMENT)


def trust_decides_only_in_the_transaction_that_holds_the_lock(world: AuthorityWorld) -> None:
    world.trusted()
    ledger = world.ledger()
    identify = ledger.dialect.transaction_id
    with ledger._transaction(lock=False) as (connection, _), pytest.raises(LedgerMismatch, match="alone"):
        trust_in(bare(ledger, connection, identify(connection)), ENVIRONMENT)
    shared = world.here("SELECT pg_advisory_xact_lock_shared(1685090149, 1)", world.lock("Shared"))
    with ledger._transaction(lock=False) as (connection, _):
        connection.exec_driver_sql(shared)
        with pytest.raises(LedgerMismatch, match="alone"):
            trust_in(bare(ledger, connection, identify(connection)), ENVIRONMENT)

    def doomed(tx: Tx) -> None:
        with pytest.raises(Exception, match=r".*"):
            tx.connection.exec_driver_sql("SELECT 1 / 0")
        trust_in(tx, ENVIRONMENT)

    with pytest.raises(DponeError):
        ledger.write(doomed)

    def changed(tx: Tx) -> None:
        tx.connection.exec_driver_sql(world.here("COMMIT", "COMMIT TRANSACTION; BEGIN TRANSACTION"))
        ledger.dialect.lock(tx.connection)
        trust_in(tx, ENVIRONMENT)

    with pytest.raises(LedgerMismatch, match="replaced"):
        ledger.write(changed)


def a_read_that_could_not_be_finished_returns_nothing(world: AuthorityWorld) -> None:
    policy = world.trusted()
    with CuttingProxy(world.database.host, world.database.port) as proxy:
        store = world.store(port=proxy.port)
        assert store.trust(ENVIRONMENT) == policy
        for forward in (True, False):
            proxy.cut_on(world.database.commit_marker, forward=forward)
            with pytest.raises(LedgerUnavailable, match="not used"):
                store.trust(ENVIRONMENT)
        assert proxy.cuts == 2


def a_provisioner_adds_and_reads_and_nothing_else(world: AuthorityWorld) -> None:
    policy = world.trusted()
    ledger = world.ledger()
    assert ledger.read(lambda c: c.execute(select(authority_log.c.revision)).scalars().all()) == [policy.revision]
    for statement in (
        "UPDATE dpone.authority_log SET epoch = 9",
        "DELETE FROM dpone.authority_log",
        "DELETE FROM dpone.evidence",
        world.here("TRUNCATE dpone.authority_log CASCADE", "TRUNCATE TABLE dpone.authority_log"),
        "ALTER TABLE dpone.authority_log ADD more int",
        world.here(
            "ALTER TABLE dpone.authority_log DISABLE TRIGGER ALL",
            "DISABLE TRIGGER dpone.authority_log_rule ON dpone.authority_log",
        ),
        "UPDATE dpone.attempt SET state = 2",
    ):
        with pytest.raises(LedgerRule, match=world.denied):
            ledger.write(lambda tx, s=statement: tx.connection.execute(text(s)))  # type: ignore[misc]
    foreign = digest_of(b"{}")

    def forge(tx: Tx) -> None:
        tx.keep(EvidenceKind.PROOF, foreign, b"{}")

    assert refused(lambda: ledger.write(forge)) == "evidence_authority"
    assert refused(lambda: world.database.runtime().write(lambda tx: tx.keep(EvidenceKind.GRANT, foreign, b"{}"))) == (
        "evidence_authority"
    )
    with pytest.raises(DocumentInvalid):
        TrustPolicy.parse(b"{}")


CASES = {
    "T1": documents_are_read_back_to_the_byte,
    "T2": history_is_only_ever_appended_to,
    "T3": a_policy_that_came_and_went_and_came_again_is_another,
    "T4": concurrent_writers_of_one_revision_have_one_winner,
    "T5": the_database_takes_no_invalid_row,
    "T6": nothing_is_read_while_the_schema_is_altered,
    "T7": trust_decides_only_in_the_transaction_that_holds_the_lock,
    "T8": a_read_that_could_not_be_finished_returns_nothing,
    "T9": a_provisioner_adds_and_reads_and_nothing_else,
}
