"""Data files as they are written: where, and with which dictionaries."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror_engine.tables.log import data_files
from mirror_engine.tables.log.data_files import DataFiles

KINDS = {"id": "long", "city": "string", "note": "string", "price": "double"}
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in KINDS.items()]


def rows(count):
    each = range(count)
    cells = [each, [f"c{number % 5}" for number in each], [f"n{number}" for number in each], [1.5] * count]
    return pa.RecordBatch.from_arrays([*map(pa.array, cells)], names=list(KINDS))


def written(folder, *batches):
    with closing(DataFiles(folder, FIELDS, ())) as files:
        for batch in batches:
            files.add(batch)
        (file,) = files.finish()
    file.put(folder)
    return file, pq.ParquetFile(folder / file.name)


def with_dictionary(parquet):
    chunks = map(parquet.metadata.row_group(0).column, range(len(KINDS)))
    return {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}


@pytest.mark.parametrize(("count", "expected"), [(19, {"id", "city", "note"}), (20, {"city"}), (40, {"city"})])
def test_columns_whose_first_rows_repeat_values_have_a_dictionary(tmp_path, monkeypatch, count, expected):
    """Of a file that is worth a look; floating point never has one, as -0.0 is not 0.0 there."""
    monkeypatch.setattr(data_files, "_SAMPLED_ROWS", 20)
    assert with_dictionary(written(tmp_path, rows(count))[1]) == expected


@pytest.mark.parametrize("small_bytes", [0, 1 << 20], ids=["disk", "memory"])
def test_a_file_is_the_same_by_way_of_memory_or_disk(tmp_path, monkeypatch, small_bytes):
    monkeypatch.setattr(data_files, "_SMALL_BYTES", small_bytes)
    file, parquet = written(tmp_path, rows(30), rows(10))
    assert isinstance(file.source, pa.Buffer) is bool(small_bytes)
    assert file.size == (tmp_path / file.name).stat().st_size
    assert file.footer.to_dict() == {**parquet.metadata.to_dict(), "serialized_size": file.footer.serialized_size}
    assert parquet.read() == pa.Table.from_batches([rows(30), rows(10)])
