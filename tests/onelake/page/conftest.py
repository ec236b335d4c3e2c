"""A shop in which nothing happens, and one that moves, each with a client of its page."""

from __future__ import annotations

import pytest
from page_tables import shop
from starlette.testclient import TestClient

from mirror_engine.onelake.page.web import Web


@pytest.fixture(scope="package")
def still(tmp_path_factory):
    return shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="package")
def client(still):
    return TestClient(Web(still.items).app)


@pytest.fixture
def window(tmp_path):
    return shop(tmp_path)


@pytest.fixture
def visitor(window):
    return TestClient(Web(window.items).app)
