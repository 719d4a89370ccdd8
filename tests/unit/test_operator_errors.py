"""What Airflow may retry: what a later try can settle, and never a refusal that would only be repeated."""

from __future__ import annotations

import contextlib
import types
import uuid
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from airflow_provider_dpone.errors import (
    DponeError,
    GuardHeld,
    LedgerUnavailable,
    PublicationUnknown,
    ServerRefused,
    ValueNotExact,
)
from airflow_provider_dpone.listeners import binding
from airflow_provider_dpone.operators.base import WorkloadOperator


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> Any:
    instance = types.SimpleNamespace(
        dag_id="d", run_id="r", task_id="t", map_index=None, try_number=1, max_tries=2, id=uuid.uuid4()
    )
    monkeypatch.setattr(binding, "_bound", None)
    binding.on_task_instance_running(None, instance)
    return instance


def _ends(error: BaseException, *, stopped: bool = False) -> BaseException:
    class Failing(WorkloadOperator):
        def world(self) -> Any:
            return contextlib.nullcontext()

        def run_attempt(self, world: Any, coordinates: Any, context: Any) -> Any:
            raise error

    operator = Failing(task_id="t", target_conn_id="c")
    if stopped:
        operator.on_kill()
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - its kind is what is looked at
        operator.execute({})
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        LedgerUnavailable("away"),
        ServerRefused("memory", passes=True, server_code=241),
        GuardHeld("taken in between"),
    ],
    ids=lambda e: f"{e.code}-{e.details.get('server_code')}",
)
def test_what_passes_by_itself_is_retried(error: DponeError) -> None:
    assert _ends(error) is error


@pytest.mark.parametrize(
    "error",
    [ValueNotExact("no"), PublicationUnknown("unknown"), ServerRefused("rights", passes=False, server_code=497)],
    ids=lambda e: e.code,
)
def test_what_a_retry_would_only_repeat_is_not(error: DponeError) -> None:
    ended = _ends(error)
    assert isinstance(ended, AirflowFailException)
    assert str(ended).startswith(error.code)


def test_a_task_that_was_stopped_is_retried_whatever_its_lost_rights_looked_like() -> None:
    error = ServerRefused("not enough privileges", passes=False, server_code=497)
    assert _ends(error, stopped=True) is error


def test_a_held_target_is_waited_for_without_a_slot() -> None:
    assert isinstance(_ends(GuardHeld("held", attempt="sha256:" + "0" * 64)), TaskDeferred)


def test_an_unbound_process_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "_bound", None)
    ended = _ends(AssertionError("it ran"))
    assert isinstance(ended, AirflowFailException)
    assert "DPONE_INSTANCE_UNBOUND" in str(ended)


def test_the_next_task_of_a_process_does_not_acknowledge_the_one_before(bound: Any) -> None:
    binding.remember_success("control", "sha256:" + "0" * 64)
    binding.on_task_instance_running(None, bound)
    assert binding._finished is None
