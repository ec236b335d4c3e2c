"""What lies ready for Spark means what replay says; here a MERGE of a few lines stands for Delta's."""

from __future__ import annotations

import itertools
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_protocol import rewrite
from delta_scenario import add_rows, copied, file_rows, known_log, replayed, schema_of, table_with, without_statistics
from hypothesis import given, settings
from hypothesis import strategies as st
from quick_folder import quick_folder
from seed import by_night

from mirror_engine.tables.base import ChangeBatch, MatchCounts
from mirror_engine.tables.changes.counted import count_changes, held_rows
from mirror_engine.tables.changes.key_counts import LOAD_ROWS
from mirror_engine.tables.changes.net_changes import Role, key_codes
from mirror_engine.tables.changes.staged import ROLE, stage_here, staged
from mirror_engine.tables.log.statistics import bounds_of
from mirror_engine.tables.passthrough import count_duplicates

SCHEMA = schema_of("a", "b:string", "v")
KEYS = ("a", "b")
KEY = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from(["x", "y", None]))
CHANGES = st.lists(st.tuples(st.sampled_from([0, 1, 2, 4]), KEY), max_size=10)


def prior_rows(wanted, log):
    """How many rows of each key a table holds."""
    return np.bincount(held_rows(wanted, key_codes(wanted), log).code, minlength=wanted.num_rows).tolist()


def table_of(folder, rows):
    return table_with(folder, SCHEMA, KEYS, rows)


def staged_here(batch, log, scratch):
    return staged(scratch, partial(stage_here, batch, count_changes(batch, log)))


def merged(rows, changes):
    """Delta's MERGE, or an append where nothing matches."""
    files = sorted(changes.folder.glob("*.parquet"))
    source = [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]
    assert len(source) == changes.rows
    matching: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for row in source:
        if row[-1] != Role.INSERT and None not in row[:2]:
            matching[row[:2]].append(row)
    assert all(len(found) == 1 for found in matching.values()), "two source rows for one target row"
    assert {row[-1] for row in source} == changes.roles or not source
    after = [matching[row[:2]][0] if row[:2] in matching else (*row, Role.SET) for row in rows]
    met = {row[:2] for row in rows}
    added = [row for row in source if row[-1] == Role.INSERT or (row[-1] == Role.SET and row[:2] not in met)]
    return sorted((row[:-1] for row in [*(row for row in after if row[-1] != Role.DELETE), *added]), key=repr)


@settings(max_examples=by_night(75, 150))
@given(st.lists(KEY, max_size=5), st.lists(CHANGES, min_size=1, max_size=3))
def test_staged_changes_do_to_any_table_what_replay_says(before, files):
    serial = itertools.count(100)
    rows = [(*key, place) for place, key in enumerate(before)]
    changes = [[(marker, *key, next(serial)) for marker, key in file] for file in files]
    with quick_folder() as name:
        folder = Path(name)
        log = table_of(folder / "T", rows)
        landed = tuple(file_rows(str(n), SCHEMA, SCHEMA.names, *file) for n, file in enumerate(changes))
        batch = ChangeBatch(landed, SCHEMA, KEYS)
        with staged_here(batch, log, folder / "scratch") as ready:
            found = merged(rows, ready)
        assert not list((folder / "scratch").iterdir())
    expected, matches = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], []
    for file in changes:
        expected, met = replayed(expected, SCHEMA.names, KEYS, file)
        matches.append(met)
    assert found == sorted((tuple(row.values()) for row in expected), key=repr)
    assert list(ready.match_counts) == matches


@settings(max_examples=by_night(50, 100))
@given(
    st.lists(KEY, max_size=5),
    st.lists(st.lists(KEY, max_size=6), min_size=1, max_size=3),
    st.sampled_from([1, LOAD_ROWS]),
)
def test_duplicate_inserts_of_passthrough_files_are_those_of_staged_rows(before, files, load):
    with quick_folder() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("mirror_engine.tables.changes.key_counts.LOAD_ROWS", load)
        folder = Path(name)
        log = table_of(folder / "T", [(*key, 0) for key in before])
        landed = tuple(
            file_rows(str(n), SCHEMA, SCHEMA.names, *[(0, *key, 1) for key in file]) for n, file in enumerate(files)
        )
        batch = ChangeBatch(landed, SCHEMA, KEYS)
        with staged_here(batch, log, folder / "scratch") as ready:
            copies = replace(batch, files=tuple(copied(folder / "copy", file, KEYS) for file in landed))
            assert count_duplicates(copies, log) == ready.match_counts
        assert count_duplicates(ChangeBatch(landed, SCHEMA), log) == (MatchCounts(),) * len(files), "without keys"


