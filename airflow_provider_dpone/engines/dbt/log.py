"""dbt's log lines in the task log, as they come, with its levels; a secret in one would be replaced."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

logger = logging.getLogger(__name__)
_LEVELS = {"debug": logging.DEBUG, "test": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING}
_LONGEST = 4000


class Redactor:
    """Replaces what must never be read; secrets are told to it as they come to be."""

    def __init__(self) -> None:
        self._secrets: list[str] = []

    def hide(self, secret: str) -> None:
        self._secrets.append(secret)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "*****")
        return text


def relay(lines: Iterable[bytes], redact: Redactor, label: str) -> list[str]:
    """Log every line until they end.

    :returns: the last error messages, oldest first.
    """
    errors: list[str] = []
    for raw in lines:
        text = redact(raw.decode("utf-8", "replace").rstrip())
        level, message = _read(text)
        if message:
            logger.log(level, "%s | %s", label, message[:_LONGEST])
        if level >= logging.ERROR and message:
            errors = [*errors[-19:], message]
    return errors


def _read(text: str) -> tuple[int, str]:
    try:
        info = json.loads(text)["info"]
        level, message = str(info["level"]), str(info["msg"])
    except (ValueError, KeyError, TypeError):
        return logging.WARNING, text  # not dbt's: a traceback, or a library that prints
    return _LEVELS.get(level, logging.ERROR), message.strip()
