"""Moves one snapshot: reading, converting with digesting, and sending overlap, in bounded memory.

Three threads pass work on through queues bounded in bytes: a reader pulls batches from the source, an encoder checks,
converts, digests and encodes them, and the caller's own thread runs ``send`` with the encoded bytes. Whatever fails on
any side, or a stop, ends all three: the body raises, so that the request is never completed, and the first error comes
out of :func:`stream_snapshot` unchanged. Nothing is sent again. Knows no database.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from airflow_provider_dpone.contracts.publication import Content
from airflow_provider_dpone.errors import Stopped
from airflow_provider_dpone.transfer.convert import Conversion
from airflow_provider_dpone.transfer.digest import DigestBuilder
from airflow_provider_dpone.transfer.meter import Meter
from airflow_provider_dpone.transfer.rowbinary import EncodedRows

T = TypeVar("T")
#: Rows and bytes encoded at once; small enough to stay in cache, large enough to spread the cost of a call.
PIECE_ROWS = 16384
PIECE_BYTES = 4 * 2**20
#: Bytes that may lie between two threads, those the taker still works on included.
QUEUE_BYTES = 16 * 2**20
SEND_BYTES = 2**20
_TICK = 0.1

Progress = Callable[[int, int, float], None]
"""Called with rows, wire bytes and seconds so far."""


@dataclass(frozen=True)
class StreamResult:
    """What went through. ``sent`` is False for an empty source: then no request was made at all."""

    content: Content
    source_bytes: int
    wire_bytes: int
    seconds: float
    sent: bool


class StreamAborted(Exception):
    """Raised inside the body so that the request is not completed. The real reason is raised by the stream."""


def stream_snapshot(
    batches: Iterable[pa.RecordBatch],
    conversion: Conversion,
    meter: Meter,
    send: Callable[[Iterator[bytes]], None],
    *,
    stop: Callable[[], bool] | None = None,
    progress: Progress | None = None,
    cancel_read: Callable[[], None] | None = None,
    cancel_send: Callable[[], None] | None = None,
) -> StreamResult:
    """Stream ``batches`` through ``conversion`` into ``send``, counting on ``meter``.

    :param send: makes the one request with the body it is given; called at most once, in the calling thread, and not
        at all when the source has no rows. It must read the body to its end and raise when the request fails.
    :param stop: asked all the time; once true the stream ends with :class:`Stopped`.
    :param progress: called once a second at first, ever less often up to once a minute, in another thread.
    :param cancel_read: makes a blocked read return early; called once, from another thread, when the stream fails.
    :param cancel_send: makes a blocked send fail; likewise.
    :raises DponeError: the first refusal or failure of any side, unchanged.
    """
    run = _Run(conversion, meter, stop or (lambda: False), progress)
    threads = [
        threading.Thread(target=run.guarded, args=(run.read, batches), name="dpone-read", daemon=True),
        threading.Thread(target=run.guarded, args=(run.encode,), name="dpone-encode", daemon=True),
        threading.Thread(target=run.watch, args=(cancel_read, cancel_send), name="dpone-watch", daemon=True),
    ]
    for thread in threads:
        thread.start()
    sent = False
    try:
        body = run.body()
        first = next(body, None)
        if first is not None:
            sent = True
            send(_chain(first, body))
        run.drained()
    except BaseException as error:  # noqa: BLE001 - kept and raised below, once the threads have ended
        run.fail(error)
    finally:
        run.ended.set()
        for thread in threads:
            thread.join()
    if run.error is not None:
        raise run.error
    return StreamResult(
        run.digest.content(), meter.source_bytes, meter.wire_bytes, time.monotonic() - run.started, sent
    )


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


class _Run:
    """The state three threads share: two queues, the first error, the counters."""

    def __init__(
        self, conversion: Conversion, meter: Meter, stop: Callable[[], bool], progress: Progress | None
    ) -> None:
        self.conversion = conversion
        self.meter = meter
        self.stop = stop
        self.progress = progress
        self.digest = DigestBuilder(conversion.system.digest_order)
        self.started = time.monotonic()
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self.raw: _Queue[pa.RecordBatch] = _Queue(self.check)
        self.encoded: _Queue[EncodedRows] = _Queue(self.check)
        self._complete = False

    def fail(self, error: BaseException) -> None:
        """Keep the first real error; a StreamAborted only echoes one."""
        with self._lock:
            if self.error is None:
                self.error = error

    def check(self) -> None:
        """Raise when the stream has failed or is to stop."""
        if self.error is not None:
            raise StreamAborted("the stream was aborted; the request must not be completed")
        if self.stop():
            self.fail(Stopped("the task was asked to stop while the snapshot was streamed; nothing was published"))
            raise StreamAborted("the stream was stopped; the request must not be completed")

    def guarded(self, work: Callable[..., None], *args: object) -> None:
        """Run one side; its failure becomes the failure of the stream."""
        try:
            work(*args)
        except BaseException as error:  # noqa: BLE001 - raised by stream_snapshot in the caller's thread
            self.fail(error)

    def read(self, batches: Iterable[pa.RecordBatch]) -> None:
        source = iter(batches)
        try:
            for batch in source:
                self.check()
                self.raw.put(batch, batch.nbytes)
                del batch  # not held while the next one is read
        finally:
            if isinstance(source, Generator):
                source.close()  # ends the read here and now, not when memory is collected
        self.raw.close()

    def encode(self) -> None:
        for batch in self.raw:
            self.meter.read(batch.num_rows, batch.nbytes)
            for piece in _pieces(batch):
                self.check()
                encoded = self.conversion.encode(piece, self.digest.rows)
                self.digest.add(encoded)
                self.encoded.put(encoded, encoded.size)
                del encoded, piece
            del batch
        self.encoded.close()

    def body(self) -> Iterator[bytes]:
        """What is sent. Ends only when every row went through, within all ceilings."""
        try:
            for encoded in self.encoded:
                for chunk in encoded.chunks(SEND_BYTES):
                    self.meter.send(len(chunk))
                    yield chunk
                del encoded
            self.meter.finish()
            self.check()
        except Exception as error:
            self.fail(error)
            raise
        self._complete = True

    def drained(self) -> None:
        """A sender that returned without reading the whole body has not sent the snapshot."""
        if not self._complete:
            self.check()
            raise RuntimeError("the sender returned before it had read the whole body")

    def watch(self, cancel_read: Callable[[], None] | None, cancel_send: Callable[[], None] | None) -> None:
        """Turn a stop into an error at once, cancel blocked calls after an error, and report progress."""
        reported = self.started
        while not self.ended.wait(_TICK):
            if self.error is None and self.stop():
                self.fail(Stopped("the task was asked to stop while the snapshot was streamed; nothing was published"))
            if self.error is not None:
                break
            now = time.monotonic()
            if self.progress is not None and now - reported >= min(60.0, max(1.0, (now - self.started) / 10)):
                self.guarded(self.progress, self.digest.rows, self.meter.wire_bytes, now - self.started)
                reported = now
        if self.error is not None:
            for cancel in (cancel_read, None if self.ended.is_set() else cancel_send):
                if cancel is not None:
                    self.guarded(cancel)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of a batch of about PIECE_BYTES and at most PIECE_ROWS."""
    per_row = max(1, batch.nbytes // max(1, batch.num_rows))
    rows = max(1, min(PIECE_ROWS, PIECE_BYTES // per_row))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


class _Queue(Generic[T]):
    """Hands items from one thread to another.

    At most QUEUE_BYTES lie in it, but always at least one item may. An item counts until the taker asks for the next.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, item: T, size: int) -> None:
        with self._changed:
            while self._bytes and self._bytes + size > QUEUE_BYTES:
                self._check()
                self._changed.wait(_TICK)
            self._items.append((item, size))
            self._bytes += size
            self._changed.notify_all()

    def close(self) -> None:
        """No more items will come: the other side ends after those that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._changed:
                while not self._items and not self._closed:
                    self._check()
                    self._changed.wait(_TICK)
                self._check()
                if not self._items:
                    return
                item, size = self._items.popleft()
            yield item
            del item
            with self._changed:
                self._bytes -= size
                self._changed.notify_all()
