"""What a snapshot is measured against: reading alone, inserting alone, copying row by row as a generic transfer does.

Each function does one thing on the table it is given and returns rows and seconds. None of them keeps a promise.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import adbc_driver_postgresql.dbapi as adbc
import psycopg

from airflow_provider_dpone.engines.clickhouse.catalog import read_tables
from airflow_provider_dpone.engines.clickhouse.design import render_create
from airflow_provider_dpone.engines.clickhouse.quoting import identifier, table
from airflow_provider_dpone.engines.postgres.snapshot import BATCH_BYTES, describe_table, open_snapshot
from airflow_provider_dpone.engines.postgres.types import explain
from airflow_provider_dpone.hooks.clickhouse import ControllerLogin
from airflow_provider_dpone.transfer.convert import plan_conversion
from airflow_provider_dpone.transfer.rowbinary import encode_rows
from airflow_provider_dpone.transfer.stream import PIECE_ROWS
from tests.snapshot_world import SnapshotWorld


class Pace(NamedTuple):
    """How fast something went."""

    rows: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


@contextmanager
def copy_of(world: SnapshotWorld, name: str) -> Iterator[str]:
    """An empty table of the design of ``name``, removed afterwards."""
    with world.admin_control() as control:
        design = read_tables(control, world.database, [name]).table(name).design
        assert design is not None
        other = f"{name}_peer"
        control.command(render_create(world.database, other, design))
        try:
            yield other
        finally:
            control.command(f"DROP TABLE {table(world.database, other)} SYNC")


def read_alone(world: SnapshotWorld, name: str) -> Pace:
    """Every row as Arrow batches from the source, thrown away."""
    started, rows = time.monotonic(), 0
    with adbc.connect(world.source.conninfo()) as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        cursor.execute(f"SELECT * FROM public.{name}")
        for batch in cursor.fetch_record_batch():
            rows += batch.num_rows
    return Pace(rows, time.monotonic() - started)


def insert_alone(world: SnapshotWorld, name: str) -> Pace:
    """The same rows as one prepared RowBinary body in one POST into the same server."""
    with world.admin_control() as control:
        design = read_tables(control, world.database, [name]).table(name).design
    assert design is not None
    conversion = plan_conversion(describe_table(world.source, "public", name), design.columns, explain)
    body: list[bytes] = []
    rows = 0
    with open_snapshot(world.source, "public", name, conversion.source) as snapshot:
        for batch in snapshot.batches(conversion):
            for start in range(0, batch.num_rows, PIECE_ROWS):
                piece = batch.slice(start, PIECE_ROWS)
                body.append(encode_rows(conversion.convert(piece, rows), conversion.types).data)
                rows += piece.num_rows
    login = ControllerLogin(world.clickhouse.admin_user, world.clickhouse.admin_password)
    with copy_of(world, name) as other:
        columns = ", ".join(identifier(column) for column in conversion.names)
        statement = f"INSERT INTO {table(world.database, other)} ({columns}) FORMAT RowBinary"
        request = world.target().http.dispatch(statement, login, query_id=f"bench-{time.time_ns()}")
        started = time.monotonic()
        request.send(iter(body))
        return Pace(rows, time.monotonic() - started)


def copy_rows(world: SnapshotWorld, name: str, sample: int, batch: int = 10_000) -> Pace:
    """Tuples from a server-side cursor into driver inserts, as Airflow's GenericTransfer moves them."""
    rows = 0
    with copy_of(world, name) as other, _sample(world, name, sample, batch) as cursor:
        client = world.clickhouse.client()
        started = time.monotonic()
        while found := cursor.fetchmany(batch):
            client.execute(f"INSERT INTO {table(world.database, other)} VALUES", found)
            rows += len(found)
        seconds = time.monotonic() - started
        client.disconnect()
    return Pace(rows, seconds)


def copy_frames(world: SnapshotWorld, name: str, sample: int, batch: int = 100_000) -> Pace:
    """The same through pandas frames and the driver's ``insert_dataframe``."""
    import pandas

    rows = 0
    with copy_of(world, name) as other, _sample(world, name, sample, batch) as cursor:
        client = world.clickhouse.client(settings={"use_numpy": True})
        started = time.monotonic()
        while found := cursor.fetchmany(batch):
            assert cursor.description is not None
            frame = pandas.DataFrame(found, columns=[column.name for column in cursor.description])
            client.insert_dataframe(f"INSERT INTO {table(world.database, other)} VALUES", frame)
            rows += len(found)
        seconds = time.monotonic() - started
        client.disconnect()
    return Pace(rows, seconds)


@contextmanager
def _sample(world: SnapshotWorld, name: str, rows: int, batch: int) -> Iterator[psycopg.ServerCursor[tuple[Any, ...]]]:
    with psycopg.connect(world.source.conninfo()) as connection, connection.cursor("sample") as cursor:
        cursor.itersize = batch
        cursor.execute(f"SELECT * FROM public.{name} LIMIT {rows}".encode())
        yield cursor
