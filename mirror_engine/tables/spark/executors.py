"""Reads change files on Spark's executors, many at once, with the reader of this process; their rows become Parquet.

Each file is read against the table's context after the file before. A wave of files is read against the context
before its first one. The first file that changes the context ends the wave: later answers are thrown away, and the
next wave begins there. So the result is that of reading one file after the other.
"""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine._version import __version__
from mirror_engine.errors import MirrorError, SetupError
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.storage.stores import open_storage
from mirror_engine.tables.base import FileRows
from mirror_engine.tables.log.table_path import StorePath, create_file, parquet_source
from mirror_engine.tables.log.tables_folder import PROCESS, remove_of_other_processes
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.request import ReadRequest
from mirror_engine.tables.reading.spill import ReadMode, scratch_errors
from mirror_engine.tables.spark.failures import spark_failures

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.listing import Entry
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import ReadContext
    from mirror_engine.tables.log.table_path import TablePath
    from mirror_engine.tables.reading.request import LandedFolder

    Answer: TypeAlias = FileRows | MirrorError

MARKER = "marker"
FILE_NUMBER = "CAST(substring(_metadata.file_name, 6, 8) AS BIGINT)"  # of a row's change file in the batch, in SQL
_TASKS_PER_CORE = 4  # of one wave: files differ in size
_NO_ENGINE = re.compile(r"No module named '(mirror_engine|pyarrow|numpy)[.\w]*'|PYTHON_VERSION_MISMATCH")
_SAME_ENVIRONMENT = "Every node needs the same Python environment as the driver; PYSPARK_PYTHON names its program."


def scratch_name(name: str) -> str:
    """The column's name in scratch files; `name` is the table's, or the marker's."""
    return MARKER if name == MARKER_COLUMN else f"_{name}"


def file_name(number: int, token: str) -> str:
    """The scratch file of change file `number` of a batch."""
    return f"rows-{number:08}-{token}.parquet"


class ParquetRows:
    """A `RowStore` in a file that every node sees; it can be pickled once it is finished, and is in a store then.

    `number` is that of the change file in its batch, as in the file's name.

    Raises:
        StorageUnavailable: from every method, when the scratch folder fails.
    """

    def __init__(self, schema: pa.Schema, path: TablePath, number: int) -> None:
        self.schema = schema
        self.path = path
        self.number = number
        self._stored_schema = pa.schema(list(zip(map(scratch_name, schema.names), schema.types, strict=True)))
        options = {"compression": "snappy", "use_dictionary": False, "write_statistics": False}
        with scratch_errors():
            self._here = (
                Path(tempfile.mkdtemp(prefix="mirror-engine-")) / path.name if isinstance(path, StorePath) else path
            )
            self._writer: Any = pq.ParquetWriter(self._here, self._stored_schema, **options)

    def add(self, batch: pa.RecordBatch) -> None:
        with scratch_errors():
            self._writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self._stored_schema))

    def finish(self) -> None:
        with scratch_errors():
            self._writer.close()
            self._writer = None
            if isinstance(self.path, StorePath):
                self.path.upload(self._here)
                shutil.rmtree(self._here.parent)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = self.schema.names if columns is None else list(columns)
        fields = pa.schema([self.schema.field(name) for name in names])
        with ExitStack() as opened:
            with scratch_errors():
                file = opened.enter_context(pq.ParquetFile(opened.enter_context(parquet_source(self.path))))
            for batch in file.iter_batches(columns=list(map(scratch_name, names))):
                yield pa.RecordBatch.from_arrays([batch.column(scratch_name(name)) for name in names], schema=fields)

    def close(self) -> None:
        if self._writer is not None:
            self.finish()
        self.path.unlink(missing_ok=True)


_opened = cache(open_storage)  # one for all tasks of an executor


