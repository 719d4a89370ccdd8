"""A stream ends completely or not at all: ceilings, stops and failures on any side leave the request unfinished."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_dpone.contracts.columns import SourceColumn, SourceTable, ValueKind
from airflow_provider_dpone.contracts.enrolment import ColumnDesign
from airflow_provider_dpone.contracts.limits import SnapshotLimits
from airflow_provider_dpone.errors import (
    CeilingExceeded,
    CounterUnreadable,
    DponeError,
    Stopped,
    TooFewRows,
    ValueNotExact,
)
from airflow_provider_dpone.transfer import stream
from airflow_provider_dpone.transfer.convert import Conversion, plan_conversion
from airflow_provider_dpone.transfer.meter import Meter, StorageNumbers
from airflow_provider_dpone.transfer.stream import stream_snapshot


def conversion(target: str = "Int64") -> Conversion:
    column = SourceColumn(name="a", declared="bigint", kind=ValueKind.INTEGER, nullable=False)
    table = SourceTable(
        connector="postgres",
        service_id="1",
        database="d",
        database_id="1",
        namespace="public",
        name="t",
        relation_id="1",
        relation_kind="table",
        columns=(column,),
    )
    design = ColumnDesign(name="a", type=target, default_kind="", default_expression="", codec="", comment="")
    return plan_conversion(table, [design])


def batch(rows: int, value: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([value] * rows, pa.int64())], ["a"])


def endless(rows: int = 1000) -> Iterator[pa.RecordBatch]:
    while True:
        yield batch(rows)


def meter(poll: Callable[[], StorageNumbers] | None = None, min_rows: int = 0, **ceilings: Any) -> Meter:
    limits = SnapshotLimits(**{"max_source_bytes": "1 TiB", **ceilings}).effective()
    return Meter(limits, poll=poll, poll_seconds=0.05, poll_bytes=10**6, min_rows=min_rows)


class Sender:
    """Reads a body like a server would, and knows whether it came to its end."""

    def __init__(self, fail_after: int | None = None, error: BaseException | None = None, pause: float = 0) -> None:
        self.received = 0
        self.complete = False
        self.called = 0
        self._fail_after = fail_after
        self._error = error
        self._pause = pause

    def __call__(self, body: Iterator[bytes]) -> None:
        self.called += 1
        for chunk in body:
            self.received += len(chunk)
            if self._pause:
                time.sleep(self._pause)
            if self._fail_after is not None and self.received >= self._fail_after:
                assert self._error is not None
                raise self._error
        self.complete = True


def no_thread_left() -> bool:
    lasting = "dpone-deadlines"  # one for the whole process, whatever is waited for
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("dpone-")]
    return not [name for name in left if name != lasting]


def refused(kind: type[BaseException], batches: Any, sender: Sender, **options: Any) -> BaseException:
    used = options.pop("meter", None) or meter()
    with pytest.raises(kind) as caught:
        stream_snapshot(batches, options.pop("conversion", None) or conversion(), used, sender, **options)
    assert not sender.complete
    assert no_thread_left()
    return caught.value


def test_every_row_is_counted_digested_and_sent_once() -> None:
    sender = Sender()
    result = stream_snapshot([batch(3), batch(0), batch(40000, 7)], conversion(), meter(), sender)
    assert (result.content.rows, result.wire_bytes, sender.received) == (40003, 40003 * 8, 40003 * 8)
    assert result.sent
    assert sender.complete
    assert no_thread_left()


@pytest.mark.parametrize(
    ("name", "ceiling"), [("max_rows", 50_000), ("max_source_bytes", 400_000), ("max_wire_bytes", 400_000)]
)
def test_a_ceiling_on_the_stream_stops_it_in_the_middle(name: str, ceiling: int) -> None:
    sender = Sender()
    error = refused(CeilingExceeded, endless(), sender, meter=meter(**{name: ceiling}))
    assert isinstance(error, DponeError)
    assert error.details["counter"] == name.removeprefix("max_")
    assert sender.received <= 400_000


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("max_generation_bytes", (2000, 0)),
        ("max_retained_bytes", (0, 2000)),
        ("max_total_transient_bytes", (600, 600)),
    ],
)
def test_a_ceiling_on_storage_stops_the_stream_in_the_middle(name: str, numbers: tuple[int, int]) -> None:
    polls = []

    def poll() -> StorageNumbers:
        polls.append(1)
        return StorageNumbers(*numbers) if len(polls) > 3 else StorageNumbers(1, 1)

    error = refused(CeilingExceeded, endless(), Sender(pause=0.01), meter=meter(poll, **{name: 1000}))
    assert isinstance(error, DponeError)
    assert error.details["counter"] == name.removeprefix("max_")


@pytest.mark.parametrize("numbers", [(None, 0), (0, None), (-1, 0)])
def test_a_storage_number_that_cannot_be_read_stops_the_stream(numbers: tuple[Any, Any]) -> None:
    refused(CounterUnreadable, endless(), Sender(pause=0.01), meter=meter(lambda: StorageNumbers(*numbers)))


def test_a_failing_poll_stops_the_stream_with_its_own_error() -> None:
    boom = OSError("storage view is gone")

    def poll() -> StorageNumbers:
        raise boom

    assert refused(OSError, endless(), Sender(pause=0.01), meter=meter(poll)) is boom


def test_storage_is_looked_at_once_more_at_the_end_however_short_the_stream() -> None:
    refused(
        CeilingExceeded,
        [batch(1)],
        Sender(),
        meter=meter(lambda: StorageNumbers(5000, 0), max_generation_bytes=1000),
    )


def test_a_value_that_does_not_fit_ends_the_stream_and_names_its_row() -> None:
    error = refused(ValueNotExact, [batch(30000), batch(5, 300)], Sender(), conversion=conversion("Int8"))
    assert isinstance(error, DponeError)
    assert error.details["row"] == 30001


def test_a_failing_source_ends_the_stream_with_its_own_error() -> None:
    boom = RuntimeError("source broke")

    def source() -> Iterator[pa.RecordBatch]:
        yield batch(5000)
        raise boom

    assert refused(RuntimeError, source(), Sender()) is boom


@pytest.mark.parametrize("boom", [ConnectionResetError("gone"), KeyboardInterrupt(), SystemExit(3)])
def test_a_failing_sender_ends_the_stream_with_its_own_error_and_the_source_is_closed(boom: BaseException) -> None:
    closed = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        try:
            yield from endless()
        finally:
            closed.set()

    assert refused(type(boom), source(), Sender(fail_after=50_000, error=boom)) is boom
    assert closed.is_set()


def test_a_stop_ends_the_stream_at_once() -> None:
    flag = threading.Event()
    threading.Timer(0.3, flag.set).start()
    began = time.monotonic()
    refused(Stopped, endless(), Sender(pause=0.01), stop=flag.is_set)
    assert time.monotonic() - began < 1.5


def test_a_stop_cancels_a_read_and_a_send_that_are_blocked() -> None:
    flag, free_read, free_send = threading.Event(), threading.Event(), threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        yield batch(10)
        free_read.wait(20)
        raise OSError("cancelled")

    class Blocked(Sender):
        def __call__(self, body: Iterator[bytes]) -> None:
            next(body)
            free_send.wait(20)
            raise OSError("cut")

    threading.Timer(0.2, flag.set).start()
    began = time.monotonic()
    refused(Stopped, source(), Blocked(), stop=flag.is_set, cancel_read=free_read.set, cancel_send=free_send.set)
    assert time.monotonic() - began < 2


def test_a_sender_that_does_not_read_to_the_end_is_no_success() -> None:
    refused(RuntimeError, [batch(10)], type("Lazy", (Sender,), {"__call__": lambda self, body: next(body)})())


def test_too_few_rows_leave_the_request_unfinished() -> None:
    sender = Sender()
    refused(TooFewRows, [batch(99)], sender, meter=meter(min_rows=100))
    assert sender.received == 99 * 8


def test_a41_an_empty_source_needs_no_request_and_min_rows_refuses_it() -> None:
    sender = Sender()
    result = stream_snapshot([], conversion(), meter(), sender)
    assert (result.content.rows, result.content.row_sum, result.sent, sender.called) == (0, "0" * 64, False, 0)
    refused(TooFewRows, [], sender, meter=meter(min_rows=1))
    assert sender.called == 0


def test_a_slow_target_holds_the_source_back() -> None:
    read = [0]

    def source() -> Iterator[pa.RecordBatch]:
        for _ in range(60):
            read[0] += 1
            yield batch(10**6 // 2)  # 4 MB

    ahead = []

    class Slow(Sender):
        def __call__(self, body: Iterator[bytes]) -> None:
            for chunk in body:
                self.received += len(chunk)
                ahead.append(read[0] * 4 * 10**6 - self.received)
                time.sleep(0.002)

    stream_snapshot(source(), conversion(), meter(), Slow())
    assert max(ahead) <= 2 * stream.QUEUE_BYTES + 3 * 4 * 10**6


def test_progress_is_reported_while_it_runs() -> None:
    reports: list[tuple[int, int, float]] = []
    stream_snapshot(
        [batch(1000)] * 3, conversion(), meter(), Sender(pause=0.5), progress=lambda *numbers: reports.append(numbers)
    )
    assert reports
    rows, wire_bytes, seconds = reports[-1]
    assert 0 < rows <= 3000
    assert 0 < wire_bytes <= 24000
    assert seconds >= 1
