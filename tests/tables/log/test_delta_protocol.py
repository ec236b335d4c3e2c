"""The checker of the Delta protocol against broken logs: each rule catches what it is for."""

from __future__ import annotations

import json
import math
import shutil
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_protocol import RULES, commit_path, log_file, protocol_faults, read_history, rewrite
from delta_scenario import Scenario, schema_of

from mirror_engine.tables.log.commit import put_commit
from mirror_engine.tables.log.record import carried
from mirror_engine.tables.merge.arrow import ArrowWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    Break = Callable[[Path], object]


SCHEMA = schema_of("Id:long!", "City:string", "At:timestamp", "day:string", partitions=["day"])
WIDER = schema_of("Id:long!", "City:string", "At:timestamp", "day:string", "Qty (kg):double", partitions=["day"])
LONG = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch"
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def make_sample(tables):
    """A small table with one of everything that a mirrored table may have.

    Four versions: creation, rows, a batch that replaces the rows and brings a mapped column, the same rows elsewhere.
    """
    table = Scenario(ArrowWriter(tables, tables.with_name("scratch")), SCHEMA, ["Id"])
    table.create()
    table.change((0, 1, "Linz", MOMENT, "k=1 %"), (0, 2, LONG, None, "k=1 %"))
    table.schema = WIDER
    table.change((1, 1, "Wels", MOMENT, "k=1 %", 1.5), (2, 2, *[None] * 4), (0, 3, None, None, "k=1 %", math.nan))
    folder = table.writer.path(table.table)
    history = read_history(folder)
    (added,) = history.states[-1].files.values()
    moved = {**added, "path": added["path"].replace("part-", "part-moved-"), "dataChange": False}
    shutil.copy(history.path(added), history.path(moved))
    removed = {name: added[name] for name in ("path", "partitionValues", "size", "stats")}
    removed |= {"deletionTimestamp": 2, "dataChange": False, "extendedFileMetadata": True}
    said = {
        "timestamp": 1,
        "operation": "OPTIMIZE",
        "userMetadata": carried(history.commits[-1].information["userMetadata"], 2, None),
    }
    put_commit(folder, 3, [{"commitInfo": said}, {"remove": removed}, {"add": moved}])
    return folder


def saying(version, kind, *path, to=None):
    """Say something else in a commit's one action of a kind.

    Args:
        version: of the commit.
        kind: of the action.
        path: where in the action; text that is JSON is entered like any object.
        to: what is said, or a function of what was; None to leave it out.
    """

    def change(actions):
        (action,) = [action for action in actions if kind in action]
        action[kind] = _replaced(action[kind], path, to)
        return actions

    return partial(rewrite, version, change)


def _replaced(value, path, to):
    if not path:
        return to(value) if callable(to) else to
    if isinstance(value, str):
        return json.dumps(_replaced(json.loads(value), path, to))
    if isinstance(value, list):
        return [_replaced(each, path[1:], to) if at == path[0] else each for at, each in enumerate(value)]
    changed = {**value, path[0]: _replaced(value.get(path[0]), path[1:], to)}
    return {name: each for name, each in changed.items() if each is not None}


def with_action(version, kind, content):
    return partial(rewrite, version, lambda actions: [*actions, {kind: content}])


def without(version, kind):
    return partial(rewrite, version, lambda actions: [each for each in actions if kind not in each])


def written(name, content):
    return lambda folder: log_file(folder, name).write_bytes(content)


def live_file(folder):
    history = read_history(folder)
    (action,) = history.states[-1].files.values()
    return history.path(action)


def stored(change):
    """Write the live data file otherwise, and its size into the log."""

    def changed(folder):
        path = live_file(folder)
        pq.write_table(change(pq.ParquetFile(path).read()), path)
        saying(3, "add", "size", to=path.stat().st_size)(folder)

    return changed


def all_of(*breaks):
    return lambda folder: [each(folder) for each in breaks]


def physical(folder, place):
    """The name of a column within the files."""
    newest = read_history(folder).states[-1]
    return newest.physical(newest.fields[place])


def with_column(place, values, table):
    return table.set_column(place, table.field(place).with_type(values.type), values)


