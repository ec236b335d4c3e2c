"""Whatever bytes come from outside, they end as values, diagnostics or errors of the tree (`make fuzz` for longer)."""

from __future__ import annotations

import os
import random
import sys
import time

import pytest
from fuzzing import __main__ as fuzz
from fuzzing.bytes_mutations import LONGEST
from fuzzing.catalogue import NAMES, target
from fuzzing.target import packed, unpacked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TARGETS = [target(name) for name in NAMES]
SLOW = {"zone", "ledger", "delta_log"}  # each input is a run of the engine
MAX_SECONDS = 20.0  # of one input, on a busy machine


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=NAMES)
def test_valid_examples_are_no_findings(target):
    for seed in target.begun_with[:: 20 if target.name == "zone" else 1]:
        target.run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=NAMES)
def test_no_changed_example_is_met_by_another_error(target):
    @settings(
        max_examples=10 if target.name in SLOW else 100,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(target.begun_with), st.randoms(use_true_random=True))
    def tried(seed, chance):
        begun = time.monotonic()
        target.run(target.mutated(seed, chance))
        assert time.monotonic() - begun < MAX_SECONDS

    tried()


def test_inputs_of_several_files_come_apart_as_they_were():
    files = {b"a/b": b"1", b"": b"", b"c": b"\0" * 300}
    assert dict(unpacked(packed(files))) == files
    assert dict(unpacked(packed(files)[:-1])) == {b"a/b": b"1", b"": b""}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=NAMES)
def test_changes_change_and_stay_within_bounds(target):
    chance = random.Random(0)
    seed = target.begun_with[0]
    made = {target.mutated(seed, chance) for _ in range(40)}
    assert len(made) > 20
    assert max(map(len, made)) < 4 * LONGEST


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "LookupError at broken.py:"),
        ("crashes", "the process ended with -11"),
        ("hoards", "memory grew"),
    ],
)
def test_fuzzing_finds_what_is_broken_and_keeps_its_input(tmp_path, monkeypatch, name, said):
    monkeypatch.setattr(fuzz, "FOLDER", tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    outcome = fuzz.fuzzed(name, 1, seed=0)
    assert [what for what in outcome.found if said in what], outcome
    assert list(tmp_path.rglob("finding-*"))
