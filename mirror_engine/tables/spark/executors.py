"""Reads change files on Spark's executors, many at once, with the very reader that reads them here.

Each file is read against the facts after the one before. The driver foretells these from headers and footers, so that
a wave of files can be read side by side; where a file's rows say otherwise, what was read after it goes, and the next
wave begins there. So the meaning is that of reading one after the other.
"""

from __future__ import annotations

import re
import socket
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine import __version__
from mirror_engine.errors import MirrorError, SetupError
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.tables.reading.reader import ChangeFileReader
from mirror_engine.tables.reading.request import ReadFile, ReadRequest
from mirror_engine.tables.reading.spill import ReadMode, all_rows, scratch_errors
from mirror_engine.tables.scratch import PROCESS, remove_of_others
from mirror_engine.tables.spark.failures import spark_failures

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirror_engine.config import Config
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.reading.request import PendingFiles, TableContext

    Answer: TypeAlias = ReadFile | MirrorError

    from mirror_engine.tables.base import RowSource

MARKER = "marker"
PLACE = "CAST(substring(_metadata.file_name, 6, 8) AS BIGINT)"  # of a row's change file in the batch, in Spark's SQL


def scratch_name(name: str) -> str:
    """How a table's column, or the marker's, is called in such a file."""
    return MARKER if name == MARKER_COLUMN else f"_{name}"


def file_name(place: int, token: str) -> str:
    """A name for the rows of the change file at `place` of its batch; the token tells it from other batches' files."""
    return f"rows-{place:08}-{token}.parquet"


def write_rows(rows: RowSource, path: Path) -> None:
    """Lay rows down in a file, record batch by record batch.

    Raises:
        OSError: the file cannot be written.
    """
    schema = scratch_schema(rows.schema)
    with parquet_writer(path, schema) as writer:
        for batch in rows.batches():
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def scratch_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns as such a file names them."""
    return pa.schema(list(zip(map(scratch_name, schema.names), schema.types, strict=True)))


def parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of passing rows: quick, and without what only helps those who look for some of them."""
    return pq.ParquetWriter(path, schema, compression="snappy", use_dictionary=False, write_statistics=False)


class ParquetRows:
    """A `RowStore` in a file that every node sees; it can be pickled once it is finished.

    Args:
        schema: of its rows.
        path: of the file; it is made at once.
        place: of the change file in its batch, as the file's name says it.

    Raises:
        StorageUnavailable: from every method, when the scratch folder fails.
    """

    def __init__(self, schema: pa.Schema, path: Path, place: int) -> None:
        self.schema = schema
        self.path = path
        self.place = place
        self._written_schema = scratch_schema(schema)
        with scratch_errors():
            self._writer: pq.ParquetWriter | None = parquet_writer(path, self._written_schema)

    def add(self, batch: pa.RecordBatch) -> None:
        with scratch_errors():
            self._open_writer().write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self._written_schema))

    def finish(self) -> None:
        with scratch_errors():
            self._open_writer().close()
        self._writer = None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = self.schema.names if columns is None else list(columns)
        fields = pa.schema([self.schema.field(name) for name in names])
        with scratch_errors():
            file = pq.ParquetFile(self.path)
        with file:
            for batch in file.iter_batches(columns=[scratch_name(name) for name in names]):
                cells = [batch.column(scratch_name(name)) for name in names]
                yield pa.RecordBatch.from_arrays(cells, schema=fields)

    def close(self) -> None:
        if self._writer is not None:
            self.finish()
        self.path.unlink(missing_ok=True)

    def _open_writer(self) -> pq.ParquetWriter:
        if self._writer is None:
            raise ValueError("finished rows take no more")
        return self._writer


_TASKS_PER_CORE = 4  # files differ in size
_NO_ENGINE = re.compile(r"No module named '(mirror_engine|pyarrow|numpy)[.\w]*'|PYTHON_VERSION_MISMATCH")
_SAME_ENVIRONMENT = "Every node needs the same Python environment as the driver; PYSPARK_PYTHON names its program."


