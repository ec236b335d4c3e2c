"""Breaks a copy of the package, one bug after the other, and shows which test notices: `make mutants`."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from mutants.catalogue import HOME, Stale, catalogue

PACKAGE = "mirror_engine"
BESIDE = ("tests", "fixtures", "docs", "pyproject.toml", "README.md", "Makefile")  # what tests look at
MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - a private folder is made in it; elsewhere tests wait for syncs
MAX_TEST_SECONDS = 120
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
GREEN, RED = 0, 1  # pytest's exit codes; any other means that the tests did not run as asked


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant.

    Attributes:
        name, area, file: the mutant's.
        verdict: `caught`, `SURVIVED`, `stale` if it no longer fits the code, or `not tried` without Spark.
        reason: the first test that failed, or why the mutant was not tried.
        seconds: how long that took.
    """

    name: str
    area: str
    file: str
    verdict: str
    reason: str = ""
    seconds: float = 0.0


def main(arguments):
    """Try the mutants asked for; 1 if one survives or is stale, 2 if none can be tried or tests fail without any."""
    asked = _parsed(arguments)
    mutants = [mutant for mutant in catalogue() if not asked.only or asked.only in mutant.name]
    left_out = {mutant: outcome for mutant in mutants if (outcome := _left_out(mutant, spark=asked.spark))}
    tried = [mutant for mutant in mutants if mutant not in left_out]
    for outcome in left_out.values():
        print(_line(outcome))
    if not tried:
        print(f"no mutant to try whose name contains '{asked.only}'")
        return 2
    if (found := _unmutated(tried)) is not None:
        print(f"without a mutant this fails already: {found}")
        return 2
    outcomes = list(left_out.values())
    for mutant in tried:
        outcomes.append(_tried(mutant))
        print(_line(outcomes[-1]), flush=True)
    count = Counter(outcome.verdict for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    print(
        f"\n{count['caught']} of {len(tried)} caught in {seconds:.0f} s; "
        f"{count['stale']} stale, {count['not tried']} need --spark"
    )
    if asked.json:
        summary = {"tried": len(tried), "caught": count["caught"], "seconds": round(seconds, 1)}
        document = {**summary, "mutants": [asdict(outcome) for outcome in outcomes]}
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if count["SURVIVED"] or count["stale"] else 0


def _parsed(arguments):
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", metavar="NAME", default="", help="mutants whose names hold these words")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the outcomes there, too")
    parser.add_argument("--spark", action="store_true", help="try those, too, that only tests with Spark can notice")
    return parser.parse_args(arguments)


def _unmutated(mutants):
    """The first failing test of the package as it is; None where all that must notice a mutant are green."""
    for spark in sorted({mutant.spark for mutant in mutants}):
        selection = dict.fromkeys(test for each in mutants if each.spark is spark for test in each.caught_by)
        started = time.monotonic()
        with _copy() as home:
            failed = _first_failure(home, list(selection), spark=spark)
        if failed is not None:
            return failed
        kind = "with Spark" if spark else "without Spark"
        print(f"without a mutant all are green, {kind}, in {time.monotonic() - started:.0f} s\n", flush=True)
    return None


def _tried(mutant):
    """Apply one mutant to a copy of its own, and run its tests against that."""
    started = time.monotonic()
    with _copy() as home:
        module = home / PACKAGE / mutant.file
        module.write_text(mutant.applied_to(module.read_text(encoding="utf-8")), encoding="utf-8")
        failed = _first_failure(home, mutant.caught_by, spark=mutant.spark)
    verdict = "SURVIVED" if failed is None else "caught"
    seconds = round(time.monotonic() - started, 1)
    return Outcome(mutant.name, mutant.area, mutant.file, verdict, failed or "", seconds)


def _left_out(mutant, *, spark):
    """Why a mutant is not tried, as its outcome; None if it is."""
    try:
        mutant.check()
    except Stale as error:
        return Outcome(mutant.name, mutant.area, mutant.file, "stale", str(error))
    if mutant.spark and not spark:
        return Outcome(mutant.name, mutant.area, mutant.file, "not tried", "needs --spark")
    return None


@contextmanager
def _copy():
    """A copy of the package with what its tests need beside it; the checkout is never touched."""
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None) as folder:
        home = Path(folder) / "home"
        shutil.copytree(HOME / PACKAGE, home / PACKAGE)
        for name in BESIDE:
            (home / name).symlink_to(HOME / name)
        (Path(folder) / "passing").mkdir()
        yield home


def _first_failure(home, selection, *, spark):
    """The first test that fails against the package in `home`; None where none does."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",  # what was compiled of the original is told from the mutant by its time
        "TMPDIR": str(home.parent / "passing"),
    }
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--timeout={MAX_TEST_SECONDS}", "--hypothesis-seed=0"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-m", "spark" if spark else "not spark", *selection],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == GREEN:
        return None
    found = FAILED.search(done.stdout)
    if done.returncode != RED or found is None:
        raise RuntimeError(f"the tests did not run:\n{done.stdout}{done.stderr}")
    return found[1]


def _line(outcome):
    return f"{outcome.verdict:9} {outcome.seconds:6.1f} s  {outcome.area:11} {outcome.name}\n{'':23}{outcome.reason}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
