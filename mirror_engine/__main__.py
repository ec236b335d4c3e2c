"""The command line as `python -m mirror_engine`, and as the file that spark-submit takes."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # when run by its path, Python looks for modules in this folder first
    here = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != here]

    from mirror_engine.cli.main import main

    sys.exit(main())
