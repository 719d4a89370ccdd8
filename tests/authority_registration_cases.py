"""What the ledger promises about registering grants: one function per case, the same on either database."""

from __future__ import annotations

import hashlib
import os
import secrets
import uuid
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import delete, insert, text, update

from airflow_provider_dpone.contracts.authority import AuthorityKind, Ceilings, Grant, Membership, SignedGrant, instant
from airflow_provider_dpone.contracts.canonical import digest_bytes, digest_of
from airflow_provider_dpone.errors import (
    CommitUnknown,
    DocumentInvalid,
    GrantConsumed,
    GrantMissing,
    LedgerMismatch,
    LedgerRule,
    LedgerUnavailable,
)
from airflow_provider_dpone.ledger.authority import AuthorityStore
from airflow_provider_dpone.ledger.authority_log import append
from airflow_provider_dpone.ledger.dialects.mssql.diagnostics import diagnose
from airflow_provider_dpone.ledger.schema import EvidenceKind, authority_log, evidence
from airflow_provider_dpone.ledger.transaction import Tx
from tests.authority_world import (
    ENVIRONMENT,
    MIB8,
    AuthorityWorld,
    raw_refused,
    refused,
    together,
    workload,
)
from tests.cutting_proxy import CuttingProxy
from tests.ledger_engines import driver_errors

BUNDLE = b"originals"


def _registered(world: AuthorityWorld, signed: SignedGrant, bundle: bytes = BUNDLE) -> str:
    return world.store().register(signed, bundle).entry


def _refused(world: AuthorityWorld, signed: SignedGrant, bundle: bytes = BUNDLE) -> str:
    """The reason; and the ledger is as before."""
    before = world.snapshot()
    reason = refused(lambda: world.store().register(signed, bundle))
    assert world.snapshot() == before
    return reason


def _row(grant: Grant, **changes: Any) -> dict[str, Any]:
    values = {
        "entry_sha256": digest_bytes(grant.entry()),
        "kind": 2,
        "environment": grant.environment,
        "revision": grant.trust_revision,
        "campaign": uuid.UUID(grant.campaign_id),
        "phase": int(grant.phase_code),
        "subject": digest_bytes(grant.subject_key()),
        "bundle_sha256": digest_bytes(grant.bundle_sha256),
    }
    return values | changes


def _appended(world: AuthorityWorld, signed: SignedGrant, **changes: Any) -> str:
    """The rule by which the database refuses a grant whose originals are there."""
    grant = signed.grant

    def change(tx: Tx) -> None:
        tx.keep(EvidenceKind.GRANT_BUNDLE, grant.entry(), BUNDLE)
        document = tx.record(EvidenceKind.GRANT, grant.entry(), signed)
        tx.insert(authority_log, **_row(grant, **{"document_sha256": digest_bytes(document)} | changes))

    return refused(lambda: world.database.admin().write(change))


def the_catalog_is_exactly_what_was_installed(world: AuthorityWorld) -> None:
    indexes = world.database.as_admin(
        world.here(
            "SELECT indexname, indexdef LIKE 'CREATE UNIQUE%', pg_get_expr(i.indpred, i.indrelid) FROM pg_indexes AS x"
            " JOIN pg_index AS i ON i.indexrelid = ('dpone.' || x.indexname)::regclass"
            " WHERE schemaname = 'dpone' AND tablename = 'authority_log'",
            "SELECT i.name, i.is_unique, i.filter_definition FROM sys.indexes AS i"
            " WHERE i.object_id = OBJECT_ID(N'dpone.authority_log') AND i.index_id > 0",
        )
    )
    expected_indexes = {
        "authority_log_pkey": (True, ""),
        "uq_authority_trust": (True, "kind1"),
        "uq_authority_qualification": (True, "kind2andphase1"),
        "ix_authority_subject": (False, ""),
        "ix_authority_campaign": (False, ""),
    }
    if world.shows("index predicates"):
        assert {
            str(name): (bool(unique), "".join(c for c in str(predicate or "").lower() if c.isalnum()))
            for name, unique, predicate in indexes
        } == expected_indexes
    else:
        known = {next(n for n in expected_indexes if str(name).startswith(n)): bool(u) for name, u, _ in indexes}
        assert known == {name: unique for name, (unique, _) in expected_indexes.items()}
    triggers = world.database.as_admin(
        world.here(
            "SELECT tgname, tgenabled <> 'A' FROM pg_trigger WHERE tgrelid = 'dpone.authority_log'::regclass"
            " AND NOT tgisinternal",
            "SELECT name, is_disabled FROM sys.triggers WHERE parent_id = OBJECT_ID(N'dpone.authority_log')",
        )
    )
    expected = {"authority_log_rule"}
    if world.database.engine == "postgres":
        expected |= {"authority_log_truncate"}
    assert {str(name): bool(off) for name, off in triggers} == dict.fromkeys(expected, False)
    foreign = world.database.as_admin(
        world.here(
            "SELECT count(*) FROM pg_constraint WHERE conrelid = 'dpone.authority_log'::regclass AND contype = 'f'",
            "SELECT count(*) FROM sys.foreign_keys WHERE parent_object_id = OBJECT_ID(N'dpone.authority_log')",
        )
    )
    assert foreign == [(3,)]
    world.exact.database.admin().read(lambda connection: None)


