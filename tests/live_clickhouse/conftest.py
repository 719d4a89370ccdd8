"""Fixtures of the conformance suite of the ClickHouse engine."""

from __future__ import annotations

import pytest

from tests.live_clickhouse.product import Product
from tests.servers import ClickHouseUnderTest


@pytest.fixture
def product(clickhouse_server: ClickHouseUnderTest) -> Product:
    """The engine over the server under test."""
    return Product(clickhouse_server)


@pytest.fixture
def local(product: Product) -> Product:
    """The engine over the local server, with all hold points released around the test."""
    if product.server.local is None:
        pytest.skip("hold points exist on the local server only")
    product.server.holds.clear()
    return product
