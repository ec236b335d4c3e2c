"""What the tests of tracing share: a shop over the memory writer."""

from __future__ import annotations

import pytest
from shop import Shop


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)
