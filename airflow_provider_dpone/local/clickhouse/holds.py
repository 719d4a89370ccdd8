"""Hold points: where tests stop a request, cut its connection, or let it land late. Used over the control port only."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_dpone.local.clickhouse.errors import Cut, ServerError

#: in the order a request passes them
POINTS = ("authenticated", "registered", "checked", "effect_done", "answer")
#: hold until released; cut the connection without an answer; detach: cut now, go on with the effect when released
ACTIONS = ("hold", "cut", "detach")


@dataclass
class Rule:
    """Where to stop which requests. ``remaining`` None means every one of them."""

    id: int
    point: str
    action: str
    user_prefix: str
    kind: str
    pattern: str
    remaining: int | None
    released: bool = False

    def matches(self, point: str, user: str, kind: str, text: str) -> bool:
        return (
            self.point == point
            and self.remaining != 0
            and not self.released
            and user.startswith(self.user_prefix)
            and self.kind in ("", kind)
            and re.search(self.pattern, text, re.IGNORECASE) is not None
        )


@dataclass
class Held:
    """One request standing at a hold point."""

    rule: int
    point: str
    user: str
    query_id: str
    kind: str
    query: str
    since: float = field(default_factory=time.time)


class HoldBoard:
    """The rules in force and the requests they hold."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._rules: dict[int, Rule] = {}
        self._held: list[Held] = []
        self._hits: dict[int, int] = {}
        self._ids = itertools.count(1)

    def set(
        self,
        point: str,
        action: str = "hold",
        user_prefix: str = "",
        kind: str = "",
        pattern: str = "",
        count: int | None = 1,
    ) -> int:
        if point not in POINTS or action not in ACTIONS:
            raise ValueError(f"unknown hold point or action: {point} {action}")
        re.compile(pattern)
        with self._changed:
            rule = Rule(next(self._ids), point, action, user_prefix, kind, pattern, count)
            self._rules[rule.id] = rule
            self._hits[rule.id] = 0
            return rule.id

    def clear(self, rule_id: int | None = None) -> None:
        """Remove one rule or all, and let everything they hold go on."""
        with self._changed:
            for rule in list(self._rules.values()):
                if rule_id in (None, rule.id):
                    rule.released = True
                    del self._rules[rule.id]
            self._changed.notify_all()

    def wait(self, rule_id: int, count: int, timeout: float) -> bool:
        """Wait until a rule was hit ``count`` times."""
        with self._changed:
            return self._changed.wait_for(lambda: self._hits.get(rule_id, 0) >= count, timeout)

    def state(self) -> dict[str, Any]:
        with self._changed:
            rules = [{**asdict(rule), "hits": self._hits[rule.id]} for rule in self._rules.values()]
            return {"rules": rules, "held": [asdict(held) for held in self._held]}

    def reach(
        self,
        point: str,
        user: str,
        kind: str,
        text: str,
        query_id: str,
        detach: Callable[[], None],
        stopped: Callable[[], bool],
    ) -> None:
        """Pass ``point``: at once, or when released, or when ``stopped`` says so; :class:`Cut` for the action cut."""
        with self._changed:
            rule = next((rule for rule in self._rules.values() if rule.matches(point, user, kind, text)), None)
            if rule is None:
                return
            if rule.remaining is not None:
                rule.remaining -= 1
            held = Held(rule.id, point, user, query_id, kind, text[:500])
            self._hits[rule.id] += 1
            if rule.action == "cut":
                self._changed.notify_all()
                raise Cut
            if rule.action == "detach":
                detach()
            self._held.append(held)
            self._changed.notify_all()
            try:
                while not rule.released:
                    if stopped():
                        raise ServerError(394, "Query was cancelled")
                    self._changed.wait(0.05)
            finally:
                self._held.remove(held)
                self._changed.notify_all()
