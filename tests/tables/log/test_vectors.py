"""Deletion vectors: their format, which of them a version has, and every fault of one is caught by the checker."""

from __future__ import annotations

import base64
import shutil
from functools import partial

import numpy as np
import pytest
from delta_protocol import marks as marks_of
from delta_protocol import protocol_faults, read_history, rewrite
from delta_scenario import SIMPLE, Scenario, known_log
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64
from seed import by_night

from mirror_engine.errors import TableDamaged
from mirror_engine.tables.log.roaring import deserialized, serialized
from mirror_engine.tables.log.vectors import _TO_Z85, new_vectors, read_vector, vector_file, vector_place
from mirror_engine.tables.log.vectors_in_use import VectorsInUse


@pytest.fixture
def marked_twice(local, marking):  # noqa: ARG001 - small files are marked
    """A table: two files of rows, of one of which rows are marked twice."""
    table = Scenario(local, SIMPLE, ["Id"])
    table.change(*((0, key, "Linz") for key in range(20)))
    table.change((2, 3, None))
    table.change((1, 5, "Wels"), (2, 7, None), (0, 30, "Enns"))
    return table


@pytest.mark.parametrize(
    ("vector", "fault"),
    [
        ({"storageType": "p", "pathOrInlineDv": "file:///dev/zero"}, "outside of the table's folder"),
        ({"storageType": "p", "pathOrInlineDv": "/dev/zero"}, "outside of the table's folder"),
        ({"storageType": "u", "pathOrInlineDv": f"../..{'0' * 20}"}, "outside of the table's folder"),
        ({"storageType": "p"}, "a deletion vector cannot be read: KeyError"),
        ({"pathOrInlineDv": "x"}, "a deletion vector cannot be read: KeyError"),
        ({"storageType": "p", "pathOrInlineDv": 7}, "a deletion vector cannot be read: TypeError"),
        ({"storageType": "u", "pathOrInlineDv": "short"}, "a deletion vector cannot be read: ValueError"),
    ],
)
def test_vector_outside_of_its_table_is_not_read(tmp_path, vector, fault):
    for call in (vector_place, read_vector):
        with pytest.raises(TableDamaged, match=fault):
            call(tmp_path, vector)
    assert vector_place(tmp_path, {"storageType": "i", "pathOrInlineDv": "0"}) is None
    inside = {"storageType": "p", "pathOrInlineDv": (tmp_path / "a%20b.bin").as_uri().replace("%25", "%")}
    assert vector_place(tmp_path, inside) == tmp_path / "a b.bin"


@pytest.mark.parametrize("positions", [[0], [1, 5, 9], range(100_000), [0, 2**32 - 1, 2**32, 2**33 + 7]])
def test_vectors_read_back_as_written(tmp_path, positions):
    wanted = [np.array(positions), np.array([7])]
    made = new_vectors(wanted)
    (tmp_path / made.name).write_bytes(made.content)
    for vector, marks in zip(made.descriptors, wanted, strict=True):
        assert vector_file(vector) == made.name
        assert read_vector(tmp_path, vector).tolist() == marks.tolist()
        assert marks_of(tmp_path, vector) == set(marks.tolist())


SETS = {
    "none": [],
    "one": [0],
    "a few": [1, 5, 65_535, 65_536, 200_000],
    "a run": range(100_000),
    "half": range(0, 300_000, 2),
    "as many as are listed": range(0, 4096 * 3, 3),
    "one more": range(0, 4097 * 3, 3),
    "all of a chunk": range(65_536),
    "many chunks": range(0, 2_000_000, 1_000),
    "beyond 32 bits": [7, 2**32 - 1, 2**32, 2**40 + 3],
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("has_runs", [False, True])
def test_bitmaps_are_those_of_the_reference_library(name, has_runs):
    numbers = np.array(SETS[name], dtype=np.int64)
    reference = BitMap64(numbers.tolist())
    if has_runs:
        reference.run_optimize()
    assert deserialized(reference.serialize()).tolist() == numbers.tolist()
    assert list(BitMap64.deserialize(serialized(numbers))) == numbers.tolist()
    assert deserialized(serialized(numbers)).tolist() == numbers.tolist()


@settings(max_examples=by_night(100, 200))
@given(st.sets(st.integers(0, 2**34), max_size=50), st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 9000))))
def test_any_bitmap_reads_back(single, runs):
    numbers = np.array(sorted(single.union(*(range(start, start + count) for start, count in runs))), dtype=np.int64)
    reference = BitMap64(numbers.tolist())
    reference.run_optimize()
    assert deserialized(reference.serialize()).tolist() == numbers.tolist()
    assert BitMap64.deserialize(serialized(numbers)) == reference


