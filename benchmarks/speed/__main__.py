"""`make bench`: every work side by side with its peers, or those named; prints, keeps and shows the figures."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from measure import machine
from speed import page
from speed.bench import Bench
from speed.catalogue import SCRIPTS, WORKS, run_script
from speed.peers import Processes
from speed.sizes import FULL, SMALL, Sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from speed.figures import Line

BENCHMARKS = Path(__file__).parents[1]
RESULTS = BENCHMARKS / "results"
PAGE = BENCHMARKS.parent / "docs/performance.md"
MIN_ROUNDS = 5
# JVMs that are soon over spend their time on compiling, and need leave nothing for the next
QUICK = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1", "MIRROR_ENGINE_SPARK_PROFILE": "ci"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for."""
    options = _options(arguments)
    if options.small:
        os.environ |= QUICK
    with _home(options.home) as home, Processes(home / "logs") as peers:
        results = home / "results" if options.small else RESULTS
        results.mkdir(exist_ok=True)
        bench = Bench(home, _sizes(options), options.rounds, peers)
        at_first = machine()
        for name in options.work or sorted([*WORKS, *SCRIPTS], key=_is_alone):
            print(f"{name} …", file=sys.stderr, flush=True)
            if _is_alone(name):
                peers.end()
            if name in SCRIPTS:
                run_script(name, results, small=options.small)
            elif options.small:
                WORKS[name].run(bench)
                print(f"{name}: runs, and all come to the same rows", flush=True)
            else:
                line = WORKS[name].run(bench)
                peers.end()  # the next begins with JVMs that have seen nothing else
                told = {**at_first, "load_after": round(os.getloadavg()[0], 2), "rounds": options.rounds}
                _tell(name, line, told, results)


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = SMALL if options.small else FULL
    if options.warm_ups is None:
        return sizes
    given = options.warm_ups
    return replace(sizes, warm_ups=given, tiny_warm_ups=given, merge_warm_ups=given)


def _is_alone(name: str) -> bool:
    """Those come last that no peer may run beside."""
    return name in SCRIPTS or WORKS[name].is_alone


def _tell(name: str, line: Line, told: Mapping[str, Any], results: Path) -> None:
    """Print a work's line, keep all of it as JSON, and put it into the page if it was measured often enough."""
    title, cells = WORKS[name].title, line.as_cells()
    kept = {"work": title, "machine": told, **line.as_json()}
    (results / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"{title}: {' | '.join(cells)}\n{line.table}\n{page.in_words(told)}", flush=True)
    if told["rounds"] >= MIN_ROUNDS:
        page.write(PAGE, {title: cells}, told, [work.title for work in WORKS.values()])
        if line.table:
            page.replace(PAGE, name, f"{page.in_words(told)}\n\n{line.table}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = [*WORKS, *SCRIPTS]
    parser = argparse.ArgumentParser(prog="speed", description=__doc__)
    parser.add_argument("work", nargs="*", help=f"of {', '.join(known)}; all by default")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help="that count; with fewer the page stays")
    parser.add_argument("--warm-ups", type=int, help="rounds that do not count, of every work; by default its own")
    parser.add_argument("--small", action="store_true", help="only shows that all run and come to equal rows")
    parser.add_argument("--home", type=Path, help="keeps data and prepared tables from run to run")
    options = parser.parse_args(arguments)
    if unknown := set(options.work) - set(known):
        parser.error(f"no such work: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    return options


@contextlib.contextmanager
def _home(given: Path | None) -> Iterator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory(prefix="mirror-engine-bench-") as folder:
            yield Path(folder)
        return
    given.mkdir(parents=True, exist_ok=True)
    with FileLock(given / "lock", timeout=0):  # one run at a time
        shutil.rmtree(given / "places", ignore_errors=True)
        yield given.absolute()


if __name__ == "__main__":
    main()
