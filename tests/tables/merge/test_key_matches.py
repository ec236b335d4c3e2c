"""What staged rows met, held against replay: the same question that `staged` answers for rows it applies."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

from delta_scenario import file_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from test_staged import CHANGES, KEY, KEYS, SCHEMA, table_of

from mirror_engine.landing_zone.change import Change, RowMarker, replay
from mirror_engine.tables.base import ChangeBatch, MatchCounts
from mirror_engine.tables.merge.key_matches import count_matches


@settings(max_examples=150, deadline=None)
@given(st.lists(KEY, max_size=5), st.lists(CHANGES, min_size=1, max_size=3))
def test_what_rows_meet_is_what_replay_says(before: list[Any], files: list[list[Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [(*key, place) for place, key in enumerate(before)]
        log = table_of(Path(folder) / "T", rows)
        changes = [[(marker, *key, 0) for marker, key in file] for file in files]
        landed = tuple(file_rows(str(n), SCHEMA, SCHEMA.names, *file) for n, file in enumerate(changes))
        found = count_matches(ChangeBatch(landed, SCHEMA, KEYS), log)
    _, effects = replay(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows],
        [Change(RowMarker(m), (a, b), {"a": a, "b": b, "v": v}) for m, a, b, v in itertools.chain(*changes)],
        KEYS,
    )
    told = iter(effects)
    for file, met in zip(changes, found, strict=True):
        pairs = [(row[0], next(told).matched) for row in file]
        inserts = sum(marker == 0 and count > 0 for marker, count in pairs)
        assert met == MatchCounts(inserts, sum(marker != 0 and count > 1 for marker, count in pairs))


def test_keys_beyond_the_bounds_of_a_file_are_not_looked_up(tmp_path: Path) -> None:
    log = table_of(tmp_path / "T", [(1, "x", 0), (5, "y", 0)])
    for part in (tmp_path / "T").glob("*.parquet"):
        part.unlink()  # whoever reads it fails
    file = file_rows("f", SCHEMA, SCHEMA.names, (0, 6, "x", 1), (0, 6, "x", 2))
    assert count_matches(ChangeBatch((file,), SCHEMA, KEYS), log) == (MatchCounts(1, 0),)


def test_rows_of_a_keyless_table_meet_nothing(tmp_path: Path) -> None:
    log = table_of(tmp_path / "T", [(1, "x", 0)])
    file = file_rows("f", SCHEMA, SCHEMA.names, (0, 1, "x", 1))
    assert count_matches(ChangeBatch((file,), SCHEMA), log) == (MatchCounts(),)
