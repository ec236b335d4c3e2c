"""Collapse, met and key codes, held to `replay` row by row."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from delta_scenario import KEYS
from hypothesis import example, given
from hypothesis import strategies as st

from mirror_engine.landing_zone.change import Change, RowMarker, replay, same_key
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.changes import net_changes as net_changes_module
from mirror_engine.tables.changes.net_changes import NO_KEY, NetChanges, Role, key_codes, matched_rows, net_changes

INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4
MARKERS = (INSERT, UPDATE, DELETE, UPSERT)


def merged(table, keys, net):
    """What a MERGE with appended copies makes of a table: every match is told against the table before.

    A row is its key and where it came from: a position, or below 0 the table itself.
    """
    after = Counter(table)
    for position, role, copies in zip(net.position.tolist(), map(Role, net.role), net.copies.tolist(), strict=True):
        key = keys[position]
        old = [row for row in table if key is not None and row[0] == key]
        if role is not Role.INSERT:
            after.subtract(old)
        if role is Role.SET or (role is Role.SET_ONLY and old):
            after[key, position] += max(len(old), 1)
        elif role is Role.SET_ONLY or role is Role.DELETE:
            pass
        after[key, position] += copies
    return +after


def replayed(table, keys, markers):
    rows = [{"k": key, "from": origin} for key, origin in table]
    changes = [
        Change(RowMarker(marker), (key,), {"k": key, "from": position})
        for position, (key, marker) in enumerate(zip(keys, markers, strict=True))
    ]
    after, effects = replay(rows, changes, ["k"])
    return Counter((row["k"], row["from"]) for row in after), effects


def arrays(codes, markers):
    return np.array(codes, dtype=np.int64), np.array(markers, dtype=np.int8)


def key_of(code):
    return None if code == NO_KEY else code


def short_logs(longest):
    return [log for length in range(longest + 1) for log in itertools.product(MARKERS, repeat=length)]


def test_every_log_of_one_key_up_to_four_changes_ends_as_replay_says():
    assert_as_replay_says(short_logs(4))


@pytest.mark.slow
def test_every_log_of_one_key_up_to_six_changes_ends_as_replay_says():
    """LZ-4.2. At length six 1 and 4 take turns: that they mean the same is shown by the shorter ones."""
    turns = [(INSERT, DELETE, (UPDATE, UPSERT)[place % 2]) for place in range(6)]
    assert_as_replay_says([*short_logs(5), *itertools.product(*turns)])


def assert_as_replay_says(logs):
    """All logs at once, each under a key of its own, over tables with 0, 1 and 2 rows of each key."""
    codes, markers = arrays(
        [code for code, log in enumerate(logs) for _ in log], [marker for log in logs for marker in log]
    )
    net = net_changes(codes, markers)
    starts = np.searchsorted(codes, np.arange(len(logs) + 1))
    cuts = np.searchsorted(net.position, starts)
    for prior in range(3):
        table = [(0, -1 - copy) for copy in range(prior)]
        before = matched_rows(codes, markers, np.full(len(logs), prior)).tolist()
        for index, log in enumerate(logs):
            start, own = starts[index], slice(cuts[index], cuts[index + 1])
            found = NetChanges(net.position[own] - start, net.role[own], net.copies[own])
            after, effects = replayed(table, [0] * len(log), list(log))
            assert merged(table, [0] * len(log), found) == after, (log, prior)
            assert before[start : start + len(log)] == [effect.matched for effect in effects], (log, prior)


logs = st.lists(st.tuples(st.integers(NO_KEY, 4), st.sampled_from(MARKERS)), max_size=40)
tables = st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=8)


@given(logs, tables, st.integers(1, 50))
def test_interleaved_keys_and_null_keys_end_as_replay_says(log, held, slice_rows):
    table = [(key, -1 - origin) for origin, key in enumerate(held)]
    codes, markers = arrays([code for code, _ in log], [marker for _, marker in log])
    keys = [key_of(code) for code, _ in log]
    after, effects = replayed(table, keys, markers.tolist())
    prior = np.array([held.count(code) for code in range(5)])
    assert merged(table, keys, net_changes(codes, markers)) == after
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(net_changes_module, "_SLICE_ROWS", slice_rows)
        assert matched_rows(codes, markers, prior).tolist() == [effect.matched for effect in effects]


# what may look equal and is not, or the other way round
LIKE = {
    "string": ["\u00df", "ss", "\u00e9", "e\u0301", "\x00"],
    "binary": [b"a", b"\x00\x00"],
    "long": [-1, 2**53, 2**53 + 1],
    "double": [0.1, 0.1 + 2**-55, math.inf],
    "timestamp": [
        dt.datetime(2026, 3, 29, 3, 30, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        dt.datetime(2026, 3, 29, 2, 30, microsecond=1, tzinfo=dt.UTC),
    ],
    "decimal(5,2)": [Decimal("0.010"), Decimal("-0.00")],
    "decimal(38,10)": [Decimal("1234567890123456789012345678.0123456788")],
}
KEY_VALUES = {arrow_type(word): [*values, *LIKE.get(word, ())] for word, values in KEYS.items()}
key_tables = st.lists(st.sampled_from(list(KEY_VALUES)), min_size=1, max_size=4).flatmap(
    lambda kinds: st.tuples(
        st.just(kinds),
        st.lists(st.tuples(*[st.sampled_from([None, *KEY_VALUES[kind]]) for kind in kinds]), max_size=12),
        st.integers(0, 12),
    )
)


@given(key_tables)
def test_two_rows_have_one_code_where_and_only_where_replay_sees_one_key(drawn):
    check_codes(*drawn)


@pytest.mark.parametrize("kind", KEY_VALUES, ids=str)
def test_values_that_look_equal_have_one_code_only_where_replay_sees_one_key(kind):
    check_codes([kind], [(value,) for value in KEY_VALUES[kind]], 1)


def check_codes(kinds, rows, cut):
    columns = []
    for index, kind in enumerate(kinds):
        values = [row[index] for row in rows]
        columns.append(pa.chunked_array([pa.array(values[:cut], kind), pa.array(values[cut:], kind)]))
    numbered = key_codes(pa.table(columns, names=[f"k{index}" for index in range(len(kinds))]))

    keys = [same_key(row) for row in rows]
    first_seen = {key: position for position, key in reversed(list(enumerate(keys))) if key is not None}
    code_of = {key: int(numbered.codes[place]) for key, place in first_seen.items()}
    assert numbered.codes.tolist() == [NO_KEY if key is None else code_of[key] for key in keys]
    assert sorted(code_of.values()) == list(range(len(numbered.first_position)))
    assert numbered.first_position.tolist() == sorted(first_seen.values(), key=lambda at: int(numbered.codes[at]))
    assert numbered.codes.dtype == np.int64


few_and_many = st.sampled_from([2, 20]).flatmap(
    lambda most: st.lists(st.one_of(st.none(), st.integers(-most, most)), max_size=60)
)


@given(
    few_and_many,
    st.sampled_from([1, 3, 10**6, 2**40, 2**58]),
    st.sampled_from([pa.int64(), pa.timestamp("us", "UTC"), pa.decimal128(18, 0)]),
)
@example([-20, 12, 20], 2**58, pa.int64())  # too far apart to be sorted together with their positions
def test_whole_number_codes_hold_at_any_distance(numbers, distance, kind):
    step = min(distance, 10**16) if pa.types.is_decimal(kind) else distance
    cells = pa.array([None if number is None else number * step for number in numbers], kind)
    places = {number: numbers.index(number) for number in numbers if number is not None}

    found = key_codes(pa.table({"k": cells}))

    firsts = [NO_KEY if code == NO_KEY else int(found.first_position[code]) for code in found.codes]
    assert firsts == [places.get(number, NO_KEY) for number in numbers]
    assert len(found.first_position) == len(places)


def test_all_bit_patterns_of_nan_are_one_key():
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], dtype=np.uint64)
    assert key_codes(pa.table({"k": bits.view(np.float64)})).codes.tolist() == [0, 0, 0]


def test_an_all_null_column_and_a_keyless_table_match_nothing():
    assert key_codes(pa.table({"k": pa.nulls(3), "l": [1, 2, 3]})).codes.tolist() == [NO_KEY] * 3
    assert key_codes(pa.table({"k": [1, 2, 3]}).select([])).codes.tolist() == [NO_KEY] * 3


def test_codes_of_many_columns_do_not_overflow_and_do_not_collide():
    rows = np.arange(3000)
    repeated = {f"k{index}": rows for index in range(12)}  # 3000 ** 12 combinations
    assert key_codes(pa.table(repeated)).codes.tolist() == rows.tolist()
    assert key_codes(pa.table({"k": rows // 60, "l": rows % 60})).codes.tolist() == rows.tolist()
