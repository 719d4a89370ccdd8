"""Mutations by area of the product: rows of (file of the package, [(promise, old, new, tests that must notice)])."""

Rows = list[tuple[str, list[tuple[str, str, str, tuple[str, ...]]]]]
