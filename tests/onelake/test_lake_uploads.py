"""How files come into a lake: create, append and flush, put, blocks, copy (endpoint chapters 3 and 4)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from lakes import ABSENT_ONLY, Shore, matching, refused, storage_called
from memory_storage import WritableMemoryStorage

from mirror_engine.onelake.errors import StorageErrorCode
from mirror_engine.onelake.requests import NONE, Conditions
from mirror_engine.onelake.uploads import Limits

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(params=["memory", "local"])
def shore(request: pytest.FixtureRequest, tmp_path: Path) -> Shore:
    return Shore(storage_called(request.param, tmp_path))


def test_creating_a_folder_makes_its_parents_and_may_be_repeated(shore: Shore) -> None:
    first = shore.lake.create_folder(shore.at("S.schema/T/_FilesReadyToDelete"))
    assert first.is_folder
    assert shore.lake.create_folder(shore.at("S.schema/T/_FilesReadyToDelete")).etag == first.etag
    assert shore.names("S.schema") == ["T"]


def test_creating_a_folder_is_refused_where_one_or_a_file_stands(shore: Shore) -> None:
    shore.lake.create_folder(shore.at("T"))
    shore.create("f")
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        shore.lake.create_folder(shore.at("T"), ABSENT_ONLY)
    for path in ("f", "f/below"):
        with refused(StorageErrorCode.PATH_CONFLICT):
            shore.lake.create_folder(shore.at(path))


def test_creating_a_file_makes_its_parents_and_truncates(shore: Shore) -> None:
    first = shore.create("T/deep/f")
    assert (first.is_folder, first.size) == (False, 0)
    shore.put("T/deep/f", b"abc")
    again = shore.create("T/deep/f")
    assert again.size == 0
    assert again.etag != first.etag
    assert shore.read("T/deep/f") == b""


def test_creating_a_file_is_refused_where_one_or_a_folder_stands(shore: Shore) -> None:
    shore.put("T/f", b"abc")
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        shore.create("T/f", ABSENT_ONLY)
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        shore.create("T", ABSENT_ONLY)
    for path in ("T", "T/f/below"):
        with refused(StorageErrorCode.PATH_CONFLICT):
            shore.create(path)
    assert shore.read("T/f") == b"abc"


def test_appends_come_in_any_order_and_the_last_one_per_position_wins(shore: Shore) -> None:
    shore.create("T/f")
    shore.append("T/f", 3, b"DEF")
    shore.append("T/f", 6, b"g")
    shore.append("T/f", 0, b"xxxxx")
    shore.append("T/f", 0, b"abc")
    assert shore.flush("T/f", 7).size == 7
    assert shore.read("T/f") == b"abcDEFg"


def test_a_flush_adds_to_what_was_committed(shore: Shore) -> None:
    shore.put("T/f", b"abc")
    shore.append("T/f", 3, b"def")
    shore.flush("T/f", 6)
    shore.append("T/f", 6, b"g")
    shore.append("T/f", 7, b"h")
    shore.flush("T/f", 8)
    assert shore.read("T/f") == b"abcdefgh"


def test_an_append_needs_a_file_that_was_created(shore: Shore) -> None:
    """As `upload_data(overwrite=False)` of the Python SDK finds out."""
    with refused(StorageErrorCode.PATH_NOT_FOUND):
        shore.append("T/f", 0, b"x")
    with refused(StorageErrorCode.PATH_NOT_FOUND):
        shore.flush("T/f", 1)
    shore.lake.create_folder(shore.at("T"))
    for attempt in (lambda: shore.append("T", 0, b"x"), lambda: shore.flush("T", 0)):
        with refused(StorageErrorCode.PATH_CONFLICT):
            attempt()


def test_an_empty_append_and_a_negative_position_are_refused(shore: Shore) -> None:
    shore.create("T/f")
    with refused(StorageErrorCode.INVALID_HEADER_VALUE):
        shore.append("T/f", 0, b"")
    with refused(StorageErrorCode.INVALID_QUERY_PARAMETER_VALUE):
        shore.append("T/f", -1, b"x")


@pytest.mark.parametrize("position", [0, 2, 4, 6, 9, 11, -1])
def test_a_flush_to_a_position_that_no_chain_of_pieces_reaches_is_refused(shore: Shore, position: int) -> None:
    shore.put("T/f", b"abc")
    shore.append("T/f", 3, b"de")
    shore.append("T/f", 7, b"hi")
    with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
        shore.flush("T/f", position)
    assert shore.read("T/f") == b"abc"
    shore.append("T/f", 5, b"fg")
    shore.flush("T/f", 9)
    assert shore.read("T/f") == b"abcdefghi"


def test_a_repeated_flush_changes_nothing(shore: Shore) -> None:
    shore.create("T/f")
    shore.append("T/f", 0, b"abc")
    first = shore.flush("T/f", 3)
    assert shore.flush("T/f", 3) == first
    shore.append("T/f", 0, b"abc")
    assert shore.flush("T/f", 3) == first
    assert shore.read("T/f") == b"abc"


def test_pieces_beyond_the_flush_are_dropped_unless_they_are_retained(shore: Shore) -> None:
    for retain in (False, True):
        shore.create("T/f")
        shore.append("T/f", 0, b"abc")
        shore.append("T/f", 3, b"def")
        shore.lake.flush(shore.at("T/f"), 3, NONE, retain=retain)
        if retain:
            shore.flush("T/f", 6)
            assert shore.read("T/f") == b"abcdef"
        else:
            with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
                shore.flush("T/f", 6)


def test_a_flush_with_the_tag_of_the_create_succeeds_after_many_appends(shore: Shore) -> None:
    """As `upload_data(overwrite=True)` of the Python SDK sends it."""
    created = shore.create("T/f")
    for position in range(5):
        assert shore.append("T/f", position, b"x") == created
    assert shore.flush("T/f", 5, matching(created)).etag != created.etag


def test_a_writer_between_makes_the_flush_fail_and_its_content_stays(shore: Shore) -> None:
    created = shore.create("T/f")
    shore.append("T/f", 0, b"mine")
    shore.put("T/f", b"theirs")
    with refused(StorageErrorCode.CONDITION_NOT_MET):
        shore.flush("T/f", 4, matching(created))
    with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
        shore.flush("T/f", 10)
    assert shore.read("T/f") == b"theirs"


def test_a_create_only_flush_is_refused_and_keeps_what_was_appended(shore: Shore) -> None:
    shore.create("T/f")
    shore.append("T/f", 0, b"abc")
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        shore.flush("T/f", 3, ABSENT_ONLY)
    shore.flush("T/f", 3)
    assert shore.read("T/f") == b"abc"


def test_what_was_appended_follows_the_file_when_it_or_its_folder_is_renamed(shore: Shore) -> None:
    shore.create("T/f")
    shore.append("T/f", 0, b"abc")
    shore.rename("T/f", "T/g")
    shore.rename("T", "U")
    shore.flush("U/g", 3)
    assert shore.read("U/g") == b"abc"


def test_what_was_appended_is_lost_with_the_file(shore: Shore) -> None:
    for lose in (
        lambda: shore.lake.delete(shore.at("T/f")),
        lambda: shore.create("T/f"),
        lambda: shore.rename("T/other", "T/f"),
    ):
        shore.create("T/other")
        shore.create("T/f")
        shore.append("T/f", 0, b"abc")
        lose()
        shore.create("T/f")
        with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
            shore.flush("T/f", 3)
    assert shore.lake._uploads.taken_bytes == 0


def test_a_blob_is_put_whole_with_its_parents(shore: Shore) -> None:
    put = shore.put("T/f", b"abc", ABSENT_ONLY)
    assert put == shore.properties("T/f")
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        shore.put("T/f", b"other", ABSENT_ONLY)
    with refused(StorageErrorCode.CONDITION_NOT_MET):
        shore.put("T/f", b"other", Conditions.of({"if-match": '"other"'}))
    with refused(StorageErrorCode.PATH_CONFLICT):
        shore.put("T", b"other")
    assert shore.read("T/f") == b"abc"
    shore.put("T/f", b"", matching(put))
    assert shore.read("T/f") == b""


def test_blocks_become_a_file_in_the_order_of_the_list(shore: Shore) -> None:
    for block_id, content in [("b", b"22"), ("a", b"xx"), ("c", b"3"), ("a", b"1")]:
        shore.put_block("T/f", block_id, content)
    assert shore.lake.put_block_list(shore.at("T/f"), ["a", "b", "a"]).size == 4
    assert shore.read("T/f") == b"1221"
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        shore.lake.put_block_list(shore.at("T/f"), ["c"])
    assert shore.lake._uploads.taken_bytes == 0


def test_a_refused_block_list_keeps_its_blocks(shore: Shore) -> None:
    shore.put_block("T/f", "a", b"abc")
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        shore.lake.put_block_list(shore.at("T/f"), ["a", "b"])
    with refused(StorageErrorCode.CONDITION_NOT_MET):
        shore.lake.put_block_list(shore.at("T/f"), ["a"], Conditions.of({"if-match": "*"}))
    assert shore.lake.put_block_list(shore.at("T/f"), ["a"], ABSENT_ONLY).size == 3
    shore.put_block("T/f", "a", b"x")
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        shore.lake.put_block_list(shore.at("T/f"), ["a"], ABSENT_ONLY)
    assert shore.read("T/f") == b"abc"


def test_a_repeated_block_list_changes_nothing_as_long_as_nothing_else_did(shore: Shore) -> None:
    shore.put_block("T/f", "a", b"abc")
    first = shore.lake.put_block_list(shore.at("T/f"), ["a"])
    assert shore.lake.put_block_list(shore.at("T/f"), ["a"]) == first
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        shore.lake.put_block_list(shore.at("T/f"), ["a"], ABSENT_ONLY)
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        shore.lake.put_block_list(shore.at("T/f"), ["a", "a"])
    shore.put("T/f", b"other")
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        shore.lake.put_block_list(shore.at("T/f"), ["a"])
    assert shore.read("T/f") == b"other"


def test_only_the_newest_block_lists_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror_engine.onelake.uploads.REMEMBERED_LISTS", 2)
    shore = Shore(WritableMemoryStorage())
    for name in "abc":
        shore.put_block(name, "x", b"x")
        shore.lake.put_block_list(shore.at(name), ["x"])
    shore.lake.put_block_list(shore.at("b"), ["x"])
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        shore.lake.put_block_list(shore.at("a"), ["x"])


def test_an_empty_block_list_is_an_empty_file_and_an_empty_block_is_none(shore: Shore) -> None:
    assert shore.lake.put_block_list(shore.at("T/f"), []).size == 0
    with refused(StorageErrorCode.INVALID_HEADER_VALUE):
        shore.put_block("T/f", "a", b"")
    with refused(StorageErrorCode.PATH_CONFLICT):
        shore.put_block("T", "a", b"x")


def test_putting_a_whole_file_drops_the_blocks(shore: Shore) -> None:
    shore.put_block("T/f", "a", b"abc")
    shore.put("T/f", b"whole")
    with refused(StorageErrorCode.INVALID_BLOCK_LIST):
        shore.lake.put_block_list(shore.at("T/f"), ["a"])


def test_a_copy_is_a_file_of_its_own(shore: Shore) -> None:
    source = shore.put("T/f", b"abc")
    copied = shore.lake.copy(shore.at("T/f"), shore.at("U/g"))
    assert copied.etag != source.etag
    assert (shore.read("U/g"), shore.read("T/f")) == (b"abc", b"abc")
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        shore.lake.copy(shore.at("T/f"), shore.at("U/g"), ABSENT_ONLY)
    with refused(StorageErrorCode.PATH_CONFLICT):
        shore.lake.copy(shore.at("T/f"), shore.at("U"))
    with refused(StorageErrorCode.SOURCE_PATH_NOT_FOUND):
        shore.lake.copy(shore.at("T/nothing"), shore.at("U/g"))
    other = Conditions.of_source({"x-ms-source-if-match": '"other"'})
    with refused(StorageErrorCode.SOURCE_CONDITION_NOT_MET):
        shore.lake.copy(shore.at("T/f"), shore.at("U/g"), source_conditions=other)


def test_a_copied_folder_is_an_empty_folder(shore: Shore) -> None:
    shore.put("T/f", b"abc")
    assert shore.lake.copy(shore.at("T"), shore.at("U")).is_folder
    assert shore.names("U") == []


def test_a_body_that_breaks_off_leaves_nothing(shore: Shore) -> None:
    shore.create("T/f")
    with suppress(ConnectionError), shore.lake.receive() as body:
        body.write(b"abc")
        raise ConnectionError
    assert shore.read("T/f") == b""
    assert shore.lake._uploads.taken_bytes == 0
    assert list(shore.storage.list(".mirror-engine/staging") or ()) == []


def test_a_body_beyond_the_limit_is_refused_however_it_is_announced() -> None:
    """Rule 9.6."""
    shore = Shore(WritableMemoryStorage(), limits=Limits(body_bytes=5))
    shore.put("f", b"12345")
    with refused(StorageErrorCode.REQUEST_BODY_TOO_LARGE):
        shore.lake.receive(6)
    with refused(StorageErrorCode.REQUEST_BODY_TOO_LARGE), shore.lake.receive() as body:
        for _ in range(6):
            body.write(b"x")
    assert shore.lake._uploads.taken_bytes == 0


def test_uncommitted_bytes_have_a_quota_that_commits_and_failures_give_back() -> None:
    """Rule 9.6."""
    shore = Shore(WritableMemoryStorage(), limits=Limits(staging_bytes=10))
    shore.create("f")
    shore.append("f", 0, b"123456")
    with refused(StorageErrorCode.SERVER_BUSY):
        shore.append("f", 6, b"78901")
    shore.append("f", 6, b"7890")
    with refused(StorageErrorCode.SERVER_BUSY):
        shore.put("g", b"1")
    shore.flush("f", 10)
    shore.put("g", b"1234567890")
    assert (shore.read("f"), shore.read("g")) == (b"1234567890", b"1234567890")


def test_what_nobody_adds_to_expires() -> None:
    """Rule 9.6."""
    shore = Shore(WritableMemoryStorage(), limits=Limits(expiry_seconds=-1.0))
    shore.create("f")
    shore.append("f", 0, b"abc")
    shore.put_block("g", "a", b"abc")
    shore.lake.receive().discard()
    assert shore.lake._uploads.taken_bytes == 0
    with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
        shore.flush("f", 3)


def test_what_an_earlier_process_left_uncommitted_is_deleted(tmp_path: Path) -> None:
    storage = storage_called("local", tmp_path)
    shore = Shore(storage)
    shore.create("f")
    shore.append("f", 0, b"abc")
    again = Shore(storage_called("local", tmp_path))
    assert storage.list(".mirror-engine/staging") in (None, [])
    with refused(StorageErrorCode.INVALID_FLUSH_POSITION):
        again.flush("f", 3)
