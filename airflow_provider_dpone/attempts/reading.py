"""Reading a source while its own aggregates are computed beside it, in the same snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from airflow_provider_dpone.contracts.columns import TableAggregates
from airflow_provider_dpone.transfer.convert import Conversion
from airflow_provider_dpone.transfer.source import Snapshot


@contextmanager
def aggregating(snapshot: Snapshot, conversion: Conversion) -> Iterator[Future[TableAggregates]]:
    """Let the source compute its aggregates in the same snapshot while the rows are read."""
    with ThreadPoolExecutor(1, thread_name_prefix="dpone-aggregates") as pool:
        future = pool.submit(snapshot.aggregates, conversion)
        try:
            yield future
        except BaseException:
            snapshot.cancel()
            raise