def a_bundle_of_eight_mib_is_kept_to_the_byte(world: AuthorityWorld) -> None:
    policy = world.trusted()
    bundle = secrets.token_bytes(MIB8)
    signed = world.grant(policy, bundle=bundle)
    stored = world.store().register(signed, bundle)
    assert world.store().bundle(stored) == bundle
    [(size,)] = world.database.as_admin(
        world.here("SELECT octet_length(document)", "SELECT DATALENGTH(document)")
        + " FROM dpone.evidence WHERE kind = 24"
    )
    assert size == MIB8
    with pytest.raises(ValueError, match="bundle_bytes"):
        world.grant(policy, bundle=bundle + b"x")
    assert _refused(world, signed, bundle + b"x") == "bundle"
    assert _refused(world, world.grant(policy, subject="run-2"), b"other bytes") == "bundle"
    row = {"kind": 24, "subject": digest_bytes(stored.entry)}
    for document in (bundle + b"x", b""):
        key = digest_bytes(digest_of(document))
        assert world.refusal(insert(evidence).values(evidence_sha256=key, document=document, **row)) == (
            "ck_evidence_hash"
        )


def a_grant_cannot_be_changed_or_written_past_the_store(world: AuthorityWorld) -> None:
    policy = world.trusted()
    active = world.activate("orders")
    signed = world.grant(policy)
    _registered(world, signed)
    before = world.snapshot()
    moved = update(authority_log).where(authority_log.c.kind == 2).values(subject=b"0" * 32)
    assert world.refusal(moved) == "authority_log_append_only"
    # a foreign key may speak before the rule does
    assert world.refusal(delete(authority_log)) in ("authority_log_append_only", "authority_log_grant_sha256_fkey")
    assert world.refusal(delete(evidence)) in ("evidence_append_only", "authority_log_document_sha256_fkey")
    other = world.grant(policy, subject="run-2")
    document = {"document_sha256": digest_bytes(other.digest())}
    assert world.refusal(insert(authority_log).values(**_row(other.grant), **document)) in (
        "authority_document", "authority_log_document_sha256_fkey"
    )  # fmt: skip
    wrong = insert(evidence).values(
        evidence_sha256=digest_bytes(digest_of(b"[]")), kind=23, subject=b"0" * 32, document=b"{}"
    )
    assert world.refusal(wrong) == "ck_evidence_hash"
    assert _appended(world, other, bundle_sha256=None) in ("ck_authority_shape", "authority_document")
    assert _appended(world, other, bundle_sha256=document["document_sha256"]) == "authority_document"
    assert _appended(world, other, phase=3) == "ck_authority_shape"
    assert _appended(world, signed) == "authority_log_pkey"
    assert _appended(world, world.grant(policy, "execution", subject=digest_of(b"no activation"))) == (
        "authority_activation"
    )
    assert _appended(world, other, revision=2) == "authority_trust_moved"
    assert world.snapshot() == before
    assert _refused(world, world.grant(policy, "execution", subject=digest_of(b"none"))) == "activation"
    assert active.stored.sha256 not in [g.grant.subject for g in world.store().grants()]


