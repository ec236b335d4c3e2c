"""The seed of tests that draw. By day it is the same each time, so that a run fails only for what was changed; a night
draws one (tools/nightly.py)."""

from __future__ import annotations

import os

IS_DRAWN = "MIRROR_TEST_SEED" in os.environ
SEED = int(os.environ.get("MIRROR_TEST_SEED", "1"))


def by_night(day, night):
    """How much of something a test takes: less by day."""
    return night if IS_DRAWN else day
