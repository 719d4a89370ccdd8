"""Loads into PostgreSQL on a real server: exact, in one transaction, with an outcome that is observed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from airflow_provider_dpone.attempts.cells.load import LoadCell
from airflow_provider_dpone.attempts.settle import Cause, Settler
from airflow_provider_dpone.attempts.sql import SqlWorld
from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.attempts.world import utc_now
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.contracts.proofs import Adjudication
from airflow_provider_dpone.contracts.states import AttemptState, Purpose
from airflow_provider_dpone.errors import (
    CeilingExceeded,
    DponeError,
    Fenced,
    GuardHeld,
    PublicationUnknown,
    ReconciliationFailed,
    ServerRefused,
    Stopped,
    TargetUnsupported,
    TooFewRows,
    TypeNotMapped,
    ValueNotExact,
)
from airflow_provider_dpone.ledger.schema import EvidenceKind
from tests.attempt_process import AttemptProcess
from tests.cutting_proxy import CuttingProxy
from tests.schema_world import SchemaWorld

OLD = [(1, "old"), (2, "old")]
DONE = {"running": 0, "commit_unknown": 0, "open_guards": 0, "open_gates": 0}


@pytest.fixture
def world(schema_world: SchemaWorld) -> SchemaWorld:
    """A source of three new rows and a target that holds two old ones."""
    schema_world.make_load("t", "id int NOT NULL, v text", "VALUES (1, 'new'), (2, 'new'), (3, NULL)")
    schema_world.sql("INSERT INTO mart.t VALUES (1, 'old'), (2, 'old')")
    return schema_world


def new_rows(world: SchemaWorld) -> list[tuple[Any, ...]]:
    return world.source_sql("SELECT * FROM t ORDER BY 1")


def settled(world: SchemaWorld) -> dict[str, int]:
    counts = world.ledger_counts()
    return {name: counts[name] for name in DONE}


# --- values -----------------------------------------------------------------------------------------------------

COLUMNS = {
    "bool": ["true", "false"],
    "smallint": ["-32768", "32767", "0"],
    "int": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "real": ["'NaN'", "'-Infinity'", "1.1754944e-38", "-0.0", "3.4028235e38"],
    "double precision": ["'NaN'", "'Infinity'", "5e-324", "-0.0", "1.7976931348623157e308"],
    "numeric(20,10)": ["9999999999.9999999999", "-9999999999.9999999999", "0", "0.0000000001", "1", "10000", "-0.5"],
    "numeric(38,18)": ["99999999999999999999.999999999999999999", "-0.000000000000000001", "12340000.5678"],
    "numeric(76,0)": ["9" * 76, "-" + "9" * 76, "10000000000000000"],
    "numeric(5,5)": ["0.00001", "-0.99999", "0.1"],
    "numeric(7,0)": ["1230000", "9", "-1000000"],
    "numeric": ["1.50", "1e100", "-0.000000000000000000000000000001", "'NaN'", "'-Infinity'", "0.0"],
    "numeric(3,-2)": ["99900", "-100"],
    "text": ["''", "'x'", "E'a\\tb\\n\\\\.'", "'\U0001f600é'", "repeat('long ', 50000)"],
    "varchar(5)": ["'abcde'", "''", "'  '", "'ééééé'"],
    "char(3)": ["'a'", "'abc'", "''"],
    "name": ["'n'"],
    "bytea": ["'\\x00ff'", "'\\x'", "repeat('z', 100000)::bytea"],
    "uuid": ["'01020304-0506-0708-090a-0b0c0d0e0f10'"],
    "date": ["'0001-01-01'", "'9999-12-31'", "'4713-01-01 BC'", "'2000-01-01'", "'1969-12-31'"],
    "time": ["'00:00:00'", "'23:59:59.999999'", "'24:00:00'"],
    "time(0)": ["'12:34:56'"],
    "timestamp": ["'0001-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.999999'"],
    "timestamp(3)": ["'2024-03-31 03:30:00.123'"],
    "timestamptz": ["'2024-03-31 03:30:00+02'", "'0001-01-01 00:00:00+00'"],
    "timetz": ["'12:00:00.5+05:30'"],
    "interval": ["'1 month -2 days 03:04:05.000006'", "'-178000000 years'"],
    "inet": ["'10.0.0.1'", "'2001:db8::/32'"],
    "cidr": ["'10.0.0.0/8'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "json": ["""'{"a" : 1, "a":2}'"""],
    "jsonb": ["""'{"n": 1.10000000000000000000001}'"""],
    "bit(3)": ["B'101'"],
    "varbit": ["B'1'"],
    "int4range": ["'[1,5)'", "'empty'"],
    "nummultirange": ["'{[1.1,2.2)}'"],
    "point": ["'(1.1,-2)'"],
    "tsvector": ["'a:1 b:2'"],
    "pg_lsn": ["'16/B374D848'"],
    "int[]": ["'{1,NULL,3}'", "'{}'", "'{{1,2},{3,4}}'", "'[0:1]={7,8}'"],
    "text[]": ["""ARRAY['a,b', '"', NULL, '']"""],
    "timestamptz[]": ["ARRAY['2024-01-01 00:00:00+02'::timestamptz]"],
    "numeric(6,2)[]": ["'{1.10,-2}'"],
    "oid": ["4294967295"],
    '"char"': ["'x'"],
    "public.colour": ["'red'", "'dark blue'"],
    "public.pair": ["ROW(1, 'x,y')"],
    "money": ["'12.34'"],
}


def test_every_type_arrives_exactly(schema_world: SchemaWorld) -> None:
    world = schema_world
    refused = {"money"}  # its text form depends on a locale, and no numeric target is given
    kinds = [kind for kind in COLUMNS if kind not in refused]
    types = "CREATE TYPE public.colour AS ENUM ('red', 'dark blue'); CREATE TYPE public.pair AS (a int, b text)"
    world.source_sql(types)
    world.sql(types)
    columns = "id int NOT NULL, " + ", ".join(f'"c{i}" {kind}' for i, kind in enumerate(kinds))
    longest = max(len(values) for values in COLUMNS.values())
    rows = [
        f"SELECT {n}, " + ", ".join(f"({values[n]})::{kind}" if n < len(values) else "NULL"
                                    for kind, values in COLUMNS.items() if kind in kinds)
        for n in range(longest + 1)
    ]  # fmt: skip
    world.make_load("t", columns, " UNION ALL ".join(rows))
    receipt = world.cell("t").run()
    pinned = "SET extra_float_digits = 1; SET TimeZone = 'UTC'; "
    source = world.source_sql(f"{pinned}SELECT t::text FROM public.t AS t ORDER BY id")
    assert world.sql(f"{pinned}SELECT t::text FROM mart.t AS t ORDER BY id") == source
    for i, kind in enumerate(kinds):  # binary forms too: minus zero, padding, scale
        if kind in ("real", "double precision", "char(3)", "numeric"):
            column = f'"c{i}"'
            probe = f"SELECT encode(record_send(ROW({column})), 'hex') FROM {{}} ORDER BY id"
            assert world.sql(probe.format("mart.t")) == world.source_sql(probe.format("public.t")), kind
    assert receipt.rows == len(rows)


@pytest.mark.parametrize("seed", range(3))
def test_decimals_of_every_precision_and_scale_keep_every_digit(schema_world: SchemaWorld, seed: int) -> None:
    world = schema_world
    shapes = [(p, s) for p in (1, 4, 5, 9, 18, 19, 37, 38, 39, 57, 76) for s in (0, 1, 3, 4, 5, 8, 18, 38) if s <= p]
    columns = "id int, " + ", ".join(f"c_{p}_{s} numeric({p},{s})" for p, s in shapes)
    values = ", ".join(
        f"(CASE WHEN i % 7 = 0 THEN NULL ELSE (CASE WHEN i % 2 = 0 THEN -1 ELSE 1 END) * "
        f"(left(regexp_replace(md5(i::text || '{p}{s}{seed}') || md5(i::text || 'b') || md5(i::text || 'c'), "
        f"'[a-f]', (i % 10)::text, 'g'), 1 + i % {p})::numeric / power(10::numeric, {s})) END)::numeric({p},{s})"
        for p, s in shapes
    )
    world.make_load("t", columns, f"SELECT i, {values} FROM generate_series(1, 300) AS i")
    world.cell("t").run()
    assert world.rows("t") == new_rows(world)


@pytest.mark.parametrize(
    ("source", "target", "value", "why"),
    [
        ("text", "varchar(5)", "'123456'", "more than 5 characters"),
        ("text", "varchar(3)", "'abc   '", "more than 3 characters"),
        ("varchar(2)", "char(3)", "'ab'", "exactly 3 characters"),
        ("numeric", "numeric(3,2)", "1.005", "fraction digits"),
        ("numeric", "numeric(4,2)", "153.4", "before the point"),
        ("numeric(8,5)", "numeric(7,5)", "153.41526", "before the point"),
        ("numeric", "numeric(10,2)", "'NaN'", "NaN"),
        ("numeric", "int", "1.5", "fraction"),
        ("bigint", "int", "1099511627776", "range"),
        ("double precision", "real", "0.1", "significant bits"),
        ("timestamp", "timestamp(0)", "'2024-01-01 00:00:00.5'", "fraction digits"),
        ("time", "time(3)", "'00:00:00.0001'", "fraction digits"),
        ("timestamp", "timestamp", "'infinity'", "infinity"),
        ("timestamptz", "timestamptz", "'-infinity'", "-infinity"),
        ("date", "date", "'infinity'", "infinity"),
        ("interval", "interval(0)", "'1.5 seconds'", "would become 00:00:02"),
        ("numeric(6,2)[]", "numeric(6,1)[]", "'{1.15}'", "would become"),
    ],
)  # fmt: skip
def test_value_that_does_not_fit_is_refused_and_the_target_keeps_its_rows(
    schema_world: SchemaWorld, source: str, target: str, value: str, why: str
) -> None:
    world = schema_world
    world.make_load("t", f"id int, v {source}", f"VALUES (1, NULL), (2, ({value})::{source})", f"id int, v {target}")
    world.sql("INSERT INTO mart.t VALUES (7, NULL)")
    with pytest.raises(ValueNotExact) as refused:
        world.cell("t").run()
    assert why in refused.value.message
    assert refused.value.details["column"] == "v"
    assert world.rows("t") == [(7, None)]
    assert settled(world) == DONE
    assert world.stagings() == world.roles() == []


@pytest.mark.parametrize(
    ("source", "target"),
    [("text", "int"), ("timestamp", "timestamptz"), ("timestamptz", "timestamp"), ("int", "boolean"), ("money", "text"),
     ("text", "bytea"), ("interval", "time"), ("json", "jsonb"), ("int[]", "bigint[]"), ("uuid", "bytea")],
)  # fmt: skip
def test_pair_of_types_without_an_exact_conversion_is_refused_before_admission(
    schema_world: SchemaWorld, source: str, target: str
) -> None:
    schema_world.make_load("t", f"v {source}", "VALUES (NULL)", f"v {target}")
    with pytest.raises(TypeNotMapped, match="v"):
        schema_world.cell("t").run()
    assert schema_world.ledger_counts()["failed"] == 0


def test_columns_are_mapped_by_name_and_generated_ones_are_left_out(schema_world: SchemaWorld) -> None:
    world = schema_world
    world.make_load(
        "t", 'a int NOT NULL, "b ""c." text, d numeric(4,2)', "VALUES (5, 'x', 0.07), (9, NULL, NULL)",
        'd numeric(4,2), double int GENERATED ALWAYS AS (a * 2) STORED, "b ""c." text DEFAULT \'dflt\', '
        "a int GENERATED ALWAYS AS IDENTITY",
    )  # fmt: skip
    world.cell("t").run()
    assert world.sql('SELECT a, "b ""c.", d, double FROM mart.t ORDER BY a') == [
        (5, "x", Decimal("0.07"), 10), (9, None, None, 18),
    ]  # fmt: skip


def test_duplicates_are_kept_and_vanished_rows_go(world: SchemaWorld) -> None:
    world.source_sql("DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (1, 'new'), (1, 'new')")
    receipt = world.cell("t").run()
    assert world.rows("t") == [(1, "new"), (1, "new"), (1, "new"), (3, None)]
    assert receipt.rows == 4


def test_empty_source_empties_the_target_unless_min_rows_forbids(world: SchemaWorld) -> None:
    world.source_sql("DELETE FROM t")
    with pytest.raises(TooFewRows):
        world.cell("t", run_id="one", min_rows=1).run()
    assert world.rows("t") == OLD
    assert world.cell("t", run_id="two").run().rows == 0
    assert world.rows("t") == []
    assert settled(world) == DONE


def test_ceiling_stops_the_load_and_leaves_the_target(world: SchemaWorld) -> None:
    with pytest.raises(CeilingExceeded):
        world.cell("t", limits=SnapshotLimits(max_source_bytes="1 GiB", max_rows=2)).run()
    assert world.rows("t") == OLD
    assert settled(world) == DONE


# --- the target ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attach", "feature"),
    [
        ("CREATE FUNCTION mart.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
         "CREATE TRIGGER eats BEFORE INSERT ON mart.t FOR EACH ROW EXECUTE FUNCTION mart.f()", "trigger:mart.t.eats"),
        ("CREATE RULE no AS ON DELETE TO mart.t DO INSTEAD NOTHING", "rule:mart.t.no"),
        ("ALTER TABLE mart.t ADD PRIMARY KEY (id); CREATE TABLE mart.u (id int REFERENCES mart.t)",
         "referenced_by:mart.u.u_id_fkey"),
        ("CREATE TABLE mart.child () INHERITS (mart.t)", "inheritance:mart.t over mart.child"),
    ],
)  # fmt: skip
def test_what_is_attached_to_the_target_refuses_the_load(world: SchemaWorld, attach: str, feature: str) -> None:
    world.sql(f"SET ROLE {world.owner}; {attach}")
    with pytest.raises(TargetUnsupported) as refused:
        world.cell("t").run()
    assert feature in refused.value.message
    assert world.ledger_counts()["failed"] == 0
    assert world.rows("t") == OLD


def test_row_security_on_the_target_refuses_the_load(world: SchemaWorld) -> None:
    world.sql("ALTER TABLE mart.t ENABLE ROW LEVEL SECURITY")
    with pytest.raises(TargetUnsupported, match="row security"):
        world.cell("t").run()


def test_default_privileges_that_open_the_staging_table_refuse_the_load(world: SchemaWorld) -> None:
    world.sql(f"CREATE ROLE meddler_{world.tag} LOGIN; ALTER DEFAULT PRIVILEGES FOR ROLE {world.owner} IN SCHEMA mart GRANT UPDATE ON TABLES "
              f"TO meddler_{world.tag}")  # fmt: skip
    with pytest.raises(DponeError) as refused:
        world.cell("t").run()
    assert refused.value.code == "DPONE_AMBIENT_WRITER"
    assert world.rows("t") == OLD
    assert settled(world) == DONE
    assert world.stagings() == []


def test_lock_that_is_not_free_is_tried_again_later(world: SchemaWorld) -> None:
    cell = world.cell("t")
    swap = cell._swap

    def impatient(plan: Any, staging: str, record: Any, worker: Any, writer: Any) -> None:
        writer._lock_wait = 0.3
        with world.postgres.connect(world.database) as holder, holder.transaction():
            holder.execute("LOCK TABLE mart.t IN ROW EXCLUSIVE MODE")
            swap(plan, staging, record, worker, writer)

    cell._swap = impatient  # type: ignore[method-assign]
    with pytest.raises(ServerRefused) as refused:
        cell.run()
    assert refused.value.retryable
    assert world.rows("t") == OLD
    assert settled(world) == DONE


def test_failure_after_the_old_rows_were_deleted_brings_them_back(world: SchemaWorld) -> None:
    world.sql(f"SET ROLE {world.owner}; ALTER TABLE mart.t ADD CONSTRAINT short CHECK (v <> 'new')  NOT VALID")
    with pytest.raises(ServerRefused) as refused:
        world.cell("t").run()
    assert refused.value.details["server_code"] == "23514"
    assert world.rows("t") == OLD
    assert settled(world) == DONE
    assert world.receipts() == 0


def test_target_altered_after_planning_is_refused_inside_the_transaction(world: SchemaWorld) -> None:
    cell = world.cell("t")
    seal = cell._seal

    def alter(*args: Any) -> Any:
        record = seal(*args)
        world.sql("ALTER TABLE mart.t ADD COLUMN w int")
        return record

    cell._seal = alter  # type: ignore[method-assign]
    with pytest.raises(DponeError) as refused:
        cell.run()
    assert refused.value.code == "DPONE_TARGET_CHANGED"
    assert [row[:2] for row in world.rows("t")] == OLD


def test_staging_table_that_lost_its_rows_is_not_swapped_in(world: SchemaWorld) -> None:
    cell = world.cell("t")
    seal = cell._seal

    def lose(*args: Any) -> Any:
        record = seal(*args)
        world.sql(f"DELETE FROM mart.{world.stagings()[0]}")  # as a crash does to an UNLOGGED table
        return record

    cell._seal = lose  # type: ignore[method-assign]
    with pytest.raises(DponeError) as refused:
        cell.run()
    assert refused.value.code == "DPONE_RECONCILIATION_FAILED"
    assert world.rows("t") == OLD


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE mart.{s} SET v = 'wen' WHERE id = 1",
        "UPDATE mart.{s} SET v = CASE id WHEN 1 THEN NULL WHEN 3 THEN 'new' ELSE v END",  # only a row's digest tells
        "DELETE FROM mart.{s} WHERE id = 3",
        "INSERT INTO mart.{s} VALUES (9)",
    ],
)
def test_staging_table_that_differs_from_the_stream_is_refused(world: SchemaWorld, spoil: str) -> None:
    cell = world.cell("t")
    copy = cell._copy

    def spoiled(*args: Any) -> Any:
        copied = copy(*args)
        world.sql(spoil.format(s=world.stagings()[0]))
        return copied

    cell._copy = spoiled  # type: ignore[method-assign]
    with pytest.raises(DponeError) as refused:
        cell.run()
    assert refused.value.code == "DPONE_RECONCILIATION_FAILED"
    assert world.rows("t") == OLD
    assert settled(world) == DONE


def test_aggregates_alone_would_refuse_too(world: SchemaWorld) -> None:
    cell = world.cell("t")
    copy = cell._copy

    def spoiled(plan: Any, staging: str, *rest: Any) -> Any:
        copied = copy(plan, staging, *rest)
        world.sql(f"UPDATE mart.{staging} SET v = 'newer' WHERE id = 1")
        plan.loads.content = lambda table, name: copied.result.content
        return copied

    cell._copy = spoiled  # type: ignore[method-assign]
    with pytest.raises(DponeError, match=r"column 'v': (high|total)"):
        cell.run()
    assert world.rows("t") == OLD


def test_staging_row_changed_after_its_digest_is_refused_inside_the_transaction(world: SchemaWorld) -> None:
    cell = world.cell("t")
    seal = cell._seal

    def change(*args: Any) -> Any:
        record = seal(*args)
        world.sql(f"UPDATE mart.{world.stagings()[0]} SET v = 'other' WHERE id = 1")
        return record

    cell._seal = change  # type: ignore[method-assign]
    with pytest.raises(ReconciliationFailed, match="other rows than the stream"):
        cell.run()
    assert world.rows("t") == OLD
    assert settled(world) == DONE
    assert world.receipts() == 0


@pytest.mark.parametrize(
    "trigger",
    [
        "CREATE TRIGGER zero BEFORE INSERT ON mart.t FOR EACH ROW EXECUTE FUNCTION mart.other()",
        "CREATE CONSTRAINT TRIGGER zero AFTER INSERT ON mart.t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
        "EXECUTE FUNCTION mart.other_later()",  # runs at the commit, unless it is told to run before
    ],
)
def test_accepted_trigger_that_changes_rows_is_found_inside_the_transaction(
    schema_world: SchemaWorld, trigger: str
) -> None:
    """Accepting a trigger lets it see the rows. What it makes of them is compared with the stream."""
    world = schema_world
    world.enrol(accepted=("trigger:mart.t.zero",))
    world.make_load("t", "id int NOT NULL, v text", "VALUES (1, 'new'), (2, 'new'), (3, NULL)")
    world.sql("INSERT INTO mart.t VALUES (1, 'old'), (2, 'old')")
    world.sql(
        f"SET ROLE {world.owner}; CREATE FUNCTION mart.other() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN NEW.v := 'other'; RETURN NEW; END$$; CREATE FUNCTION mart.other_later() RETURNS trigger LANGUAGE "
        "plpgsql SECURITY DEFINER SET search_path = '' AS "
        "$$BEGIN UPDATE mart.t SET v = 'other' WHERE id = NEW.id; RETURN NULL; END$$; "
        "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA mart FROM PUBLIC; " + trigger
    )
    with pytest.raises(ReconciliationFailed, match="other rows than the stream"):
        world.cell("t").run()
    assert world.rows("t") == OLD
    assert settled(world) == DONE
    assert world.receipts() == 0


# --- a woken zombie -------------------------------------------------------------------------------------------------


def test_fenced_load_writes_no_baseline_and_makes_no_staging_table(world: SchemaWorld) -> None:
    cell = world.cell("t")
    preflight, looks = cell.preflight, []

    def fenced(admissible: Any) -> None:
        preflight(admissible)
        looks.append(1)
        if len(looks) == 2:  # the one after admission
            cell.world.attempts.fence(cell.attempt)

    cell.preflight = fenced  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        cell.run()
    assert world.stagings() == []
    assert cell.world.attempts.originals(cell.attempt, EvidenceKind.BASELINE) == []
    assert world.rows("t") == OLD


def test_load_that_wakes_late_leaves_the_staging_table_of_its_successor(world: SchemaWorld) -> None:
    """Between asking whether it still acts and acting it may be frozen for any time."""
    cell, made = world.cell("t"), []
    loads = type(cell.world.target.loads(world.guard.schema, "mart"))  # type: ignore[union-attr]
    stage = loads.stage

    def late(self: Any, table: Any, staging: str, *rest: Any) -> None:
        if not made:
            made.append(staging)
            Settler(cell.world).settle(cell.world.attempts.read_exact(cell.attempt), Cause(None, "settled"))
            successor = world.cell("t", try_number=2)
            copy = successor._copy

            def copied(*args: Any) -> Any:
                filled = copy(*args)
                stage(self, table, staging, *rest)  # the sleeper wakes
                with pytest.raises(Fenced):
                    cell.world.gate_of(cell.attempt).issue_once(Purpose.WORKER, None)
                return filled

            successor._copy = copied  # type: ignore[method-assign]
            assert successor.run().rows == 3
            return
        stage(self, table, staging, *rest)

    loads.stage = late
    try:
        with pytest.raises(Fenced):
            cell.run()
    finally:
        loads.stage = stage
    assert world.rows("t") == new_rows(world)
    assert world.receipts() == 1


# --- outcomes -------------------------------------------------------------------------------------------------------


def test_lost_commit_answer_is_decided_by_the_receipt_committed(world: SchemaWorld) -> None:
    with CuttingProxy(world.postgres.host, world.postgres.port) as proxy:
        proxy.cut_on(b"dpone_gate.conclude", forward=True)
        receipt = world.cell("t", port=proxy.port).run()
        assert proxy.cuts == 1
    assert receipt.state == "LOADED"
    assert world.rows("t") == new_rows(world)
    assert world.receipts() == 1
    assert settled(world) == DONE


def test_lost_commit_answer_is_decided_by_the_receipt_not_committed(world: SchemaWorld) -> None:
    with CuttingProxy(world.postgres.host, world.postgres.port) as proxy:
        proxy.cut_on(b"dpone_gate.conclude", forward=False)
        with pytest.raises(DponeError) as lost:
            world.cell("t", port=proxy.port).run()
        assert proxy.cuts == 1
    assert lost.value.retryable
    assert world.rows("t") == OLD
    assert world.receipts() == 0
    assert settled(world) == DONE
    assert world.cell("t", try_number=2).run().rows == 3


def test_rows_committed_without_a_receipt_are_unknown_and_hold_the_guard(world: SchemaWorld) -> None:
    cell = world.cell("t")
    swap = cell._swap

    def cheat(plan: Any, staging: str, record: Any, worker: Any, writer: Any) -> None:
        def commit(record: Any) -> None:
            writer._session.query("COMMIT")
            raise RuntimeError

        writer.commit = commit
        swap(plan, staging, record, worker, writer)

    cell._swap = cheat  # type: ignore[method-assign]
    with pytest.raises(PublicationUnknown):
        cell.run()
    assert world.rows("t") == new_rows(world)
    assert world.ledger_counts()["commit_unknown"] == 1
    assert world.ledger_counts()["open_guards"] == 1
    with pytest.raises(PublicationUnknown):
        world.cell("t", try_number=2).run()
    seen = world.cell("t").world
    [stored] = seen.attempts.all_open()
    assert Settler(seen).settle(stored, Cause(None, "looked again")).state is AttemptState.COMMIT_UNKNOWN
    signed = Adjudication(
        attempt_sha256=stored.sha256, state=AttemptState.FAILED, decided_by="tester", statement="rows looked at",
        decided_at=utc_now(),
    )  # fmt: skip
    admin = SqlWorld(world.ledger.admin(), seen.target, seen.service_id)
    assert (
        Settler(admin).resolve(stored.sha256, Cause(None, "decided"), adjudication=signed).state is AttemptState.FAILED
    )
    assert world.cell("t", try_number=3).run().rows == 3
    assert settled(world) == DONE


def test_target_changed_by_somebody_else_makes_a_load_without_a_receipt_unknown(world: SchemaWorld) -> None:
    cell = world.cell("t")

    def fail(*args: Any) -> Any:
        world.sql("DELETE FROM mart.t WHERE id = 2; INSERT INTO mart.t VALUES (2, 'old')")  # equal rows, another writer
        raise RuntimeError("broken off")

    cell._seal = fail  # type: ignore[method-assign]
    with pytest.raises(PublicationUnknown) as unknown:
        cell.run()
    assert unknown.value.details["attempt"]


def test_vacuum_of_the_target_changes_no_baseline(world: SchemaWorld) -> None:
    cell = world.cell("t")

    def fail(*args: Any) -> Any:
        world.sql("VACUUM (FULL, FREEZE) mart.t")
        raise RuntimeError("broken off")

    cell._seal = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        cell.run()
    assert world.ledger_counts()["failed"] == 1
    assert settled(world) == DONE


def dying(world: SchemaWorld, when: str) -> Callable[..., LoadCell]:
    """A cell whose process is killed just before or just after its commit."""
    make = world.cell

    def cell(task: str, **options: Any) -> LoadCell:
        made = make(task, **options)
        swap = made._swap

        def killed(plan: Any, staging: str, record: Any, worker: Any, writer: Any) -> None:
            commit = writer.commit

            def die(record: Any) -> None:
                if when == "after":
                    commit(record)
                os.kill(os.getpid(), signal.SIGKILL)

            writer.commit = die
            swap(plan, staging, record, worker, writer)

        made._swap = killed  # type: ignore[method-assign]
        return made

    return cell


@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_around_the_commit_is_settled_by_the_next_try(world: SchemaWorld, when: str) -> None:
    world.cell, honest = dying(world, when), world.cell  # type: ignore[method-assign]
    process = AttemptProcess(world, "t")
    os.waitpid(process.pid, 0)
    assert world.ledger_counts()["running"] == 1
    world.cell = honest  # type: ignore[method-assign]
    world.source_sql("INSERT INTO t VALUES (4, 'later')")
    receipt = world.cell("t", try_number=2).run()
    if when == "after":
        assert receipt.reused, "what the first try committed stands"
        assert receipt.rows == 3
        assert world.receipts() == 1
    else:
        assert not receipt.reused
        assert receipt.rows == 4
        assert world.ledger_counts()["failed"] == 1
    assert settled(world) == DONE
    assert world.stagings() == world.roles() == []


def test_zombie_that_wakes_after_its_settling_cannot_commit(world: SchemaWorld) -> None:
    with world.postgres.connect(world.database) as holder:
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE mart.t IN ROW EXCLUSIVE MODE")  # the swap waits for it
        zombie = AttemptProcess(world, "t")
        deadline = time.monotonic() + 60
        while not world.sql("SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        zombie.freeze()
        holder.execute("COMMIT")
    world.source_sql("UPDATE t SET v = 'newest'")
    receipt = world.cell("t", try_number=2).run()
    zombie.wake()
    ended = zombie.result()
    assert ended["code"] in ("DPONE_ANSWER_LOST", "DPONE_FENCED")
    assert receipt.rows == 3
    assert {row[1] for row in world.rows("t")} == {"newest"}
    assert world.receipts() == 1
    assert settled(world) == DONE


def test_worker_whose_gate_was_closed_is_refused_by_the_fence_in_its_transaction(world: SchemaWorld) -> None:
    cell = world.cell("t")
    swap = cell._swap

    def closed(plan: Any, staging: str, record: Any, worker: Any, writer: Any) -> None:
        commit = writer.commit

        def late(record: Any) -> None:
            world.sql("UPDATE dpone_gate.gate SET state = 3 WHERE state = 2")
            commit(record)

        writer.commit = late
        swap(plan, staging, record, worker, writer)

    cell._swap = closed  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        cell.run()
    assert world.rows("t") == OLD
    assert world.receipts() == 0
    assert settled(world) == DONE


def test_stop_before_the_commit_changes_nothing(world: SchemaWorld) -> None:
    stop = StopFlag()
    cell = world.cell("t", stop=stop)
    seal = cell._seal

    def stopped(*args: Any) -> Any:
        record = seal(*args)
        stop.set("killed by Airflow")
        cell.kill()
        return record

    cell._seal = stopped  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        cell.run()
    assert world.rows("t") == OLD
    assert settled(world) == DONE
    assert world.roles() == []


def test_load_of_another_run_waits_for_the_schema(world: SchemaWorld) -> None:
    cell = world.cell("t", run_id="one")
    seal = cell._seal

    def meanwhile(*args: Any) -> Any:
        with pytest.raises(GuardHeld):
            world.cell("t", run_id="two").run()
        return seal(*args)

    cell._seal = meanwhile  # type: ignore[method-assign]
    assert cell.run().rows == 3


# --- retries --------------------------------------------------------------------------------------------------------


def test_retry_reuses_the_load_only_while_the_target_holds_exactly_it(world: SchemaWorld) -> None:
    world.cell("t").run()
    world.source_sql("INSERT INTO t VALUES (4, 'later')")
    assert world.cell("t", try_number=2).run().reused
    assert world.receipts() == 1
    assert not world.cell("t", try_number=3, max_tries=4).run().reused, "a clear copies anew"
    world.sql("UPDATE mart.t SET v = v WHERE id = 4")
    assert not world.cell("t", try_number=4, max_tries=4).run().reused
    assert world.receipts() == 3


def test_reaper_settles_a_dead_load_without_a_new_try(world: SchemaWorld) -> None:
    world.cell, honest = dying(world, "after"), world.cell  # type: ignore[method-assign]
    process = AttemptProcess(world, "t")
    os.waitpid(process.pid, 0)
    world.cell = honest  # type: ignore[method-assign]
    made = world.cell("t").world
    [stored] = made.attempts.all_open()
    ended = Settler(made).settle(stored, Cause("DPONE_FENCED", "reaped"))
    assert ended.state is AttemptState.SUCCEEDED
    assert Settler(made).sweep() == []
    assert world.stagings() == world.roles() == []


# --- readers --------------------------------------------------------------------------------------------------------


def test_readers_see_no_error_no_wait_no_empty_and_no_mixed_table(world: SchemaWorld) -> None:
    world.source_sql("TRUNCATE t; INSERT INTO t SELECT i, 'round 0' FROM generate_series(1, 20000) AS i")
    world.cell("t", run_id="first").run()
    stop, problems, looks = threading.Event(), [], [0, 0]
    longest = [0.0]

    def look(connection: psycopg.Connection[Any]) -> tuple[Any, ...]:
        started = time.monotonic()
        row = connection.execute("SELECT count(*), min(v), max(v) FROM mart.t").fetchone()
        longest[0] = max(longest[0], time.monotonic() - started)
        assert row is not None
        return row

    def plain() -> None:
        with world.postgres.connect(world.database) as connection:
            while not stop.is_set():
                count, low, high = look(connection)
                looks[0] += 1
                if count != 20000 or low != high:
                    problems.append((count, low, high))

    def repeatable() -> None:
        with world.postgres.connect(world.database) as connection:
            while not stop.is_set():
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                first = look(connection)
                time.sleep(0.2)
                second = look(connection)
                connection.execute("COMMIT")
                looks[1] += 1
                if first != second or first[0] != 20000 or first[1] != first[2]:
                    problems.append((first, second))

    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test fails on any
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (plain, repeatable)]
    for thread in threads:
        thread.start()
    for number in range(1, 6):
        world.source_sql(f"UPDATE t SET v = 'round {number}'")
        world.cell("t", run_id=f"run {number}").run()
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == problems == []
    assert looks[0] > 20
    assert looks[1] > 5
    assert longest[0] < 2.0
