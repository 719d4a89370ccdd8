"""ClickHouse: control and data plane, catalog, one-time users, sealed generations. Knows nothing of Airflow."""
