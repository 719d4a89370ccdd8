"""Mutations of releases, activation, connections and the command line."""



from __future__ import annotations

from tools.mutations import Rows

BY_FILE: Rows = []
