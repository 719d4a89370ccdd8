"""The stop flag of an attempt whose grant allows it only so long."""

from __future__ import annotations

import time

import pytest

from airflow_provider_dpone.attempts.steps import Steps, StopFlag
from airflow_provider_dpone.errors import Stopped


def test_no_step_begins_after_the_granted_time_but_settling_goes_on() -> None:
    stop = StopFlag()
    stop.expire_after(0.02, "its grant allows an attempt 0 s")
    steps = Steps(stop, "w")
    with steps("copy", "in time"):
        assert not stop.is_set()
    time.sleep(0.03)
    with pytest.raises(Stopped, match="its grant allows"), steps("publish", "too late"):
        raise AssertionError("a step began")
    with steps("settle", "observing", always=True):
        assert stop.is_set()


def test_a_kill_keeps_its_own_reason() -> None:
    stop = StopFlag()
    stop.set("killed")
    stop.expire_after(0.0, "late")
    assert stop.is_set()
    assert stop.reason == "killed"