def an_execution_grant_is_bound_once_and_may_be_repeated(world: AuthorityWorld) -> None:
    policy = world.trusted()
    active = world.activate("orders", "rates")
    rows = "SELECT activation_sha256, state FROM dpone.activation"
    untouched = world.database.as_admin(rows)
    signed = world.execution(policy, active, "orders")
    first = world.store().register(signed, BUNDLE)
    assert world.store().register(signed, BUNDLE) == first
    rebound = world.execution(policy, active, "rates", grant_id=signed.grant.grant_id)
    assert _refused(world, rebound) == "DPONE_GRANT_CONSUMED"
    with pytest.raises(GrantConsumed):
        world.store().register(
            world.grant(policy, "execution", subject=active.stored.sha256, grant_id=signed.grant.grant_id), BUNDLE
        )
    second = world.execution(policy, active, "orders", "rates")
    _registered(world, second)
    assert [g.signed for g in world.store().grants(ENVIRONMENT)] == [signed, second]
    assert world.store().audit() == []
    assert [tuple(map(str, r)) for r in world.database.as_admin(rows)] == [tuple(map(str, r)) for r in untouched]


def a_qualification_is_consumed_once(world: AuthorityWorld) -> None:
    policy = world.trusted()
    signed = world.grant(policy, subject="run-7")
    first = world.store().register(signed, BUNDLE)
    assert world.store().register(signed, BUNDLE) == first
    again = world.grant(policy, subject="run-7")
    assert _refused(world, again) == "DPONE_GRANT_CONSUMED"
    assert _appended(world, again) == "uq_authority_qualification"
    _registered(world, world.grant(policy, subject="run-8"))


def ceilings_are_kept_and_nothing_is_half_stored(world: AuthorityWorld) -> None:
    low = Ceilings(max_attempts=3, max_rows=1000, max_source_bytes=2**20, max_attempt_seconds=60)
    policy = world.trusted(ceilings=low)
    for name in Ceilings.model_fields:
        if name != "schema_name":
            above = low.model_copy(update={name: getattr(low, name) + 1})
            assert _refused(world, world.grant(policy, ceilings=above)) == "ceiling"
    too_long = instant(world.now + timedelta(seconds=86_401))
    assert _refused(world, world.grant(policy, ceilings=low, not_before=instant(world.now), not_after=too_long)) == (
        "window"
    )
    many = [workload(f"w{n:02}") for n in range(64)]
    with pytest.raises(ValueError, match="workloads"):
        world.grant(policy, ceilings=low, workloads=[*many, workload("w64")])
    full = world.grant(policy, ceilings=low, workloads=many)
    _registered(world, full)
    assert _refused(world, world.grant(policy, ceilings=low, subject="r2", workloads=[workload("w64")])) == "ceiling"
    known = world.grant(policy, ceilings=low, subject="r3", workloads=many[:2])
    _registered(world, known)
    extra = Membership(
        environment=ENVIRONMENT, campaign_id=full.grant.campaign_id, phase="qualification", workload=workload("w64"),
        grant_entry_sha256=full.grant.entry(),
    )  # fmt: skip
    assert refused(lambda: world.database.admin().write(lambda tx: append(tx, AuthorityKind.MEMBERSHIP, extra, 1))) == (
        "authority_membership_ceiling"
    )
    assert world.store().audit() == []


def the_audit_reads_every_page(world: AuthorityWorld) -> None:
    policy = world.trusted()
    for number in range(5):
        _registered(world, world.grant(policy, subject=f"run-{number}", workloads=[workload(f"w{number}")]))
    assert world.store().audit(page=3) == []
    entries = sorted(row[0] for row in world.snapshot()[:-1])
    last = entries[-1].hex()
    document = world.here(f"(SELECT document_sha256 FROM dpone.authority_log WHERE entry_sha256 = '\\x{last}')",
                          f"(SELECT document_sha256 FROM dpone.authority_log WHERE entry_sha256 = 0x{last})")  # fmt: skip
    world.past_the_rules(
        f"UPDATE dpone.evidence SET document = {world.here('document || chr(32)::bytea', 'document + 0x20')}"
        f" WHERE evidence_sha256 = {document}",
        unhashed=True,
    )
    # the check of digests is gone, and with it the layout: a person still reads it as it is
    found = AuthorityStore(world.ledger().as_it_is(), lambda: world.now).audit(page=3)
    assert any(last in line for line in found), found


