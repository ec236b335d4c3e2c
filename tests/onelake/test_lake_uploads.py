"""How files come into a lake: create, append and flush, put, blocks, copy."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from lakes import ABSENT_ONLY, ZoneClient, matching, refused

from mirror_engine.onelake.conditions import NONE, Conditions
from mirror_engine.onelake.errors import StorageErrorCode
from mirror_engine.onelake.store import LocalStore
from mirror_engine.onelake.uploads import Limits

if TYPE_CHECKING:
    from pathlib import Path


def test_creating_a_folder_makes_its_parents_and_may_be_repeated(zone: ZoneClient) -> None:
    first = zone.lake.create_folder(zone.at("S.schema/T/_FilesReadyToDelete"))
    assert first.is_folder
    assert zone.lake.create_folder(zone.at("S.schema/T/_FilesReadyToDelete")).etag == first.etag
    assert zone.names("S.schema") == ["T"]


def test_creating_a_file_makes_its_parents_and_truncates(zone: ZoneClient) -> None:
    first = zone.create("T/deep/f")
    assert (first.is_folder, first.size) == (False, 0)
    zone.put("T/deep/f", b"abc")
    again = zone.create("T/deep/f")
    assert again.size == 0
    assert again.etag != first.etag
    assert zone.read("T/deep/f") == b""


def test_appends_come_in_any_order_and_the_last_one_per_position_wins(zone: ZoneClient) -> None:
    zone.create("T/f")
    zone.append("T/f", 3, b"DEF")
    zone.append("T/f", 6, b"g")
    zone.append("T/f", 0, b"xxxxx")
    zone.append("T/f", 0, b"abc")
    assert zone.flush("T/f", 7).size == 7
    assert zone.read("T/f") == b"abcDEFg"


def test_a_flush_adds_to_what_was_committed(zone: ZoneClient) -> None:
    zone.put("T/f", b"abc")
    zone.append("T/f", 3, b"def")
    zone.flush("T/f", 6)
    zone.append("T/f", 6, b"g")
    zone.append("T/f", 7, b"h")
    zone.flush("T/f", 8)
    assert zone.read("T/f") == b"abcdefgh"


@pytest.mark.parametrize("position", [0, 2, 4, 6, 9, 11, -1])
def test_a_flush_to_a_position_that_no_chain_of_pieces_reaches_is_refused(zone: ZoneClient, position: int) -> None:
    zone.put("T/f", b"abc")
    zone.append("T/f", 3, b"de")
    zone.append("T/f", 7, b"hi")
    with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
        zone.flush("T/f", position)
    assert zone.read("T/f") == b"abc"
    zone.append("T/f", 5, b"fg")
    zone.flush("T/f", 9)
    assert zone.read("T/f") == b"abcdefghi"


def test_a_repeated_flush_changes_nothing(zone: ZoneClient) -> None:
    zone.create("T/f")
    zone.append("T/f", 0, b"abc")
    first = zone.flush("T/f", 3)
    assert zone.flush("T/f", 3) == first
    zone.append("T/f", 0, b"abc")
    assert zone.flush("T/f", 3) == first
    assert zone.read("T/f") == b"abc"


def test_pieces_beyond_the_flush_are_dropped_unless_they_are_retained(zone: ZoneClient) -> None:
    for retain in (False, True):
        zone.create("T/f")
        zone.append("T/f", 0, b"abc")
        zone.append("T/f", 3, b"def")
        zone.lake.flush(zone.at("T/f"), 3, NONE, retain=retain)
        if retain:
            zone.flush("T/f", 6)
            assert zone.read("T/f") == b"abcdef"
        else:
            with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
                zone.flush("T/f", 6)


def test_a_flush_with_the_tag_of_the_create_succeeds_after_many_appends(zone: ZoneClient) -> None:
    """As `upload_data(overwrite=True)` of the Python SDK sends it."""
    created = zone.create("T/f")
    for position in range(5):
        assert zone.append("T/f", position, b"x") == created
    assert zone.flush("T/f", 5, matching(created)).etag != created.etag


def test_a_writer_between_makes_the_flush_fail_and_its_content_stays(zone: ZoneClient) -> None:
    created = zone.create("T/f")
    zone.append("T/f", 0, b"mine")
    zone.put("T/f", b"theirs")
    with refused(StorageErrorCode.CONDITION_NOT_MET):
        zone.flush("T/f", 4, matching(created))
    with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
        zone.flush("T/f", 10)
    assert zone.read("T/f") == b"theirs"


def test_a_create_only_flush_is_refused_and_keeps_what_was_appended(zone: ZoneClient) -> None:
    zone.create("T/f")
    zone.append("T/f", 0, b"abc")
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        zone.flush("T/f", 3, ABSENT_ONLY)
    zone.flush("T/f", 3)
    assert zone.read("T/f") == b"abc"


def test_what_was_appended_follows_the_file_when_it_or_its_folder_is_renamed(zone: ZoneClient) -> None:
    zone.create("T/f")
    zone.append("T/f", 0, b"abc")
    zone.rename("T/f", "T/g")
    zone.rename("T", "U")
    zone.flush("U/g", 3)
    assert zone.read("U/g") == b"abc"


def test_what_was_appended_is_lost_with_the_file(zone: ZoneClient) -> None:
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
        with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
            zone.flush("T/f", 3)
    assert zone.lake._uploads.used_bytes == 0


def test_a_blob_is_put_whole_with_its_parents(zone: ZoneClient) -> None:
    put = zone.put("T/f", b"abc", ABSENT_ONLY)
    assert put == zone.properties("T/f")
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        zone.put("T/f", b"other", ABSENT_ONLY)
    with refused(StorageErrorCode.CONDITION_NOT_MET):
        zone.put("T/f", b"other", Conditions.of({"if-match": '"other"'}))
    with refused(StorageErrorCode.PATH_CONFLICT):
        zone.put("T", b"other")
    assert zone.read("T/f") == b"abc"
    zone.put("T/f", b"", matching(put))
    assert zone.read("T/f") == b""


def test_blocks_become_a_file_in_the_order_of_the_list(zone: ZoneClient) -> None:
    for block_id, content in [("b", b"22"), ("a", b"xx"), ("c", b"3"), ("a", b"1")]:
        zone.put_block("T/f", block_id, content)
    assert zone.lake.put_block_list(zone.at("T/f"), ["a", "b", "a"]).size == 4
    assert zone.read("T/f") == b"1221"
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        zone.lake.put_block_list(zone.at("T/f"), ["c"])
    assert zone.lake._uploads.used_bytes == 0


def test_a_refused_block_list_keeps_its_blocks(zone: ZoneClient) -> None:
    zone.put_block("T/f", "a", b"abc")
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        zone.lake.put_block_list(zone.at("T/f"), ["a", "b"])
    with refused(StorageErrorCode.CONDITION_NOT_MET):
        zone.lake.put_block_list(zone.at("T/f"), ["a"], Conditions.of({"if-match": "*"}))
    assert zone.lake.put_block_list(zone.at("T/f"), ["a"], ABSENT_ONLY).size == 3
    zone.put_block("T/f", "a", b"x")
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        zone.lake.put_block_list(zone.at("T/f"), ["a"], ABSENT_ONLY)
    assert zone.read("T/f") == b"abc"


def test_a_repeated_block_list_changes_nothing_as_long_as_nothing_else_did(zone: ZoneClient) -> None:
    zone.put_block("T/f", "a", b"abc")
    first = zone.lake.put_block_list(zone.at("T/f"), ["a"])
    assert zone.lake.put_block_list(zone.at("T/f"), ["a"]) == first
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        zone.lake.put_block_list(zone.at("T/f"), ["a"], ABSENT_ONLY)
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        zone.lake.put_block_list(zone.at("T/f"), ["a", "a"])
    zone.put("T/f", b"other")
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        zone.lake.put_block_list(zone.at("T/f"), ["a"])
    assert zone.read("T/f") == b"other"


def test_only_the_newest_block_lists_are_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mirror_engine.onelake.uploads.MAX_BLOCK_LISTS", 2)
    zone = ZoneClient(LocalStore(tmp_path / "store"))
    for name in "abc":
        zone.put_block(name, "x", b"x")
        zone.lake.put_block_list(zone.at(name), ["x"])
    zone.lake.put_block_list(zone.at("b"), ["x"])
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        zone.lake.put_block_list(zone.at("a"), ["x"])


def test_an_empty_block_list_is_an_empty_file_and_an_empty_block_is_none(zone: ZoneClient) -> None:
    assert zone.lake.put_block_list(zone.at("T/f"), []).size == 0
    with refused(StorageErrorCode.INVALID_HEADER_VALUE):
        zone.put_block("T/f", "a", b"")
    with refused(StorageErrorCode.PATH_CONFLICT):
        zone.put_block("T", "a", b"x")


def test_putting_a_whole_file_drops_the_blocks(zone: ZoneClient) -> None:
    zone.put_block("T/f", "a", b"abc")
    zone.put("T/f", b"whole")
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        zone.lake.put_block_list(zone.at("T/f"), ["a"])


def test_a_copy_is_a_file_of_its_own(zone: ZoneClient) -> None:
    source = zone.put("T/f", b"abc")
    copied = zone.lake.copy(zone.at("T/f"), zone.at("U/g"))
    assert copied.etag != source.etag
    assert (zone.read("U/g"), zone.read("T/f")) == (b"abc", b"abc")
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        zone.lake.copy(zone.at("T/f"), zone.at("U/g"), ABSENT_ONLY)
    with refused(StorageErrorCode.PATH_CONFLICT):
        zone.lake.copy(zone.at("T/f"), zone.at("U"))
    with refused(StorageErrorCode.SOURCE_PATH_NOT_FOUND):
        zone.lake.copy(zone.at("T/nothing"), zone.at("U/g"))
    other = Conditions.of_source({"x-ms-source-if-match": '"other"'})
    with refused(StorageErrorCode.SOURCE_CONDITION_NOT_MET):
        zone.lake.copy(zone.at("T/f"), zone.at("U/g"), source_conditions=other)


def test_a_body_that_breaks_off_leaves_nothing(zone: ZoneClient) -> None:
    zone.create("T/f")
    with suppress(ConnectionError), zone.lake.receive() as body:
        body.write(b"abc")
        raise ConnectionError
    assert zone.read("T/f") == b""
    assert zone.lake._uploads.used_bytes == 0
    assert list(zone.storage.list(".mirror-engine/staging") or ()) == []


def test_a_body_beyond_the_limit_is_refused_however_it_is_announced(tmp_path: Path) -> None:
    zone = ZoneClient(LocalStore(tmp_path / "store"), limits=Limits(body_bytes=5))
    zone.put("f", b"12345")
    with refused(StorageErrorCode.REQUEST_BODY_TOO_LARGE):
        zone.lake.receive(6)
    with refused(StorageErrorCode.REQUEST_BODY_TOO_LARGE), zone.lake.receive() as body:
        for _ in range(6):
            body.write(b"x")
    assert zone.lake._uploads.used_bytes == 0


def test_uncommitted_bytes_have_a_quota_that_commits_and_failures_give_back(tmp_path: Path) -> None:
    zone = ZoneClient(LocalStore(tmp_path / "store"), limits=Limits(staging_bytes=10))
    zone.create("f")
    zone.append("f", 0, b"123456")
    with refused(StorageErrorCode.SERVER_BUSY):
        zone.append("f", 6, b"78901")
    zone.append("f", 6, b"7890")
    with refused(StorageErrorCode.SERVER_BUSY):
        zone.put("g", b"1")
    zone.flush("f", 10)
    zone.put("g", b"1234567890")
    assert (zone.read("f"), zone.read("g")) == (b"1234567890", b"1234567890")


def test_uploads_expire(tmp_path: Path) -> None:
    zone = ZoneClient(LocalStore(tmp_path / "store"), limits=Limits(expiry_seconds=-1.0))
    zone.create("f")
    zone.append("f", 0, b"abc")
    zone.put_block("g", "a", b"abc")
    zone.lake.receive().discard()
    assert zone.lake._uploads.used_bytes == 0
    with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
        zone.flush("f", 3)


def test_what_an_earlier_process_left_uncommitted_is_deleted(tmp_path: Path) -> None:
    storage = LocalStore(tmp_path / "store")
    zone = ZoneClient(storage)
    zone.create("f")
    zone.append("f", 0, b"abc")
    again = ZoneClient(LocalStore(tmp_path / "store"))
    assert storage.list(".mirror-engine/staging") in (None, [])
    with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
        again.flush("f", 3)
