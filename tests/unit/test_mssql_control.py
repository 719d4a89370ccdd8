"""The controller's side of SQL Server without a server: tracing drivers, unknown operations, what cannot be accepted."""

from __future__ import annotations

from pathlib import Path

import pyodbc
import pytest

from airflow_provider_dpone.engines.mssql import control
from airflow_provider_dpone.engines.mssql.control import CONTROL_OPERATION_UNKNOWN, MssqlControl, MssqlSession
from airflow_provider_dpone.engines.mssql.policy import require_acceptable
from airflow_provider_dpone.engines.mssql.session import connect
from airflow_provider_dpone.errors import (
    AnswerLost,
    DeclarationInvalid,
    DponeError,
    DriverFailed,
    DriverTraced,
    ServerRefused,
    ServerUnreachable,
)
from airflow_provider_dpone.ledger.dialects.mssql.odbc import MssqlParams
from airflow_provider_dpone.waiting import Line

PARAMS = MssqlParams(host="127.0.0.1", database="d", user="u", password="p", connect_timeout=2)


def _driver_manager(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    (folder / "odbcinst.ini").write_text(text)
    monkeypatch.setenv("ODBCSYSINI", str(folder))
    monkeypatch.setenv("HOME", str(folder))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened, and its password written")

    monkeypatch.setattr(pyodbc, "connect", never)


@pytest.mark.parametrize(
    "text",
    ["[ODBC]\nTrace = Yes\n", "[ODBC]\ntrace=1\nTraceFile=/tmp/t\n", "[ODBC]\nPooling = on\n", "no section\n"],
    ids=["traced", "traced by a number", "pooled", "unreadable"],
)
def test_a_driver_manager_that_traces_or_pools_is_refused_before_a_password_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    _driver_manager(monkeypatch, tmp_path, text)
    with pytest.raises(DriverTraced):
        connect(PARAMS)


def test_the_users_own_driver_settings_count_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _driver_manager(monkeypatch, tmp_path, "[ODBC]\nTrace = No\n")
    (tmp_path / ".odbcinst.ini").write_text("[ODBC]\nTrace = Yes\n")
    with pytest.raises(DriverTraced, match=r"\.odbcinst\.ini"):
        connect(PARAMS)


class _Failing:
    """A connection whose statements fail in one way."""

    def __init__(self, *state: str) -> None:
        self._state = state

    def cursor(self) -> _Failing:
        return self

    def execute(self, sql: str) -> None:
        raise pyodbc.Error(*self._state)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (
            (
                "08S01",
                "[08S01] [Microsoft][ODBC Driver 18 for SQL Server]Communication link failure (0) (SQLExecDirectW)",
            ),
            AnswerLost,
        ),
        (
            ("HYT00", "[HYT00] [Microsoft][ODBC Driver 18 for SQL Server]Query timeout expired (0) (SQLExecDirectW)"),
            AnswerLost,
        ),
        (("HY000", "[HY000] [Microsoft][ODBC Driver 18 for SQL Server]Protocol error in TDS stream (0)"), AnswerLost),
        (
            ("22001", "[22001] [Microsoft][ODBC Driver 18 for SQL Server]String data, right truncation (0)"),
            DriverFailed,
        ),
    ],
    ids=["lost", "late", "garbled", "the driver's own"],
)
def test_an_operation_that_was_not_answered_is_unknown_and_no_finding(
    state: tuple[str, str], kind: type[DponeError]
) -> None:
    with pytest.raises(kind) as unknown:
        MssqlSession(PARAMS, _Failing(*state), Line()).query("SELECT 1")  # type: ignore[arg-type]
    assert unknown.value.details["reasons"] == [CONTROL_OPERATION_UNKNOWN] == ["control_operation_unknown"]


def test_an_operation_that_was_refused_is_not_unknown() -> None:
    state = ("42000", "[42000] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]said so (229) (SQLExecDirectW)")
    with pytest.raises(ServerRefused) as refused:
        MssqlSession(PARAMS, _Failing(*state), Line()).query("SELECT 1")  # type: ignore[arg-type]
    assert "reasons" not in refused.value.details


def test_a_server_that_cannot_be_reached_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_: MssqlParams) -> tuple[pyodbc.Connection, Line]:
        raise ServerUnreachable("away")

    monkeypatch.setattr(control, "connect_lined", unreachable)
    with pytest.raises(ServerUnreachable) as unknown:
        MssqlControl(PARAMS, "gates").fresh()
    assert unknown.value.details["reasons"] == [CONTROL_OPERATION_UNKNOWN]


@pytest.mark.parametrize(
    "reason",
    ["membership", "ambient_grant", "object_ownership", "role_ownership", "database_owner", "gate_owner",
     "unsupported_object", "unmanaged_scope", "assembly", "authentication", "role_grants", "ambient_writer", "controller"],
)  # fmt: skip
def test_a_fixed_reason_cannot_be_accepted(reason: str) -> None:
    with pytest.raises(DeclarationInvalid, match="cannot be accepted"):
        require_acceptable([f"{reason}:somebody"])


def test_an_option_of_the_server_and_a_tables_own_feature_can_be_accepted() -> None:
    require_acceptable(["server_option:clr enabled = 1", "trigger:mart.t.audit"])
