"""The local stack: embedded PostgreSQL, a local ClickHouse server, a real Airflow. Development only."""
