"""What is too slow for `make test`: targets of the Makefile, one after the other, and a summary.

Run it as `make nightly`, or with some of the targets: `make nightly PARTS="long fuzz"`. A part that fails does not
stop the others. What each printed is in nightly/PART.log, the summary in nightly/summary.txt.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

PARTS = ("long", "mutants", "fuzz", "image-check", "torture", "soak")  # what tells most in an hour comes first
FOLDER = Path("nightly")


def run(part: str) -> tuple[str, bool]:
    """Run a target.

    Returns: its line of the summary, and whether it ended well.
    """
    log, began = FOLDER / f"{part}.log", time.monotonic()
    with log.open("wb") as output:
        command = ["make", "--no-print-directory", part]
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    minutes, is_well = (time.monotonic() - began) / 60, done.returncode == 0
    return f"{'passed' if is_well else 'FAILED'}  {part:<12}{minutes:6.1f} min  {last_line(log)}", is_well


def last_line(log: Path) -> str:
    """The last line that a part itself printed: its own summary."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line and not line.startswith("make")), "")


def main(parts: list[str]) -> int:
    """Run the parts, all of them by default; 1 if one failed."""
    FOLDER.mkdir(exist_ok=True)
    lines, failed = [], []
    for part in parts or PARTS:
        line, is_well = run(part)
        print(line, flush=True)
        lines.append(line)
        failed += [] if is_well else [part]
    lines.append(f"failed: {', '.join(failed)}; see {FOLDER}/PART.log" if failed else "all passed")
    print(lines[-1])
    (FOLDER / "summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
