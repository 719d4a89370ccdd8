"""The life of one statement on the local server, in the order a ClickHouse server keeps it.

authenticated - registered in the process list - access checked against the current principal - effect - unregistered -
answered. Each step is a hold point. That order is what makes DROP USER followed by an empty process list a proof.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from airflow_provider_dpone.local.clickhouse import access
from airflow_provider_dpone.local.clickhouse.engine import TAG_SETTING, Counts, Engine, EngineSession
from airflow_provider_dpone.local.clickhouse.errors import ClientGone, Cut, ServerError, not_implemented
from airflow_provider_dpone.local.clickhouse.grants import Privileges
from airflow_provider_dpone.local.clickhouse.holds import HoldBoard
from airflow_provider_dpone.local.clickhouse.lexer import Cursor, quote_string, unquote
from airflow_provider_dpone.local.clickhouse.principals import PrincipalStore, User
from airflow_provider_dpone.local.clickhouse.query_log import QueryLog
from airflow_provider_dpone.local.clickhouse.rbac import Answer, Rbac
from airflow_provider_dpone.local.clickhouse.statements import CANCELLABLE, RBAC, READS, Statement, parse
from airflow_provider_dpone.local.clickhouse.system_tables import SystemTables, process_row
from airflow_provider_dpone.local.clickhouse.watch import ClientWatch

_HIDDEN = re.compile(r"(\bBY\s+|\bSALT\s+)'(?:[^'\\]|\\.|'')*'", re.IGNORECASE)
_QUOTA_FREE = {"ShowProcesslist", "ShowGrants", "Show", "Exists", "Describe"}
_INTERFACES = {"TCP": 1, "HTTP": 2}
_METHODS = {"UNKNOWN": 0, "GET": 1, "POST": 2}


@dataclass
class Request:
    """One authenticated statement on its way."""

    user: User
    statement: Statement
    query_id: str
    database: str
    settings: dict[str, str]
    interface: str
    address: str
    port: int
    params: dict[str, str] = field(default_factory=dict)
    http_method: str = "UNKNOWN"
    user_agent: str = ""
    client_name: str = ""
    socket: socket.socket | None = None
    watch_input: bool = False
    tag: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: float = field(default_factory=time.time)
    killed: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    counts: Counts = field(default_factory=Counts)

    @property
    def cancellable(self) -> bool:
        return self.statement.kind in CANCELLABLE

    @property
    def shown_text(self) -> str:
        """The statement without the secrets of a CREATE or ALTER USER."""
        text = self.statement.full_text
        return _HIDDEN.sub(r"\1'[HIDDEN]'", text) if self.statement.kind in ("CreateUser", "AlterUser") else text


class Front(Protocol):
    """What an endpoint does for a statement: give its data, take its rows, close its connection."""

    def query(self, engine: Engine, session: EngineSession, sql: str, fmt: str | None, stream: bool = True) -> Counts:
        """Run a query and deliver its rows (or keep them for the answer when they are few).

        :param stream: False for statements whose answer the engine only gives as a whole (SHOW, DESCRIBE, ...).
        """

    def data(self, engine: Engine, session: EngineSession, statement: Statement) -> tuple[str, Iterable[bytes]]:
        """Format and body of an INSERT."""

    def remember(self, settings: dict[str, str], database: str | None) -> None:
        """Keep what SET or USE changed for the connection."""

    def cut(self) -> None:
        """Close the client's connection now."""


