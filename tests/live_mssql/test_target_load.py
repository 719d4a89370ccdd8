"""Loads from PostgreSQL into SQL Server: exact, in one transaction, with an outcome that is observed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_dpone.engines.mssql.load_writer import MssqlLoadWriter
from airflow_provider_dpone.errors import (
    AnswerLost,
    DponeError,
    PublicationUnknown,
    ServerRefused,
    TooFewRows,
    ValueNotExact,
)
from airflow_provider_dpone.ledger.dialects.mssql.explicit import batch
from tests.cutting_proxy import CuttingProxy
from tests.live_mssql.striking import strike
from tests.live_mssql.target_world import MssqlWorld

pytestmark = pytest.mark.timeout(900)  # a stand-in takes a minute for what a server does in a second
OLD = [(1, "old"), (2, "old")]
DONE = {"running": 0, "commit_unknown": 0, "open_guards": 0, "open_gates": 0}


@pytest.fixture
def world(mssql_world: MssqlWorld) -> MssqlWorld:
    """A source of three new rows and a target that holds two old ones."""
    mssql_world.make_load(
        "t", "id int NOT NULL, v text", "VALUES (1, 'new'), (2, 'néw 😀'), (3, NULL)", "id int NOT NULL, v nvarchar(20)"
    )
    mssql_world.sql("INSERT INTO mart.t VALUES (1, 'old'), (2, 'old')")
    return mssql_world


def new_rows(world: MssqlWorld) -> list[tuple[Any, ...]]:
    return world.source_sql("SELECT * FROM t ORDER BY 1")


def settled(world: MssqlWorld) -> dict[str, int]:
    counts = world.ledger_counts()
    return {name: counts[name] for name in DONE}


def test_a_load_replaces_the_rows(world: MssqlWorld) -> None:
    receipt = world.cell("t").run()
    assert receipt.rows == 3
    assert world.rows("t") == new_rows(world)
    assert world.receipts() == 1
    assert settled(world) == DONE
    assert world.stagings() == world.roles() == []


#: Type in PostgreSQL, type in SQL Server, how it is read back, values in PostgreSQL, the same as they are read back.
VALUES: list[tuple[str, str, str, list[tuple[str, object]]]] = [
    ("bool", "bit", "{c}", [("true", True), ("false", False)]),
    ("smallint", "tinyint", "{c}", [("0", 0), ("255", 255)]),
    ("smallint", "smallint", "{c}", [("-32768", -32768), ("32767", 32767)]),
    ("int", "int", "{c}", [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)]),
    ("bigint", "bigint", "{c}", [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)]),
    ("bigint", "decimal(19,0)", "{c}", [("-9223372036854775808", Decimal(-(2**63)))]),
    ("real", "real", "{c}", [("1.5", 1.5), ("'3.4028235e38'", 3.4028234663852886e38), ("'1.1754944e-38'", 2.0**-126)]),
    ("double precision", "float", "{c}", [("'1.7976931348623157e308'", 1.7976931348623157e308), ("0.1", 0.1),
                                          ("'2.2250738585072014e-308'", 2.0**-1022)]),
    ("numeric(20,10)", "decimal(20,10)", "{c}", [("9999999999.9999999999", Decimal("9999999999.9999999999")),
                                                 ("-0.0000000001", Decimal("-0.0000000001")), ("1", Decimal("1.0000000000"))]),
    ("numeric(38,18)", "decimal(38,18)", "{c}", [("99999999999999999999.999999999999999999", Decimal("99999999999999999999.999999999999999999")),
                                                 ("99999999999999999999.999999999999999999", Decimal("99999999999999999999.999999999999999999"))]),
    ("numeric", "decimal(38,0)", "{c}", [("-" + "9" * 38, Decimal("-" + "9" * 38)), ("7", Decimal(7))]),
    ("text", "nvarchar(max)", "{c}", [("''", ""), ("E'a\\tb\\n\\\\\"\\x01'", 'a\tb\n\\"\x01'), ("'é😀 '", "é😀 "), ("repeat('x', 4100)", "x" * 4100)]),
    ("varchar(5)", "nvarchar(6)", "{c}", [("'abcde'", "abcde"), ("'  '", "  "), ("'a😀b'", "a😀b")]),
    ("char(3)", "nchar(3)", "{c}", [("'abc'", "abc"), ("'a'", "a  ")]),
    ("text", "varchar(20)", "{c}", [("'plain'", "plain"), ("''", "")]),
    ("bytea", "varbinary(max)", "{c}", [("'\\x00ff'", b"\x00\xff"), ("'\\x'", b"")]),
    ("bytea", "binary(2)", "{c}", [("'\\x00de'", b"\x00\xde")]),
    ("uuid", "uniqueidentifier", "LOWER(CONVERT(nvarchar(36), {c}))", [("'01020304-0506-0708-090a-0b0c0d0e0f10'", "01020304-0506-0708-090a-0b0c0d0e0f10")]),
    ("date", "date", "CONVERT(nvarchar(10), {c}, 23)", [("'0001-01-01'", "0001-01-01"), ("'9999-12-31'", "9999-12-31")]),
    ("time", "time(6)", "LEFT(CONVERT(nvarchar(20), {c}, 121), 15)", [("'23:59:59.999999'", "23:59:59.999999")]),
    ("timestamp", "datetime2(6)", "LEFT(CONVERT(nvarchar(40), {c}, 121), 26)", [("'0001-01-01 00:00:00.000001'", "0001-01-01 00:00:00.000001"),
                                                               ("'9999-12-31 23:59:59.999999'", "9999-12-31 23:59:59.999999")]),
    ("timestamp(3)", "datetime2(3)", "LEFT(CONVERT(nvarchar(40), {c}, 121), 23)", [("'2024-03-31 03:30:00.123'", "2024-03-31 03:30:00.123")]),
    ("timestamptz", "datetimeoffset(6)", "LEFT(CONVERT(nvarchar(40), SWITCHOFFSET({c}, '+00:00'), 121), 26)",
     [("'2024-03-31 03:30:00.000001+02'", "2024-03-31 01:30:00.000001")]),
    ("interval", "nvarchar(max)", "{c}", [("'1 month -2 days 03:04:05.000006'", "1 mon -2 days +03:04:05.000006")]),
    ("jsonb", "nvarchar(max)", "{c}", [("""'{"n": 1.10000000000000000000001}'""", '{"n": 1.10000000000000000000001}')]),
]  # fmt: skip


def test_every_type_arrives_exactly(mssql_world: MssqlWorld) -> None:
    world = mssql_world
    longest = max(len(values) for *_, values in VALUES)
    source = ", ".join(f"c{i} {kind}" for i, (kind, *_) in enumerate(VALUES))
    target = ", ".join(f"c{i} {kind}" for i, (_, kind, *_) in enumerate(VALUES))
    rows = [
        f"SELECT {n}, " + ", ".join(f"({values[n][0]})::{kind}" if n < len(values) else f"NULL::{kind}"
                                    for kind, _, _, values in VALUES)
        for n in range(longest + 1)
    ]  # fmt: skip
    world.make_load("t", f"id int NOT NULL, {source}", " UNION ALL ".join(rows), f"id int NOT NULL, {target}")
    assert world.cell("t").run().rows == len(rows)
    for i, (_, kind, read, values) in enumerate(VALUES):
        found = [value for (value,) in world.sql(f"SELECT {read.format(c=f'c{i}')} FROM mart.t ORDER BY id")]
        assert found == [value for _, value in values] + [None] * (len(rows) - len(values)), kind


def test_vanished_rows_go_duplicates_stay_and_an_empty_source_empties_the_target(world: MssqlWorld) -> None:
    world.source_sql("DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (1, 'new'), (1, 'new')")
    assert world.cell("t", run_id="one").run().rows == 4
    assert world.rows("t") == [(1, "new"), (1, "new"), (1, "new"), (3, None)]
    world.source_sql("DELETE FROM t")
    with pytest.raises(TooFewRows):
        world.cell("t", run_id="two", min_rows=1).run()
    assert len(world.rows("t")) == 4
    assert world.cell("t", run_id="three").run().rows == 0
    assert world.rows("t") == []
    assert settled(world) == DONE


def test_failure_after_the_old_rows_were_deleted_brings_them_back(world: MssqlWorld) -> None:
    world.sql("ALTER TABLE mart.t ADD CONSTRAINT small CHECK (id < 3)")
    with pytest.raises(ServerRefused, match="small"):
        world.cell("t").run()
    assert world.rows("t") == OLD
    assert world.receipts() == 0
    assert settled(world) == DONE


def test_text_that_a_code_page_would_cut_is_refused_and_what_fits_is_taken(mssql_world: MssqlWorld) -> None:
    world = mssql_world
    world.make_load("t", "v text", "VALUES ('twenty characters !! '), ('a ')", "v varchar(20)")
    with pytest.raises(ValueNotExact, match="twenty"):
        world.cell("t", run_id="one").run()
    assert world.sql("SELECT v FROM mart.t") == []
    world.source_sql("UPDATE t SET v = 'twenty characters !!' WHERE v <> 'a '")
    assert world.cell("t", run_id="two").run().rows == 2
    assert world.sql("SELECT DATALENGTH(v) FROM mart.t ORDER BY 1") == [(2,), (20,)]
    assert settled(world) == DONE


def test_readers_see_the_old_rows_or_the_new_and_never_wait(world: MssqlWorld) -> None:
    stop, seen, longest = threading.Event(), set(), 0.0

    def read() -> None:
        nonlocal longest
        with closing(world.mssql.connect(database=world.database)) as connection:
            while not stop.wait(0.05):
                started = time.monotonic()
                seen.add(tuple(v for (v,) in batch(connection, "SELECT v FROM mart.t ORDER BY id")))
                longest = max(longest, time.monotonic() - started)

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        original = MssqlLoadWriter.commit

        def slowly(self: MssqlLoadWriter, record: Any) -> None:
            time.sleep(5)  # the swap is done and not committed
            original(self, record)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MssqlLoadWriter, "commit", slowly)
            world.cell("t").run()
        time.sleep(0.5)
        stop.set()
        reader.result(60)
    assert seen == {("old", "old"), tuple(v for _, v in new_rows(world))}
    assert longest < 5


@pytest.mark.needs("rights to alter", "isolation as an option of a database")
def test_readers_that_may_wait_let_a_table_be_truncated(mssql_world: MssqlWorld) -> None:
    world = mssql_world
    world.sql(f"ALTER DATABASE {world.database} SET READ_COMMITTED_SNAPSHOT OFF WITH ROLLBACK IMMEDIATE")
    world.source_sql("CREATE TABLE t (id int NOT NULL)")
    world.source_sql("INSERT INTO t VALUES (1), (2)")
    world.sql("CREATE TABLE mart.t (id int NOT NULL)")
    world.sql("INSERT INTO mart.t VALUES (7)")
    world.activate(world.declare("t", options={"readers_may_wait": True}))
    assert world.cell("t").run().rows == 2
    assert world.rows("t") == [(1,), (2,)]
    assert settled(world) == DONE


# --- outcomes -------------------------------------------------------------------------------------------------------

COMMIT = "COMMIT TRANSACTION;".encode("utf-16le")


def test_lost_commit_answer_is_decided_by_the_receipt_committed(world: MssqlWorld) -> None:
    with CuttingProxy(world.mssql.host, world.mssql.port) as proxy:
        proxy.cut_on(COMMIT, forward=True)
        receipt = world.cell("t", port=proxy.port).run()
        assert proxy.cuts == 1
    assert receipt.state == "LOADED"
    assert world.rows("t") == new_rows(world)
    assert world.receipts() == 1
    assert settled(world) == DONE


def test_lost_commit_answer_is_decided_by_the_receipt_not_committed(world: MssqlWorld) -> None:
    with CuttingProxy(world.mssql.host, world.mssql.port) as proxy:
        proxy.cut_on(COMMIT, forward=False)
        with pytest.raises(DponeError) as lost:
            world.cell("t", port=proxy.port).run()
        assert proxy.cuts == 1
    assert lost.value.retryable
    assert world.rows("t") == OLD
    assert world.receipts() == 0
    assert settled(world) == DONE


def test_rows_committed_without_a_receipt_are_unknown_and_hold_the_guard(world: MssqlWorld) -> None:
    cell = world.cell("t")
    swap = cell._swap

    def cheat(plan: Any, staging: str, record: Any, worker: Any, writer: Any) -> None:
        connection = world.login(worker)
        batch(connection, "INSERT INTO mart.t VALUES (9, N'mine')")
        connection.close()
        writer.commit = lambda record: (_ for _ in ()).throw(AnswerLost("cut"))
        swap(plan, staging, record, worker, writer)

    cell._swap = cheat  # type: ignore[method-assign]
    with pytest.raises(PublicationUnknown):
        cell.run()
    assert (9, "mine") in world.rows("t")
    assert settled(world)["commit_unknown"] == 1
    assert settled(world)["open_guards"] == 1


# --- processes that die, freeze and wake ------------------------------------------------------------------------------


def test_killed_before_the_commit_nothing_happened_and_a_retry_loads(world: MssqlWorld) -> None:
    strike(world, "commit", after=False).kill()
    assert world.receipts() == 0
    assert world.cell("t", try_number=2).run().rows == 3  # settles the dead attempt, whose transaction is rolled back
    assert world.rows("t") == new_rows(world)
    assert world.receipts() == 1
    assert world.ledger_counts()["failed"] == 1
    assert settled(world) == DONE


def test_killed_after_the_commit_a_retry_finds_it_and_copies_nothing(world: MssqlWorld) -> None:
    strike(world, "commit", after=True).kill()
    assert world.rows("t") == new_rows(world)
    receipt = world.cell("t", try_number=2).run()
    assert receipt.reused
    assert world.receipts() == 1
    assert settled(world) == DONE


def test_worker_that_wakes_after_its_attempt_was_settled_changes_nothing(world: MssqlWorld) -> None:
    zombie = strike(world, "commit", after=False)
    assert world.cell("t", try_number=2).run().rows == 3
    world.source_sql("DELETE FROM t WHERE id = 1")
    zombie.wake()
    ended = zombie.result(120)
    assert ended["code"] != "LOADED"
    assert world.receipts() == 1
    assert world.rows("t") == [(1, "new"), *new_rows(world)]
    assert settled(world) == DONE
