"""The engine in simulated worlds: what is promised holds in each of them, and each is the same again.

`MIRROR_TEST_SEEDS` sets how many are played. A seed that fails says how to play it again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import __main__ as command
from simulation import planted
from simulation.reached import STATES
from simulation.runner import play, play_all, shortest, told

SEEDS = int(os.environ.get("MIRROR_TEST_SEEDS", "200"))
PARTS = 4  # so that none takes minutes
FOUND = [5020]  # a table that was only made, whose log another program cleaned up
TESTS = Path(__file__).parents[1]
PROBE = "from simulation.runner import play; print(*(play(seed, 300).digest for seed in range(1, 4)))"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_simulated_worlds_keep_every_promise(part):
    seeds = range(1 + part, SEEDS + 1, PARTS)
    failed, reached, steps, seconds = play_all(seeds)
    print(f"{len(seeds)} seeds, {steps} steps, {steps / seconds:,.0f} a second, {len(reached)} kinds of events reached")
    assert failed == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND)
def test_seed_that_once_failed_passes(seed):
    assert play(seed).fault is None


@pytest.mark.slow
def test_same_seed_gives_the_same_trace_in_any_process():
    traces = set()
    for hash_seed in ("1", "3", "6"):  # by which sets of folders have three orders
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=True
        )
        traces.add(done.stdout)
    assert len(traces) == 1


def test_promises_page_has_every_state_that_a_night_must_reach():
    page = (TESTS.parent / "docs/promises.md").read_text(encoding="utf-8")
    assert [words for words in STATES.values() if f"| {words} |" not in page] == []


def test_night_fails_where_a_state_was_not_reached(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["simulation", "--seeds", "1", "--steps", "10"])
    monkeypatch.setattr(command, "NIGHT", 1)
    assert command.main() == 1
    assert "NOT REACHED by any seed: checkpoint" in capsys.readouterr().out


@pytest.mark.slow
def test_seed_that_fails_prints_how_to_play_it_and_its_shortest_prefix():
    bug = planted.digest_of_a_moved_file_forgotten
    run = next(run for run in (play(seed, bug=bug) for seed in range(1, 31)) if run.fault)
    words = told(run, bug)
    assert f"seed {run.seed} failed at step {run.at}: AssertionError" in words
    least = shortest(run, bug)
    assert f"--seed {run.seed} --steps {least.steps}" in words
    assert least.steps < run.at
    assert least.fault


@pytest.mark.slow
def test_another_seed_gives_another_trace():
    assert play(1, 100).digest != play(2, 100).digest
