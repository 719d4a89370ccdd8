"""Binds the coordinates of the running task instance before ``execute``, and remembers what it finished.

A listener cannot fail a task, so nothing is enforced here: the operator takes the binding and refuses to run without
one. The running hook fires again at every resume; binding is idempotent by the instance's UUID. This module is
imported in every Airflow process and therefore imports nothing heavy.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from airflow_provider_dpone.contracts.identity import TaskCoordinates


@dataclass(frozen=True)
class _Bound:
    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    max_tries: int
    task_instance_id: str


_bound: _Bound | None = None
#: (control_conn_id, attempt digest) of what this process ended SUCCEEDED, for the success hook.
_finished: tuple[str, str] | None = None
#: What this process says after Airflow has logged its failure.
_said_last: str | None = None


def bound_coordinates() -> TaskCoordinates:
    """Coordinates of the task instance this process runs.

    :raises InstanceUnbound: the listener did not bind one (the plugin is not loaded, or this is no task process).
    """
    from airflow_provider_dpone.contracts.identity import TaskCoordinates
    from airflow_provider_dpone.errors import InstanceUnbound

    if _bound is None:
        raise InstanceUnbound(
            "this operator runs only inside an Airflow task with the provider's listener loaded; "
            "`airflow plugins` must show `dpone`"
        )
    try:
        return TaskCoordinates(**vars(_bound))
    except ValueError:
        raise InstanceUnbound(
            f"{_bound.dag_id}.{_bound.task_id} runs without a task instance of its own, as `airflow tasks test` does "
            "it; use `airflow dags test`, or trigger the DAG"
        ) from None


def remember_success(control_conn_id: str, attempt_sha256: str) -> None:
    """Let the success hook record that the scheduler accepted this attempt's success."""
    global _finished
    _finished = (control_conn_id, attempt_sha256)


def remember_failure(text: str) -> None:
    """Let the failure hook end the task's log with what a person needs to know."""
    global _said_last
    _said_last = text


@hookimpl
def on_task_instance_running(previous_state: Any, task_instance: Any) -> None:
    """Bind (again) the instance that is about to run in this process."""
    global _bound, _finished, _said_last
    _finished = _said_last = None
    _bound = _Bound(
        dag_id=task_instance.dag_id,
        run_id=task_instance.run_id,
        task_id=task_instance.task_id,
        map_index=task_instance.map_index if task_instance.map_index is not None else -1,
        try_number=task_instance.try_number,
        max_tries=task_instance.max_tries,
        task_instance_id=str(task_instance.id),
    )


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Record in the ledger that the success was accepted, so that a later clear never reuses it."""
    if _finished is None or _bound is None or str(task_instance.id) != _bound.task_instance_id:
        return
    from airflow_provider_dpone.hooks.control import DponeControlHook
    from airflow_provider_dpone.ledger.attempts import CompositionAttemptStore

    control_conn_id, attempt_sha256 = _finished
    CompositionAttemptStore(DponeControlHook(control_conn_id).ledger()).acknowledge(attempt_sha256)


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Say what happened, what is true and what to do: the last words of the task's log, below Airflow's trace."""
    if _said_last is not None and _bound is not None and str(task_instance.id) == _bound.task_instance_id:
        logging.getLogger(__name__).error("%s", _said_last)
