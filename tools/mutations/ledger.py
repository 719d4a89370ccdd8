"""Mutations of the rules, audits and identity of the ledger."""

from __future__ import annotations

from tools.mutations import Rows

BY_FILE: Rows = []
