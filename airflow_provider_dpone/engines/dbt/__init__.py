"""dbt as one process per attempt: sealed project, planned relations, one-time login, artifacts. Knows no ledger."""
