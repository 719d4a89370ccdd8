"""The cells: what an admitted attempt does, one module per kind of workload."""
