"""Runs seeds, and says of one that fails how to play it again, and how little of it is enough."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from simulation.world import World

STEPS = 600  # of a seed, before it is to become quiet
COMMAND = "PYTHONPATH=tests python -m simulation"


@dataclass
class Run:
    """What came of one seed. `trace`: what happened, line by line."""

    seed: int
    steps: int
    fault: BaseException | None = None
    at: int = 0
    trace: list = field(default_factory=list)
    reached: Counter = field(default_factory=Counter)

    @property
    def digest(self):
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    @property
    def command(self):
        return f"{COMMAND} --seed {self.seed} --steps {self.steps}"


@contextmanager
def quiet():
    """Errors that the engine logs are those that the world makes."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def play(seed, steps=STEPS, bug=nullcontext):
    """Play one seed, with a planted bug perhaps."""
    world, fault = World(seed, steps), None
    with quiet(), bug():
        try:
            world.run()
        except Exception as error:  # noqa: BLE001 - it is what we look for
            fault = error
    return Run(seed, steps, fault, world.hub.steps, world.lines, world.reached)


def shortest(run, bug=nullcontext):
    """The run of the same seed with the fewest steps, of those tried, that fails too."""
    found = run
    if run.at < run.steps:
        found = _or(play(run.seed, run.at, bug), run)
    low, high = 0, found.steps
    while low < high:
        middle = (low + high) // 2
        tried = play(run.seed, middle, bug)
        if tried.fault:
            found, high = tried, middle
        else:
            low = middle + 1
    return found


def _or(tried, otherwise):
    return tried if tried.fault else otherwise


def play_all(seeds, steps=STEPS, said=print, most=5):
    """Play seeds; returns those that failed, what was reached in all, the steps, and the seconds that it took."""
    failed, reached, total, began = [], Counter(), 0, time.perf_counter()
    for seed in seeds:
        run = play(seed, steps)
        reached.update(run.reached)
        total += run.at
        if run.fault:
            failed.append(run)
            said(told(run))
            if len(failed) == most:
                break
    return failed, reached, total, time.perf_counter() - began


def told(run, bug=nullcontext):
    """A fault in words, with the commands that play it again."""
    least = shortest(run, bug)
    return "\n".join(
        [
            f"seed {run.seed} failed at step {run.at}: {type(run.fault).__name__}: {run.fault}",
            f"  again: {run.command}",
            f"  shortest prefix: {least.command}: {least.fault}",
        ]
    )
