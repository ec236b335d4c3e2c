"""Fuzzes every parser of bytes from outside, each in processes of its own: `make fuzz`.

Each finding's input is left in `.fuzz/TARGET/`; `python -m fuzzing --replay FILE TARGET` runs it alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fuzzing.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(".fuzz")
MIN_SECONDS = 2.0
GRACE_SECONDS = 600.0  # to import and instrument, on a busy machine
LAST_LINES = 12


@dataclass
class Outcome:
    """How many inputs of one target were tried, the memory's peak, and what went wrong how often."""

    executions: int = 0
    peak_bytes: int = 0
    findings: Counter[str] = field(default_factory=Counter)


def main(arguments: Sequence[str]) -> int:
    """Fuzz the named targets; 1 where there is a finding."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("MIRROR_FUZZ_SECONDS", "60")))
    parser.add_argument("--seed", type=int, default=int(time.time()), help="brings the same inputs again")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input of one target and nothing else")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"some of {', '.join(TARGETS)}; all by default")
    options = parser.parse_args(arguments)
    unknown = set(options.targets) - set(TARGETS)
    if unknown or (options.replay and len(options.targets) != 1):
        parser.error(f"no such target: {', '.join(unknown)}" if unknown else "--replay needs the target's name")
    if options.replay:
        TARGETS[options.targets[0]].run(options.replay.read_bytes())
        return 0
    print(f"seed {options.seed}, {options.seconds:g} s for each target", flush=True)
    findings = 0
    for name in options.targets or TARGETS:
        outcome = fuzzed(name, options.seconds, options.seed)
        findings += len(outcome.findings)
        print(f"{name:16} {outcome.executions:9,} executions, peak {outcome.peak_bytes >> 20:5} MiB", flush=True)
        for what, often in outcome.findings.items():
            print(f"{'':16} found {often} times: {what}", flush=True)
    print(f"{findings} findings" + (f", inputs in {FOLDER}/" if findings else ""))
    return 1 if findings else 0


def fuzzed(name: str, seconds: float, seed: int) -> Outcome:
    """Fuzz one target; a process that dies is a finding, and the next one goes on."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    outcome, end, attempt = Outcome(), time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > MIN_SECONDS or attempt == 0:
        run = folder / str(attempt)
        run.mkdir(parents=True)
        died = _died([name, str(run), str(left), str(seed + attempt)], run / "log", left + GRACE_SECONDS)
        if not (run / "report.json").exists():
            raise RuntimeError(f"{name} did not begin: {died}")
        report = json.loads((run / "report.json").read_text())
        outcome.executions += report["executions"]
        outcome.peak_bytes = max(outcome.peak_bytes, report["peak_bytes"])
        outcome.findings.update(report["findings"])
        if died:
            outcome.findings[died] += 1
            (run / "current").rename(run / "finding-died")
        shutil.rmtree(run / "corpus", ignore_errors=True)
        attempt += 1
    return outcome


def _died(words: Sequence[str], log: Path, seconds: float) -> str:
    """Run a worker to its end; why it ended, where that was not its time, else an empty text."""
    command = [sys.executable, "-m", "fuzzing.worker", *words]
    with log.open("wb") as output:
        try:
            done = subprocess.run(command, stdout=output, stderr=output, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return "it did not end"
    last = " | ".join(log.read_text("utf-8", "replace").splitlines()[-LAST_LINES:])
    return f"the process ended with {done.returncode}: {last}" if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
