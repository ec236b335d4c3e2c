"""The lake that most tests write to."""

from __future__ import annotations

import pytest
from zone_client import ZoneClient

from mirror_engine.onelake.store import LocalStore


@pytest.fixture
def zone(tmp_path):
    return ZoneClient(LocalStore(tmp_path / "store"))
