"""What Airflow says of other task instances. Never proof that one stopped: only fence and gates are."""

from __future__ import annotations

from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_provider_dpone.contracts.identity import TaskCoordinates

_FINISHED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


def finished(coordinates: TaskCoordinates) -> bool:
    """Whether Airflow reports this task finished, or does not know its run any more."""
    mapped = coordinates.map_index >= 0
    states = RuntimeTaskInstance.get_task_states(
        dag_id=coordinates.dag_id,
        task_ids=[coordinates.task_id],
        run_ids=[coordinates.run_id],
        map_index=coordinates.map_index if mapped else None,
    )
    key = f"{coordinates.task_id}_{coordinates.map_index}" if mapped else coordinates.task_id
    of_run = states.get(coordinates.run_id, {})
    state = of_run.get(key, of_run.get(coordinates.task_id))
    return (state is None and not of_run) or str(state) in _FINISHED
