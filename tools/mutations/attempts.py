"""Mutations of the course of an attempt, its cells and the ClickHouse engine."""

from __future__ import annotations

from tools.mutations import Rows

BY_FILE: Rows = []
