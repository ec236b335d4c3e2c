"""Indexes of keys find what a scan finds, stay within their limit, and are no loss when they are gone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from delta_scenario import KEYS, Scenario, aged, known_log, schema_of

from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.changes import counted, key_index
from mirror_engine.tables.changes.counted import held_rows
from mirror_engine.tables.changes.key_index import KeyIndex
from mirror_engine.tables.changes.net_changes import exact_numbers, key_codes
from mirror_engine.tables.log import table_file
from mirror_engine.tables.log.commit import known_action, put_commit, remove_action
from mirror_engine.tables.merge import by_position
from mirror_engine.tables.merge.arrow import ArrowWriter

KINDS = [kind for kind, values in KEYS.items() if exact_numbers(pa.array(values, arrow_type(kind))) is not None]


@pytest.fixture
def eager(monkeypatch):
    """Files of any size are indexed, for any number of keys."""
    monkeypatch.setattr(key_index, "_LEAST_ROWS", 1)
    monkeypatch.setattr(key_index, "_ROWS_PER_KEY", 0)
    monkeypatch.setattr(by_position, "VECTORS_FROM_ROWS", 0)


@pytest.fixture
def index(tmp_path, eager):  # noqa: ARG001 - it changes what is indexed
    return KeyIndex(tmp_path / "keys", 1 << 20)


def found(log, kind, values, index):
    """Each row that has one of some keys, by key, file and number."""
    wanted = pa.table({"k": pa.array(values, arrow_type(kind))})
    codes = key_codes(wanted)
    held = held_rows(wanted, codes, log, index)
    return sorted(zip(held.code.tolist(), held.file.tolist(), held.position.tolist(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_index_finds_what_a_scan_finds(local, index, kind):
    table = Scenario(local, schema_of(f"k:{kind}", "v:long"), ["k"])
    cells = [*KEYS[kind], *KEYS[kind][:1], None]
    table.change(*((0, cell, place) for place, cell in enumerate(cells)))
    table.change(*((0, cell, place) for place, cell in enumerate(cells[::-1])))
    log = table.log()
    scanned = found(log, kind, KEYS[kind], None)
    assert len(scanned) == 2 * len(KEYS[kind]) + 2
    assert found(log, kind, KEYS[kind], index) == scanned
    assert len(list((index._folder).glob("*.keys"))) == 2
    assert found(log, kind, KEYS[kind], index) == scanned, "by the index that is there"


@pytest.mark.parametrize(("count", "again"), [(4, []), (40, ["a", "b"])], ids=["few keys", "many keys"])
def test_batch_reads_the_keys_of_each_file_once_and_then_its_index(local, index, monkeypatch, count, again):
    """Few keys make the index in the pass that finds them; many are found by a pass without one."""
    monkeypatch.setattr(key_index, "_ROWS_PER_KEY", 8)
    table = Scenario(local, SCHEMA, ["k"])
    for first in (0, 100):
        table.change(*((0, key, key) for key in range(first, first + 80)))
    log, read = table.log(), []
    names = dict(zip(sorted(file.spelled for file in log.data_files()), "ab", strict=True))
    scan = key_index.scan_file

    def noted(log, file, *more):
        read.append(names[file.spelled])
        return scan(log, file, *more)

    for module in (counted, key_index):
        monkeypatch.setattr(module, "scan_file", noted)
    for files in (["a", "b"], again):
        assert len(found(log, "long", [*range(count // 2), *range(100, 100 + count // 2)], index)) == count
        assert sorted(read) == files
        read.clear()


def test_index_is_made_for_few_keys_and_searched_for_few_within_its_bounds(local, index, monkeypatch):
    table = Scenario(local, SCHEMA, ["k"])
    table.change(*((0, key, key) for key in range(100, 180)))
    log = table.log()
    monkeypatch.setattr(key_index, "_ROWS_PER_KEY", 8)
    scanned = []
    scan = counted.scan_file
    monkeypatch.setattr(counted, "scan_file", lambda *given: scanned.append(1) or scan(*given))
    assert len(found(log, "long", list(range(150, 161)), index)) == len(scanned) * 11 == 11
    assert not index._folder.exists(), "many keys make none"
    assert found(log, "long", [170, 99, 105, 180], index) == [(1, 0, 5), (2, 0, 70)]
    assert len(list(index._folder.glob("*.keys"))) == 1
    assert found(log, "long", [*range(1000, 0, -100), *range(1000, 2000)], index) == [(0, 0, 0)]
    assert len(scanned) == 1, "many keys, of which few can be in the file"
    assert len(found(log, "long", list(range(150, 161)), index)) == 11
    assert len(scanned) == 2, "many keys within its bounds"


def test_keys_that_do_not_fit_64_bits_are_scanned():
    assert set(KEYS) - set(KINDS) == {"string", "binary", "double", "float", "decimal(38,10)"}


def test_rows_that_are_gone_are_not_found(local, index, marking):  # noqa: ARG001 - rows are marked
    table = Scenario(local, schema_of("k:long", "v:long"), ["k"])
    table.change(*((0, key, key) for key in range(10)))
    log = table.log()
    assert len(found(log, "long", [3, 4], index)) == 2
    table.change((2, 3, None))
    log = table.log()
    assert [code for code, *_ in found(log, "long", [3, 4], index)] == [1]


SCHEMA = schema_of("k:long", "v:long")


def test_least_recently_used_go_first(local, index):
    table = Scenario(local, SCHEMA, ["k"])
    for first in range(0, 30, 10):
        table.change(*((0, key, 1) for key in range(first, first + 10)))
    log = table.log()
    index._limit = 2 * (16 + 10 * 12)
    found(log, "long", list(range(10)), index)
    oldest = next(index._folder.iterdir())
    found(log, "long", list(range(10, 20)), index)
    aged([oldest])
    (index._folder / ".left.tmp").touch()
    assert len(found(log, "long", list(range(20, 30)), index)) == 10
    assert len(list(index._folder.iterdir())) == 2
    assert not oldest.exists()


def test_index_may_be_deleted_and_its_folder_be_in_the_way(local, index):
    table = Scenario(local, SCHEMA, ["k"])
    table.change((0, 1, 1), (0, 2, 1))
    log, none = table.log(), KeyIndex(index._folder, 0)
    assert len(found(log, "long", [1, 2], none)) == 2
    assert not index._folder.exists(), "the option `none`"
    assert len(found(log, "long", [1, 2], index)) == 2
    for each in index._folder.iterdir():
        each.unlink()
    index._folder.rmdir()
    index._folder.write_bytes(b"")
    assert len(found(log, "long", [1, 2], index)) == 2


@pytest.mark.usefixtures("eager")
def test_table_too_small_for_vectors_has_no_index(tmp_path, monkeypatch):
    """Its files are written anew, so that the index would be of one batch."""
    monkeypatch.setattr(by_position, "VECTORS_FROM_ROWS", 100)
    writer = ArrowWriter(tmp_path / "Tables", tmp_path / "scratch", key_index_size=1 << 20)
    table = Scenario(writer, SCHEMA, ["k"])
    table.change(*((0, key, key) for key in range(99)))
    table.change((1, 5, 0))
    assert not (tmp_path / "keys").exists()
    table.change((0, 99, 99))
    table.change((1, 6, 0))
    assert (tmp_path / "keys").exists()


def test_files_without_statistics_are_not_asked_how_large_the_table_is(tmp_path, monkeypatch):
    writer = ArrowWriter(tmp_path / "Tables", tmp_path / "scratch", key_index_size=1 << 20)
    table = Scenario(writer, SCHEMA, ["k"])
    table.change((0, 1, 1))
    log = known_log(writer.path("dbo/T"))
    (file,) = log.data_files()
    rows = (remove_action(log, file), {"add": {**known_action(log, file), "modificationTime": 0, "dataChange": True}})
    table.version = log.version + 1
    put_commit(log.folder, table.version, [{"commitInfo": {"engineInfo": "another"}}, *rows])
    monkeypatch.setattr(table_file, "read_footer", lambda _: pytest.fail("a footer is read"))
    table.change((0, 2, 2))
    assert not (tmp_path / "keys").exists()


def test_index_goes_with_its_data_file(tmp_path, eager):  # noqa: ARG001 - files are indexed
    writer = ArrowWriter(tmp_path / "Tables", tmp_path / "s", key_index_size=1 << 20)
    table = Scenario(writer, SCHEMA, ["k"])
    table.change((0, 1, 1), (0, 2, 1))
    table.change((1, 1, 5))
    assert list((tmp_path / "keys").iterdir()) == []
