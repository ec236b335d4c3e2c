"""Uploads to a lake: create, append and flush, put, blocks, copy; what is uncommitted, and for how long."""

from __future__ import annotations

import pytest
from lakes import ABSENT_ONLY, ZoneClient, matching, refused

from mirror_engine.onelake import store
from mirror_engine.onelake.errors import StorageErrorCode
from mirror_engine.onelake.requests import Conditions
from mirror_engine.onelake.store import LocalStore


def test_folders_and_files_are_created_with_their_parents(zone):
    folder = zone.lake.create_folder(zone.at("S.schema/T/_FilesReadyToDelete"))
    assert folder.is_folder
    assert zone.lake.create_folder(zone.at("S.schema/T/_FilesReadyToDelete")).etag == folder.etag
    first = zone.create("T/deep/f")
    assert (first.is_folder, first.size) == (False, 0)
    zone.put("T/deep/f", b"abc")
    assert zone.create("T/deep/f").etag != first.etag
    assert zone.read("T/deep/f") == b""
    put = zone.put("V/f", b"abc", ABSENT_ONLY)
    assert put == zone.properties("V/f")
    zone.put("V/f", b"", matching(put))
    assert (zone.read("V/f"), zone.names()) == (b"", ["S.schema", "T", "V"])


@pytest.mark.parametrize(
    ("committed", "appends", "position", "content"),
    [
        (b"", [(3, b"DEF"), (6, b"g"), (0, b"xxxxx"), (0, b"abc")], 7, b"abcDEFg"),
        (b"abc", [(3, b"def")], 6, b"abcdef"),
        (b"abc", [(3, b"d"), (4, b"e")], 5, b"abcde"),
        (b"abc", [(3, b"de"), (7, b"hi"), (5, b"fg")], 9, b"abcdefghi"),
        (b"abc", [(0, b"abc")], 3, b"abc"),
        (b"abc", [], 3, b"abc"),
    ],
)
def test_a_flush_commits_appends_in_any_order(zone, committed, appends, position, content):
    created = zone.put("T/f", committed)
    for start, part in appends:
        assert zone.append("T/f", start, part) == created
    flushed = zone.flush("T/f", position, matching(created))
    assert (flushed.size, zone.read("T/f")) == (position, content)
    assert zone.flush("T/f", position) == flushed  # its response may have been lost
    assert (flushed.etag == created.etag) == (committed == content)


@pytest.mark.parametrize("position", [0, 2, 4, 6, 9, 11, -1])
def test_a_flush_to_a_position_without_a_chain_of_parts_is_rejected(zone, position):
    zone.put("T/f", b"abc")
    zone.append("T/f", 3, b"de")
    zone.append("T/f", 7, b"hi")
    with refused(StorageErrorCode.InvalidFlushPosition):
        zone.flush("T/f", position)
    with refused(StorageErrorCode.PathAlreadyExists):
        zone.flush("T/f", 5, ABSENT_ONLY)
    assert zone.read("T/f") == b"abc"
    zone.append("T/f", 5, b"fg")
    zone.flush("T/f", 9)
    assert zone.read("T/f") == b"abcdefghi"


def test_parts_beyond_the_flush_are_dropped(zone):
    zone.create("T/f")
    zone.append("T/f", 0, b"abc")
    zone.append("T/f", 3, b"def")
    zone.flush("T/f", 3)
    with refused(StorageErrorCode.InvalidFlushPosition):
        zone.flush("T/f", 6)


def test_appends_follow_a_rename_and_are_lost_with_their_file(zone):
    zone.create("T/f")
    zone.append("T/f", 0, b"abc")
    zone.rename("T/f", "T/g")
    zone.rename("T", "U")
    zone.flush("U/g", 3)
    assert zone.read("U/g") == b"abc"
    for lose in (
        lambda: zone.lake.delete(zone.at("T/f")),
        lambda: zone.create("T/f"),
        lambda: zone.rename("T/other", "T/f"),
    ):
        zone.create("T/other")
        zone.create("T/f")
        zone.append("T/f", 0, b"abc")
        lose()
        zone.create("T/f")
        with refused(StorageErrorCode.InvalidFlushPosition):
            zone.flush("T/f", 3)
    assert zone.lake._uploads.used_bytes == 0


