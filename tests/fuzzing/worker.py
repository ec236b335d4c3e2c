"""Fuzzes one target in a process of its own: guided by coverage where atheris is installed, else by chance.

An exception is noted and fuzzing goes on. What ends the process (a crash below Python, a hang) is found by the process
that started it: the current input is in the folder as `current`.
"""

from __future__ import annotations

import faulthandler
import json
import random
import sys
import time
import traceback
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peak_memory import peak_bytes

if TYPE_CHECKING:
    from fuzzing.targets import Target

try:
    import atheris
except ImportError:
    atheris = None

HANG_SECONDS = 120
MAX_INPUT = 1 << 15


class Watched:
    """A target, and its findings."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target = target
        self.folder = folder
        self.executions = 0
        self.findings: Counter[str] = Counter()
        self._reported = 0.0
        for seed in target.examples:
            target.run(seed)
        self._peak = peak_bytes()

    def run(self, content: bytes) -> None:
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

    def report(self) -> None:
        """Write the counts so far."""
        self._reported = time.monotonic()
        content = {"executions": self.executions, "peak_bytes": peak_bytes(), "findings": self.findings}
        (self.folder / "report.json").write_text(json.dumps(content))

    def _note(self, finding: str, content: bytes) -> None:
        if finding not in self.findings:
            (self.folder / f"finding-{len(self.findings)}").write_bytes(content)
        self.findings[finding] += 1


def by_chance(watched: Watched, seconds: float, seed: int) -> None:
    """Change the target's own examples, and what came of them, at random."""
    chance = random.Random(seed)
    pool = list(watched.target.examples)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        content = watched.target.mutated(chance.choice(pool), chance)
        watched.run(content)
        if chance.random() < 0.02:
            pool.append(content)


def by_coverage(watched: Watched, seconds: float, seed: int) -> None:
    """Let atheris choose which inputs are worth changing; does not return."""
    corpus = watched.folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, content in enumerate(watched.target.examples):
        (corpus / f"seed-{number}").write_bytes(content)

    def changed(content: bytes, most: int, number: int) -> bytes:
        chance = random.Random(number)
        if chance.random() < 0.3:
            return bytes(atheris.Mutate(content, most))
        return watched.target.mutated(content, chance)[:most]

    limits = (f"-max_total_time={max(1, int(seconds))}", f"-max_len={MAX_INPUT}", "-timeout=0", "-rss_limit_mb=0")
    options = [sys.argv[0], *limits, f"-seed={seed}", f"-artifact_prefix={corpus.parent}/", "-verbosity=0", str(corpus)]
    atheris.Setup(options, watched.run, custom_mutator=changed)
    atheris.Fuzz()


def main(name: str, folder: str, seconds: str, seed: str) -> None:
    """Fuzz a target for some seconds."""
    instrumented: Any = atheris.instrument_imports(include=["mirror_engine"]) if atheris else nullcontext()
    with instrumented:
        from fuzzing.targets import BROKEN, TARGETS  # noqa: PLC0415 - atheris instruments what is imported here
    watched = Watched((TARGETS | BROKEN)[name], Path(folder))
    watched.report()
    fuzz = by_coverage if atheris else by_chance
    fuzz(watched, float(seconds), int(seed))
    watched.report()


if __name__ == "__main__":
    faulthandler.enable()
    main(*sys.argv[1:])
