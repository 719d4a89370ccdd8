"""From declared workloads to an active release: physical admission and the current pointer."""