def test_blocks_become_a_file_in_the_order_of_the_list(zone):
    for block_id, content in [("b", b"22"), ("a", b"xx"), ("c", b"3"), ("a", b"1")]:
        zone.put_block("T/f", block_id, content)
    assert zone.lake.put_block_list(zone.at("T/f"), ["a", "b", "a"]).size == 4
    assert zone.read("T/f") == b"1221"
    with refused(StorageErrorCode.InvalidBlockList):
        zone.lake.put_block_list(zone.at("T/f"), ["c"])
    assert zone.lake.put_block_list(zone.at("T/g"), []).size == 0
    assert zone.lake._uploads.used_bytes == 0
    zone.put_block("T/f", "a", b"abc")
    zone.put("T/f", b"whole")  # drops the blocks
    with refused(StorageErrorCode.InvalidBlockList):
        zone.lake.put_block_list(zone.at("T/f"), ["a"])


def test_a_rejected_block_list_keeps_its_blocks(zone):
    zone.put_block("T/f", "a", b"abc")
    with refused(StorageErrorCode.InvalidBlockList):
        zone.lake.put_block_list(zone.at("T/f"), ["a", "b"])
    with refused(StorageErrorCode.ConditionNotMet):
        zone.lake.put_block_list(zone.at("T/f"), ["a"], Conditions.of({"if-match": "*"}))
    assert zone.lake.put_block_list(zone.at("T/f"), ["a"], ABSENT_ONLY).size == 3
    assert zone.read("T/f") == b"abc"


def test_a_repeated_block_list_changes_nothing_unless_the_file_changed(zone, monkeypatch):
    zone.put_block("T/f", "a", b"abc")
    first = zone.lake.put_block_list(zone.at("T/f"), ["a"])
    assert zone.lake.put_block_list(zone.at("T/f"), ["a"]) == first
    with refused(StorageErrorCode.InvalidBlockList):
        zone.lake.put_block_list(zone.at("T/f"), ["a", "a"])
    zone.put("T/f", b"other")
    with refused(StorageErrorCode.InvalidBlockList):
        zone.lake.put_block_list(zone.at("T/f"), ["a"])
    monkeypatch.setattr("mirror_engine.onelake.lake.MAX_BLOCK_LISTS", 2)
    zone = ZoneClient(zone.storage)
    for name in "abc":
        zone.put_block(name, "x", b"x")
        zone.lake.put_block_list(zone.at(name), ["x"])
    zone.lake.put_block_list(zone.at("b"), ["x"])
    with refused(StorageErrorCode.InvalidBlockList):
        zone.lake.put_block_list(zone.at("a"), ["x"])


def test_a_copy_is_a_file_of_its_own_and_a_copied_folder_is_empty(zone):
    source = zone.put("T/f", b"abc")
    assert zone.lake.copy(zone.at("T/f"), zone.at("U/g")).etag != source.etag
    assert (zone.read("U/g"), zone.read("T/f")) == (b"abc", b"abc")
    assert zone.lake.copy(zone.at("T"), zone.at("V")).is_folder
    assert zone.names("V") == []


def test_uncommitted_bytes_have_a_quota_that_commits_and_failures_give_back(zone, monkeypatch):
    monkeypatch.setattr(store, "STAGING_BYTES", 10)
    zone.create("f")
    zone.append("f", 0, b"123456")
    with refused(StorageErrorCode.ServerBusy):
        zone.append("f", 6, b"78901")
    zone.append("f", 6, b"7890")
    with refused(StorageErrorCode.ServerBusy):
        zone.put("g", b"1")
    zone.flush("f", 10)
    zone.put("g", b"1234567890")
    assert (zone.read("f"), zone.read("g")) == (b"1234567890", b"1234567890")


def test_uploads_expire(tmp_path):
    zone = ZoneClient(LocalStore(tmp_path))
    zone.create("f")
    zone.append("f", 0, b"abc")
    zone.put_block("g", "a", b"abc")
    for hours, used_bytes in ((23.9, 6), (0.2, 0)):
        zone.options.clock.advance(hours=hours)
        zone.lake.receive().discard()
        assert zone.lake._uploads.used_bytes == used_bytes
    with refused(StorageErrorCode.InvalidFlushPosition):
        zone.flush("f", 3)


def test_uncommitted_files_of_an_earlier_process_are_deleted(zone):
    zone.create("f")
    zone.append("f", 0, b"abc")
    again = ZoneClient(zone.storage)
    assert zone.storage.list(".mirror-engine/staging") in (None, [])
    with refused(StorageErrorCode.InvalidFlushPosition):
        again.flush("f", 3)
