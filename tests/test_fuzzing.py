"""Bytes from outside end as values, diagnostics or errors of the tree (`make fuzz` for longer)."""

from __future__ import annotations

import os
import random
import sys
import time

import pytest
from fuzzing import __main__ as fuzz
from fuzzing.mutations import MAX_BYTES
from fuzzing.targets import TARGETS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow
MAX_SECONDS = 20.0  # of one input, on a busy machine
each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@each_target
def test_valid_examples_are_no_findings(target):
    for example in target.examples:
        target.run(example)


@each_target
def test_a_changed_example_raises_no_other_error(target):
    @settings(
        max_examples=10 if target is TARGETS["ledger"] else 100,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(target.examples), st.randoms(use_true_random=True))
    def run(example, chance):
        begin = time.monotonic()
        target.run(target.mutated(example, chance))
        assert time.monotonic() - begin < MAX_SECONDS

    run()


@each_target
def test_changes_change_and_stay_within_bounds(target):
    chance = random.Random(0)
    inputs = {target.mutated(target.examples[0], chance) for _ in range(40)}
    assert len(inputs) > 20
    assert max(map(len, inputs)) < 4 * MAX_BYTES


@pytest.mark.parametrize(
    ("name", "finding"),
    [("raises", "KeyError at targets.py:"), ("crashes", "the process ended with -11"), ("hoards", "memory grew")],
)
def test_fuzzing_finds_what_is_broken_and_keeps_its_input(tmp_path, monkeypatch, name, finding):
    monkeypatch.setattr(fuzz, "FOLDER", tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    _, _, findings = fuzz.fuzzed(name, 1, seed=0)
    assert [text for text in findings if finding in text], findings
    assert list(tmp_path.rglob("finding-*"))
