"""Kills the engine two hundred times, and plays generated zones by the thousand: `make torture`.

Whatever differs from the oracle ends it with 1, says with which seed, and keeps the ROOT.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from killer import Killer, QuietKiller

from mirror_engine import RunResult
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.merge.spark import SparkDeltaWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

KILLS_BETWEEN_JUDGEMENTS = 25
ONCE = [sys.executable, "-m", "mirror_engine.cli.main", "once", "--json"]
ZONES_TEST = "tests/test_generated_zones.py"
MEMORY_TEST = f"{ZONES_TEST}::test_many_generated_zones_end_as_the_oracle_says"
SPARK_TEST = f"{ZONES_TEST}::test_generated_zones_end_so_on_the_spark_writer"


def main(arguments: Sequence[str]) -> int:
    """All parts; 1 where one found a difference."""
    asked = _parsed(arguments)
    seed = int(os.environ.get("MIRROR_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    print(f"MIRROR_TEST_SEED={seed}", flush=True)
    parts = {
        "kills": _killed(Killer, asked.kills, seed) if asked.kills else None,
        "kills without Spark": _killed(QuietKiller, asked.quiet_kills, seed) if asked.quiet_kills else None,
        "zones in memory": _zones(MEMORY_TEST, asked.zones, seed) if asked.zones else None,
        "zones on Spark": _zones(SPARK_TEST, asked.spark_zones, seed) if asked.spark_zones else None,
    }
    told = {name: part for name, part in parts.items() if part is not None}
    for name, part in told.items():
        print(f"{name}: " + ", ".join(f"{figure} {value}" for figure, value in part.items()))
    if asked.json:
        asked.json.write_text(json.dumps({"seed": seed, **told}, indent=1) + "\n", encoding="utf-8")
    return 1 if any(part["difference"] for part in told.values()) else 0


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--kills", metavar="N", type=int, default=200)
    parser.add_argument("--quiet-kills", metavar="N", type=int, default=100, help="kills where no JVM is needed")
    parser.add_argument("--zones", metavar="N", type=int, default=5000, help="generated zones, in memory")
    parser.add_argument("--spark-zones", metavar="N", type=int, default=1000, help="generated zones, on Spark")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there, too")
    return parser.parse_args(arguments)


def _killed(kind: type[Killer], kills: int, seed: int) -> dict[str, Any]:
    """Kill it so often, and hold the tables to the oracle now and then and at the end."""
    started = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="mirror-torture-"))
    killer = kind(home, seed)
    difference, judgements, commits = "", 0, 0
    try:
        for number in range(1, kills + 1):
            done = killer.kill()
            print(f"{_since(started):6.1f} s, kill {number}: {done}", flush=True)
            if number % KILLS_BETWEEN_JUDGEMENTS == 0 or number == kills:
                _judge(killer)
                judgements, commits = judgements + 1, killer.commits()
                print("the tables are as the oracle says", flush=True)
    except AssertionError as error:
        difference = f"{error or 'a table differs'} (kept: {home})"
    else:
        shutil.rmtree(home)
    counts = {**killer.counts, **killer.publisher.counts}
    figures = {**counts, "commits in the last logs": commits, "judgements": judgements}
    return {**figures, "seconds": _since(started), "difference": difference}


def _judge(killer: Killer) -> None:
    done = subprocess.run([*ONCE, str(killer.root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    writer = SparkDeltaWriter(killer.root / TABLES, killer.root / SCRATCH, _no_session)
    killer.judge(RunResult(json.loads(done.stdout)["verdict"]), writer)


def _no_session() -> SparkSession:
    raise AssertionError("reading starts no JVM")


def _zones(test: str, count: int, seed: int) -> dict[str, Any]:
    """Play so many generated zones; a difference is told by the test itself, with its story."""
    started = time.monotonic()
    environment = {**os.environ, "MIRROR_TEST_ZONES": str(count), "MIRROR_TEST_SPARK_ZONES": str(count)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}", test]
    code = subprocess.run(command, env=environment, check=False).returncode
    difference = f"{test} ends with {code}, --hypothesis-seed={seed}" if code else ""
    return {"zones": count, "seconds": _since(started), "difference": difference}


def _since(started: float) -> float:
    return round(time.monotonic() - started, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