CITY = {"name": "CITY", "type": "string", "nullable": True, "metadata": {}}
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 1,
    "sizeInBytes": 40,
    "cardinality": 1,
}
ID, NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"


def column(version, place, *path, to):
    return saying(version, "metaData", "schemaString", "fields", place, *path, to=to)


def columns(version, change):
    return saying(version, "metaData", "schemaString", "fields", to=change)


def prop(version, name, value):
    return saying(version, "metaData", "configuration", f"delta.{name}", to=value)


def protocol(version, **parts):
    return saying(version, "protocol", to=lambda said: {**said, **parts})


def stats(version, *path, to):
    return saying(version, "add", "stats", *path, to=to)


CHANGE_DATA = {"path": "_change_data/x.parquet", "partitionValues": {}, "size": 1, "dataChange": False}
FEED_ON = prop(2, "enableChangeDataFeed", "true")


CASES: list[tuple[str, str, Break]] = [
    ("readable", "a commit cut off", lambda folder: commit_path(folder, 2).write_text('{"txn":{"appId":')),
    ("readable", "a schema that is no JSON", saying(2, "metaData", "schemaString", to="{")),
    ("names", "a passing file left behind", written(".a.tmp", b"")),
    ("names", "a gap", lambda folder: commit_path(folder, 3).rename(commit_path(folder, 4))),
    ("hadoop_checksums", "a checksum of another content", written(f".{4:020}.json.crc", b"crc\0\0\0\2\0abcd")),
    ("commit_info", "none", without(1, "commitInfo")),
    ("actions", "an unknown action", with_action(1, "domainMetadata", {"domain": "x"})),
    ("vectors", "a deletion vector that is nowhere", saying(1, "add", "deletionVector", to=VECTOR)),
    ("actions", "no size", saying(1, "add", "size")),
    ("first_version", "no protocol", without(0, "protocol")),
    ("transactions", "a batch without one", without(1, "txn")),
    (
        "transactions",
        "not risen",
        all_of(saying(2, "txn", "version", to=1), saying(2, "commitInfo", "userMetadata", "progress", "batch", to=1)),
    ),
    ("transactions", "a change that is no batch", all_of(saying(2, "commitInfo", "userMetadata"), without(2, "txn"))),
    (
        "files",
        "added while live",
        lambda folder: with_action(2, "add", read_history(folder).commits[1].of("add")[0])(folder),
    ),
    ("files", "removed while absent", with_action(2, "remove", {"path": "x", "dataChange": True})),
    ("files", "removed with another number of records", saying(2, "remove", "stats", to='{"numRecords": 7}')),
    ("files", "removed at no time", saying(2, "remove", "deletionTimestamp")),
    ("files", "removed without what it says to carry", saying(2, "remove", "partitionValues")),
    ("data_change", "records got lost in a rearrangement", stats(3, "numRecords", to=1)),
    ("data_change", "half a rearrangement", saying(3, "remove", "dataChange", to=True)),
    ("change_data", "change data without a feed", with_action(2, "cdc", CHANGE_DATA)),
    ("change_data", "a feed that leaves rows out", FEED_ON),
    ("change_data", "change data that is not there", all_of(FEED_ON, with_action(2, "cdc", CHANGE_DATA))),
    ("paths", "out of the table", saying(1, "add", "path", to="../T/x.parquet")),
    ("paths", "a live file is gone", lambda folder: live_file(folder).unlink()),
    ("paths", "another size", saying(3, "add", "size", to=1)),
    ("partition_values", "none", saying(1, "add", "partitionValues", to={})),
    ("partition_values", "an empty one", saying(1, "add", "partitionValues", to={"day": ""})),
    ("schema", "no struct", saying(2, "metaData", "schemaString", "type", to="array")),
    ("schema", "an unknown type", column(0, 1, "type", to="varchar")),
    ("schema", "names that differ in case", columns(0, lambda fields: [*fields, CITY])),
    ("schema", "a partition column that is none", saying(0, "metaData", "partitionColumns", to=["month"])),
    ("schema", "another format", saying(0, "metaData", "format", "provider", to="csv")),
    ("evolution", "a column lost", columns(2, lambda fields: [fields[0], *fields[2:]])),
    ("evolution", "columns in another order", columns(2, lambda fields: fields[::-1])),
    ("evolution", "a NOT NULL column for rows without it", column(2, 4, "nullable", to=False)),
    ("evolution", "another table", saying(2, "metaData", "id", to="other")),
    ("evolution", "a property lost", prop(2, "checkpointInterval", None)),
    ("evolution", "what was said of a column is gone", column(0, 1, "metadata", to={"comment": "x"})),
    ("mapping", "no id", column(2, 4, "metadata", ID, to=None)),
    ("mapping", "above the highest", prop(2, "columnMapping.maxColumnId", "4")),
    ("mapping", "by id", prop(2, "columnMapping.mode", "id")),
    ("mapping", "a column without a mapped table", prop(2, "columnMapping.mode", None)),
    ("mapping", "an old column renamed in files", column(2, 1, "metadata", NAME, to="col-1")),
    ("protocol", "a list below version 7", protocol(0, writerFeatures=["invariants"])),
    (
        "protocol",
        "for readers alone",
        protocol(2, minReaderVersion=3, minWriterVersion=7, readerFeatures=["columnMapping"], writerFeatures=[]),
    ),
    ("protocol", "lowered", protocol(0, minReaderVersion=2, minWriterVersion=6)),
    ("features", "writer version without need", protocol(0, minWriterVersion=4)),
    ("features", "odd names without mapping", without(2, "protocol")),
    ("data_files", "a column the table has not", stored(lambda table: table.append_column("x", pa.array([1, 2])))),
    (
        "data_files",
        "no field ids",
        stored(lambda table: table.cast(pa.schema([(field.name, field.type) for field in table.schema]))),
    ),
    ("data_files", "another type", stored(lambda table: with_column(0, table[0].cast(pa.int32()), table))),
    ("actions", "statistics that are no JSON", saying(3, "add", "stats", to="{")),
    ("statistics", "another number of records", stats(1, "numRecords", to=3)),
    ("statistics", "of another kind", stats(1, "sum", to={})),
    ("statistics", "another count of NULLs", stats(1, "nullCount", "City", to=1)),
    ("statistics", "too high a lowest text", stats(1, "minValues", "City", to="Linza")),
    ("statistics", "a lowest text cut too short", stats(1, "minValues", "City", to="Lin")),
    (
        "statistics",
        "a highest text that is cut and not lifted",
        stats(1, "maxValues", "City", to="Llanfairpwllgwyngyllgogerychwyrn"),
    ),
    ("statistics", "none where there is a value", stats(1, "maxValues", to=lambda said: {**said, "City": None})),
    ("statistics", "a number too high", stats(1, "minValues", "Id", to=2)),
    ("statistics", "a time a millisecond off", stats(1, "maxValues", "At", to="2026-01-02T03:04:05.680Z")),
    ("statistics", "NaN passed over", lambda folder: stats(3, "maxValues", physical(folder, -1), to=1.5)(folder)),
    ("statistics", "of a column that is not there", stats(1, "nullCount", "Town", to=0)),
    (
        "statistics",
        "NULL in a NOT NULL column",
        stored(lambda table: with_column(0, pa.array([1, None], pa.int64()), table)),
    ),
]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return make_sample(tmp_path_factory.mktemp("sample") / "Tables")


@pytest.fixture
def broken(sample, tmp_path):
    """A copy, to be broken."""
    return Path(shutil.copytree(sample, tmp_path / "T"))


@pytest.mark.slow
def test_a_table_that_conforms_has_no_faults(sample):
    assert protocol_faults(sample) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "change"), [case[::2] for case in CASES], ids=[f"{r}: {what}" for r, what, _ in CASES]
)
def test_a_broken_log_is_caught_by_its_rule(broken, rule, change):
    change(broken)
    assert rule in {fault.split(":")[0] for fault in protocol_faults(broken)}


def test_every_rule_has_a_log_that_breaks_it():
    assert {rule for rule, *_ in CASES} == {*RULES, "readable"}