class Core:
    """Everything behind the endpoints."""

    def __init__(self, directory: Path, admin_password: str) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.engine = Engine(directory / "engine")
        rows = self.engine.rows("SELECT privilege, level, parent_group FROM system.privileges")
        privileges = Privileges((row["privilege"], row["level"], row["parent_group"]) for row in rows)
        self.store = PrincipalStore(directory / "principals.sqlite", privileges, admin_password)
        self.holds = HoldBoard()
        self.server_uuid = _server_uuid(directory / "uuid")
        self._running: dict[str, Request] = {}
        self._lock = threading.Lock()
        self.tables = SystemTables(self.engine, self.store, self.server_uuid, self.running)
        self.rbac = Rbac(self.store, self._parse_time)
        self.log = QueryLog(self.engine)
        self._watch = ClientWatch(self.kill)

    def running(self) -> list[Request]:
        with self._lock:
            return list(self._running.values())

    def _parse_time(self, text: str) -> int:
        return int(
            self.engine.rows(f"SELECT toUnixTimestamp(parseDateTimeBestEffort({quote_string(text)}, 'UTC')) AS at")[0][
                "at"
            ]
        )

    def _canonical(self, text: str) -> str:
        try:
            return str(self.engine.rows(f"SELECT formatQuerySingleLine({quote_string(text)}) AS text")[0]["text"])
        except ServerError as error:  # the engine's message repeats the statement, which may hold a password
            message = re.match(r".*?failed at position \d+", error.message, re.DOTALL)
            raise ServerError(62, message.group() if message else "Syntax error", "SYNTAX_ERROR") from None

    # --- life of a request -------------------------------------------------------------------------------------

    def prepare(
        self, user: User, text: str, settings: dict[str, str], data_format: str | None, inline: bytes
    ) -> Statement:
        """Parse a statement and check the settings it comes with against the user's constraints."""
        statement = parse(text, data_format, inline)
        changes = {name: _plain(value) for name, value in statement.settings.items()}
        if statement.kind == "Set":
            changes |= set_changes(statement)
        for changed in (settings, changes):
            if TAG_SETTING in changed:
                raise not_implemented(f"the setting {TAG_SETTING}")
            user.check_settings(changed)
        if statement.data_format is not None:
            settings |= changes  # the clause was cut out of the text
        return statement

    def execute(self, request: Request, front: Front) -> None:
        """Run one request to its end. Raises :class:`ServerError`, or :class:`Cut` and :class:`ClientGone`."""

        def hold(point: str) -> None:
            user, kind, text = request.user.name, request.statement.kind, request.statement.full_text
            stopped = request.cancellable and point != "authenticated"
            self.holds.reach(
                point, user, kind, text, request.query_id, front.cut, lambda: stopped and request.killed.is_set()
            )

        hold("authenticated")
        self._register(request)
        session: EngineSession | None = None
        phase = "ExceptionBeforeStart"
        try:
            hold("registered")
            session = self._open(request)
            effect = self._checked(request, session, front)
            hold("checked")
            if request.cancellable:
                self._stop_if_killed(request)
                phase = "ExceptionWhileProcessing"
                self._log(request, "QueryStart")
            request.counts = effect() or request.counts
            hold("effect_done")
            self._stop_if_killed(request)
        except (ServerError, Cut, ClientGone) as error:
            known = error if isinstance(error, ServerError) else ServerError(210, "Connection was closed by the client")
            killed = request.killed.is_set() and request.cancellable
            if killed:
                known = ServerError(394, "Query was cancelled")
            self._log(request, phase, known)
            raise known if killed or isinstance(error, ServerError) else error from None
        else:
            if not request.cancellable:
                self._log(request, "QueryStart")
            self._log(request, "QueryFinish")
        finally:
            if session is not None:
                session.close()
            self._unregister(request)
        hold("answer")

    def _open(self, request: Request) -> EngineSession:
        values = {element.name: element.value for element in request.user.settings if element.value is not None}
        return self.engine.open(request.tag, request.database, {**values, **request.settings}, request.params)

    def _register(self, request: Request) -> None:
        with self._lock:
            if any(other.query_id == request.query_id for other in self._running.values()):
                raise ServerError(216, f"Query with id = {request.query_id} is already running")
            self._running[request.tag] = request
        if request.statement.kind in READS and request.socket is not None:
            self._watch.add(request.socket, request)

    def _unregister(self, request: Request) -> None:
        if request.statement.kind in READS and request.socket is not None:
            self._watch.remove(request.socket)
        request.done.set()
        with self._lock:
            del self._running[request.tag]

    @staticmethod
    def _stop_if_killed(request: Request) -> None:
        if request.killed.is_set():
            raise ServerError(394, "Query was cancelled")

    def _checked(self, request: Request, session: EngineSession, front: Front) -> Callable[[], Counts | None]:
        """Check rights and quota of the principal as it is at this moment; return the effect."""
        statement, kind = request.statement, request.statement.kind
        plan = None
        if kind in RBAC:
            canonical = self._canonical(statement.full_text)
            plan = self.rbac.plan(kind, canonical, request.user, request.database or "default")
        with self.store.lock:
            user = self.store.current(request.user)
            if kind not in _QUOTA_FREE:
                self.store.use_quota(user)
        needs: list[access.Need] = []
        if plan is None and not user.is_administrator:
            explain = lambda text: self.engine.explain(session, text)  # noqa: E731
            needs = access.needs(statement, request.database or "default", explain)
        with self.store.lock:
            user = self.store.current(request.user)
            user.require(plan.needs if plan else needs)
            user.require(plan.options if plan else [], option=True)
        self._check_readonly(request, user)
        if plan is not None:
            return lambda: self._answer(plan.apply(), session, front, statement)
        return self._effect(request, user, session, front)

    def _check_readonly(self, request: Request, user: User) -> None:
        values = {element.name: element.value for element in user.settings}
        readonly = request.settings.get("readonly", values.get("readonly")) or "0"
        harmless = {*READS, "Use", "Set", "KillQuery", "CheckGrant"}
        kind = request.statement.kind
        if (readonly != "0" or request.http_method == "GET") and kind not in harmless and not kind.startswith("Show"):
            raise ServerError(164, "Cannot execute query in readonly mode")

    # --- effects -----------------------------------------------------------------------------------------------

    def _effect(
        self, request: Request, user: User, session: EngineSession, front: Front
    ) -> Callable[[], Counts | None]:
        statement, kind = request.statement, request.statement.kind
        if kind == "ShowProcesslist":
            sql = f"SELECT * FROM {self.tables.source('processes', user)} ORDER BY elapsed DESC"
            return lambda: front.query(self.engine, session, sql, statement.format)
        if kind in ("Show", "Exists"):
            return lambda: front.query(self.engine, session, statement.text, statement.format, False)
        if kind in READS:
            text = self.tables.rewrite(statement, user)
            return lambda: front.query(self.engine, session, text, statement.format, kind == "Select")
        if kind == "Insert" and statement.data_format is not None:
            return lambda: self._insert(request, session, front)
        if kind == "KillQuery":
            return lambda: self._kill(request, user, session, front)
        if kind in ("Set", "Use"):
            database = statement.cursor().tokens[1].value if kind == "Use" else None
            return lambda: front.remember(set_changes(statement) if kind == "Set" else {}, database)
        if kind == "System":
            return lambda: self._system(statement, session)
        if any(token.word in ("INFILE", "OUTFILE") for token in statement.tokens):
            raise not_implemented("INFILE and OUTFILE")
        text = self.tables.rewrite(statement, user) if kind == "Insert" else statement.text
        return lambda: self.engine.run(session, text)[1]

    def _insert(self, request: Request, session: EngineSession, front: Front) -> Counts:
        if any(token.word == "INFILE" for token in request.statement.tokens):
            raise not_implemented("INFILE")
        fmt, body = front.data(self.engine, session, request.statement)

        def until_killed() -> Iterator[bytes]:
            for piece in body:
                self._stop_if_killed(request)
                yield piece
            self._stop_if_killed(request)

        return self.engine.insert(session, request.statement.text, fmt, until_killed())

    def _answer(
        self, answer: Answer | None, session: EngineSession, front: Front, statement: Statement
    ) -> Counts | None:
        if answer is None:
            return None
        rows = "\n".join(json.dumps({answer.column: row}, ensure_ascii=False) for row in answer.rows)
        structure = quote_string(f"`{answer.column}` {answer.type}")
        sql = f"SELECT * FROM format(JSONEachRow, {structure}, {quote_string(rows)})"
        return front.query(self.engine, session, sql, statement.format)

    def _system(self, statement: Statement, session: EngineSession) -> None:
        words = " ".join(token.word for token in statement.tokens)
        if words.startswith("SYSTEM FLUSH LOGS"):
            self.log.flush()
        elif words.startswith("SYSTEM RELOAD USERS"):
            with self.store.lock:  # every change and every check under way is over when this is passed
                pass
        else:
            access.needs(statement, "default", lambda text: [])  # refuses what we do not know
            self.engine.run(session, statement.text)

    def _kill(self, request: Request, user: User, session: EngineSession, front: Front) -> Counts:
        found = request.statement.tokens
        mode = found[-1].word if found[-1].word in ("SYNC", "ASYNC", "TEST") else "ASYNC"
        end = found[-1].start if found[-1].word == mode else len(request.statement.text)
        where = next((token for token in found if token.word == "WHERE"), None)
        if where is None:
            raise ServerError(62, "Syntax error: expected WHERE")
        sql = (
            f"SELECT query_id FROM {self.tables.source('processes', user)} {request.statement.text[where.start : end]}"
        )
        wanted = {json.loads(line)["query_id"] for line in self.engine.run(session, sql, "JSONEachRow")[0].splitlines()}
        victims = [other for other in self.running() if other.query_id in wanted and other is not request]
        allowed = [one for one in victims if one.user.name == user.name or user.grants.allows("KILL QUERY", None, None)]
        if victims and not allowed:
            raise ServerError(497, f"User {user.name} attempts to kill queries of another user")
        if mode != "TEST":
            for victim in allowed:
                self.kill(victim)
        if mode == "SYNC":
            for victim in allowed:
                while not victim.done.wait(0.05):
                    self._stop_if_killed(request)
        status = {"SYNC": "finished", "ASYNC": "waiting", "TEST": "unknown"}[mode]
        rows = [
            {"kill_status": status, **{key: process_row(v)[key] for key in ("query_id", "user", "query")}}
            for v in allowed
        ]
        structure = quote_string("kill_status String, query_id String, user String, query String")
        data = quote_string("\n".join(json.dumps(row) for row in rows))
        return front.query(
            self.engine, session, f"SELECT * FROM format(JSONEachRow, {structure}, {data})", request.statement.format
        )

    def kill(self, request: Request) -> None:
        """Stop a running request. DDL is only marked: it runs to its end, and is then answered as killed."""
        request.killed.set()
        if request.statement.data_format is not None and request.socket is not None:
            with contextlib.suppress(OSError):  # closed already
                request.socket.shutdown(socket.SHUT_RD)  # it may wait for its client; the answer can still be sent
        if request.cancellable:
            threading.Thread(target=self._kill_until_done, args=(request,), name="kill", daemon=True).start()

    def _kill_until_done(self, request: Request) -> None:
        while not request.done.is_set():  # the engine may not have started it yet
            self.engine.kill(request.tag)
            request.done.wait(0.02)

    def _log(self, request: Request, kind: str, error: ServerError | None = None) -> None:
        if request.settings.get("log_queries") == "0":
            return
        now = time.time()
        row = process_row(request)
        for name in ("elapsed", "is_cancelled"):
            del row[name]
        counts = request.counts._asdict() if kind != "QueryStart" else Counts()._asdict()
        self.log.add(
            {
                **row,
                **counts,
                "type": kind,
                "event_time": int(now),
                "event_time_microseconds": f"{now:.6f}",
                "query_start_time": int(request.started),
                "query_start_time_microseconds": f"{request.started:.6f}",
                "query_duration_ms": 0 if kind == "QueryStart" else int((now - request.started) * 1000),
                "interface": _INTERFACES[request.interface],
                "http_method": _METHODS.get(request.http_method, 0),
                "exception_code": error.code if error else 0,
                "exception": error.text if error else "",
                "log_comment": request.settings.get("log_comment", ""),
            }
        )


def set_changes(statement: Statement) -> dict[str, str]:
    """Names and values of a SET statement."""
    cursor = Cursor(statement.tokens, 1)
    changes: dict[str, str] = {}
    while not cursor.done:
        name = cursor.name()
        cursor.expect("=")
        sign = "-" if cursor.accept("-") else ""
        changes[name] = sign + _plain(cursor.next().text)
        if not cursor.done:
            cursor.expect(",")
    if not changes:
        raise not_implemented("this form of SET")
    return changes


def _plain(text: str) -> str:
    text = unquote(text) if text[0] in "'\"`" else text
    return {"true": "1", "false": "0"}.get(text, text)


def _server_uuid(path: Path) -> str:
    if not path.exists():
        path.write_text(str(uuid.uuid4()))
    return path.read_text().strip()