@contextmanager
def staged_over(folder, held, *changes, schema=SCHEMA):
    """A file of changes, each a marker and cells, staged over a table that holds these rows."""
    log = table_of(folder / "T", held)
    keys = KEYS if schema.find("b") else KEYS[:1]
    file = file_rows("f", schema, schema.names, *changes)
    with staged_here(ChangeBatch((file,), schema, keys), log, folder / "scratch") as ready:
        yield ready


def test_changes_of_held_keys_need_no_insert_clause(tmp_path):
    held = [(1, "x", 0), (2, "x", 0), (3, "x", 0)]
    changes = (4, 1, "x", 1), (2, 2, "x", 2), (2, 9, "x", 3), (1, 3, "x", 4)
    with staged_over(tmp_path, held, *changes) as ready:
        assert ready.roles == {Role.SET_ONLY, Role.DELETE}
        widest = (pa.scalar(1, pa.int32()), pa.scalar(3, pa.int32()))
        assert ready.bounds[0] == widest, "what the table lacks widens no bound"


def test_a_file_whose_statistics_exclude_the_keys_is_not_read(tmp_path):
    table_of(tmp_path / "T", [(1, "x", 0), (2, "x", 0)])
    add_rows(tmp_path / "T", SCHEMA, [(7, "x", 0), (9, "x", 0)])
    log = known_log(tmp_path / "T")
    old, new = sorted(log.data_files(), key=lambda file: pq.read_table(file.path)["a"][0].as_py())
    old.path.unlink()
    for keys in [8, 9], [9, 10], [5, 7]:
        wanted = pa.table({"a": pa.array(keys, pa.int32()), "b": ["x", "x"]})
        assert [file.path for file in log.data_files(bounds_of(wanted))] == [new.path]
        assert prior_rows(wanted, log) == [int(key in {7, 9}) for key in keys]


def test_keys_beyond_the_bounds_of_a_file_are_not_looked_up(tmp_path):
    log = table_of(tmp_path / "T", [(1, "x", 0), (5, "y", 0)])
    for part in (tmp_path / "T").glob("*.parquet"):
        part.unlink()  # whoever reads it fails
    file = file_rows("f", SCHEMA, SCHEMA.names, (0, 6, "x", 1), (0, 6, "x", 2))
    assert count_duplicates(ChangeBatch((copied(tmp_path / "copy", file, KEYS),), SCHEMA, KEYS), log) == (
        MatchCounts(1, 0),
    )


def test_a_file_without_statistics_is_read(tmp_path):
    table_of(tmp_path / "T", [(1, "x", 0)])
    rewrite(1, without_statistics, tmp_path / "T")
    log = known_log(tmp_path / "T")
    wanted = pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})
    assert prior_rows(wanted, log) == [1]


@pytest.mark.parametrize("many", ["_GROUP_BYTES", "_MANY_ROWS"])
def test_keys_and_matches_of_large_tables_and_batches(tmp_path, monkeypatch, many):
    monkeypatch.setattr(f"mirror_engine.tables.changes.counted.{many}", 1)
    table_of(tmp_path / "T", [(1, "x", 0)])
    add_rows(tmp_path / "T", SCHEMA, [(2, "x", 0)])
    log = known_log(tmp_path / "T")
    file = file_rows("f", SCHEMA, SCHEMA.names, (0, 1, "x", 1), (0, 2, "x", 2), (0, 3, "x", 3))
    with staged_here(ChangeBatch((file,), SCHEMA, KEYS), log, tmp_path / "scratch") as ready:
        assert [met.duplicate_inserts for met in ready.match_counts] == [2]


def test_bounds_are_those_of_the_keys_that_match(tmp_path):
    changes = (1, 2, "y", 1), (1, 1, "x", 2), (0, 9, "z", 3)
    with staged_over(tmp_path, [(1, "x", 0), (2, "y", 0)], *changes) as ready:
        assert ready.matches
        assert [(low.as_py(), high.as_py()) for low, high in ready.bounds] == [(1, 2), ("x", "y")]


def test_a_large_batch_is_written_as_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr("mirror_engine.tables.changes.staged._FILE_ROWS", 4)
    monkeypatch.setattr("mirror_engine.tables.changes.counted._GROUP_BYTES", 1)
    with staged_over(tmp_path, [(0, "x", 0)], *[(4, place, "x", place) for place in range(11)]) as ready:
        parts = [pq.read_table(part) for part in sorted(ready.folder.iterdir())]
    assert [part.num_rows for part in parts] == [6, 5]
    assert np.concatenate([part["c2"].to_numpy() for part in parts]).tolist() == list(range(11))
    assert parts[0].column_names == ["c0", "c1", "c2", ROLE]
