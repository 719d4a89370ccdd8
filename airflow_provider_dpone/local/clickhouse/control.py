"""Client of the local server's control port: hold points and faults for tests."""

from __future__ import annotations

import http.client
import json
from typing import Any


class HoldPoints:
    """Sets, waits for and releases hold points of one local server.

    Points, in order: ``authenticated`` (not registered), ``registered`` (not checked), ``checked``, ``effect_done``
    (still registered), ``answer``. Actions: ``hold`` until cleared, ``cut`` the connection without an answer,
    ``detach``: cut now, hold, and let the effect happen when cleared (a delayed CREATE USER, for example).
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    def set(
        self,
        point: str,
        action: str = "hold",
        *,
        user_prefix: str = "",
        kind: str = "",
        pattern: str = "",
        count: int | None = 1,
    ) -> int:
        """Add a rule and return its id.

        :param user_prefix: beginning of the user's name.
        :param kind: statement kind: Select, Insert, Exchange, CreateUser, DropUser, Grant, CreateTable, ...
        :param pattern: regular expression searched in the statement.
        :param count: how many requests it stops; None for all.
        """
        given = {
            "point": point,
            "action": action,
            "user_prefix": user_prefix,
            "kind": kind,
            "pattern": pattern,
            "count": count,
        }
        return int(self._call("set", given))

    def create_user_delayed(self, user_prefix: str = "") -> int:
        """Cut the next CREATE USER's connection and let its effect happen when the rule is cleared."""
        return self.set("checked", "detach", user_prefix=user_prefix, kind="CreateUser")

    def clear(self, rule_id: int | None = None) -> None:
        """Remove one rule, or all, and let everything held by it go on."""
        self._call("clear", {"rule_id": rule_id})

    def wait(self, rule_id: int, count: int = 1, timeout: float = 40.0) -> None:
        """Wait until a rule stopped ``count`` requests; TimeoutError otherwise."""
        if not self._call("wait", {"rule_id": rule_id, "count": count, "timeout": timeout}, timeout + 5):
            raise TimeoutError(f"hold point {rule_id} was not reached {count} times in {timeout} s: {self.state()}")

    def state(self) -> dict[str, Any]:
        """Rules in force and requests held by them."""
        answer = self._call("state", {})
        assert isinstance(answer, dict)
        return answer

    def forget_quotas(self) -> None:
        """Forget every quota's counters, as a restart or a passed interval boundary does."""
        self._call("forget_quotas", {})

    def record_logins(self) -> None:
        """From now on remember, in the server's memory, every name and password that logged in: for secret scans."""
        self._call("record_logins", {})

    def presented(self) -> dict[str, str]:
        """Passwords by name since :meth:`record_logins`."""
        answer = self._call("presented", {})
        assert isinstance(answer, dict)
        return answer

    def _call(self, command: str, given: dict[str, Any], timeout: float = 15.0) -> Any:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            connection.request("POST", f"/{command}", json.dumps(given))
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise ValueError(str(answer))
        return answer
