"""Fuzzes every parser of bytes from outside, each in processes of its own: `make fuzz`.

Guided by coverage where atheris is installed, else by chance. Each finding's input is left in `.fuzz/TARGET/`;
`python -m fuzzing --replay FILE TARGET` runs it alone.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from peak_memory import peak_bytes

try:
    import atheris
except ImportError:
    atheris = None
with atheris.instrument_imports(include=["mirror_engine"]) if atheris else nullcontext():
    from fuzzing.targets import BROKEN, TARGETS

FOLDER = Path(".fuzz")
MIN_SECONDS = 2.0
GRACE_SECONDS = 600.0  # to import and instrument, on a busy machine
HANG_SECONDS = 120
MAX_INPUT = 1 << 15
LAST_LINES = 12


def main(arguments):
    """Fuzz the named targets; 1 where there is a finding."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("MIRROR_FUZZ_SECONDS", "60")))
    parser.add_argument("--seed", type=int, default=int(time.time()), help="brings the same inputs again")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input of one target and nothing else")
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)  # a folder: fuzz one target in this process
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"some of {', '.join(TARGETS)}; all by default")
    options = parser.parse_args(arguments)
    if options.within:
        fuzz_here((TARGETS | BROKEN)[options.targets[0]], options.within, options.seconds, options.seed)
        return 0
    unknown = set(options.targets) - set(TARGETS)
    if unknown or (options.replay and len(options.targets) != 1):
        parser.error(f"no such target: {', '.join(unknown)}" if unknown else "--replay needs the target's name")
    if options.replay:
        TARGETS[options.targets[0]].run(options.replay.read_bytes())
        return 0
    print(f"seed {options.seed}, {options.seconds:g} s for each target", flush=True)
    count = 0
    for name in options.targets or TARGETS:
        executions, peak, findings = fuzzed(name, options.seconds, options.seed)
        count += len(findings)
        print(f"{name:16} {executions:9,} executions, peak {peak >> 20:5} MiB", flush=True)
        for what, often in findings.items():
            print(f"{'':16} found {often} times: {what}", flush=True)
    print(f"{count} findings" + (f", inputs in {FOLDER}/" if count else ""))
    return 1 if count else 0


def fuzzed(name, seconds, seed):
    """Executions, peak memory and findings of a target; a process that dies is a finding, and the next one goes on."""
    folder, findings, end, reports = FOLDER / name, Counter(), time.monotonic() + seconds, []
    shutil.rmtree(folder, ignore_errors=True)
    while (left := end - time.monotonic()) > MIN_SECONDS or not reports:
        run = folder / str(len(reports))
        run.mkdir(parents=True)
        died = _died(["--within", run, "--seconds", left, "--seed", seed + len(reports), name], run / "log", left)
        if not (run / "report.json").exists():
            raise RuntimeError(f"{name} did not begin: {died}")
        reports.append(json.loads((run / "report.json").read_text()))
        findings.update(reports[-1]["findings"])
        if died:
            findings[died] += 1
            (run / "current").rename(run / "finding-died")
        shutil.rmtree(run / "corpus", ignore_errors=True)
    return sum(it["executions"] for it in reports), max(it["peak_bytes"] for it in reports), findings


def _died(words, log, seconds):
    """Run a process of fuzzing to its end; why it ended, where that was not its time, else an empty text."""
    command = [sys.executable, "-m", "fuzzing", *map(str, words)]
    with log.open("wb") as output:
        try:
            done = subprocess.run(command, stdout=output, stderr=output, timeout=seconds + GRACE_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return "it did not end"
    last = " | ".join(log.read_text("utf-8", "replace").splitlines()[-LAST_LINES:])
    return f"the process ended with {done.returncode}: {last}" if done.returncode else ""


class Watched:
    """A target and its findings; the current input is in the folder as `current`, should the process die of it."""

    def __init__(self, target, folder):
        self.target, self.folder = target, folder
        self.executions, self.findings = 0, Counter()
        for seed in target.examples:
            target.run(seed)
        self._peak = peak_bytes()
        self.report()

    def run(self, content):
        """Run it once, and note what comes of it."""
        (self.folder / "current").write_bytes(content)
        try:
            self.target.run(content)
        except KeyboardInterrupt:
            raise
        except BaseException as escaped:  # noqa: BLE001 - whatever it is, it is a finding
            frames = reversed(traceback.extract_tb(escaped.__traceback__)[-3:])
            places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
            self._note(f"{type(escaped).__name__} at {places}", content)
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)  # until the next is done
        self.executions += 1
        grown = peak_bytes() - self._peak
        if grown > self.target.max_bytes:
            self._note(f"memory grew by {grown >> 20} MiB", content)
            self._peak += grown
        if time.monotonic() - self._reported > 1:
            self.report()

    def report(self):
        """Write the counts so far."""
        self._reported = time.monotonic()
        content = {"executions": self.executions, "peak_bytes": peak_bytes(), "findings": self.findings}
        (self.folder / "report.json").write_text(json.dumps(content))

    def _note(self, finding, content):
        if finding not in self.findings:
            (self.folder / f"finding-{len(self.findings)}").write_bytes(content)
        self.findings[finding] += 1


def fuzz_here(target, folder, seconds, seed):
    """Change the target's own examples, and what came of them; an exception is noted and fuzzing goes on."""
    faulthandler.enable()
    watched = Watched(target, folder)
    if atheris:
        fuzz_by_coverage(watched, seconds, seed)
    chance, pool, end = random.Random(seed), list(target.examples), time.monotonic() + seconds
    while time.monotonic() < end:
        content = target.mutated(chance.choice(pool), chance)
        watched.run(content)
        if chance.random() < 0.02:
            pool.append(content)
    watched.report()


def fuzz_by_coverage(watched, seconds, seed):
    """Let atheris choose which inputs are worth changing; does not return."""
    corpus = watched.folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, content in enumerate(watched.target.examples):
        (corpus / f"seed-{number}").write_bytes(content)

    def changed(content, most, number):
        chance = random.Random(number)
        if chance.random() < 0.3:
            return bytes(atheris.Mutate(content, most))
        return watched.target.mutated(content, chance)[:most]

    limits = (f"-max_total_time={max(1, int(seconds))}", f"-max_len={MAX_INPUT}", "-timeout=0", "-rss_limit_mb=0")
    options = [sys.argv[0], *limits, f"-seed={seed}", f"-artifact_prefix={corpus.parent}/", "-verbosity=0", str(corpus)]
    atheris.Setup(options, watched.run, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
