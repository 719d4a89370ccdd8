"""DAG bundles."""
