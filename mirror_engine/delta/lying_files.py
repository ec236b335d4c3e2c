"""Change files that may become part of their table as they lie: looked at before the commit, read after it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.delta.base import FileRows
from mirror_engine.delta.change_bytes import guarded
from mirror_engine.delta.fitting import Doubt, check_fit
from mirror_engine.delta.inspection import KeysOfRows, check_bounds
from mirror_engine.delta.intake import Taken, take
from mirror_engine.delta.original import Original, data_file_name
from mirror_engine.delta.parquet import open_parquet
from mirror_engine.delta.parquet_footer import read_footer
from mirror_engine.delta.read_request import ReadFile, ReadRequest
from mirror_engine.delta.reader import facts_after, said_of, terms_of
from mirror_engine.delta.sighted_file import sighted
from mirror_engine.errors import PublisherError
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.diagnostics import without_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from mirror_engine.config import Config
    from mirror_engine.delta.base import RowSource
    from mirror_engine.delta.reading import Reading
    from mirror_engine.delta.sighted_file import SightedFile
    from mirror_engine.storage.base import Storage

LEAST_BYTES = 4 * 1024 * 1024  # of a file that is worth a data file of its own
_SAMPLES, _SAMPLE_BYTES = 64, 4096  # of a file's bytes, beside its footer, that tell it from others


class LyingFiles:
    """Looks at change files of one ROOT's landing zone without reading their rows.

    Args:
        storage: door 1.
        config: all options.
        reading: where rows go when they are read after all.
    """

    def __init__(self, storage: Storage, config: Config, reading: Reading) -> None:
        self._storage = storage
        self._config = config
        self._reading = reading

    def look(self, request: ReadRequest) -> ReadFile | str:
        """A file that becomes part of its table as it lies; else why it does not, in words.

        Raises:
            ZoneChanged: another file lies there than was sighted, or none.
            StorageUnavailable: it could not be read.
        """
        if reason := self._plain_reason(request):
            return reason
        try:
            return self._looked_at(request)
        except Doubt as doubt:
            return str(doubt)
        except PublisherError as refused:
            return refused.diagnostic.text

    def inspected(self, content: BinaryIO, request: ReadRequest) -> FileRows:
        """A file that became part of its table as it lay, read at last; of its rows only keys and markers are kept.

        Args:
            content: the table's own copy.
            request: what the file was, against the table as it is now.

        Raises:
            PublisherError: it breaks the protocol after all.
            StorageUnavailable: it could not be read.
        """
        file = open_parquet(guarded(content, request.path), request.path, self._config)
        terms = terms_of(file, request, self._config)
        keys = KeysOfRows(self._reading)
        taken = take(file, terms, request.file, keys)
        check_bounds(file.parquet.metadata, terms.merged.schema.columns, keys.seen, request.path)
        return FileRows(
            request.file.path, "", "", 0, taken.rows, taken.markers, has_marker=False, byte_count=taken.byte_count
        )

    def _plain_reason(self, request: ReadRequest) -> str:
        """What needs no look into the file."""
        metadata = request.metadata
        if not self._config.direct_staging:
            return "direct_staging is off"
        if metadata.is_text:
            return "it is delimited text"
        if request.file.size < LEAST_BYTES:
            return f"it is smaller than {LEAST_BYTES:,} bytes"
        if metadata.upsert_default:
            return "its rows are upserts"
        if metadata.partitioned:
            return "the table is partitioned"
        return "" if request.facts.takes_files else "the table asks more of its files, or names columns otherwise"

    def _looked_at(self, request: ReadRequest) -> ReadFile:
        lying = sighted(self._storage, request)
        size = lying.entry.size
        with lying.open() as handle:
            content = guarded(handle, request.path)
            file = open_parquet(content, request.path, self._config)
            if file.marker is not None:
                raise Doubt("it has row markers")
            terms = terms_of(file, request, self._config)
            nulls = check_fit(file, terms, content, size, self._config)
            digest = _digest(content, size, request.path, self._config)
        taken = Taken(
            _RowsOnDemand(partial(self._rows, lying, request)), _inserts(file.parquet.metadata.num_rows), 0, nulls
        )
        said = without_errors(said_of(file, terms, taken, request))
        original = Original(data_file_name(), size, file.parquet.metadata, lying.open, lying.check_unchanged)
        seen = request.file
        lying.check_unchanged()
        rows = FileRows(
            path=seen.path,
            etag=seen.etag,
            digest=digest,
            modified_ns=seen.modified_ns,
            rows=taken.rows,
            markers=taken.markers,
            has_marker=False,
            byte_count=0,
            diagnostics=said,
            landed_bytes=size,
            original=original,
        )
        return ReadFile(rows, facts_after(file, terms, request.facts, fills=True))

    def _rows(self, lying: SightedFile, request: ReadRequest) -> RowSource:
        with lying.open() as handle:
            file = open_parquet(guarded(handle, request.path), request.path, self._config)
            return take(file, terms_of(file, request, self._config), request.file, self._reading).rows


@dataclass
class _RowsOnDemand:
    """The rows of a file, read when somebody first asks for them; a `RowSource`."""

    read: Callable[[], RowSource]
    found: RowSource | None = None

    @property
    def schema(self) -> pa.Schema:
        """See `RowSource`."""
        return self._rows().schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """See `RowSource`.

        Raises:
            PublisherError: the file breaks the protocol.
            ZoneChanged: it is no longer there.
        """
        return self._rows().batches(columns)

    def close(self) -> None:
        """See `RowSource`."""
        if self.found is not None:
            self.found.close()

    def _rows(self) -> RowSource:
        if self.found is None:
            self.found = self.read()
        return self.found


def _inserts(rows: int) -> Counter[int]:
    return Counter({RowMarker.INSERT.value: rows})


def _digest(content: BinaryIO, size: int, path: str, config: Config) -> str:
    """Tells a file from another by its footer, its size and samples of its bytes; never equal to a digest of all."""
    hasher = blake2b(read_footer(content, path, config), digest_size=16)
    hasher.update(size.to_bytes(8, "big"))
    for sample in range(_SAMPLES):
        content.seek(size * sample // _SAMPLES)
        hasher.update(content.read(_SAMPLE_BYTES))
    return f"sampled:{hasher.hexdigest()}"
