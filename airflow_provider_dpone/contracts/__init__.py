"""Frozen documents, states and ports: what is said. No I/O and nothing else of ours below this package."""
