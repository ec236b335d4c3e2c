"""A data file of a table: where it is, what its log says of it, its footer, and what goes wrong as it is read."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.tables.log.table_path import StorePath, file_in, parquet_source
from mirror_engine.tables.log.vectors import vector_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirror_engine.tables.log.table_path import TablePath
    from mirror_engine.tables.log.vectors import Descriptor


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that is part of a version of a table."""

    folder: TablePath  # of the table
    size: int  # in bytes
    rows: int | None  # by its statistics, deleted ones included; None where it has none
    partition: Mapping[str, str | None]  # values of the partition columns, by their logical names
    spelled: str  # its path as the log has it
    modified_ms: int  # milliseconds since 1970
    vector: Descriptor | None = None  # which of its rows are gone; None where none is
    content: pa.Buffer | None = field(default=None, compare=False, repr=False)  # all of it; None where it is not read

    @cached_property
    def path(self) -> TablePath:
        """Where it is; the log says how large it is, so a store is not asked for that. Errors as `file_in`."""
        path = file_in(self.folder, unquote(self.spelled))
        return path.sized(self.size, self.modified_ms) if isinstance(path, StorePath) else path

    @property
    def places(self) -> Sequence[TablePath]:
        """All files that its rows are read from: itself, and that of its vector. Errors as `file_in`."""
        return places(self.folder, self.spelled, self.vector)


def places(folder: TablePath, spelled: str, vector: Descriptor | None) -> Sequence[TablePath]:
    """All files that rows are read from, by a data file's path as the log has it. Errors as `file_in`."""
    place = vector and vector_place(folder, vector)
    path = file_in(folder, unquote(spelled))
    return [path, place] if place else [path]


def read_footer(data_file: TablePath) -> pq.FileMetaData:
    """The footer of a data file that the log names."""
    with reading_file(data_file), parquet_source(data_file) as source:
        return pq.read_metadata(source)


@contextlib.contextmanager
def reading_file(data_file: TablePath) -> Iterator[None]:
    """What is raised while a data file is read, in the error tree's words."""
    try:
        yield
    except FileNotFoundError:
        raise TableDamaged(data_file, "the Delta log names this file, but it is missing") from None
    except StorageUnavailable:
        if isinstance(data_file, StorePath) and data_file.listed and not data_file.is_as_listed():
            raise TableDamaged(data_file, "the Delta log names this file, but it is truncated") from None
        raise
    except pa.ArrowInvalid as error:
        raise TableDamaged(data_file, f"not a Parquet file: {str(error).splitlines()[0]}") from None
    except OSError as error:
        if error.errno is None:  # Arrow's word for content that it cannot decode
            raise TableDamaged(data_file, f"it cannot be decoded: {str(error).splitlines()[0]}") from None
        raise StorageUnavailable(f"{data_file}: cannot be read: {error.strerror or error}") from error


def row_count(file: DataFile) -> int:
    """How many rows of a data file are left, from its statistics, else from its footer."""
    gone = 0 if file.vector is None else file.vector["cardinality"]
    return (read_footer(file.path).num_rows if file.rows is None else file.rows) - gone
