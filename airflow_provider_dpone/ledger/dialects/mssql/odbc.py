"""The one way to open a connection to SQL Server: no pool, no silent reconnect, no tracing, one driver.

Used for the ledger and for reading sources; says nothing of either.
"""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_provider_dpone.errors import DriverTraced
from airflow_provider_dpone.waiting import BEYOND, STATEMENT

if TYPE_CHECKING:
    import pyodbc

DRIVER: Final = "ODBC Driver 18 for SQL Server"
_ON: Final = ("1", "yes", "y", "true", "on")


@dataclass(frozen=True)
class MssqlParams:
    """How to reach a database. The password never shows in the representation."""

    host: str
    database: str
    user: str
    password: str | None = field(default=None, repr=False)
    port: int = 1433
    driver: str = DRIVER
    options: tuple[tuple[str, str], ...] = ()
    """Further keywords of the connection string, such as ``("TrustServerCertificate", "yes")``."""
    connect_timeout: int = 10
    application_name: str = "dpone"
    answer_seconds: float = STATEMENT + BEYOND
    """How long one answer, or one batch of rows, may be waited for."""

    def connection_string(self) -> str:
        """It carries the password, so it is passed on and never kept or logged."""
        keywords = {
            "Driver": self.driver,
            "Server": f"{self.host},{self.port}",
            "Database": self.database,
            "UID": self.user,
            "PWD": self.password or "",
            "APP": self.application_name,
            **{"Encrypt": "yes", **{name[:1].upper() + name[1:]: value for name, value in self.options}},
            "ConnectRetryCount": "0",
            "MARS_Connection": "no",
        }
        return ";".join(f"{name}={{{value.replace('}', '}}')}}}" for name, value in keywords.items())

    @property
    def place(self) -> str:
        """Host, port and database for error texts."""
        return f"{self.host}:{self.port}/{self.database}"


def connect(params: MssqlParams) -> pyodbc.Connection:
    """Open a session in autocommit mode; transactions are written out where they matter.

    :raises DriverTraced: the driver manager would write statements, passwords among them, to a file.
    :raises pyodbc.Error: no connection; the caller says what that means.
    """
    import pyodbc  # needs the machine's driver manager: only where a SQL Server is reached

    require_untraced()
    pyodbc.pooling = False  # before the first connection: a pooled session is neither new nor ended by closing it
    return pyodbc.connect(params.connection_string(), autocommit=True, timeout=params.connect_timeout)


def require_untraced() -> None:
    """Refuse a driver manager that traces or pools connections.

    :raises DriverTraced: ``odbcinst.ini`` says so.
    """
    for path in _ini_files():
        reader = configparser.RawConfigParser(strict=False, allow_no_value=True)
        try:
            reader.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise DriverTraced(f"{path} cannot be read, so it is not known whether the driver is traced") from error
        for section in reader.sections():
            for name in ("trace", "pooling"):
                if (reader.get(section, name, fallback=None) or "").strip().lower() in _ON:
                    raise DriverTraced(
                        f"{path} sets {name} in [{section}]; remove it: passwords would be written or sessions reused"
                    )


def _ini_files() -> list[Path]:
    system = Path(os.environ.get("ODBCSYSINI", "/etc")) / os.environ.get("ODBCINSTINI", "odbcinst.ini")
    return [path for path in (system, Path.home() / ".odbcinst.ini") if path.is_file()]
