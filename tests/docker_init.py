"""The stack's set-up script as a module; it lives outside any package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def _load() -> Any:
    spec = importlib.util.spec_from_file_location(
        "docker_init_script", Path(__file__).parents[1] / "docker" / "init.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


init: Any = _load()
