"""How much a change file may unfold to, so that a small one cannot fill the memory or the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.tables.reading.parquet_footer import too_large

if TYPE_CHECKING:
    from mirror_engine.config import Config

UNFOLDED_ROWS = 64  # a file may unfold to as many rows of the longest length allowed …
UNFOLDED_RATIO = 256  # … or to as many times its own length
MIN_ROW_BYTES = 256  # what a row takes at least while its batch is collapsed (100 measured): empty ones cost, too


def check_total(unfolded_bytes: int, rows: int, size: int, path: str, config: Config) -> None:
    """Refuse to unfold more of a file than its size and `max_row_size` allow.

    Args:
        unfolded_bytes: that its values take.
        rows: that it holds.
        size: of the file, in bytes.
        path: for messages.
        config: `max_row_size` counts here.

    Raises:
        RejectedFile: ME075.
    """
    limit = max(UNFOLDED_ROWS * config.max_row_size, UNFOLDED_RATIO * size)
    taken = max(unfolded_bytes, rows * MIN_ROW_BYTES)
    if taken > limit:
        raise too_large(path, f"{size:,} bytes that unfold to {taken:,} or more", limit)
