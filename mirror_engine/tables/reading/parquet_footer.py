"""The footer of a Parquet file: checked before anything believes it, and freed of what Arrow stored in it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.errors import RejectedFile
from mirror_engine.landing_zone.diagnostics import diagnose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.config import Config

_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_TAIL_BYTES = 8  # the footer's length and the magic
_HEAD_BYTES = 4
# Arrow's own schema under its key, as Thrift writes a key that is followed by its value. Read, it would replace
# Parquet's types by the publisher's in memory; the same key, renamed, is a stranger's and passed over.
_ARROW_SCHEMA = b"\x18\x0cARROW:schema\x18"
_PASSED_OVER = b"\x18\x0cARROW:ignore\x18"

_VERSION = re.compile(r"[0-9]{1,9}")
_FIRST_RIGHT = (1, 2, 9)
PARSE_FAULTS = (pa.ArrowException, OSError, MemoryError, OverflowError, ValueError, TypeError, NotImplementedError)


def read_footer(handle: BinaryIO, path: str, config: Config) -> bytes:
    """The footer as it is written.

    Raises:
        RejectedFile: ME023 for 0 bytes, ME024 for what is no whole Parquet file, ME075 for a footer out of bounds.
    """
    size = handle.seek(0, os.SEEK_END)
    if size == 0:
        raise RejectedFile(diagnose("ME023", path))
    handle.seek(0)
    head = handle.read(_HEAD_BYTES)
    handle.seek(max(size - _TAIL_BYTES, 0))
    tail = handle.read(_TAIL_BYTES)
    _check_magic(head, tail[-4:], size, path)
    length = int.from_bytes(tail[:4], "little")
    if length > size - _TAIL_BYTES - _HEAD_BYTES:
        raise broken(path, "its footer is said to be longer than the file")
    if length > config.max_row_size:
        raise too_large(path, f"a footer of {length:,} bytes", config.max_row_size)
    handle.seek(size - _TAIL_BYTES - length)
    return handle.read(length)


class Plain(NamedTuple):
    """A file without Arrow's stored schema: types are those of Parquet itself (LZ-5.8).

    Attributes:
        source: its bytes. Where they lie in memory, the footer's are changed, too: whoever reads them reads the same.
        footer: as it is written, but for that schema.
    """

    source: BinaryIO
    footer: bytes


def plain(source: BinaryIO, footer: bytes) -> Plain:
    """A file and its footer (see `read_footer`) without Arrow's stored schema."""
    changed = footer.replace(_ARROW_SCHEMA, _PASSED_OVER)
    if changed == footer or not isinstance(source, pa.BufferReader):
        return Plain(source, changed)
    source.seek(0)
    content = source.read()
    begin = len(content) - _TAIL_BYTES - len(footer)
    return Plain(pa.BufferReader(content[:begin] + changed + content[-_TAIL_BYTES:]), changed)


def opened(file: Plain, path: str, **options: Any) -> pq.ParquetFile:  # noqa: ANN401 - pyarrow's
    """Open a file.

    Args:
        file: see `plain`.
        path: for messages.
        options: of `pyarrow.parquet.ParquetFile`.

    Raises:
        RejectedFile: ME024.
        StorageUnavailable: the bytes could not be read.
    """
    try:
        if isinstance(file.source, pa.BufferReader):
            found = pq.ParquetFile(file.source, **options)
        else:
            alone = _MAGIC + file.footer + len(file.footer).to_bytes(4, "little") + _MAGIC
            metadata = pq.ParquetFile(pa.BufferReader(alone)).metadata
            found = pq.ParquetFile(file.source, metadata=metadata, **options)
        _check_counts(found.metadata, path)
        _check_writer(found.metadata, path)
    except PARSE_FAULTS as fault:
        raise broken(path, "its footer cannot be understood") from fault
    return found


def _check_writer(metadata: Any, path: str) -> None:  # noqa: ANN401 - pyarrow's FileMetaData
    """Refuse what Arrow would read otherwise than it is written: its own schema, in whatever spelling, and old lengths.

    Of files of parquet-mr before 1.2.9 it reads more than the footer says of a column, for that is too short there.
    """
    application, _, version = (metadata.created_by or "").strip().lower().partition(" version ")
    numbers = tuple(map(int, _VERSION.findall(version)[:3]))
    if b"ARROW:schema" in (metadata.metadata or {}):
        raise broken(path, "its footer cannot be understood")
    if application.strip() == "parquet-mr" and numbers < _FIRST_RIGHT:
        raise broken(path, "parquet-mr before 1.2.9 wrote it, which tells the lengths of columns wrong")


def check_layout(file: pq.ParquetFile, groups: Sequence[Sequence[object]], path: str) -> None:
    """Hold what the engine reads in a footer, columns by row group, to what Arrow does.

    Raises:
        RejectedFile: ME024.
    """
    metadata = file.metadata
    if [len(group) for group in groups] != [metadata.num_columns] * metadata.num_row_groups:
        raise broken(path, "its footer cannot be understood")


def _check_counts(metadata: Any, path: str) -> None:  # noqa: ANN401 - pyarrow's FileMetaData
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    rows = [group.num_rows for group in groups]
    columns = {group.num_columns for group in groups}
    if metadata.num_rows < 0 or min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:
        raise broken(path, "its footer contradicts itself about the number of rows")
    if not columns <= {metadata.num_columns}:
        raise broken(path, "its footer contradicts itself about the number of columns")


def broken(path: str, reason: str) -> RejectedFile:
    """The refusal of a file that is no whole Parquet file (LZ-3.10)."""
    return RejectedFile(diagnose("ME024", path, reason=reason))


def too_large(path: str, reason: str, limit_bytes: int, row: int | None = None) -> RejectedFile:
    """The refusal of what is beyond a bound that the option `max_row_size` moves."""
    return RejectedFile(
        diagnose("ME075", path, row=row, reason=reason, limit=f"{limit_bytes:,} bytes", option="max_row_size")
    )


def _check_magic(head: bytes, tail: bytes, size: int, path: str) -> None:
    if _ENCRYPTED in {head, tail}:
        _refuse(path, "it is encrypted")
    if head != _MAGIC[: len(head)]:
        _refuse(path, "it does not begin as a Parquet file does")
    if size < _HEAD_BYTES + _TAIL_BYTES or tail != _MAGIC:
        _refuse(path, "it does not end as a Parquet file does")


def _refuse(path: str, reason: str) -> NoReturn:
    raise broken(path, reason)
