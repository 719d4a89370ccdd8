"""``python -m airflow_provider_dpone.local.clickhouse --data DIR``: runs the local ClickHouse server."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ["TZ"] = "UTC"  # before the engine is loaded: the server's time zone
time.tzset()

from airflow_provider_dpone.local.clickhouse.server import serve  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(prog="airflow_provider_dpone.local.clickhouse", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory of everything the server keeps")
    parser.add_argument("--http-port", type=int, default=0)
    parser.add_argument("--native-port", type=int, default=0)
    parser.add_argument("--control-port", type=int, default=0)
    arguments = parser.parse_args()
    serve(arguments.data, arguments.http_port, arguments.native_port, arguments.control_port)


if __name__ == "__main__":
    main()
