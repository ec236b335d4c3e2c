"""Change the rooms without input and output line by line, by mutmut, and count the changes that no quick test notices.

Run it as `make mutmut`; pyproject.toml has what it mutates. There are 8,500 changes: a night tries those of every third
module, so three nights try all. `python tools/mutmut_night.py "mirror_engine.landing_zone.change.*"` tries one module
in minutes. mutants/survivors.txt has each change that nothing noticed, as lines of a diff. Tests of whole zones are too
slow for it: some survivors are caught by `make test` alone. The share of noticed changes may not fall below
`LEAST_NOTICED`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

LEAST_NOTICED = 0.6  # of the first 104 changes 70 were noticed: raise it with what nights find
NIGHTS = 3
FOLDER = Path("mutants")
ROOMS = ("landing_zone/*.py", "tables/changes/*.py", "engine/planner.py", "engine/recovery.py")
NOTICED = ("killed", "timeout", "segfault", "suspicious")


def mutmut(*words: str) -> str:
    """Run one of its commands; its output, which is shown where it fails."""
    done = subprocess.run([sys.executable, "-m", "mutmut", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-4000:] + done.stderr[-4000:])
        done.check_returncode()
    return done.stdout


def of_night(night: int) -> list[str]:
    """Names of the changes in every third module, others each night."""
    modules = sorted(path for room in ROOMS for path in Path("mirror_engine").glob(room) if path.stem != "__init__")
    return [f"{'.'.join(path.with_suffix('').parts)}.*" for path in modules[night % NIGHTS :: NIGHTS]]


def lines_of(name: str) -> list[str]:
    """The lines that a change takes away and adds."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant  # noqa: PLC0415 - of an extra of its own

    diff = get_diff_for_mutant(name, path=f"{name.rpartition('.')[0].replace('.', '/')}.py").splitlines()
    return [f"  {line}" for line in diff[2:] if line.startswith(("+", "-"))]


def main(names: list[str]) -> int:
    """Try the changes of this night, or some by name; 1 if too few of those with a test are noticed."""
    mutmut("run", *(names or of_night(int(time.time() // 86_400))))
    mutmut("export-cicd-stats")
    survivors = [line.partition(":")[0].strip() for line in mutmut("results").splitlines() if "survived" in line]
    listed = [line for name in survivors for line in (name, *lines_of(name))]
    (FOLDER / "survivors.txt").write_text("".join(f"{line}\n" for line in listed), encoding="utf-8")
    found: dict[str, int] = json.loads((FOLDER / "mutmut-cicd-stats.json").read_text(encoding="utf-8"))
    noticed = sum(found[kind] for kind in NOTICED)
    tried = noticed + found["survived"]
    share = noticed / tried if tried else 0.0
    print(
        f"{noticed:,} of {tried:,} changes noticed, {share:.1%}, at least {LEAST_NOTICED:.0%}; "
        f"{found['no_tests']:,} are in functions without a quick test; survivors are in {FOLDER}/survivors.txt"
    )
    return 0 if share >= LEAST_NOTICED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
