"""`run` killed with SIGKILL at chosen moments, its ledger harmed now and then: the tables end as the oracle says.

`make torture` does it two hundred times.
"""

from __future__ import annotations

import os
import random

import pytest
from killer import Killer

from mirror_engine import Config, Mirror

KILLS = int(os.environ.get("MIRROR_TEST_KILLS", "10"))
SEED = int(os.environ.get("MIRROR_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(max(300, 70 * KILLS))
def test_killed_at_chosen_moments_nothing_is_lost_doubled_or_reordered(tmp_path, mirror_writer):
    print(f"MIRROR_TEST_SEED={SEED}")
    killer = Killer(tmp_path, SEED)
    for _ in range(KILLS):
        print(killer.kill())
    writer = mirror_writer(killer.root)
    with Mirror(killer.root, Config(), writer=writer) as mirror:
        killer.judge(mirror.once().verdict, writer)
        assert mirror.once().batches == 0