def history_stays_readable_and_authorises_nothing(world: AuthorityWorld) -> None:
    policy = world.trusted()
    active = world.activate("orders")
    signed = world.execution(policy, active, "orders")
    entry = _registered(world, signed)
    attempts = world.attempts()
    attempts.admit_once(active.attempt("orders"))
    begun = world.now
    for moved, reason in ((timedelta(hours=2), "expired"), (-timedelta(hours=1), "not_yet_valid")):
        world.now = begun + moved
        with pytest.raises(GrantMissing, match=reason):
            attempts.admit_once(active.attempt("orders", run_id=reason))
    world.now = begun
    superseding = world.trusted(policy, max_workloads=3)
    with pytest.raises(GrantMissing, match="superseded"):
        attempts.admit_once(active.attempt("orders", run_id="superseded"))
    revoking = world.trusted(superseding, revocation_epoch=1)
    with pytest.raises(GrantMissing, match="revoked"):
        attempts.admit_once(active.attempt("orders", run_id="revoked"))
    world.trusted(revoking, signers=())
    assert world.store().grant(entry).signed == signed
    assert world.store().bundle(world.store().grant(entry)) == BUNDLE
    assert world.store().register(signed, BUNDLE).entry == entry
    assert world.store().audit() == []
    assert len(attempts.all_open()) == 1


def nothing_is_registered_outside_its_conditions(world: AuthorityWorld) -> None:
    policy = world.trusted()
    signed = world.grant(policy)
    raw = raw_refused(world, "UPDATE dpone.authority_log SET epoch = 5")
    assert any(word in raw for word in ("ledger_lock", "APPLOCK_MODE", "transaction"))

    def replaced(tx: Tx) -> None:
        tx.connection.exec_driver_sql(world.here("COMMIT", "COMMIT TRANSACTION; BEGIN TRANSACTION"))
        world.ledger().dialect.lock(tx.connection)

    with pytest.raises(LedgerMismatch, match="replaced"):
        world.ledger().write(replaced)
    begun = world.now
    for moved, reason in ((timedelta(hours=2), "expired"), (-timedelta(hours=1), "not_yet_valid")):
        world.now = begun + moved
        assert _refused(world, signed) == reason
    world.now = begun
    forged = signed.model_copy(update={"signature": "0" * 128})
    assert _refused(world, forged) == "signature"
    stranger = AuthorityWorld(world.database, world.provisioner, world.password)
    assert _refused(world, stranger.grant(policy)) == "signer"
    only = world.policy().signers[0].model_copy(update={"phases": ("execution",)})
    bounded = world.trusted(environment="bounded", signers=(only,))
    assert _refused(world, world.grant(bounded)) == "signer"
    assert _refused(world, world.grant(policy, ledger_service_id=str(uuid.uuid4()))) == "ledger"
    world.trusted(policy, max_workloads=2)
    assert _refused(world, signed) == "superseded"


def concurrent_qualifications_of_one_run_are_one(world: AuthorityWorld) -> None:
    policy = world.trusted()
    offers = [world.grant(policy, subject="run-1") for _ in range(2)]
    results = together([lambda g=g: world.store().register(g, BUNDLE) for g in offers])  # type: ignore[misc]
    assert results == ["DPONE_GRANT_CONSUMED", "done"]
    assert len(world.store().grants()) == 1


def concurrent_executions_never_pass_a_ceiling(world: AuthorityWorld) -> None:
    names = ["a", "b", "c", "d", "e"]
    policy = world.trusted(max_workloads=3)
    active = world.activate(*names)
    offers = [world.execution(policy, active, name) for name in names]
    results = together([lambda g=g: world.store().register(g, BUNDLE) for g in offers])  # type: ignore[misc]
    assert results == ["DPONE_GRANT_REFUSED"] * 2 + ["done"] * 3
    granted = [g.grant.workloads[0].workload_id.removeprefix("dag.") for g in world.store().grants()]
    assert len(granted) == 3
    admissions = [lambda n=name: world.attempts().admit_once(active.attempt(n, run_id="r")) for name in granted]
    assert together(admissions) == ["DPONE_GRANT_MISSING", "done", "done"]  # two attempts is what each grant allows
    assert world.store().audit() == []


