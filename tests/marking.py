"""The engine `arrow` with thresholds at which small tables take every way: vectors, rewrites, small files put together.

As a program it is the command line with them: `python marking.py run ROOT …`.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager

import pytest

from mirror_engine.cli.main import main
from mirror_engine.tables.changes import key_index
from mirror_engine.tables.merge import arrow, by_position, compaction


@contextmanager
def marking(least_rows=1, commits=2, crowd=3):
    """Mark rows of data files from so many rows on; look for small files, and put them together, that often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_position, "VECTORS_FROM_ROWS", 0)
        patch.setattr(by_position, "_VECTOR_FILE_ROWS", least_rows)
        patch.setattr(by_position, "_MOST_MARKED", 1)
        patch.setattr(arrow, "_COMMITS", commits)
        patch.setattr(compaction, "_CROWD", crowd)
        patch.setattr(key_index, "_LEAST_ROWS", 1)
        patch.setattr(key_index, "_ROWS_PER_KEY", 0)
        yield


if __name__ == "__main__":
    with marking():
        sys.exit(main())
