"""The embedded engine: sessions per request, rows in and out through pipes, and stopping what runs. Knows no users."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from chdb.session import Session

from airflow_provider_dpone.local.clickhouse.errors import ServerError, from_engine
from airflow_provider_dpone.local.clickhouse.lexer import quote_name, quote_string

_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
#: the setting that carries our request id into the engine's process list
TAG_SETTING = "query_cache_tag"
_PINNED = {"implicit_select": "0", "async_insert": "0"}


class Counts(NamedTuple):
    """What one statement read and wrote, as the engine counted it."""

    read_rows: int = 0
    read_bytes: int = 0
    written_rows: int = 0
    written_bytes: int = 0


class EngineSession(Session):  # type: ignore[misc]
    """A session of the engine that remembers the statements that set it up and the request it runs."""

    setup: list[str]
    tag: str = ""


class Engine:
    """One embedded engine over one directory; open as long as this object is."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = str(directory)
        self._anchor = Session(self._path)
        self._trees: dict[str, list[str]] = {}
        self._pool = ThreadPoolExecutor(max_workers=256, thread_name_prefix="engine")

    def close(self) -> None:
        self._anchor.close()

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Rows of an internal statement."""
        with Session(self._path) as session:
            return [json.loads(line) for line in _run(session, sql, "JSONEachRow")[0].splitlines()]

    def open(self, tag: str, database: str, settings: Mapping[str, str], params: Mapping[str, str]) -> EngineSession:
        """A session that carries ``tag``, current database, settings (texts) and query parameters."""
        pairs = {**settings, **_PINNED, TAG_SETTING: tag, **{f"param_{name}": value for name, value in params.items()}}
        setup = ["SET " + ", ".join(f"{name} = {quote_string(value)}" for name, value in pairs.items())]
        if database not in ("", "default"):
            setup.append(f"USE {quote_name(database)}")
        session = self._prepared(setup)
        session.tag = tag
        return session

    def _prepared(self, setup: list[str]) -> EngineSession:
        session = EngineSession(self._path)
        session.setup = setup
        try:
            for statement in setup:
                _run(session, statement)
        except ServerError:
            session.close()
            raise
        return session

    def run(self, session: Session, sql: str, fmt: str = "TabSeparated") -> tuple[bytes, Counts]:
        """Run a statement with a small answer."""
        return _run(session, sql, fmt)

    def explain(self, session: EngineSession, sql: str) -> list[str]:
        """Lines of EXPLAIN AST; remembered, for a parse tree depends on nothing but the text and its parameters."""
        key = "\n".join([sql, *(line for line in session.setup if "param_" in line)])
        lines = self._trees.get(key)
        if lines is None:
            lines = _run(session, f"EXPLAIN AST {sql}", "TabSeparatedRaw")[0].decode().splitlines()
            if len(self._trees) > 500:
                self._trees.clear()
            self._trees[key] = lines
        return lines

    def select(self, session: Session, sql: str, fmt: str, finished: Callable[[Counts], None]) -> Iterator[bytes]:
        """Stream a query's answer. Raises as soon as the engine failed, after what it had already written."""
        read_end, write_end = _pipe()

        def work() -> Counts:
            try:
                return _run(session, f"{sql}\nINTO OUTFILE '/dev/fd/{write_end}' TRUNCATE FORMAT {fmt}")[1]
            finally:
                os.close(write_end)

        future = self._pool.submit(work)
        try:
            while data := os.read(read_end, _PIPE_BYTES):
                yield data
            finished(future.result())
        finally:
            os.close(read_end)  # a writer that still runs gets EPIPE
            _settle(future)

    def columns(self, session: EngineSession, sql: str) -> list[tuple[str, str]]:
        """Names and types of a query's answer; asked on another session, for an open stream bears no second query."""
        with self._prepared(session.setup) as other:
            data = _run(other, f"DESCRIBE TABLE ({sql}\n)", "JSONEachRow")[0]
        rows = [json.loads(line) for line in data.splitlines()]
        return [(row["name"], row["type"]) for row in rows]

    def native_blocks(self, session: Session, sql: str, finished: Callable[[Counts], None]) -> Iterator[bytes]:
        """Stream a query's answer as blocks of the Native format, one per piece."""
        rows = size = 0
        try:
            with session.send_query(sql, "Native") as stream:
                for chunk in stream:
                    if chunk.size():
                        rows, size = rows + int(chunk.rows_read()), size + int(chunk.size())
                        yield chunk.bytes()
        except RuntimeError as error:
            raise from_engine(error) from None
        finished(Counts(rows, size))

    def insert(self, session: EngineSession, sql: str, fmt: str, body: Iterable[bytes]) -> Counts:
        """Stream ``body`` into ``INSERT INTO ...`` text without FORMAT. Nothing is kept of a body that raises."""
        read_end, write_end = _pipe()

        def work() -> Counts:
            try:
                return _run(session, f"{sql} FROM INFILE '/dev/fd/{read_end}' COMPRESSION 'none' FORMAT {fmt}")[1]
            finally:
                os.close(read_end)  # a blocked writer gets EPIPE

        future = self._pool.submit(work)
        try:
            for piece in body:
                view = memoryview(piece)
                while view:
                    view = view[os.write(write_end, view) :]
        except BrokenPipeError:
            pass  # the engine ended early; its exception is raised below
        except BaseException:
            # killed before the pipe is closed: its end, perhaps after a whole row, would read as the end of the data
            while not future.done() and not self.kill(session.tag):
                time.sleep(0.002)
            raise
        finally:
            os.close(write_end)
            _settle(future)
        return future.result()

    def kill(self, tag: str) -> bool:
        """Tell the engine to stop whatever carries ``tag``; False when nothing does (yet)."""
        return bool(self.rows(f"KILL QUERY WHERE Settings['{TAG_SETTING}'] = {quote_string(tag)} ASYNC"))


def _settle(future: Future[Counts]) -> None:
    """Wait for the engine's thread; its result or exception is taken by the caller."""
    future.exception()


def _pipe() -> tuple[int, int]:
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, _F_SETPIPE_SZ, _PIPE_BYTES)
    return read_end, write_end


def _run(session: Session, sql: str, fmt: str = "TabSeparated") -> tuple[bytes, Counts]:
    try:
        result = session.query(sql, fmt)
    except RuntimeError as error:
        raise from_engine(error) from None
    read_rows = int(result.storage_rows_read() or result.rows_read())
    counts = Counts(read_rows, int(result.bytes_read()), int(result.rows_written()), int(result.bytes_written()))
    return result.bytes(), counts