def a_registration_broken_off_half_way_leaves_nothing(world: AuthorityWorld) -> None:
    policy = world.trusted()
    before = world.snapshot()
    signed = world.grant(policy, workloads=[workload("one"), workload("two")])
    with CuttingProxy(world.database.host, world.database.port) as proxy:
        proxy.cut_on(b"dpone.grant_membership.v1", forward=False)
        with pytest.raises(LedgerUnavailable):
            world.store(port=proxy.port).register(signed, BUNDLE)
        assert proxy.cuts == 1
    assert world.snapshot() == before
    _registered(world, signed)
    assert world.store().audit() == []


def a_lost_acknowledgement_is_read_back_exactly(world: AuthorityWorld) -> None:
    policy = world.trusted()
    signed = world.grant(policy)
    with CuttingProxy(world.database.host, world.database.port) as proxy:
        proxy.cut_on(world.database.commit_marker, forward=True)
        assert world.store(port=proxy.port).register(signed, BUNDLE).signed == signed
        assert proxy.cuts == 1
    other = world.grant(policy, subject="run-2")
    opened: list[int] = []
    entry = other.grant.entry().removeprefix("sha256:")
    with CuttingProxy(world.database.host, world.database.port) as proxy:
        proxy.cut_on(world.database.commit_marker, forward=True)

        def connect() -> Any:
            opened.append(1)
            if len(opened) == 2:  # what is read back is not what was written
                key = world.here(f"'\\x{entry}'", f"0x{entry}")
                world.past_the_rules(f"UPDATE dpone.authority_log SET phase = 2 WHERE entry_sha256 = {key}")
            return world.connect(proxy.port)

        with pytest.raises(CommitUnknown):
            world.store(connect=connect).register(other, BUNDLE)
    assert len(opened) == 2


def a_refused_commit_or_read_back_acknowledges_nothing(world: AuthorityWorld) -> None:
    policy = world.trusted()
    before = world.snapshot()
    with CuttingProxy(world.database.host, world.database.port) as proxy:
        proxy.cut_on(world.database.commit_marker, forward=False)
        with pytest.raises(LedgerUnavailable, match="nothing was committed"):
            world.store(port=proxy.port).register(world.grant(policy), BUNDLE)
    assert world.snapshot() == before
    with CuttingProxy(world.database.host, world.database.port) as proxy:
        proxy.cut_on(world.database.commit_marker, forward=True)
        proxy.refuse_after_cut = True
        with pytest.raises(CommitUnknown):
            world.store(port=proxy.port).register(world.grant(policy), BUNDLE)


def altered_memberships_are_found_and_admit_nothing(world: AuthorityWorld) -> None:
    policy = world.trusted()
    active = world.activate("orders")
    _registered(world, world.execution(policy, active, "orders"))
    member = "FROM dpone.authority_log WHERE kind = 3"
    keys = "entry_sha256, kind, environment, revision, epoch, campaign, phase, subject, grant_sha256, document_sha256"
    moved = "'00000000-0000-4000-8000-0000000000cb'"
    hash_of = world.here("sha256(entry_sha256)", "HASHBYTES('SHA2_256', entry_sha256)")

    def found(statement: str, *, admits: bool = False) -> list[str]:
        world.past_the_rules(statement)
        run = uuid.uuid4().hex
        if admits:
            assert not world.attempts().all_open()
        else:
            with pytest.raises(DocumentInvalid):
                world.attempts().admit_once(active.attempt("orders", run_id=run))
        return world.store().audit()

    extra = keys.replace("entry_sha256", hash_of).replace("campaign", moved)
    assert found(f"INSERT INTO dpone.authority_log ({keys}) SELECT {extra} {member}", admits=True)
    assert found(f"DELETE {member} AND campaign = {moved}", admits=True) == []
    assert found("UPDATE dpone.authority_log SET revision = 2147483647 WHERE kind = 3", admits=True)
    assert found("UPDATE dpone.authority_log SET revision = 1 WHERE kind = 3", admits=True) == []
    assert found("UPDATE dpone.authority_log SET campaign = " + moved + " WHERE kind = 3")
    assert found("DELETE FROM dpone.authority_log WHERE kind = 3")
    assert not world.attempts().all_open()


