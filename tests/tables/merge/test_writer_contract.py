"""What `DeltaWriter` promises, held against both writers."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress
from dataclasses import replace

import pyarrow.compute as pc
import pytest
from delta_scenario import KEYS, PARTITIONS, Scenario, passthrough_rows, replayed, schema_of
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_engine.errors import CommitConflict, UsageError
from mirror_engine.landing_zone.change import same_rows
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.schema import Column, Incoming, merge
from mirror_engine.tables.base import ChangeBatch, MatchCounts
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge import by_position, spark

SIMPLE = schema_of("Id!", "City:string")


def test_where_nothing_was_made_there_is_no_table(writer):
    assert writer.tables() == []
    assert writer.snapshot("dbo/T") is None
    assert writer.rows("dbo/T") is None
    assert list(writer.history("dbo/T")) == []
    assert writer.maintain("dbo/T", 168) == {}
    writer.drop("dbo/T")


def test_a_created_table_is_empty_and_carries_its_record(writer):
    table = Scenario(writer, schema_of("Id!", "n:decimal(38,10)", "day:string", partitions=["day"]), ["Id"])
    table.apply()
    table.version = -1
    state = writer.snapshot("dbo/T")
    assert (state.version, state.schema, state.record_version) == (1, table.schema, 1)
    assert state.record == table.head()
    assert writer.snapshot("dbo/T").count_rows() == 0
    rows = writer.rows("dbo/T")
    assert (rows.num_rows, rows.schema.names) == (0, ["Id", "n", "day"])


def test_a_table_that_was_not_there_when_a_batch_was_read_takes_none_of_it(writer):
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "Linz"))
    table.generation, table.version = "g2", -1
    with pytest.raises(CommitConflict, match="another program"):
        table.change((0, 2, "Wels"))
    assert table.found() == [(1, "Linz")]


def test_files_are_added_unchanged_to_a_new_table_and_to_a_known_one(writer, tmp_path):
    table = Scenario(writer, schema_of("Id", "City:string"), ["Id"])
    first, second = (table.file(table.schema.names, (0, key, "Linz"), (0, 7, "Wels")) for key in (1, 2))
    second = replace(second, landed=replace(second.landed, path="second.parquet"))
    outcome = table.apply(passthrough_rows(tmp_path, first), passthrough_rows(tmp_path, second))
    assert (outcome.version, outcome.applied_by) == (0, "passthrough")
    assert [met.duplicate_inserts for met in outcome.matches] == [0, 1]
    state = writer.snapshot("dbo/T")
    assert (state.version, state.record_version) == (0, 0)
    assert [*writer.applied_since("dbo/T", state, None).files] == [first.path, second.path]
    third = table.file(table.schema.names, (0, 3, None))
    assert table.apply(passthrough_rows(tmp_path, third)).version == 1
    table.change((1, 7, "Graz"), (2, 3, None))
    assert table.found() == [(1, "Linz"), (2, "Linz"), (7, "Graz"), (7, "Graz")]
    assert table.found(0) == [(1, "Linz"), (2, "Linz"), (7, "Wels"), (7, "Wels")]


MARKERS = (0, 1, 2, 4)


@pytest.mark.parametrize("rows", [(), ((2, 9, None),)], ids=["no rows", "nothing to delete"])
def test_a_batch_that_changes_nothing_is_recorded(writer, rows):
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "a"))
    outcome = table.change(*rows)
    state = writer.snapshot("dbo/T")
    assert (outcome.version, state.version, state.record.progress.batch) == (2, 2, 2)
    assert table.found() == [(1, "a")]
    with pytest.raises(CommitConflict):
        writer.apply("dbo/T", ChangeBatch((), SIMPLE, ("Id",)), table.record())


def test_a_batch_goes_in_once(writer):
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "a"))
    table.change((4, 2, "b"), (1, 1, "c"))
    before = writer.snapshot("dbo/T")
    for batch in (2, 1, 0):
        table.batch = batch
        record = table.record()
        with pytest.raises(CommitConflict):
            writer.apply("dbo/T", ChangeBatch((table.file(SIMPLE.names, (0, 9, "x")),), SIMPLE, ("Id",)), record)
    assert writer.snapshot("dbo/T") == before
    assert table.found() == [(1, "c"), (2, "b")]


def test_another_generation_counts_anew(writer):
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "a"))
    table.generation, table.batch = "g2", 0
    with pytest.raises(CommitConflict, match="another program or engine committed there"):
        table.change((0, 2, "b"))  # as if the look had found no table (LZ-4.18)
    table.batch = 0
    table.change_after_snapshot((0, 2, "b"))
    assert table.found() == [(1, "a"), (2, "b")]


@pytest.mark.spark_by_night
def test_a_dropped_table_is_gone_and_can_be_made_anew(writer):
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "old"))
    table.change((1, 1, "older"))
    writer.drop("dbo/T")
    writer.drop("dbo/T")
    assert writer.snapshot("dbo/T") is None
    assert writer.tables() == []
    other = Scenario(writer, schema_of("Key:string", "n:long"), ["Key"])
    other.generation = "g2"
    for number in range(3):
        other.change((4, "k", number))
    assert other.found() == [("k", 2)]
    assert [entry.version for entry in writer.history("dbo/T")] == [3, 2, 1, 0]


def test_partition_values_are_kept_whatever_they_are(writer):
    """LZ-3.7."""
    table = Scenario(writer, schema_of("Id!", "p q:string", "year:string", partitions=["p q", "year"]), ["Id"])
    table.change(*[(0, place, value, "2026") for place, value in enumerate(PARTITIONS)])
    assert table.found() == sorted([(place, value, "2026") for place, value in enumerate(PARTITIONS)], key=repr)
    table.change(*[(1, place, value, "2027") for place, value in enumerate(PARTITIONS)], (2, 0, None, None))
    assert table.found() == sorted(
        [(place, value, "2027") for place, value in enumerate(PARTITIONS) if place], key=repr
    )
    state = writer.snapshot("dbo/T")
    assert state.schema.partition_columns == ("p q", "year")
    assert writer.count_rows("dbo/T") == len(PARTITIONS) - 1


@pytest.mark.slow
@pytest.mark.spark_by_night
def test_partition_column_in_the_key_matches_after_compaction(writer):
    table = Scenario(writer, schema_of("Id!", "v", "p:string", partitions=["p"]), ["Id", "p"])
    for number in range(2):
        table.change(*[(0, number, 1, value) for value in PARTITIONS])
    writer.maintain("dbo/T", 168)
    table.version = writer.snapshot("dbo/T").version
    deletes = [(2, 0, None, value) for value in PARTITIONS]
    outcome = table.change(*deletes, (1, 1, 2, "a%20b"), (4, 1, 3, "new"), (0, 1, 4, "a/b"))
    assert outcome.matches == (MatchCounts(1, 0),)
    kept = [(1, 2 if value == "a%20b" else 1, value) for value in PARTITIONS]
    assert table.found() == sorted([*kept, (1, 3, "new"), (1, 4, "a/b"), (0, 1, None)], key=repr)
    assert writer.count_rows("dbo/T") == len(PARTITIONS) + 3


def test_history_names_the_files_of_each_commit(writer):
    table = Scenario(writer, SIMPLE, ["Id"])
    table.change((0, 1, "a"), (0, 2, "b"))
    table.change((1, 1, "c"))
    table.change()
    entries = writer.history("dbo/T")
    assert [entry.version for entry in entries] == [3, 2, 1, 0]
    assert [entry.rows for entry in entries] == [0, 1, 2, 0]
    assert [entry.files for entry in entries] == [(f"{number:020}.parquet",) for number in (3, 2, 1)] + [()]
    assert [entry.operation for entry in entries] == ["WRITE", "MERGE", "WRITE", "CREATE TABLE"]
    assert all(entry.committed_at.timestamp() > 1_700_000_000 and entry.engine for entry in entries)
    assert [entry.version for entry in writer.history("dbo/T", limit=2)] == [3, 2]


@pytest.mark.slow
def test_rows_may_be_chosen_of_any_version_and_limited(writer):
    table = Scenario(writer, SIMPLE, ["Id"])
    for first in (0, 4, 7):
        table.change(*[(0, number, "x") for number in range(first, first + 3)])
    table.change((2, 8, None), (1, 5, "y"))
    assert writer.snapshot("dbo/T").count_rows() == 8
    assert [len(table.found(version)) for version in range(5)] == [0, 3, 6, 9, 8]
    for missing in (-1, 5, 10**9):
        with pytest.raises(UsageError, match="no version"):
            writer.rows("dbo/T", version=missing)

    def late(batch):
        return pc.greater(batch.column("Id"), 5)

    for version, limit, where, expected in (
        (None, 0, None, 0),
        (None, 3, None, 3),
        (None, 5, None, 5),
        (None, 99, None, 8),
        (None, None, late, 3),
        (None, 2, late, 2),
        (3, None, late, 4),
    ):
        rows = writer.rows("dbo/T", version=version, limit=limit, where=where)
        assert (rows.num_rows, tuple(rows.schema.names)) == (expected, SIMPLE.names)
        assert where is None or {6, 7, 8, 9}.issuperset(rows["Id"].to_pylist())


def test_columns_are_chosen_among_those_of_the_version(writer):
    table = Scenario(writer, schema_of("Id!", "City:string", "day:string", partitions=["day"]), ["Id"])
    table.change((0, 1, "Linz", "mon"), (0, 2, None, "tue"))
    seen = []

    def chosen(names):
        seen.append([*names])
        return ["Id", "day"]

    rows = writer.rows("dbo/T", columns=chosen)
    assert seen == [["Id", "City", "day"]]
    assert rows.column_names == ["Id", "day"]
    assert sorted(rows.to_pylist(), key=str) == [{"Id": 1, "day": "mon"}, {"Id": 2, "day": "tue"}]
    assert writer.rows("dbo/T", columns=chosen, limit=1).num_rows == 1
    assert writer.rows(
        "dbo/T", columns=lambda _: ["Id"], where=lambda rows: pc.greater(rows.column("Id"), 1)
    ).to_pylist() == [{"Id": 2}]


@pytest.mark.slow
def test_maintenance_changes_no_row_and_loses_no_record(writer):
    table = Scenario(writer, SIMPLE, ["Id"])
    for number in range(3):
        table.change((0, number, "x"))
    before = writer.snapshot("dbo/T")
    applied = writer.applied_since("dbo/T", before, None)
    done = writer.maintain("dbo/T", 0)
    files = (0, 0) if isinstance(writer, MemoryDeltaWriter) else (1, 3)
    assert (done["files_added"], done["files_removed"], set(done)) == (*files, {*done, "files_deleted"})
    after = writer.snapshot("dbo/T")
    assert (after.record, after.record_version) == (before.record, before.record_version)
    assert writer.applied_since("dbo/T", after, None) == applied
    assert sorted(path for entry in writer.history("dbo/T") for path in entry.files) == sorted(applied.files)
    assert table.found() == [(0, "x"), (1, "x"), (2, "x")]
    table.change((1, 1, "y"))
    assert table.found() == [(0, "x"), (1, "y"), (2, "x")]


CHANGES = st.lists(
    st.tuples(st.sampled_from(MARKERS), st.sampled_from([None, 1, 2, 3]), st.sampled_from(["a", "A", None])),
    max_size=14,
)
BATCHES = st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=1, max_size=3)
KEYED = schema_of("a", "b:string", "v")


def run(writer, batches):
    """What is in the table after batches of files, and what each file met."""
    table = Scenario(writer, KEYED, ["a", "b"])
    serial = itertools.count()
    met = []
    for batch in batches:
        files = [table.file(KEYED.names, *[(*change, next(serial)) for change in file]) for file in batch]
        met += table.apply(*files).matches
    return table.found(), met


def by_replay(batches):
    serial, rows, met = itertools.count(), [], []
    for file in itertools.chain(*batches):
        rows, matches = replayed(rows, KEYED.names, ["a", "b"], [(*change, next(serial)) for change in file])
        met.append(matches)
    return sorted((tuple(row.values()) for row in rows), key=repr), met


@pytest.mark.slow
def test_every_pair_of_markers_on_every_count_of_rows(writer):
    """LZ-4.1: keys with 0, 1 and 2 rows meet every run of one and two changes, in one batch."""
    runs = [markers for length in (1, 2) for markers in itertools.product(MARKERS, repeat=length)]
    cases = list(enumerate(itertools.product(range(3), runs)))
    before = [(0, key, "x") for key, (count, _) in cases for _ in range(count)]
    changes = [(marker, key, "x") for key, (_, markers) in cases for marker in markers]
    batches = [[before], [changes]]
    assert run(writer, batches) == by_replay(batches)


@settings(max_examples=50)
@given(BATCHES)
def test_the_memory_writer_does_what_replay_says(batches):
    assert run(MemoryDeltaWriter(), batches) == by_replay(batches)


KINDS = [
    ("double", "float"),
    ("timestamp_ntz", "decimal(38,10)", "boolean"),
    ("byte", "long", "string"),
    ("binary", "date", "timestamp"),
    ("short", "integer", "decimal(5,2)", "decimal(18,0)"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("writer", "kinds"),
    [
        *((engine, kinds) for engine in ("arrow", "arrow marks") for kinds in KINDS),
        *(pytest.param("spark", kinds, marks=pytest.mark.spark) for kinds in KINDS[:2]),
    ],
    indirect=["writer"],
)
def test_random_changes_of_all_types_leave_equal_rows_with_every_engine(writer, kinds):
    """NaN of any bits, -0.0, NULL in keys, duplicates, 38 digits, times without a zone, bytes."""
    choose = random.Random(f"{kinds}")
    schema = schema_of(*(f"k_{kind}:{kind}" for kind in kinds), *(f"v_{kind}:{kind}" for kind in KEYS), 'a b`"c.d:long')
    tables = [Scenario(each, schema, schema.names[: len(kinds)]) for each in (writer, MemoryDeltaWriter())]
    cells = [*(2 * KEYS[kind][:4] + [None] for kind in kinds), *([*values, None] for values in KEYS.values())]
    for count in (20, 80):
        rows = [(choose.choice((0, 1, 2, 4)), *map(choose.choice, cells), number) for number in range(count)]
        outcomes = [table.change(*rows) for table in tables]
        assert outcomes[0].matches == outcomes[1].matches
    assert outcomes[0].applied_by == "merge"
    found, expected = (table.writer.rows(table.table).to_pylist() for table in tables)
    assert same_rows(found, expected)


# what Spark, Delta and deltalake call columns of their own, in their sources
ENGINES_NAMES = """
_tmp_metadata_row_index _metadata row_index file_path filePath rowIndexCol deletionVectorId base_row_id __row_id
_source_row_present_ _target_row_present_ _row_dropped_ _row_id_ _file_name_ _condition_ _target_row_index_
_source_row_index _change_type _commit_version _commit_timestamp packedCdc __is_cdc _row_id count one role c0 s
t __delta_internal_is_row_deleted __delta_internal_row_index __delta_rs_source __delta_rs_target
__delta_rs_operation __delta_rs_c_Id __delta_rs_target_copy __delta_rs_delete __delta_rs_path
__delta_rs_target_row_ordinal_in_file
""".split()  # noqa: SIM905 - one name in a line says no more


@pytest.mark.slow
@pytest.mark.parametrize(
    ("writer", "spelled"),
    [("arrow", str), ("arrow", str.upper), pytest.param("spark", str, marks=pytest.mark.spark)],
    indirect=["writer"],
)
def test_names_of_the_engines_own_columns_are_rejected_or_harmless(writer, monkeypatch, spelled):
    """LZ-5.12: where a file with such a column is not rejected, every engine writes its values."""
    accepted = []
    for name in map(spelled, ENGINES_NAMES):
        with suppress(RejectedFile):
            accepted += merge(None, Incoming("T/1.csv", (Column(name, "long"),))).schema.names
    found = []
    for each in (writer, MemoryDeltaWriter()):
        table, nothing = Scenario(each, schema_of("Id", *accepted), ["Id"]), [None] * len(accepted)
        table.change(*((0, key, *range(key, key + len(accepted))) for key in (10, 20, 30, 40)))
        for key, marked_from in ((40, 10**6), (20, 0), (25, 0)):  # rows are marked from then on
            for engine in (spark, by_position):
                monkeypatch.setattr(engine, "VECTORS_FROM_ROWS", marked_from)
            table.change((1, key, *range(len(accepted))), (2, key - 10, *nothing), (0, key + 5, *nothing))
        monkeypatch.undo()
        found.append(table.found())
    assert found[0] == found[1]