@dataclass(frozen=True)
class _Task:
    """What an executor needs to read one file.

    Attributes:
        mark: a file that every node sees whose ROOT is the driver's.
        version: of the driver's engine.
        place: of the file in its batch.
    """

    storage: Storage
    config: Config
    mark: Path
    version: str
    place: int
    request: ReadRequest

    def run(self) -> Answer:
        """Read the file, on whatever machine this is; a failure is an answer, too, so that Spark tries none again."""
        try:
            self._check_node()
            path = self.mark.parent / file_name(self.place, f"{self.mark.name}-{uuid4().hex}")
            mode = ReadMode(lambda schema, _keys: ParquetRows(schema, path, self.place))
            return ChangeFileReader(self.storage, self.config, mode).read(self.request)
        except MirrorError as failed:
            return failed

    def _check_node(self) -> None:
        here = _version()
        if here != self.version:
            raise SetupError(
                f"{socket.gethostname()} has mirror-engine {here}, the driver {self.version}", _SAME_ENVIRONMENT
            )
        if not self.mark.exists():
            raise SetupError(
                f"{socket.gethostname()} does not see {self.mark.parent}, where the driver put a file",
                "ROOT must be one and the same folder on every node: a network share, or a mount of the lake.",
            )


class ExecutorReader:
    """`OrderedReader` on executors.

    Args:
        storage: door 1, as every node can open it.
        config: all options.
        scratch: for passing rows; every node sees it.
        session: lends a Spark session.
    """

    def __init__(
        self,
        storage: Storage,
        config: Config,
        scratch: Path,
        session: Callable[[], AbstractContextManager[SparkSession]],
    ) -> None:
        self._storage = storage
        self._config = config
        self._scratch = scratch
        self._session = session
        self._here = ChangeFileReader(storage, config, all_rows(scratch))
        remove_of_others((*scratch.glob("read-*"), *scratch.glob("rows-*-read-*")))

    def in_order(self, waiting: PendingFiles) -> Generator[ReadFile, None, None]:
        """See `OrderedReader`.

        Raises:
            SetupError: an executor does not see ROOT, or has another environment.
        """
        facts, place = waiting.facts, 0
        while place < len(waiting.files):
            wave = self._wave(waiting, place, facts)
            answers = deque(self._answers(wave, place))
            try:
                for request in wave:
                    if request.facts != facts:
                        break
                    answer = answers.popleft()
                    if isinstance(answer, MirrorError):
                        raise answer
                    facts, place = answer.facts, place + 1
                    yield answer
            finally:
                for left in answers:
                    if isinstance(left, ReadFile):
                        left.rows.rows.close()

    def _wave(self, waiting: PendingFiles, place: int, facts: TableContext) -> list[ReadRequest]:
        """Requests for as many files as may go into one batch and can be foretold; one always goes."""
        requests: list[ReadRequest] = []
        size = 0
        while place + len(requests) < len(waiting.files) and len(requests) < self._config.max_batch_files:
            request = waiting.request(place + len(requests), facts)
            if requests and size + request.file.size > self._config.max_batch_size:
                break
            requests.append(request)
            foretold = self._here.forecast(request)
            if foretold is None:
                break
            facts, size = foretold.facts, size + foretold.accounted_bytes
        return requests

    def _answers(self, wave: Sequence[ReadRequest], place: int) -> list[Answer]:
        """Each file, read by one of the executors; rows that no answer speaks of are gone."""
        mark = self._scratch / f"read-{PROCESS}-{uuid4().hex}"
        tasks = [
            _Task(self._storage, self._config, mark, _version(), place + at, request) for at, request in enumerate(wave)
        ]
        answers: list[Answer] = []
        try:
            with scratch_errors():
                self._scratch.mkdir(parents=True, exist_ok=True)
                mark.touch()
            answers = self._spread(tasks, wave[0].table.normalized)
        finally:
            mark.unlink(missing_ok=True)
            rows = (answer.rows.rows for answer in answers if isinstance(answer, ReadFile))
            told = {found.path for found in rows if isinstance(found, ParquetRows)}
            for path in set(self._scratch.glob(f"rows-*-{mark.name}-*")) - told:
                path.unlink(missing_ok=True)
        return answers

    def _spread(self, tasks: Sequence[_Task], table: str) -> list[Answer]:
        """The answers to all tasks, in their order."""
        with spark_failures(table, "reading"), self._session() as spark, _one_environment():
            context = spark.sparkContext
            slices = min(len(tasks), _TASKS_PER_CORE * context.defaultParallelism)
            return list(context.parallelize(tasks, slices).map(_Task.run).collect())


@contextmanager
def _one_environment() -> Iterator[None]:
    """What an executor cannot even begin with is told as what it is."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - importing mirror_engine must not import Spark

    try:
        yield
    except Py4JError as error:
        if (found := _NO_ENGINE.search(str(error))) is not None:
            raise SetupError(f"an executor cannot run mirror-engine: {found[0]}", _SAME_ENVIRONMENT) from None
        raise


def _version() -> str:
    """Of the program, as this process has it."""
    return __version__
