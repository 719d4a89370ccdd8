"""Run SQL as administrator of one of the local servers: for a first table, and for a look at a published one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import clickhouse_driver
import psycopg

from airflow_provider_dpone.errors import LocalStackFailed
from airflow_provider_dpone.local.stack import LocalStack

_END = re.compile(r";[ \t]*(?:\n|\Z)")


def run_sql(stack: LocalStack, server: str, text: str) -> Iterator[tuple[Any, ...]]:
    """Run statements, each ended by ``;`` at the end of a line; the rows of all of them.

    :param server: ``source`` or ``clickhouse``.
    :raises LocalStackFailed: the server refused one, or is not running.
    """
    statements = [found for part in _END.split(text) if (found := part.strip())]
    try:
        yield from (_on_source if server == "source" else _on_clickhouse)(stack, statements)
    except (psycopg.Error, clickhouse_driver.errors.Error, OSError, EOFError) as error:
        lines = str(error).split("Stack trace")[0].strip().splitlines()
        raise LocalStackFailed(f"{server}: " + " ".join(line.strip() for line in lines if line.strip())) from None


def _on_source(stack: LocalStack, statements: list[str]) -> Iterator[tuple[Any, ...]]:
    login = stack.connections()["dpone_source_admin"]
    with psycopg.connect(
        host=login["host"], port=login["port"], dbname=login["schema"], user=login["login"], password=login["password"],
        autocommit=True,
    ) as connection:  # fmt: skip
        for statement in statements:
            cursor = connection.execute(statement)
            if cursor.description is not None:
                yield from cursor


def _on_clickhouse(stack: LocalStack, statements: list[str]) -> Iterator[tuple[Any, ...]]:
    login = stack.connections()["dpone_clickhouse_admin"]
    native = login["extra"]["native_port"]
    client = clickhouse_driver.Client(login["host"], native, user=login["login"], password=login["password"])
    try:
        for statement in statements:
            yield from client.execute(statement)
    finally:
        client.disconnect()