def a_drifted_catalog_registers_nothing(world: AuthorityWorld) -> None:
    policy = world.trusted()
    store = AuthorityStore(world.exact.database.admin(), lambda: world.now)
    table = "dpone.authority_log"
    rule, index = "authority_log_rule", "uq_authority_qualification"
    for alter, restore in (
        (
            [world.here(f"ALTER TABLE {table} DISABLE TRIGGER {rule}", f"DISABLE TRIGGER dpone.{rule} ON {table}")],
            [world.here(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {rule}", f"ENABLE TRIGGER dpone.{rule} ON {table}")],
        ),
        ([f"ALTER TABLE {table} ADD more int"], world.without_column(table, rule)),
        (
            [world.here(f"DROP INDEX dpone.{index}", f"DROP INDEX {index} ON {table}"),
             f"CREATE UNIQUE INDEX {index} ON {table} (subject) WHERE kind = 2"],
            [world.here(f"DROP INDEX dpone.{index}", f"DROP INDEX {index} ON {table}"),
             f"CREATE UNIQUE INDEX {index} ON {table} (subject) WHERE kind = 2 AND phase = 1"],
        ),
    )[: 3 if world.shows("index predicates") else 2]:  # fmt: skip
        world.database.as_admin(*alter)
        with pytest.raises(LedgerMismatch, match="altered"):
            store.register(world.grant(policy), BUNDLE)
        world.database.as_admin(*restore)
        assert store.grants() == []
    store.register(world.grant(policy), BUNDLE)


def a_restricted_login_is_restricted_because_it_is_refused(world: AuthorityWorld) -> None:
    """Every refusal is preceded by proof that the same operation works for an administrator."""
    policy = world.trusted()
    here = _restricted_postgres if world.database.engine == "postgres" else _restricted_mssql
    here(world)
    for statement in (
        "UPDATE dpone.authority_log SET epoch = 9",
        "DELETE FROM dpone.authority_log",
        "ALTER TABLE dpone.authority_log ADD more int",
        world.here("TRUNCATE dpone.authority_log CASCADE", "TRUNCATE TABLE dpone.authority_log"),
    ):
        with pytest.raises(LedgerRule, match=world.denied):
            world.ledger().write(lambda tx, s=statement: tx.connection.execute(text(s)))  # type: ignore[misc]
    signed = world.grant(policy)
    assert world.store().register(signed, BUNDLE).signed == signed


def _restricted_postgres(world: AuthorityWorld) -> None:
    [(directory,)] = world.rows_as_superuser("SHOW data_directory")
    path = f"{directory}/dpone_public_integer"
    world.as_superuser("CREATE TABLE public.scratch (n integer)", f"COPY (SELECT 1) TO '{path}'")
    [(raw,)] = world.rows_as_superuser(f"SELECT pg_read_binary_file('{path}')")
    assert (bytes(raw), hashlib.sha256(bytes(raw)).hexdigest()) == (b"1\n", hashlib.sha256(b"1\n").hexdigest())
    world.as_superuser(f"COPY public.scratch FROM '{path}'", f"GRANT INSERT ON public.scratch TO {world.provisioner}")
    assert world.rows_as_superuser("SELECT n FROM public.scratch") == [(1,)]
    for statement in (
        f"COPY public.scratch FROM '{path}'",
        f"SELECT pg_read_binary_file('{path}')",
        f"SET ROLE {world.database.admin_role}",
        "ALTER TABLE dpone.authority_log DISABLE TRIGGER authority_log_rule",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), world.connect() as connection:
            connection.execute(statement.encode())


def _restricted_mssql(world: AuthorityWorld) -> None:
    from tests.mssql_server import batch, opened

    path = os.environ["DPONE_TEST_MSSQL_PUBLIC_FILE"]  # made by whoever made the server; without it nothing is proved
    server = world.database.under_test  # type: ignore[attr-defined]
    with opened(server.connect(database=world.database.dbname)) as connection:
        [(raw,)] = batch(connection, f"SELECT BulkColumn FROM OPENROWSET(BULK N'{path}', SINGLE_BLOB) AS f")
        assert bytes(raw) == b"1\n"
        batch(connection, "CREATE TABLE dbo.scratch (n int)")
        batch(connection, f"BULK INSERT dbo.scratch FROM N'{path}' WITH (ROWTERMINATOR = '0x0a')")
        assert batch(connection, "SELECT n FROM dbo.scratch") == [(1,)]
        batch(connection, f"GRANT INSERT ON dbo.scratch TO {world.provisioner}")
    for statement, numbers in (
        (f"BULK INSERT dbo.scratch FROM N'{path}' WITH (ROWTERMINATOR = '0x0a')", (229, 4834)),
        ("DISABLE TRIGGER dpone.authority_log_rule ON dpone.authority_log", (1088, 15151)),
        (f"EXECUTE AS USER = N'{world.database.runtime_role}'", (15517,)),
        ("EXECUTE AS LOGIN = N'sa'", (15406,)),
    ):
        with opened(world.connect()) as connection:
            tokens = batch(connection, "SELECT name FROM sys.login_token UNION ALL SELECT name FROM sys.user_token")
            assert (world.provisioner,) in tokens
            assert not {name for (name,) in tokens} & {"sysadmin", "db_owner", "bulkadmin"}
            with pytest.raises(pyodbc_error()) as caught:
                batch(connection, statement)
            assert diagnose(caught.value).number in numbers


def session_options_are_enforced(world: AuthorityWorld) -> None:
    """SQL Server only: a filtered index refuses writes of a session with other options, whatever the client meant."""
    from tests.mssql_server import batch, opened

    policy = world.trusted()
    _registered(world, world.grant(policy))
    before = world.snapshot()
    for option in ("ARITHABORT OFF", "NUMERIC_ROUNDABORT ON"):
        with opened(world.database.connect_admin()) as connection:
            batch(connection, f"SET ANSI_WARNINGS OFF; SET {option}; BEGIN TRANSACTION;")
            batch(connection, world.lock("Exclusive"))
            with pytest.raises(pyodbc_error()) as caught:
                batch(
                    connection,
                    "INSERT INTO dpone.authority_log (entry_sha256, kind, environment, revision, epoch, document_sha256)"
                    " SELECT document_sha256, 1, N'other', 1, 0, document_sha256 FROM dpone.authority_log WHERE kind = 1",
                )
            assert diagnose(caught.value).number == 1934
        with opened(world.database.connect_admin()) as connection:
            batch(connection, f"SET ANSI_WARNINGS OFF; SET {option};")
            assert batch(connection, "SELECT COUNT(*) FROM dpone.authority_log WHERE kind = 2") == [(1,)]
    assert world.snapshot() == before


def pyodbc_error() -> type[Exception]:
    return driver_errors("mssql")[0]


CASES = {
    "R1": the_catalog_is_exactly_what_was_installed,
    "R2": a_bundle_of_eight_mib_is_kept_to_the_byte,
    "R3": a_grant_cannot_be_changed_or_written_past_the_store,
    "R4": an_execution_grant_is_bound_once_and_may_be_repeated,
    "R5": a_qualification_is_consumed_once,
    "R6": ceilings_are_kept_and_nothing_is_half_stored,
    "R7": the_audit_reads_every_page,
    "R8": history_stays_readable_and_authorises_nothing,
    "R9": nothing_is_registered_outside_its_conditions,
    "R10": concurrent_qualifications_of_one_run_are_one,
    "R11": concurrent_executions_never_pass_a_ceiling,
    "R12": a_registration_broken_off_half_way_leaves_nothing,
    "R13": a_lost_acknowledgement_is_read_back_exactly,
    "R14": a_refused_commit_or_read_back_acknowledges_nothing,
    "R15": altered_memberships_are_found_and_admit_nothing,
    "R16": a_drifted_catalog_registers_nothing,
    "R17": a_restricted_login_is_restricted_because_it_is_refused,
    "R18": session_options_are_enforced,
}
