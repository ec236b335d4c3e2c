"""`python -m simulation --seeds 10000`, or one seed again: `--seed 17 --steps 300`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from simulation.reached import NIGHT, missed, table
from simulation.runner import STEPS, play, play_all


def main():
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds are played")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="play this one alone, and show its trace")
    parser.add_argument("--steps", type=int, default=STEPS, help="calls before a world becomes quiet")
    parser.add_argument("--tail", type=int, default=60, help="lines of the trace that are shown")
    parser.add_argument("--json", type=Path, help="where to keep how often each thing was reached")
    asked = parser.parse_args()
    if asked.seed is not None:
        run = play(asked.seed, asked.steps)
        print(*run.trace[-asked.tail :], sep="\n")
        print(f"trace {run.digest[:16]}, {run.at} steps: {run.fault or 'no fault'}")
        return 1 if run.fault else 0
    seeds = range(asked.first, asked.first + asked.seeds)
    failed, reached, steps, seconds = play_all(seeds, asked.steps)
    for what, times in sorted(reached.items()):
        print(f"{times:9,}  {what}")
    print("\n| reached | times |", "|---|---|", *table(reached), "", sep="\n")
    if asked.json:
        asked.json.write_text(json.dumps(dict(sorted(reached.items())), indent=1) + "\n", encoding="utf-8")
    lacking = missed(reached) if asked.seeds >= NIGHT else []
    for name in lacking:
        print(f"NOT REACHED by any seed: {name}")
    words = f"{len(failed)} of {asked.seeds:,} seeds failed" if failed else f"{asked.seeds:,} seeds: no fault"
    print(f"{words}, {steps:,} steps, {steps / seconds:,.0f} a second")
    return 1 if failed or lacking else 0


if __name__ == "__main__":
    sys.exit(main())
