"""What all operators of this provider share: literal declarations, the stop flag, waiting without a slot, errors.

Every DAG file that uses an operator imports this when it is parsed, so drivers and the machinery of attempts are
imported where a task needs them.

``on_kill`` runs in a signal handler and takes rights away on the server only; the unwinding ``execute`` writes the
ledger. Airflow may let ``execute`` go on after ``on_kill``, so every step asks the stop flag first.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_dpone.attempts.steps import StopFlag
from airflow_provider_dpone.contracts.naming import split_table
from airflow_provider_dpone.errors import DponeError, GuardHeld
from airflow_provider_dpone.listeners.binding import bound_coordinates, remember_failure
from airflow_provider_dpone.operators import arguments
from airflow_provider_dpone.operators.failing import NOTHING_RESERVED, block

if TYPE_CHECKING:
    from airflow_provider_dpone.attempts.world import World
    from airflow_provider_dpone.contracts.identity import TaskCoordinates
    from airflow_provider_dpone.contracts.release import WorkloadDeclaration


class Cell(Protocol):
    """A running attempt that can be stopped from outside."""

    def kill(self) -> None: ...


@runtime_checkable
class HasStanding(Protocol):
    """An attempt that can say what became of it."""

    @property
    def standing(self) -> str: ...


class WorkloadOperator(BaseOperator):
    """Base of operators that are workloads of a release.

    :param target_conn_id: literal Airflow connection of the target server.
    :param control_conn_id: literal Airflow connection of the control database.
    :param environment: name of the environment whose active release must contain this task.
    :param guard_wait: how long to wait, deferred, for another run that holds the target; then a person decides. A
        ``timedelta``, or a text such as ``"1h 30m"``.

    :raises DeclarationInvalid: while the DAG file is parsed, when a literal field is templated or malformed.
    """

    kind: str = ""
    constituent: str = "native"
    ui_color = "#d7efe4"
    #: Literal fields stand among the templated ones so that Airflow shows them under Rendered Templates.
    template_fields: Sequence[str] = ("target_conn_id", "control_conn_id", "environment")

    def __init__(
        self,
        *,
        target_conn_id: str,
        control_conn_id: str = "dpone_control",
        environment: str = "default",
        guard_wait: timedelta | str = timedelta(hours=1),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.target_conn_id = arguments.literal("target_conn_id", target_conn_id)
        self.control_conn_id = arguments.literal("control_conn_id", control_conn_id)
        self.environment = arguments.environment(environment)
        self.guard_wait = arguments.duration("guard_wait", guard_wait)
        self._stop = StopFlag()
        self._cell: Cell | None = None

    def declaration(self, workload_id: str) -> WorkloadDeclaration:
        """What this task declares to a release, as written (nothing rendered)."""
        raise NotImplementedError

    def native_project(self) -> tuple[str, Path] | None:
        """Name and directory of a project that belongs into the release whole; None without one."""
        return None

    def run_attempt(self, world: Any, coordinates: TaskCoordinates, context: Any) -> Any:
        """Run one admitted attempt and return its receipt as a dict."""
        raise NotImplementedError

    # --- Airflow's face ---

    def execute(self, context: Any) -> Any:
        """Run, or wait deferred while another run holds the target.

        :raises AirflowFailException: a refusal that a retry would only repeat; the message starts with its code.
        :raises DponeError: a failure that a retry may settle.
        """
        return self._run(context, datetime.now(UTC))

    def resume(self, context: Any, event: dict[str, str]) -> Any:
        """Go on after waiting; see :class:`GuardTrigger`."""
        return self._run(context, datetime.fromisoformat(event["waiting_since"]))

    def on_kill(self) -> None:
        """Stop: no further step starts, and every issued user loses its rights on the server, within seconds."""
        self._stop.set("killed by Airflow")
        cell = self._cell
        if cell is not None:
            closing = threading.Thread(target=self._close_quickly, args=(cell,), name="dpone-kill", daemon=True)
            closing.start()
            closing.join(4.0)

    def _close_quickly(self, cell: Cell) -> None:
        try:
            cell.kill()
        except DponeError as error:
            self.log.warning("closing on the server is not proved yet (%s); the ending task goes on with it", error)

    def _run(self, context: Any, waiting_since: datetime) -> Any:
        try:
            coordinates = bound_coordinates()
            with self.world() as world:  # no connection is left open when execute returns
                return self.run_attempt(world, coordinates, context)
        except GuardHeld as held:
            self._wait(held, waiting_since)
        except DponeError as error:
            remember_failure(block(error, self._standing()))
            if error.retryable or self._stop.is_set():  # stopped: then that is what failed it
                raise error.with_traceback(None) from None  # traces of drivers would bury it
            self.log.debug("refused here", exc_info=True)
            raise AirflowFailException(str(error)) from None  # the message says all; a trace would bury it

    def _standing(self) -> str:
        """What is true of the attempt and its target now, in words."""
        cell = self._cell
        return cell.standing if isinstance(cell, HasStanding) else NOTHING_RESERVED

    def _wait(self, held: GuardHeld, waiting_since: datetime) -> None:
        from airflow_provider_dpone.triggers.guard import GuardTrigger

        details = held.details
        if "attempt" not in details:
            raise held
        waited = datetime.now(UTC) - waiting_since
        if waited > self.guard_wait:
            remember_failure(block(held, NOTHING_RESERVED))
            raise AirflowFailException(f"{held} for longer than {self.guard_wait}; a person must look") from None
        self.log.info(
            "%s, since %s, for at most %s", held, waiting_since.isoformat(timespec="seconds"), self.guard_wait
        )
        self.defer(
            trigger=GuardTrigger(
                control_conn_id=self.control_conn_id,
                attempt_sha256=str(details["attempt"]),
                waiting_for=held.message,
                waiting_since=waiting_since.isoformat(),
                give_up_at=(waiting_since + self.guard_wait).isoformat(),
            ),
            method_name="resume",
        )

    def world(self) -> World[Any]:
        """Ledger and target behind the connections."""
        from airflow_provider_dpone.hooks.control import DponeControlHook
        from airflow_provider_dpone.hooks.targets import world_behind

        return world_behind(DponeControlHook(self.control_conn_id).ledger(), self.target_conn_id, self._stop.check)

    def workload_id(self, coordinates: TaskCoordinates) -> str:
        """``dag.task``, with ``[index]`` for a mapped task."""
        index = f"[{coordinates.map_index}]" if coordinates.map_index >= 0 else ""
        return f"{coordinates.dag_id}.{coordinates.task_id}{index}"

    def scheduler_view(self) -> Any:
        """Whether Airflow reports another task instance finished."""
        from airflow_provider_dpone.triggers.scheduler import finished

        return finished


class TableOperator(WorkloadOperator):
    """Base of workloads whose target is one table.

    :param target_table: literal ``database.table`` (``schema.table`` on SQL Server and PostgreSQL).
    """

    template_fields: Sequence[str] = (*WorkloadOperator.template_fields, "target_table")

    def __init__(self, *, target_table: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target_table = arguments.literal("target_table", target_table)
        split_table(self.target_table)
