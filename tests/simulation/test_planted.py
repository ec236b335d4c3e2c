"""Planted bugs are found by the simulation, and how soon."""

from __future__ import annotations

import itertools

import pytest

from simulation import planted
from simulation.runner import play

RUNS = 10_000
SOON = (
    planted.recorded_before_it_is_durable,
    planted.recorded_before_its_commit,
    planted.moved_before_its_commit,
    planted.digest_of_a_moved_file_forgotten,
    planted.batch_committed_again_after_a_lost_answer,
)
LATER = tuple(bug for bug in planted.BUGS if bug not in SOON)


def first_to_find(bug, most):
    """The first run that fails with a bug, and not without it."""
    for seed in itertools.takewhile(lambda seed: seed <= most, itertools.count(1)):
        run = play(seed, bug=bug)
        if run.fault:
            assert play(seed).fault is None
            print(f"{bug.__name__}: seed {seed}, after {seed} runs: {run.fault}")
            return run
    pytest.fail(f"{bug.__name__} is in {most} runs, and none fails")


@pytest.mark.slow
@pytest.mark.parametrize("bug", SOON, ids=lambda bug: bug.__name__)
def test_planted_bug_is_found_soon(bug):
    first_to_find(bug, most=30)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("bug", LATER, ids=lambda bug: bug.__name__)
def test_planted_bug_is_found_within_ten_thousand_runs(bug):
    first_to_find(bug, RUNS)
