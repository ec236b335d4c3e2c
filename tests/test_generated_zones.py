"""Whole generated zones: the engine against an independent row-by-row reading of the protocol.

The number of stories is `MIRROR_TEST_ZONES` (the memory writer), `MIRROR_TEST_ARROW_ZONES` and
`MIRROR_TEST_SPARK_ZONES`; which ones is chance, and `--hypothesis-seed=N` brings the same again.
"""

from __future__ import annotations

import os
from pathlib import Path

import oracle
import pytest
from generated_zones import LOSE_LEDGER, ONCE, Player, stories
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from marking import marking
from oracle_comparison import compare
from quick_folder import quick_folder

from mirror_engine import Mirror
from mirror_engine.config import Config
from mirror_engine.landing_zone.layout import LEDGER, SCRATCH, TABLES
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

CONFIGS = st.builds(
    Config,
    max_batch_files=st.sampled_from([1000, 1, 2]),  # any cut of batches ends alike
    all_null_columns=st.sampled_from(["integer", "untyped"]),
)
MEMORY_ZONES = int(os.environ.get("MIRROR_TEST_ZONES", "60"))
ARROW_ZONES = int(os.environ.get("MIRROR_TEST_ARROW_ZONES", "20"))
SPARK_ZONES = int(os.environ.get("MIRROR_TEST_SPARK_ZONES", "6"))
NOT_A_WORRY = [HealthCheck.too_slow, HealthCheck.data_too_large]  # a story is long, and a machine may be busy


def play(story, root, writer, config):
    """Play a story and compare the engine with the oracle after each of its runs."""
    player = Player(LandingZoneWriter(root))
    reference = oracle.Oracle(player.publisher.path, untyped=config.all_null_columns == "untyped")
    for act in story:
        if act is ONCE:
            reference.once(player.births)
            report = Mirror(root, config, writer=writer).sync()
            compare(reference, report.result, writer)
        elif act is LOSE_LEDGER:
            reference.lose_ledger()
            for file in (root / LEDGER).parent.glob(f"{Path(LEDGER).name}*"):
                file.unlink()
        else:
            act(player)


@pytest.mark.slow
@pytest.mark.timeout(max(300, MEMORY_ZONES))
@settings(max_examples=MEMORY_ZONES, suppress_health_check=NOT_A_WORRY)
@given(stories(), CONFIGS)
def test_generated_zones_end_as_the_oracle_says(story, config):
    with quick_folder() as folder:
        play(story, Path(folder), MemoryDeltaWriter(), config)


@pytest.mark.slow
@pytest.mark.timeout(max(300, 3 * ARROW_ZONES))
@settings(max_examples=ARROW_ZONES, suppress_health_check=NOT_A_WORRY)
@given(stories(), CONFIGS, st.sampled_from([1, 3, 10**6]))
def test_generated_zones_end_so_on_the_arrow_writer(story, config, least_rows):
    with quick_folder() as folder, marking(least_rows):
        root = Path(folder)
        play(story, root, ArrowWriter(root / TABLES, root / SCRATCH, key_index_size=1 << 20), config)


@pytest.mark.spark
@pytest.mark.timeout(max(300, 60 * SPARK_ZONES))
@settings(
    max_examples=SPARK_ZONES,
    phases=[Phase.generate],  # shrinking with Spark takes hours; the memory writer shrinks
    suppress_health_check=NOT_A_WORRY,
)
@given(story=stories(), config=CONFIGS)
def test_generated_zones_end_so_on_the_spark_writer(story, config, mirror_writer):
    with quick_folder() as folder:
        play(story, Path(folder), mirror_writer(Path(folder)), config)
