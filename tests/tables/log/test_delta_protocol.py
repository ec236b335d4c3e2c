"""The checker of the Delta protocol against broken logs: each rule catches what it is for."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from broken_logs import (
    adds,
    all_of,
    backwards,
    bare,
    column,
    columns,
    commit,
    first_statistic,
    live_file,
    log_file,
    nan_as,
    nested,
    of_batch,
    removes,
    rename_in_files,
    renamed,
    retyped,
    saying,
    stored,
    twice,
    with_action,
    with_values,
    without,
    written,
)
from delta_history import read_history
from delta_protocol import RULES, protocol_faults
from delta_scenario import Scenario, schema_of
from deltalake import DeltaTable
from independent_readers import by_deltalake, by_duckdb
from sample_table import make_sample

from mirror_engine.landing_zone.change import same_rows
from mirror_engine.tables.merge.spark import SparkDeltaWriter

if TYPE_CHECKING:
    from broken_logs import Break

pytestmark = pytest.mark.slow

MAPPING_OFF = {"delta.columnMapping.mode": None}
NTZ = {"name": "n", "type": "timestamp_ntz", "nullable": True, "metadata": {}}
PLAIN = {"name": "n", "type": "string", "nullable": True, "metadata": {}}
LISTED = {"minReaderVersion": 3, "minWriterVersion": 7}
VECTORS = ["columnMapping", "deletionVectors"]
FIRST_PATH = "day=k=1%20%25/part-0.parquet"

CASES: list[tuple[str, str, Break]] = [
    ("readable", "a commit cut off", lambda folder: commit(folder, 3).write_text('{"txn":{"appId":')),
    ("readable", "an empty commit", lambda folder: commit(folder, 3).write_text("")),
    ("readable", "a commit in another encoding", lambda folder: commit(folder, 3).write_bytes(b"\xff\xfe{}")),
    ("readable", "two actions in a line", with_action(3, "txn", [])),
    ("readable", "no commits", lambda folder: shutil.rmtree(folder / "_delta_log")),
    ("readable", "a schema that is no JSON", saying(2, "metaData", schemaString="{")),
    ("names", "no first version", lambda folder: commit(folder, 0).unlink()),
    ("names", "a passing file left behind", written(".a.tmp", b"")),
    ("names", "nineteen digits", lambda folder: log_file(folder, f"{5:019}.json").touch()),
    ("names", "a gap", renamed(f"{4:020}.json", f"{5:020}.json")),
    ("hadoop_checksums", "a checksum of another content", written(f".{4:020}.json.crc", b"crc\0\0\0\2\0abcd")),
    ("hadoop_checksums", "a checksum of no file", written(f".{9:020}.json.crc", b"crc\0\0\0\2\0abcd")),
    ("commit_info", "none", without(1, "commitInfo")),
    ("commit_info", "two", twice(1, "commitInfo")),
    ("commit_info", "not first", backwards(1)),
    ("actions", "an unknown action", with_action(1, "cdc", {"path": "x"})),
    ("actions", "a deletion vector", saying(1, "add", deletionVector={"storageType": "u"})),
    ("actions", "no size", saying(1, "add", size=None)),
    ("actions", "dataChange as text", saying(1, "add", dataChange="true")),
    ("actions", "no dataChange", saying(3, "remove", dataChange=None)),
    ("actions", "a time as text", saying(1, "add", modificationTime="1")),
    ("actions", "no table id", saying(0, "metaData", id=None)),
    ("first_version", "no protocol", without(0, "protocol")),
    ("first_version", "two schemas", twice(2, "metaData")),
    ("transactions", "a batch without one", without(1, "txn")),
    ("transactions", "twice", twice(1, "txn")),
    ("transactions", "of another application", saying(1, "txn", appId="other")),
    ("transactions", "not risen", all_of(saying(3, "txn", version=1), of_batch(3, 1))),
    ("transactions", "one in a commit that is no batch", with_action(4, "txn", {"appId": "a", "version": 1})),
    (
        "transactions",
        "a change that is no batch",
        all_of(saying(3, "commitInfo", userMetadata=None), without(3, "txn")),
    ),
    ("files", "added twice in one commit", twice(1, "add")),
    ("files", "removed twice in one commit", twice(3, "remove")),
    ("files", "added while live", lambda folder: with_action(3, "add", adds(folder, 1))(folder)),
    ("files", "removed while absent", with_action(3, "remove", {"path": "x", "dataChange": True})),
    ("files", "removed twice", lambda folder: with_action(4, "remove", removes(folder, 3))(folder)),
    ("files", "removed with another size", saying(3, "remove", size=1)),
    ("files", "removed with another number of records", saying(3, "remove", stats='{"numRecords": 7}')),
    ("files", "removed at no time", saying(3, "remove", deletionTimestamp=None)),
    ("files", "removed without what it says to carry", saying(3, "remove", partitionValues=None)),
    ("data_change", "records got lost in a rearrangement", nested(4, "add", "stats", numRecords=1)),
    ("data_change", "half a rearrangement", saying(4, "remove", dataChange=True)),
    ("paths", "a space as it is", saying(1, "add", path="day=k=1 %25/part-0.parquet")),
    ("paths", "a lone percent sign", saying(1, "add", path="day=k=1%20%/part-0.parquet")),
    ("paths", "absolute", saying(1, "add", path="/" + FIRST_PATH)),
    ("paths", "out of the table", saying(1, "add", path="../T/" + FIRST_PATH)),
    ("paths", "encoded twice", saying(4, "add", path="day=k=1%2520%2525/part-3.parquet")),
    ("paths", "a live file is gone", lambda folder: live_file(folder).unlink()),
    ("paths", "another size", saying(4, "add", size=1)),
    ("partition_values", "none", saying(1, "add", partitionValues={})),
    ("partition_values", "by another name", saying(1, "add", partitionValues={"Day": "k=1 %"})),
    ("partition_values", "an empty one", saying(1, "add", partitionValues={"day": ""})),
    ("partition_values", "a number", saying(1, "add", partitionValues={"day": 1})),
    ("schema", "no struct", saying(2, "metaData", schemaString='{"type": "array", "fields": []}')),
    ("schema", "an unknown type", column(0, 1, type="varchar")),
    ("schema", "a precision beyond 38", column(0, 1, type="decimal(39,0)")),
    ("schema", "names that differ in case", columns(0, lambda fields: fields.append({**PLAIN, "name": "CITY"}))),
    ("schema", "no nullability", columns(0, lambda fields: fields[1].pop("nullable"))),
    ("schema", "a partition column that is none", saying(0, "metaData", partitionColumns=["month"])),
    ("schema", "another format", nested(0, "metaData", "format", provider="csv")),
    ("evolution", "a column lost", columns(2, lambda fields: fields.pop(1))),
    ("evolution", "a type widened", column(0, 0, type="integer")),
    ("evolution", "a column made nullable", column(2, 0, nullable=True)),
    ("evolution", "columns in another order", columns(2, lambda fields: fields.reverse())),
    ("evolution", "a NOT NULL column for rows without it", column(2, 4, nullable=False)),
    ("evolution", "another table", saying(2, "metaData", id="other")),
    ("evolution", "partitioned otherwise", saying(2, "metaData", partitionColumns=[])),
    ("evolution", "a property lost", nested(2, "metaData", "configuration", **{"delta.checkpointInterval": None})),
    ("evolution", "what was said of a column is gone", column(0, 1, metadata={"comment": "x"})),
    ("mapping", "no id", column(2, 4, metadata={"delta.columnMapping.physicalName": "p"})),
    (
        "mapping",
        "an id twice",
        column(2, 4, metadata={"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "p"}),
    ),
    (
        "mapping",
        "above the highest",
        nested(2, "metaData", "configuration", **{"delta.columnMapping.maxColumnId": "4"}),
    ),
    ("mapping", "by id", nested(2, "metaData", "configuration", **{"delta.columnMapping.mode": "id"})),
    ("mapping", "a column without a mapped table", nested(2, "metaData", "configuration", **MAPPING_OFF)),
    ("mapping", "an old column renamed in files", rename_in_files),
    ("protocol", "a list below version 7", saying(0, "protocol", writerFeatures=["invariants"])),
    ("protocol", "no list at version 7", saying(2, "protocol", **LISTED)),
    (
        "protocol",
        "for readers alone",
        saying(2, "protocol", **LISTED, readerFeatures=["columnMapping"], writerFeatures=[]),
    ),
    ("protocol", "lowered", saying(0, "protocol", minReaderVersion=2, minWriterVersion=6)),
    ("features", "writer version without need", saying(0, "protocol", minWriterVersion=4)),
    ("features", "mapping without need", saying(0, "protocol", minReaderVersion=2, minWriterVersion=5)),
    ("features", "odd names without mapping", without(2, "protocol")),
    ("features", "naive times without their feature", columns(0, lambda fields: fields.append(NTZ))),
    (
        "features",
        "deletion vectors without need",
        saying(2, "protocol", **LISTED, readerFeatures=VECTORS, writerFeatures=VECTORS),
    ),
    ("data_files", "a column the table has not", stored(lambda table: table.append_column("x", pa.array([1, 2])))),
    ("data_files", "no field ids", stored(lambda table: table.rename_columns(table.column_names).cast(bare(table)))),
    ("data_files", "another type", stored(partial(retyped, 0, pa.int32()))),
    ("data_files", "naive times", stored(partial(retyped, 2, pa.timestamp("us")))),
    ("actions", "statistics that are no JSON", saying(4, "add", stats="{")),
    ("statistics", "none", saying(4, "add", stats=None)),
    ("statistics", "another number of records", nested(1, "add", "stats", numRecords=3)),
    ("statistics", "of another kind", nested(1, "add", "stats", sum={})),
    ("statistics", "another count of NULLs", first_statistic("nullCount", 1)),
    ("statistics", "too high a lowest text", first_statistic("minValues", "Linza")),
    ("statistics", "a lowest text cut too short", first_statistic("minValues", "Lin")),
    (
        "statistics",
        "a highest text that is cut and not lifted",
        first_statistic("maxValues", "Llanfairpwllgwyngyllgogerychwyrn"),
    ),
    ("statistics", "none where there is a value", first_statistic("maxValues", None)),
    ("statistics", "a number too high", nested(1, "add", "stats", minValues={"Id": 2})),
    ("statistics", "a time a millisecond off", nested(1, "add", "stats", maxValues={"At": "2026-01-02T03:04:05.680Z"})),
    ("statistics", "NaN passed over", lambda folder: nan_as(folder, 1.5)),
    ("statistics", "of a column that is not there", nested(1, "add", "stats", nullCount={"Town": 0})),
    ("statistics", "NULL in a NOT NULL column", stored(partial(with_values, 0, [1, None]))),
]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample") / "T"
    make_sample(folder)
    return folder


@pytest.fixture
def broken(sample: Path, tmp_path: Path) -> Path:
    """A copy, to be broken."""
    return Path(shutil.copytree(sample, tmp_path / "T"))


def test_a_table_that_conforms_has_no_faults(sample: Path) -> None:
    assert protocol_faults(sample) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "change"), [case[::2] for case in CASES], ids=[f"{r}: {what}" for r, what, _ in CASES]
)
def test_a_broken_log_is_caught_by_its_rule(broken: Path, rule: str, change: Break) -> None:
    change(broken)
    assert rule in {fault.split(":")[0] for fault in protocol_faults(broken)}


def test_every_rule_has_a_log_that_breaks_it() -> None:
    assert {rule for rule, *_ in CASES} == {*RULES, "readable"}


def test_readers_that_share_nothing_read_every_version_alike(sample: Path) -> None:
    counts = []
    for state in read_history(sample).states:
        rows = by_duckdb(sample, state)
        assert same_rows(by_deltalake(DeltaTable(str(sample), version=state.version)), rows)
        counts.append(len(rows))
    assert counts == [0, 2, 2, 2, 2]


@pytest.mark.parametrize(
    "steps",
    [
        [["Id!"], ["Id!", "City:string"], ["Id!", "City:string", "Qty (kg):double"]],
        [["a b!"], ["a b!", "n:timestamp_ntz"], ["a b!", "n:timestamp_ntz", "c:decimal(38,10)"]],
        [["n:timestamp_ntz"], ["n:timestamp_ntz", "a b"]],
        [["Id!", "day:string"], ["Id!", "day:string", "x=y:binary"]],
    ],
)
def test_commits_that_the_engine_writes_itself_conform(tmp_path: Path, steps: list[list[str]]) -> None:
    """A table's creation, new columns, batches that change no row: none of them is Spark's."""
    writer = SparkDeltaWriter(tmp_path / "Tables", tmp_path / "scratch", lambda: pytest.fail("Spark was started"))
    partitions = ["day"] if "day:string" in steps[0] else []
    table = Scenario(writer, schema_of(*steps[0], partitions=partitions))
    table.create()
    for step in steps:
        table.schema = schema_of(*step, partitions=partitions)
        table.change()
    folder = tmp_path / "Tables" / table.table
    assert protocol_faults(folder) == []
    assert len(read_history(folder).commits) == 2 * len(steps)
