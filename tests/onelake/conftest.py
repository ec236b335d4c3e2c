"""The lake that most tests write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lakes import ZoneClient

from mirror_engine.onelake.store import LocalStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def zone(tmp_path: Path) -> ZoneClient:
    return ZoneClient(LocalStore(tmp_path / "store"))
