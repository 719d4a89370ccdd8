"""What Airflow shows of this provider."""

from __future__ import annotations

from typing import Any

from airflow_provider_dpone.hooks.forms import CLICKHOUSE, POSTGRES


def get_provider_info() -> dict[str, Any]:
    """The provider's manifest, in Airflow's own schema."""
    package = "airflow_provider_dpone"
    name = "dpone"
    return {
        "package-name": "airflow-provider-dpone",
        "name": name,
        "description": "Table refreshes that are admitted, fenced and observed.",
        "integrations": [{"integration-name": name, "external-doc-url": "", "tags": ["software"]}],
        "operators": [
            {
                "integration-name": name,
                "python-modules": [
                    f"{package}.operators.snapshot",
                    f"{package}.operators.dbt",
                    f"{package}.operators.load",
                    f"{package}.operators.retention",
                    f"{package}.operators.reconcile",
                    f"{package}.operators.release",
                ],
            }
        ],
        "hooks": [
            {
                "integration-name": name,
                "python-modules": [f"{package}.hooks.control", f"{package}.hooks.clickhouse"],
            }
        ],
        "bundles": [{"integration-name": name, "python-modules": [f"{package}.bundles.release"]}],
        "triggers": [{"integration-name": name, "python-modules": [f"{package}.triggers.guard"]}],
        "connection-types": [
            {
                "connection-type": "dpone_clickhouse",
                "hook-class-name": f"{package}.hooks.clickhouse.DponeClickHouseHook",
                "hook-name": "ClickHouse (dpone)",
                "ui-field-behaviour": {
                    "relabeling": {"port": "HTTP port", "schema": "Database"},
                    "placeholders": {"port": "8123", "login": "dpone_controller"},
                },
                "conn-fields": CLICKHOUSE.form(),
            },
            {
                "connection-type": "dpone_control",
                "hook-class-name": f"{package}.hooks.control.DponeControlHook",
                "hook-name": "dpone control ledger",
                "ui-field-behaviour": {
                    "relabeling": {"schema": "Database"},
                    "placeholders": {"port": "5432", "schema": "dpone", "login": "dpone_runtime"},
                },
                "conn-fields": POSTGRES.form(),
            },
        ],
        "cli": [f"{package}.cli.get_cli_commands"],
    }