def test_inline_vectors_are_read(tmp_path):
    """Other writers put short vectors into the log (`storageType` i)."""
    made = new_vectors([np.array([3, 4, 7, 11, 18, 29])])
    size = made.descriptors[0]["sizeInBytes"]
    body = made.content[5:][:size] + bytes(-size % 4)
    text = base64.b85encode(body).decode().translate(_TO_Z85)
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": 6}
    assert list(read_vector(tmp_path, vector)) == [3, 4, 7, 11, 18, 29]


@pytest.mark.parametrize(
    "broken",
    [
        lambda _: b"",
        lambda content: content[:-1],
        lambda content: content[:10] + b"\xff" + content[11:],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    ],
)
def test_damaged_vector_is_damage(tmp_path, broken):
    made = new_vectors([np.array([1, 2])])
    (tmp_path / made.name).write_bytes(broken(made.content))
    with pytest.raises(TableDamaged, match="deletion vector"):
        read_vector(tmp_path, made.descriptors[0])
    (tmp_path / made.name).unlink()
    with pytest.raises(TableDamaged, match="is missing"):
        read_vector(tmp_path, made.descriptors[0])


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_vectors_in_use_are_those_of_the_version(marked_twice, has_checkpoint):
    folder = marked_twice.folder
    if has_checkpoint:
        known_log(folder).table.create_checkpoint()
        marked_twice.change((2, 9, None))
    history = read_history(folder)
    kept = VectorsInUse()
    for state in history.states:
        wanted = {path: file["deletionVector"] for path, file in state.files.items() if "deletionVector" in file}
        assert dict(kept.at(folder, state.version)) == wanted
        assert dict(VectorsInUse().at(folder, state.version)) == wanted
    assert dict(kept.at(folder, 2)) != wanted, "an older version is read anew"


def test_marked_table_conforms(marked_twice):
    assert protocol_faults(marked_twice.folder) == []
    assert len(list(marked_twice.folder.glob("deletion_vector_*.bin"))) == 2
    left = [(key, "Linz") for key in range(20) if key not in {3, 5, 7}]
    assert sorted(marked_twice.found()) == sorted([*left, (5, "Wels"), (30, "Enns")])


def first(kind, change, actions):
    """Change the first action of a kind that has a deletion vector."""
    place = next(at for at, each in enumerate(actions) if "deletionVector" in each.get(kind, {}))
    return [*actions[:place], {kind: change(actions[place][kind])}, *actions[place + 1 :]]


def described(**wanted):
    return lambda action: {**action, "deletionVector": {**action["deletionVector"], **wanted}}


def said(text, other):
    return lambda action: {**action, "stats": action["stats"].replace(text, other)}


def only_new_marks(folder):
    """The newest vector without the marks of the one before it."""
    older, newer = (
        next(action["deletionVector"] for action in commit.of("add") if "deletionVector" in action)
        for commit in read_history(folder).commits[2:4]
    )
    made = new_vectors([np.array(sorted(marks_of(folder, newer) - marks_of(folder, older)))])
    (folder / made.name).write_bytes(made.content)
    rewrite(3, partial(first, "add", lambda action: {**action, "deletionVector": made.descriptors[0]}), folder)


def flipped(place, folder):
    """A vector's file with one byte changed."""
    vector = next(
        each["deletionVector"] for each in read_history(folder).commits[3].of("add") if "deletionVector" in each
    )
    file = folder / vector_file(vector)
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


FAULTS = {
    "the union is forgotten": only_new_marks,
    "the checksum is wrong": partial(flipped, -1),
    "the cardinality is wrong": partial(rewrite, 3, partial(first, "add", described(cardinality=2))),
    "rows are counted without those marked": partial(
        rewrite, 3, partial(first, "add", said('"numRecords":20', '"numRecords":17'))
    ),
    "bounds are said to be tight": partial(rewrite, 3, partial(first, "add", said("false", "true"))),
    "the feature is missing": partial(
        rewrite, 2, lambda actions: [each for each in actions if not {"protocol", "metaData"} & each.keys()]
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_of_a_vector_is_caught(marked_twice, tmp_path, fault):
    broken = tmp_path / "broken"
    shutil.copytree(marked_twice.folder, broken)
    FAULTS[fault](broken)
    assert protocol_faults(broken)
