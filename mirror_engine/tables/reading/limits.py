"""Bounds on the memory of a change file once it is decompressed and decoded: a small file must not fill it."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.errors import SetupError
from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_engine.config import Config

MAX_EXPANDED_ROWS = 64  # a file may expand to as many rows of the longest length allowed …
MAX_EXPANSION = 256  # … or to as many times its own length
MIN_ROW_BYTES = 256  # of a row while its batch is reduced to net changes (100 measured): empty rows cost, too


def limit_memory(size: int) -> None:
    """Let the process's address space grow by `size` bytes from now on; beyond, allocations fail.

    Raises:
        SetupError: the system knows no such limit.
    """
    try:
        used_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except FileNotFoundError:
        raise SetupError("memory_limit needs Linux", "Leave it out, or limit the process from outside.") from None
    pa.set_memory_pool(pa.system_memory_pool())  # the others reserve address space far ahead
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used_pages * resource.getpagesize() + size, hard))


@contextmanager
def unlimited_memory() -> Iterator[None]:
    """Lift the limit while a process is started that would inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def out_of_memory(path: str, part: str, config: Config) -> RejectedFile:
    """The rejection of a part of a file that does not fit into memory."""
    limit, option = "the memory of this process", "it"
    if config.memory_limit != "none":
        limit, option = f"{config.memory_limit:,} bytes", "memory_limit"
    return RejectedFile(diagnose("ME075", path, reason=part, limit=limit, option=option))


def broken(path: str, reason: str) -> RejectedFile:
    """The rejection of an incomplete or damaged file (LZ-3.10)."""
    return RejectedFile(diagnose("ME024", path, reason=reason))


def too_large(path: str, reason: str, limit_bytes: int, row: int | None = None) -> RejectedFile:
    """The rejection of what is beyond a bound that the option `max_row_size` moves."""
    limit = f"{limit_bytes:,} bytes"
    return RejectedFile(diagnose("ME075", path, row=row, reason=reason, limit=limit, option="max_row_size"))


def check_total(expanded_bytes: int, rows: int, size: int, path: str, config: Config) -> None:
    """Refuse a file that expands further than its size and `max_row_size` allow.

    Args:
        expanded_bytes: of its values in memory.
        rows: how many there are.
        size: of the file, in bytes.
        path: for messages.
        config: `max_row_size` counts here.

    Raises:
        RejectedFile: ME075.
    """
    limit = max(MAX_EXPANDED_ROWS * config.max_row_size, MAX_EXPANSION * size)
    total = max(expanded_bytes, rows * MIN_ROW_BYTES)
    if total > limit:
        raise too_large(path, f"{size:,} bytes that unfold to {total:,} or more", limit)


def check_lengths(batch: pa.RecordBatch, path: str, first_row: int, config: Config) -> int:
    """Refuse a row longer than `max_row_size`.

    Returns:
        How many bytes all rows take.

    Raises:
        RejectedFile: ME075, with the row's number.
    """
    total = int(batch.nbytes)
    if total > config.max_row_size:
        lengths = np.zeros(batch.num_rows, dtype=np.int64)
        for cells in batch.columns:
            if pa.types.is_string(cells.type) or pa.types.is_binary(cells.type):
                lengths += pc.fill_null(pc.binary_length(cells), 0).to_numpy()
        longest = int(lengths.argmax())
        if lengths[longest] > config.max_row_size:
            raise too_large(path, f"a row of {lengths[longest]:,} bytes", config.max_row_size, first_row + longest)
    return total
