"""Contained: nothing a publisher lands stops another table, leaves ROOT, or fills the memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shop import Shop, name, row

from mirror_engine import RunResult
from mirror_engine.errors import traceback_of
from mirror_engine.landing_zone.layout import MONITORING
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.base import MIN_ACCOUNTED_ROW_BYTES

pytestmark = pytest.mark.slow
ROW_BYTES = 64 * 1024  # a thousandth of the default, and so are the bombs
CSV = {
    "keyColumns": ["id"],
    "FileFormat": "CSV",
    "FileExtension": "csv",
    "SchemaDefinition": {"Columns": [{"Name": "id", "DataType": "Int32", "IsNullable": True}]},
}
METADATA, FIRST, FIRST_TEXT = "Bad/_metadata.json", f"Bad/{name(1)}", f"Bad/{1:020}.csv"


def parquet(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue()


def keys_of_one_value(rows, **options):
    return parquet(pa.table({"id": np.zeros(rows, dtype=np.int64)}), **options)


def many_columns(count):
    return parquet(pa.table({"id": [1], **{f"a column with a long name {at}": [at] for at in range(count)}}))


def text(content):
    return {METADATA: json.dumps(CSV).encode(), FIRST_TEXT: content}


BOMBS = {  # each made by the test that wants it
    "rows that take no room": (lambda: {FIRST: keys_of_one_value(1_000_000)}, {"ME075"}),
    "rows of nothing": (lambda: {FIRST: parquet(pa.table({"id": pa.nulls(1_000_000, pa.int64())}))}, {"ME075"}),
    "rows of a bit each": (lambda: {FIRST: parquet(pa.table({"id": np.zeros(1_000_000, dtype=bool)}))}, {"ME075"}),
    "row groups": (lambda: {FIRST: keys_of_one_value(20_000, row_group_size=10)}, {"ME075"}),
    "columns": (lambda: {FIRST: many_columns(2_000)}, {"ME075"}),
    "a long value": (lambda: {FIRST: parquet(pa.table({"id": ["x" * 10_000_000]}))}, {"ME075"}),
    "packed rows of text": (lambda: text(gzip.compress(b"id\r\n" + b"7\r\n" * 1_000_000)), {"ME075"}),
    "a line without an end": (lambda: text(b"id\r\n" + b"7" * 2_000_000), {"ME075"}),
    "a packed line without an end": (lambda: text(gzip.compress(b"id\r\n" + b"7" * 50_000_000)), {"ME075"}),
    "a quote without an end": (lambda: text(b'id\r\n"' + b"7\r\n" * 1_000_000), {"ME075"}),
    "a header without an end": (lambda: text(b"id," * 1_000_000), {"ME075"}),
    "columns of text": (lambda: text(b",".join([b"id", *(b"c%d" % at for at in range(8000))]) + b"\r\n"), {"ME057"}),
    "metadata": (lambda: {METADATA: b'{"keyColumns": ["' + b"x" * 5_000_000 + b'"]}'}, {"ME011"}),
    "deep metadata": (lambda: {METADATA: b'{"x": ' + b"[" * 400_000}, {"ME010"}),
    "deep and whole metadata": (lambda: {METADATA: b'{"x": ' + b"[" * 400_000 + b"]" * 400_000 + b"}"}, {"ME010"}),
    "a number": (lambda: {METADATA: b'{"isPartitionEnabled": ' + b"9" * 500_000 + b"}"}, {"ME010", "ME011"}),
    "keys": (lambda: {METADATA: b'{"keyColumns": [' + b'"k", ' * 90_000 + b'"l"]}'}, {"ME018"}),
    "many files": (lambda: {f"Bad/{at}.parquet": b"" for at in range(3000)}, {"ME020"}),
    "partner events": (lambda: {"_partnerEvents.json": b'{"x": ' + b"[" * 900_000}, {"ME006"}),
}  # fmt: skip


@pytest.fixture
def neighbour(ram):
    """A folder next to ROOT that nothing may touch."""
    folder = ram / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(parquet(pa.table({"id": [7]})))
    return folder


@pytest.fixture
def bombed(ram, neighbour):
    shop = Shop(ram / "root", max_row_size=ROW_BYTES, delete_processed_after_seconds=0)
    bad = shop.publisher.table("Bad", keys=["id"])
    bad.insert({"id": 1})
    shop.other = shop.orders("Other")
    shop.other.insert(row(1))
    before = content_of(neighbour)
    yield shop
    assert content_of(neighbour) == before


def content_of(folder):
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*")}


def check_the_other_is_level(shop):
    for number in (2, 3):
        verdict = shop.sync().result
        assert verdict in {RunResult.CAUGHT_UP, RunResult.NEEDS_ATTENTION}
        shop.other.insert(row(number))
    shop.sync()
    assert shop.ids("Other") == [1, 2, 3]


@pytest.mark.parametrize("bomb", list(BOMBS))
def test_bomb_is_rejected_alone(bombed, bomb):
    present, codes = BOMBS[bomb]
    for path, content in present().items():
        bombed.publisher.put(path, content)
    check_the_other_is_level(bombed)
    assert codes & {found.code for found in bombed.standing()}
    assert "dbo/Bad" not in bombed.writer.tables() or bombed.ids("Bad") in ([], [1])


def test_many_small_bombs_are_no_large_one(bombed):
    rows = ROW_BYTES // 32
    bombed.config = type(bombed.config)(max_row_size=ROW_BYTES, max_batch_size=4 * rows * MIN_ACCOUNTED_ROW_BYTES)
    for number in range(1, 13):
        bombed.publisher.put(f"Bad/{name(number)}", keys_of_one_value(rows))
    assert bombed.sync().commits >= 12 // 5
    with bombed.mirror() as mirror:
        most = max(entry.rows for entry in mirror.history("Bad"))
    assert most <= 5 * rows


NAMES = {
    "dots": "..x", "spaces": " ",
    "percent": "%2e%2e%2f%2e%2e", "backslash": "..\\..\\x", "newline": "a\nb", "bell": "\x07",
    "right to left": "x\u202egpj.elbat",
    "no width": "\u200b", "long": "x" * 255, "wide": "Ω" * 127, "astral": "\U0001d4b3" * 60,
    "combining": "e\u0301", "device": "CON", "wildcards": "[*?]", "variables": "$HOME`id`;'\"", "markup": "<b>&amp;",
    "uri": "file:", "schemas": "a.schema.schema",
}  # fmt: skip


@pytest.mark.parametrize("each", list(NAMES))
def test_a_table_of_any_name_is_below_tables(bombed, each):
    for folder in (NAMES[each], "S.schema/" + NAMES[each]):
        table = bombed.publisher.folder(folder)
        table.write_metadata(keys=["id"])
        table.insert({"id": 1})
        table.insert({"id": 2}, name=f"{NAMES[each][:40]}.parquet")
    check_the_other_is_level(bombed)
    for made in bombed.writer.tables():
        place = os.path.normpath(bombed.root / "Tables" / made)
        assert place.startswith(f"{bombed.root}/Tables/")


@pytest.mark.parametrize("value", ["..", "%2F..%2F..%2Fx", "a%2Fb", "%00", "%", "%FF", "x" * 200, "a=b", "%E2%80%AE"])
def test_partition_value_may_be_any_text(bombed, value):
    table = bombed.publisher.table("P", keys=["id"], partitioned=True)
    table.insert({"id": 1}, partition=f"k={value}")
    check_the_other_is_level(bombed)
    if refused := {"%FF": "ME003", "%00": "ME088"}.get(value):  # no text, and no name of a folder
        assert refused in {found.code for found in bombed.standing()}
    else:
        assert bombed.ids("P") == [1]


def pipes(zone, _):
    (zone / "Bad/_metadata.json").unlink()
    for place in (f"Bad/{name(2)}", "Bad/_metadata.json", "_partnerEvents.json"):
        os.mkfifo(zone / place)


def socket_file(zone, _):
    here = Path.cwd()
    os.chdir(zone / "Bad")  # its path must be short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(name(2))
    finally:
        os.chdir(here)


def device(zone, _):
    try:
        os.mknod(zone / "Bad" / name(2), 0o20666, os.makedev(1, 5))  # gives zeros without end
    except PermissionError:
        pytest.skip("no device can be made here: that takes root")


def links(*places, to):
    def make(zone, outside):
        for place in places:
            (zone / place).unlink(missing_ok=True)
            (zone / place).symlink_to((zone if to in {"", "Bad"} else outside) / to)

    return make


def no_archive(zone, outside, *, is_link):
    archive = zone / "Bad/_FilesReadyToDelete"
    archive.symlink_to(outside) if is_link else archive.write_bytes(b"")
    (zone / "Bad" / name(2)).write_bytes(parquet(pa.table({"id": [1]})))


STRANGE = {
    "folder as file": ("ME003", lambda zone, _: (zone / "Bad" / name(2)).mkdir()),
    "file as folder": ("ME002", lambda zone, _: (zone / "S.schema").write_bytes(b"")),
    "pipes": ("ME074", pipes),
    "socket": ("ME074", socket_file),
    "device": ("ME074", device),
    "link to a file": ("ME074", links(f"Bad/{name(2)}", to="secret")),
    "link to metadata": ("ME074", links("Bad/_metadata.json", to="secret")),
    "links to a folder": ("ME074", links("Linked", "S.schema", "Bad/k=v", to=".")),
    "link to the zone": ("ME074", links("Loop", to="")),
    "link to the folder itself": ("ME074", links("Bad/Loop", to="Bad")),
    "link for moved files": ("ME074", partial(no_archive, is_link=True)),
    "file for moved files": ("ME082", partial(no_archive, is_link=False)),
}


@pytest.mark.parametrize("case", STRANGE)
def test_special_files_are_reported_and_left_alone(bombed, neighbour, case):
    code, make = STRANGE[case]
    make(bombed.publisher.path, neighbour)
    check_the_other_is_level(bombed)
    assert code in {found.code for found in bombed.standing()}


def test_a_hard_link_is_read_and_moved_away_without_harm_to_its_other_name(bombed, neighbour):
    (bombed.publisher.path / "Bad" / name(2)).hardlink_to(neighbour / "secret")
    bombed.publisher.put(f"Bad/{name(3)}", parquet(pa.table({"id": [3]})))
    check_the_other_is_level(bombed)
    assert bombed.ids("Bad") == [1, 3, 7]
    assert not (bombed.publisher.path / "Bad" / name(2)).exists()


def test_fabrics_files_are_not_written_through_a_link(bombed, neighbour):
    (bombed.root / MONITORING).symlink_to(neighbour)
    with bombed.engine(storage=LocalStorage(bombed.root)) as running:
        running.cycle(threading.Event())
        assert running.last.run_result is RunResult.RETRY
    assert bombed.ids("Other") == [1]


def test_traceback_of_an_error_that_is_its_own_cause_ends():
    first, second = ValueError("a row"), OSError("disk")
    first.__cause__, second.__cause__ = second, first
    told = traceback_of(first)
    assert "OSError: disk" in told
    assert "a row" not in told
