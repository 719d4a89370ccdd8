"""Fixtures of the conformance suite, and what of it runs on a real server.

A test that needs hold points, or a server it may kill, is local: on a real server it is not collected, and
``closed_list.txt`` names it so. Nothing is skipped.
"""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from tests.live_clickhouse.product import Product
from tests.servers import URL_VARIABLE, ClickHouseUnderTest

RESTART_VARIABLE = "DPONE_TEST_CLICKHOUSE_RESTART"
#: Fixtures that only the local server has.
LOCAL = {"local", "held", "own_server"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a real server cannot show."""
    if URL_VARIABLE not in os.environ:
        return
    out = LOCAL if RESTART_VARIABLE in os.environ else LOCAL | {"restartable"}
    left = [item for item in items if out & set(getattr(item, "fixturenames", ()))]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.fixture
def product(clickhouse_server: ClickHouseUnderTest) -> Product:
    """The engine over the server under test."""
    return Product(clickhouse_server)


@pytest.fixture
def local(product: Product) -> Product:
    """The engine over the local server, with all hold points released around the test."""
    product.server.holds.clear()
    return product


@pytest.fixture
def restartable(product: Product) -> Product:
    """The engine over a server that can be restarted: the local one, or by the command of the environment."""

    def restart() -> None:
        if product.server.local is not None:
            product.server.local.kill()
            product.server.local.start()
        else:
            subprocess.run(shlex.split(os.environ[RESTART_VARIABLE]), check=True, timeout=120)
        product.wait()

    product.restart = restart
    return product
