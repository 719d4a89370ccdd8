"""Airflow's own view of a release's DAGs, for a command that runs beside Airflow's metadata database."""

from __future__ import annotations

import time
from collections.abc import Sequence


def pause_and_wait(dag_ids: Sequence[str], seconds: float) -> dict[str, int]:
    """Pause DAGs and wait until none of their runs is queued or running.

    :param seconds: how long to wait.
    :returns: DAGs that still have active runs then, each with their number; empty when all ended.
    """
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from sqlalchemy import func, select, update

    deadline = time.monotonic() + seconds
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id.in_(dag_ids)).values(is_paused=True))
    while True:
        with create_session() as session:
            active = select(DagRun.dag_id, func.count()).where(
                DagRun.dag_id.in_(dag_ids), DagRun.state.in_([DagRunState.RUNNING, DagRunState.QUEUED])
            )
            busy = {str(dag_id): int(count) for dag_id, count in session.execute(active.group_by(DagRun.dag_id))}
        if not busy or time.monotonic() > deadline:
            return busy
        time.sleep(1)
