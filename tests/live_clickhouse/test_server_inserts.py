"""INSERT over HTTP: exact formats, errors that are reported, and bodies that end too early."""

from __future__ import annotations

import gzip
import io
import secrets
import struct
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.live_clickhouse.http_requests import PartialRequest, call, eventually, two_tables
from tests.servers import ClickHouseUnderTest

STRICT = {"input_format_null_as_default": "0", "input_format_skip_unknown_fields": "0", "async_insert": "0"}


def rows(count: int, start: int = 0) -> bytes:
    """RowBinary of (Int64, String)."""
    return b"".join(struct.pack("<q", start + n) + b"\x03abc" for n in range(count))


def arrow(batch: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def test_rowbinary_rows_arrive_and_are_counted(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        insert = f"INSERT INTO {tables.a} (id, name) FORMAT RowBinary"
        whole = call(clickhouse_server, insert, rows(1000))
        chunked = call(clickhouse_server, insert, iter([rows(500, 1000), b"", rows(500, 1500)]))
        packed = call(clickhouse_server, insert, gzip.compress(rows(1000, 2000)), headers={"Content-Encoding": "gzip"})
        inside = call(clickhouse_server, "", f"{insert}\n".encode() + rows(10, 3000))
        assert [reply.code for reply in (whole, chunked, packed, inside)] == [0, 0, 0, 0]
        assert '"written_rows":"1000"' in whole.headers["x-clickhouse-summary"]
        found = clickhouse_server.execute(f"SELECT count(), uniqExact(id), max(id), any(name) FROM {tables.a}")
        assert found == [(3010, 3010, 3009, "abc")]


@pytest.mark.parametrize(
    ("fmt", "body"),
    [
        ("TSV", b"1\ta\n2\tb\n"),
        ("CSV", b"1,a\n2,b\n"),
        ("JSONEachRow", b'{"id":1,"name":"a"}\n{"id":2,"name":"b"}'),
        ("Values", b"(1,'a'),(2,'b')"),
        ("ArrowStream", arrow(pa.record_batch({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]}))),
    ],
)
def test_every_format_arrives(clickhouse_server: ClickHouseUnderTest, fmt: str, body: bytes) -> None:
    with two_tables(clickhouse_server) as tables:
        assert call(clickhouse_server, f"INSERT INTO {tables.a} FORMAT {fmt}", body).code == 0
        assert clickhouse_server.execute(f"SELECT * FROM {tables.a} ORDER BY id") == [(1, "a"), (2, "b")]
        native = call(clickhouse_server, f"SELECT * FROM {tables.a} FORMAT Native").body
        assert call(clickhouse_server, f"INSERT INTO {tables.b} FORMAT Native", native).code == 0
        assert call(clickhouse_server, f"INSERT INTO {tables.b} SELECT * FROM {tables.a}").code == 0
        assert clickhouse_server.execute(f"SELECT count() FROM {tables.b}") == [(4,)]


def test_null_for_a_column_that_cannot_hold_it_is_an_error(clickhouse_server: ClickHouseUnderTest) -> None:
    batch = pa.record_batch({"id": pa.array([1, None], pa.int64()), "name": ["a", "b"]})
    with two_tables(clickhouse_server, "id Int64 DEFAULT 7, name String") as tables:
        insert = f"INSERT INTO {tables.a} FORMAT"
        assert call(clickhouse_server, f"{insert} ArrowStream", arrow(batch), **STRICT).code != 0
        assert call(clickhouse_server, f"{insert} TSV", b"\\N\ta\n", **STRICT).code != 0
        assert clickhouse_server.execute(f"SELECT count() FROM {tables.a}") == [(0,)]


@pytest.mark.parametrize(
    ("fmt", "body", "code"),
    [
        ("RowBinary", rows(3)[:-1], 33),
        ("RowBinary", rows(3) + b"\x00", 33),
        ("TSV", b"x\ta\n", 27),
        ("JSONEachRow", b'{"id":1,"nmae":"a"}', 117),
    ],
)
def test_malformed_body_is_an_error_and_nothing_arrives(
    clickhouse_server: ClickHouseUnderTest, fmt: str, body: bytes, code: int
) -> None:
    with two_tables(clickhouse_server) as tables:
        reply = call(clickhouse_server, f"INSERT INTO {tables.a} FORMAT {fmt}", body, **STRICT)
        assert reply.code == code
        assert reply.status >= 400
        assert clickhouse_server.execute(f"SELECT count() FROM {tables.a}") == [(0,)]


def test_violated_constraint_is_an_error(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server, "id Int64, name String, CONSTRAINT small CHECK id < 5") as tables:
        assert call(clickhouse_server, f"INSERT INTO {tables.a} FORMAT RowBinary", rows(10)).code == 469
        assert clickhouse_server.execute(f"SELECT count() FROM {tables.a}") == [(0,)]


@pytest.mark.parametrize("sql", ["INSERT INTO {a}_missing FORMAT TSV", "INSERT INTO {a} (nope) FORMAT TSV"])
def test_missing_table_or_column_is_an_error_though_the_body_is_long(
    clickhouse_server: ClickHouseUnderTest, sql: str
) -> None:
    with two_tables(clickhouse_server) as tables:
        reply = call(clickhouse_server, sql.format(a=tables.a), b"1\ta\n" * 100_000)
        assert reply.code in (16, 60)
        assert reply.status == 404 or reply.code == 16


@pytest.mark.parametrize("step", [10, 100, 500])
def test_client_that_goes_away_in_its_body_inserts_nothing(clickhouse_server: ClickHouseUnderTest, step: int) -> None:
    with two_tables(clickhouse_server) as tables:
        query_id = secrets.token_hex(8)
        admin = clickhouse_server.admin_user, clickhouse_server.admin_password
        body = rows(1000)
        insert = PartialRequest(
            clickhouse_server, f"INSERT INTO {tables.a} FORMAT RowBinary", len(body), *admin, query_id=query_id
        )
        insert.send(body[: 12 * step])  # whole rows: their end could be taken for the end of the data
        listed = f"SELECT 1 FROM system.processes WHERE query_id = '{query_id}'"
        eventually(lambda: clickhouse_server.execute(listed))
        insert.close()
        eventually(lambda: not clickhouse_server.execute(listed))
        assert clickhouse_server.execute(f"SELECT count() FROM {tables.a}") == [(0,)]
        clickhouse_server.execute("SYSTEM FLUSH LOGS")
        log = f"SELECT toString(type) FROM system.query_log WHERE query_id = '{query_id}' AND type != 'QueryStart'"
        assert eventually(lambda: clickhouse_server.execute(log)) == [("ExceptionWhileProcessing",)]


def test_body_that_stalls_is_given_up_after_the_receive_timeout(clickhouse_server: ClickHouseUnderTest) -> None:
    with two_tables(clickhouse_server) as tables:
        admin = clickhouse_server.admin_user, clickhouse_server.admin_password
        insert = PartialRequest(
            clickhouse_server, f"INSERT INTO {tables.a} FORMAT RowBinary", 1000, *admin, http_receive_timeout="1"
        )
        insert.send(rows(2))
        started = time.monotonic()
        assert insert.code() in (209, -1)
        assert time.monotonic() - started < 10
        insert.close()
        assert clickhouse_server.execute(f"SELECT count() FROM {tables.a}") == [(0,)]


def test_million_rows_stream_through(clickhouse_server: ClickHouseUnderTest) -> None:
    def pieces() -> Iterator[bytes]:
        for start in range(0, 1_000_000, 50_000):
            yield rows(50_000, start)

    prepared = list(pieces())
    with two_tables(clickhouse_server) as tables:
        started = time.monotonic()
        reply = call(clickhouse_server, f"INSERT INTO {tables.a} FORMAT RowBinary", iter(prepared))
        seconds = time.monotonic() - started
        assert reply.code == 0
        assert clickhouse_server.execute(f"SELECT count(), sum(id) FROM {tables.a}") == [(1_000_000, 499_999_500_000)]
        assert seconds < 5, f"{1 / seconds:.2f} million rows a second"


def test_answer_is_compressed_only_when_asked(clickhouse_server: ClickHouseUnderTest) -> None:
    sql = "SELECT number, toString(number) FROM numbers(300000) FORMAT TSV"
    plain = call(clickhouse_server, sql)
    packed = call(clickhouse_server, sql, headers={"Accept-Encoding": "gzip"}, enable_http_compression="1")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(plain.body.splitlines()) == 300_000


def test_error_in_the_middle_of_an_answer_is_not_taken_for_its_end(clickhouse_server: ClickHouseUnderTest) -> None:
    sql = "SELECT throwIf(number = 3000000), toString(number) FROM numbers(4000000) SETTINGS max_threads = 1"
    late = call_raw_ending(clickhouse_server, sql)
    assert b"395" in late or b"DB::Exception" in late
    whole = call(clickhouse_server, sql, wait_end_of_query="1")
    assert whole.code == 395


def call_raw_ending(server: ClickHouseUnderTest, sql: str) -> bytes:
    """Last bytes of an answer, however its connection ends."""
    request = PartialRequest(server, sql, 0, server.admin_user, server.admin_password)
    tail = b""
    request.socket.settimeout(20)
    while data := request.socket.recv(1 << 20):
        tail = (tail + data)[-4000:]
        if tail.endswith(b"0\r\n\r\n"):
            break
    request.close()
    assert not tail.endswith(b"\r\n0\r\n\r\n"), "the broken answer ended like a whole one"
    return tail


def test_query_parameters_and_reading_methods(clickhouse_server: ClickHouseUnderTest) -> None:
    reply = call(clickhouse_server, "SELECT {x:UInt8} + 1, {s:String}", param_x="5", param_s="a'b;{}")
    assert reply.body == b"6\ta\\'b;{}\n"
    assert call(clickhouse_server, "SELECT 1 FORMAT JSONCompactEachRow", method="GET").body == b"[1]\n"
    assert call(clickhouse_server, "CREATE DATABASE never_made", method="GET").code == 164
    assert call(clickhouse_server, "SELECT * FROM nowhere.nothing").status == 404
    assert call(clickhouse_server, "SELECT 1", no_such_setting="1").code == 115
    assert call(clickhouse_server, "SELECT 1", database="no_such_database").code == 81