def _answer(storage: Storage | StoreUrl, config: Config, mark: TablePath, numbered: tuple[int, ReadRequest]) -> Answer:
    """Read one file of a batch on an executor; a failure is an answer, too, or Spark would run the task again.

    `mark` is a file in the driver's scratch folder with the driver's version: a node without it sees another ROOT.
    """
    (number, request), scratch, node = numbered, mark.parent, socket.gethostname()
    storage = _opened(storage) if isinstance(storage, StoreUrl) else storage
    try:
        if not mark.exists():
            raise SetupError(
                f"{node} does not see {scratch}, where the driver wrote a file",
                "ROOT must be one and the same folder on every node: a network share, or a mount of the lake.",
            )
        if (version := mark.read_bytes().decode()) != __version__:
            message = f"{node} has mirror-engine {__version__}, the driver {version}"
            raise SetupError(message, _SAME_ENVIRONMENT)
        path = scratch / file_name(number, f"{mark.name}-{uuid4().hex}")
        mode = ReadMode(lambda schema, _keys: ParquetRows(schema, path, number))
        return ChangeFileReader(storage, config, mode).read(request)
    except MirrorError as error:
        return error


@dataclass(frozen=True)
class ExecutorReader:
    """`OrderedReader` on executors, which open the storage and see the scratch folder."""

    storage: Storage | StoreUrl  # the landing zone's; or where it is in a store
    config: Config
    scratch: TablePath
    session: Callable[[], AbstractContextManager[SparkSession]]  # lends a Spark session

    def __post_init__(self) -> None:
        remove_of_other_processes((*self.scratch.glob("read-*"), *self.scratch.glob("rows-*-read-*")))

    def in_order(
        self, folder: LandedFolder, files: Sequence[Entry], context: ReadContext
    ) -> Generator[FileRows, None, None]:
        """See `OrderedReader`.

        Raises:
            SetupError: an executor does not see ROOT, or has another environment.
        """
        number = 0
        while number < len(files):
            before = context
            answers = self._wave(folder, files, before, number)
            try:
                while answers and context == before:
                    answer = answers.pop(0)
                    if isinstance(answer, MirrorError):
                        raise answer
                    context, number = answer.context, number + 1
                    yield answer
            finally:
                for unused in answers:
                    if isinstance(unused, FileRows):
                        unused.rows.close()

    def _wave(self, folder: LandedFolder, files: Sequence[Entry], context: ReadContext, first: int) -> list[Answer]:
        """Read files from `first` on against one context: as many as are surely within a batch."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - importing mirror_engine must not import Spark

        mark = self.scratch / f"read-{PROCESS}-{uuid4().hex}"
        answers: list[Answer] = []
        try:
            with scratch_errors():
                create_file(mark, __version__.encode())
            with spark_failures(folder.table.normalized, "reading"), self.session() as spark:
                # the first file of a table always changes its context, and is read alone
                most = 1 if context.schema is None else self.config.max_batch_files
                most = min(most, _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
                sizes = accumulate(file.size for file in files[first : first + most])
                fitting = max(sum(size <= self.config.max_batch_size for size in sizes), 1)
                chosen = enumerate(files[first : first + fitting], first)
                tasks = [(number, ReadRequest(folder, file, context)) for number, file in chosen]
                read = partial(_answer, self.storage, self.config, mark)
                try:
                    answers = list(spark.sparkContext.parallelize(tasks, len(tasks)).map(read).collect())
                except Py4JError as error:
                    if (cause := _NO_ENGINE.search(str(error))) is None:
                        raise
                    message = f"an executor cannot run mirror-engine: {cause[0]}"
                    raise SetupError(message, _SAME_ENVIRONMENT) from None
        finally:
            mark.unlink(missing_ok=True)
            kept = {answer.rows.path for answer in answers if isinstance(answer, FileRows)}  # type: ignore[attr-defined]
            for path in {*self.scratch.glob(f"rows-*-{mark.name}-*")} - kept:
                path.unlink(missing_ok=True)
        return answers
