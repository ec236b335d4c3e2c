"""Executors stage what this process stages: each is the other's check."""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_scenario import KEYS as VALUES
from delta_scenario import Scenario, file_rows, schema_of, table_with

from mirror_engine.tables.base import MIN_ACCOUNTED_ROW_BYTES, ChangeBatch
from mirror_engine.tables.changes.counted import count_changes
from mirror_engine.tables.changes.staged import stage_here, staged
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.merge.spark import SparkDeltaWriter, stage_on_executors
from mirror_engine.tables.spark.session import child_session

pytestmark = pytest.mark.spark
KEYED = schema_of("log", "a", "b:string", "v")
KEYS = ("log", "a", "b")
SEED = 20261121


def content(changes):
    """The staged rows, each with its role."""
    files = sorted(changes.folder.glob("*.parquet"))
    rows = [tuple(map(repr, row.values())) for file in files for row in pq.read_table(file).to_pylist()]
    assert len(rows) == changes.rows
    return Counter(rows)


def exact_bounds(changes):
    """Those by which Delta may pass over files: of floats, a NaN is the highest to Spark and none to Arrow."""
    return [(low, high) for low, high in changes.bounds if not pa.types.is_floating(low.type)]


def assert_both_stage_the_same(spark, batch, log, scratch):
    session = child_session(spark)
    session.conf.set("spark.sql.codegen.wholeStage", "false")  # rows are few
    in_process = partial(stage_here, batch, count_changes(batch, log))
    on_executors = partial(stage_on_executors, session, batch, log)
    with staged(scratch, in_process) as here, staged(scratch, on_executors) as there:
        assert content(there) == content(here)
        assert (there.roles, there.match_counts, there.matches) == (here.roles, here.match_counts, here.matches)
        if here.matches:
            assert list(map(repr, exact_bounds(there))) == list(map(repr, exact_bounds(here)))
    assert not list(scratch.iterdir())
    assert session.catalog.listTables() == []
    return there


def generated(draw, logs):
    """Rows of a table, and change files, in which hundreds of independent logs are mixed."""
    part = lambda: (draw.choice([1, 1, 2, None]), draw.choice(["x", "x", "X", None]))  # noqa: E731 - a short name
    held = [(log, *part(), -n) for log in range(logs) for n in range(draw.choice([0, 0, 1, 2, 3]))]
    changes = [(draw.choice([0, 1, 2, 4]), log, *part()) for log in range(logs) for _ in range(draw.randrange(12))]
    draw.shuffle(changes)
    files, rest = [], [(*change, place) for place, change in enumerate(changes)]
    while rest:
        count = draw.randrange(len(changes) // 4)
        files.append(file_rows(f"{len(files)}", KEYED, KEYED.names, *rest[:count]))
        rest = rest[count:]
    return held, files


@pytest.mark.parametrize(
    "is_held", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["keys are held", "no key is held"]
)
def test_hundreds_of_logs_are_staged_alike(spark, tmp_path, is_held):
    held, files = generated(random.Random(SEED), 400)
    log = table_with(tmp_path / "T", KEYED, KEYS, held if is_held else [(-1, 1, "x", 0)])
    ready = assert_both_stage_the_same(spark, ChangeBatch(tuple(files), KEYED, KEYS), log, tmp_path / "scratch")
    assert ready.matches is is_held


def test_keys_of_many_types_and_ragged_files_are_staged_alike(spark, tmp_path):
    """LZ-4.9: NaN equals NaN, -0.0 equals 0.0; one whole-number and one decimal type represent all."""
    words = ["string", "binary", "long", "boolean", "date", "timestamp", "decimal(38,10)"]
    keys = (*words, "f", "d")
    odd = [
        "_metadata",
        "a b",
        "a,b;c",
        "{x}(y)",
        "n\nl\tb",
        "e=f",
        "b`t",
        "v.x",
        "ünï 日本",
        "q'\"",
        "c0",
        "s",
        "t.`Id`",
    ]
    schema = schema_of(*[f"{w}:{w}" for w in words], "f:float", "d:double", *[f"{name}:string" for name in odd], "v")
    floats = [(0.0, math.nan), (-0.0, math.nan), (math.nan, -0.0), (math.inf, 0.0), (-math.inf, 5e-324), (None, 1.0)]
    values = [[VALUES[word][place % len(VALUES[word])] for word in words] for place in range(len(floats))]
    rows = [(*row, *pair) for row, pair in zip(values, floats, strict=True)]
    more = [(*rows[0][:-2], -0.0, math.nan), (*rows[2][:-2], math.nan, 0.0)]
    log = table_with(tmp_path / "T", schema, keys, [(*row, *([None] * len(odd)), 1) for row in rows[:4]])
    files = (
        file_rows("0", schema, [*keys, "v"], *[(4, *row, 7) for row in [*more, *rows]]),
        file_rows("1", schema, keys, (2, *more[1]), (0, *rows[3])),
        file_rows("2", schema, ["_metadata", *reversed(keys)], *[(1, "m", *reversed(row)) for row in rows[1:]]),
    )
    ready = assert_both_stage_the_same(spark, ChangeBatch(files, schema, keys), log, tmp_path / "scratch")
    assert ready.matches


def test_inserts_alone_keyless_tables_and_keys_that_come_late_are_staged_alike(spark, tmp_path):
    log = table_with(tmp_path / "T", schema_of("a", "v"), (), [(1, 1), (1, 2)])
    late = schema_of("a", "v", "late")
    inserts = file_rows("0", late, late.names, (0, 1, 2, 3), (0, 1, 2, 3), (0, None, 2, 3))
    empty = file_rows("1", late, ["a"])
    deletes = file_rows("2", late, ["a", "late"], (2, 1, 3), (0, 1, 3), (1, 5, 5))
    for keys, files in [
        ((), (inserts, empty)),
        (("a",), (empty, inserts, inserts)),
        (("a", "late"), (inserts, deletes)),
    ]:
        assert_both_stage_the_same(spark, ChangeBatch(files, late, keys), log, tmp_path / "scratch")


def test_batch_over_the_limit_is_reduced_by_spark_to_equal_rows(spark, tmp_path, monkeypatch):
    staged_there = []

    def noted(*what):
        changes = stage_on_executors(*what)
        staged_there.append(changes.rows)
        return changes

    monkeypatch.setattr("mirror_engine.tables.merge.spark.stage_on_executors", noted)
    writer = SparkDeltaWriter(
        tmp_path / "Tables", tmp_path / "engine/scratch", lambda: spark, 2 * MIN_ACCOUNTED_ROW_BYTES
    )
    outcomes = []
    for target in (writer, MemoryDeltaWriter()):
        table = Scenario(target, schema_of("Id!", "City:string"), ["Id"])
        table.change((0, 1, "a"), (0, 1, "b"))  # two rows count for as much as the bound
        outcomes.append((table.change((2, 1, None), (0, 1, "c"), (0, 2, "d"), (1, 2, "e")), table.found()))
    assert outcomes[0] == outcomes[1]
    assert staged_there == [3]
