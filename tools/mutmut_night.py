"""Change the rooms without input and output line by line, by mutmut, and count the changes that no quick test notices.

Run it as `make mutmut`, which takes hours; pyproject.toml has what it mutates. mutants/survivors.txt names the changes
that nothing noticed, `python -m mutmut show NAME` shows one. Tests of whole zones are too slow for it: some survivors
are caught by `make test` alone. The share of noticed changes may not fall below `LEAST_NOTICED`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LEAST_NOTICED = (
    0.6  # of the first 104 mutants of detection, partitions and recovery 70 were: raise it with what nights find
)
FOLDER = Path("mutants")
NOTICED = ("killed", "timeout", "segfault", "suspicious")


def mutmut(*words: str) -> str:
    """Run one of its commands; its output, which is shown where it fails."""
    done = subprocess.run([sys.executable, "-m", "mutmut", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-4000:] + done.stderr[-4000:])
        done.check_returncode()
    return done.stdout


def main(names: list[str]) -> int:
    """Try all mutants, or some by name; 1 if too few of those with a test are noticed."""
    mutmut("run", *names)
    mutmut("export-cicd-stats")
    survivors = [line.strip() for line in mutmut("results").splitlines() if line.endswith(": survived")]
    (FOLDER / "survivors.txt").write_text("\n".join(survivors) + "\n", encoding="utf-8")
    found: dict[str, int] = json.loads((FOLDER / "mutmut-cicd-stats.json").read_text(encoding="utf-8"))
    noticed = sum(found[kind] for kind in NOTICED)
    tried = noticed + found["survived"]
    share = noticed / tried if tried else 0.0
    print(
        f"{noticed:,} of {tried:,} mutants noticed, {share:.1%}, at least {LEAST_NOTICED:.0%}; "
        f"{found['no_tests']:,} are in functions without a quick test; survivors are in {FOLDER}/survivors.txt"
    )
    return 0 if share >= LEAST_NOTICED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
