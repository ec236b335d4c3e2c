"""Equal rows are found equal in any order and by any engine, others are not; the data is what it says it is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from mirror_engine.landing_zone.change import MARKER_COLUMN
from speed import floor, rows


@pytest.fixture(scope="module")
def orders():
    return rows.rows(np.arange(1, 200), np.random.default_rng(1))


def fingerprint(folder, orders):
    write_deltalake(str(folder), orders)
    return floor.of_table(folder)


def test_rows_in_another_order_and_zones_written_otherwise_are_equal(tmp_path, orders):
    turned = orders.take(pa.array(range(orders.num_rows - 1, -1, -1)))
    place = orders.schema.get_field_index("ChangedAt")
    turned = turned.set_column(place, "ChangedAt", turned["ChangedAt"].cast(pa.timestamp("us")))
    assert fingerprint(tmp_path / "a", orders) == fingerprint(tmp_path / "b", turned)


@pytest.mark.slow
def test_a_single_value_in_any_column_or_a_row_twice_makes_a_difference(tmp_path, orders):
    def found(name, table):
        pq.write_table(table, tmp_path / name)
        return floor.of_query(f"FROM read_parquet('{tmp_path / name}')")

    same = found("same", orders)
    assert found("twice", pa.concat_tables([orders.slice(1), orders.slice(3, 1)])) != same
    for place, field in enumerate(orders.schema):
        values = orders[field.name].to_pylist()
        values[7] = None
        other = orders.set_column(place, field, pa.array(values, field.type))
        assert found(field.name, other) != same, field.name


def test_an_engine_with_other_rows_is_named(tmp_path, orders):
    fingerprint(tmp_path / "a", orders)
    with pytest.raises(floor.Unequal, match="notebook holds 199 rows, expected 199"):
        floor.check("notebook", tmp_path / "a", floor.Fingerprint(199, 5))


@pytest.mark.slow
def test_expected_table_is_the_last_row_per_key(tmp_path):
    base = rows.initial_load(tmp_path / "base", 20, 2)
    changes = rows.histories(tmp_path / "changes", 3, 6, 10, keys=30, present=20)
    held = {row["Id"]: row for file in base for row in pq.read_table(file).to_pylist()}
    for file in changes:
        for row in pq.read_table(file).to_pylist():
            marker = row.pop(MARKER_COLUMN)
            # a life without contradiction: an insert meets nothing, all others something
            assert (row["Id"] in held) == (marker != rows.INSERT)
            if marker == rows.DELETE:
                del held[row["Id"]]
            else:
                held[row["Id"]] = row
    expected = pa.Table.from_pylist(list(held.values()), schema=rows.SCHEMA)
    assert 0 < len(held) != 20
    found = floor.of_query(floor.after(base, changes))
    assert found == fingerprint(tmp_path / "held", expected)


def test_net_changes_touch_each_key_once(tmp_path):
    file = rows.net_changes(tmp_path / "net", 6, np.arange(901, 1001), 50)
    changes = pq.read_table(file)
    assert file.name == "00000000000000000006.parquet"
    assert changes.column_names == [*rows.SCHEMA.names, MARKER_COLUMN]
    assert len(set(changes["Id"].to_pylist())) == 50
    markers = changes[MARKER_COLUMN].to_pylist()
    assert [markers.count(marker) for marker in (rows.INSERT, rows.UPDATE, rows.DELETE)] == [5, 40, 5]
    inserted = changes.filter(pc.equal(changes[MARKER_COLUMN], rows.INSERT))["Id"].to_pylist()
    assert sorted(inserted) == [1001, 1002, 1003, 1004, 1005]
    assert set(changes["Id"].to_pylist()) - set(inserted) <= set(range(901, 1001))
