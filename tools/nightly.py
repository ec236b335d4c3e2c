"""What is too slow for `make test`: targets of the Makefile, one after the other, and a summary.

Run it as `make nightly`, or with some of the targets: `make nightly PARTS="long fuzz"`. A part that fails does not
stop the others. What each printed is in nightly/PART.log, the summary in nightly/summary.txt. Tests that draw begin
with a new seed each night: `MIRROR_TEST_SEED=N` gives them one.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

# what tells most in an hour comes first
PARTS = (
    "simulate",
    "long",
    "properties",
    "forms",
    "mutmut",
    "fuzz",
    "power-cuts",
    "image-check",
    "torture",
    "soak",
    "days",
)
FOLDER = Path("nightly")


def run(part: str) -> tuple[str, bool]:
    """Run a target.

    Returns: its line of the summary, and whether it ended well.
    """
    log, began, said = FOLDER / f"{part}.log", time.monotonic(), ""
    command = ["make", "--no-print-directory", part]
    with log.open("ab") as output:
        output.truncate(0)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output) as process:
            for line in process.stdout or ():
                output.write(line)
                output.flush()
                said = line.decode("utf-8", "replace").strip() or said
    minutes, is_well = (time.monotonic() - began) / 60, process.returncode == 0
    verdict = "FAILED" if not is_well else "skipped" if said.startswith("skipped: ") else "passed"
    return f"{verdict:<8}{part:<12}{minutes:6.1f} min  {said}", is_well


def main(parts: list[str]) -> int:
    """Run the parts, all of them by default; 1 if one failed."""
    FOLDER.mkdir(exist_ok=True)
    seed = os.environ.setdefault("MIRROR_TEST_SEED", str(random.SystemRandom().randrange(1, 10**6)))
    lines, failed = [f"MIRROR_TEST_SEED={seed}"], []
    print(lines[0], flush=True)
    for part in parts or PARTS:
        line, is_well = run(part)
        print(line, flush=True)
        lines.append(line)
        failed += [] if is_well else [part]
    lines.append(f"failed: {', '.join(failed)}; see {FOLDER}/PART.log" if failed else "none failed")
    print(lines[-1])
    (FOLDER / "summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
