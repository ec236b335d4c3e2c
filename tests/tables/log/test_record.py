import json
from dataclasses import replace
from functools import partial

import pytest

from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.progress import Applied, AppliedFile, Mark, Progress, Rejection, Segment
from mirror_engine.landing_zone.schema import Column
from mirror_engine.tables.base import BatchRecord, RecordHead
from mirror_engine.tables.log.record import (
    carried,
    carried_from,
    commit_file,
    from_metadata,
    head_of,
    is_ours,
    to_metadata,
)
from mirror_engine.tables.log.segments import applied_by_commits, read_records

FULL = Progress(
    "gen",
    "17:3",
    batch=4,
    delta_version=7,
    key_columns=("Id", "Line, no"),
    declared_columns=(Column("Id", "long", nullable=False), Column("d", "decimal(38,10)")),
    naive_columns=frozenset({"t"}),
    utc_columns=frozenset({"u", "v"}),
    markers_seen=True,
    rows_processed=15,
    bytes_processed=2**40,
    external_change_version=6,
    last_commit_at=1.25,
    configured_at=1.0,
    missing_since=3.5,
    rejection=Rejection(diagnose("ME037", "Items/x", row=2, value="3", meant=""), "x", "17:4", "e"),
    segments=(Segment(6, 99, 1.5, "applied-6-ab.json"),),
    diagnostics={diagnose("ME039", "Items/a", count=2): 1, diagnose("ME034", "I", position=1, count=2, strict=True): 3},
)
APPLIED = Applied(
    {"a.parquet": AppliedFile("e1", "d1", 6, 10, 1), "b'\n.parquet": AppliedFile("e2", "d2", -1, 5, 2)},
    {"": Mark(2, 2, "a.parquet", 1, "a.parquet"), "day=1/ü x": Mark(9)},
)
HEAD = RecordHead("m", "anchor|x", FULL, "Sales.schema/Stores")
RECORD = BatchRecord("m", "anchor|x", FULL, "Sales.schema/Stores", APPLIED, "keyed")


@pytest.mark.parametrize("progress", [FULL, Progress("g", "i"), Progress("g", "i", key_columns=())])
def test_progress_comes_back_from_json_as_it_was(progress):
    assert Progress.from_json({**progress.to_json(), "of a younger engine": 1}) == progress


def test_a_record_comes_back_from_a_commit_as_it_was():
    assert from_metadata(to_metadata(RECORD)) == RECORD
    assert carried_from(to_metadata(RECORD)) is None


def test_a_record_said_again_tells_the_version_that_holds_its_files():
    again = carried(to_metadata(RECORD), 12, APPLIED)
    assert from_metadata(again) == RECORD
    assert from_metadata(again).earlier == APPLIED
    assert carried_from(again) == 12
    assert carried_from(carried(again, 13, APPLIED)) == 12
    assert from_metadata(carried(to_metadata(RECORD), 12, None)).earlier is None


@pytest.mark.parametrize(
    "foreign",
    [
        None,
        "",
        "nightly OPTIMIZE",
        "mirror_engine",
        "[1]",
        '"mirror_engine"',
        '{"mirror_engine": 4}',
        '{"mirror_engine": "99"}',
        '{"mirror_engine": 4, "progress": [], "mirror": 1}',
        {"mirror_engine": 1},
        pytest.param("[" * 100_000 + "mirror_engine", id="too deep"),
        pytest.param('{"mirror_engine": 4, "progress": ' + "[" * 5000 + "]" * 5000 + "}", id="too deep a record"),
    ],
)
def test_what_others_write_into_a_commit_is_no_record(foreign):
    assert from_metadata(foreign) is None
    assert head_of(foreign) is None
    assert carried_from(foreign) is None


def test_files_of_a_record_said_again_keep_their_version(tmp_path):
    (tmp_path / "_delta_log").mkdir()
    for version, text in enumerate([to_metadata(RECORD), carried(to_metadata(RECORD), 0, None)]):
        commit_file(tmp_path, version).write_text(json.dumps({"commitInfo": {"userMetadata": text}}))
    found = applied_by_commits(RECORD, 1, -1, partial(read_records, tmp_path))
    assert {path: file.version for path, file in found.files.items()} == dict.fromkeys(APPLIED.files, 0)


@pytest.mark.parametrize(("missing", "error"), [(2, StorageUnavailable), (1, TableDamaged)])
def test_late_commit_taken_back_while_it_is_read_is_no_damage(tmp_path, missing, error):
    """LZ-4.18."""
    (tmp_path / "_delta_log").mkdir()
    for version in {0, 1, 2} - {missing}:
        commit_file(tmp_path, version).write_text(json.dumps({"commitInfo": {"userMetadata": to_metadata(RECORD)}}))
    with pytest.raises(error):
        list(read_records(tmp_path, range(2, -1, -1)))


def test_newest_commit_missing_beside_its_checkpoint_is_damage(tmp_path):
    """Whoever takes a late commit back removes its checkpoint first (LZ-4.18)."""
    (tmp_path / "_delta_log").mkdir()
    commit_file(tmp_path, 0).write_text(json.dumps({"commitInfo": {"userMetadata": to_metadata(RECORD)}}))
    (tmp_path / "_delta_log/_last_checkpoint").write_text('{"version": 1, "size": 1}')
    with pytest.raises(TableDamaged, match="commit 1"):
        list(read_records(tmp_path, range(1, -1, -1)))


@pytest.mark.parametrize("metadata", [to_metadata(RECORD), carried(to_metadata(RECORD), 12, APPLIED)])
def test_head_is_read_without_what_follows_it(metadata):
    before, _, _ = metadata.partition('"files":')
    assert head_of(f'{before}"files":{{"a.parquet":') == head_of(metadata) == HEAD


@pytest.mark.parametrize("damaged", ['"files":[]', '"files":{"a":{}}', '"of another engine":{}'])
def test_record_without_its_files_is_refused(damaged):
    with pytest.raises(TableDamaged, match="does not say which files"):
        from_metadata(to_metadata(replace(RECORD, applied=Applied())).replace('"files":{}', damaged))


def test_commits_of_the_engine_are_recognised_by_record_or_name():
    ours = [{"engineInfo": "mirror_engine/0.1.0"}, {"userMetadata": to_metadata(RECORD), "engineInfo": "x"}]
    others = [{}, {"engineInfo": None}, {"engineInfo": "Apache-Spark/4.2.0"}, {"engineInfo": 1}]
    assert [is_ours(each) for each in [*ours, *others]] == [True] * 2 + [False] * 4
