"""Who sees what, and when: every rule of endpoint chapter 7."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lakes import ABSENT_ONLY, SECOND, ZONE, Shore, matching, refused, storage_called

from mirror_engine.onelake.errors import StorageErrorCode
from mirror_engine.onelake.requests import Conditions

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(params=["memory", "local"])
def shore(request: pytest.FixtureRequest, tmp_path: Path) -> Shore:
    return Shore(storage_called(request.param, tmp_path))


def test_a_created_file_shows_at_once_with_no_bytes(shore: Shore) -> None:
    """Rule 1."""
    shore.create("T/f")
    assert shore.names("T") == ["f"]
    assert shore.properties("T/f").size == 0
    assert shore.engine_sees("T/f") == b""


def test_an_overwriting_create_drops_the_old_content_at_once(shore: Shore) -> None:
    """Rule 1."""
    shore.put("T/f", b"old")
    shore.create("T/f")
    assert shore.engine_sees("T/f") == b""


def test_what_is_not_committed_is_invisible(shore: Shore) -> None:
    """Rule 2."""
    created = shore.create("T/f")
    shore.append("T/f", 0, b"abc")
    shore.put_block("T/g", "a", b"abc")
    with shore.lake.receive() as body:
        body.write(b"abc")
        assert list(shore.lake.descendants(shore.at("T"))) == list(shore.lake.children(shore.at("T")))
        assert shore.names("T") == ["f"]
        assert shore.names() == ["T"]
        assert shore.properties("T/f") == created
        assert shore.engine_sees("T/f") == b""


def test_a_reader_keeps_what_it_opened_while_the_file_is_replaced(shore: Shore) -> None:
    """Rule 3."""
    shore.put("T/f", b"old")
    before, reader = shore.lake.read(shore.at("T/f"))
    shore.append("T/f", 3, b"er")
    shore.flush("T/f", 5)
    with reader:
        assert (before.size, reader.read()) == (3, b"old")
    assert shore.engine_sees("T/f") == b"older"


def test_a_rename_keeps_tag_and_last_modified_of_files_and_folders(shore: Shore) -> None:
    """Rule 4."""
    file, folder = shore.put("T/_f", b"abc"), shore.properties("T")
    assert shore.rename("T/_f", "T/f") == file == shore.properties("T/f")
    assert shore.rename("T", "U").etag == folder.etag == shore.properties("U").etag
    assert shore.properties("U/f") == file
    assert shore.names() == ["U"]


def test_a_rename_that_touches_changes_a_files_tag_and_time_only(shore: Shore) -> None:
    """Rule 4."""
    shore.switches.rename_touches = True
    file, folder = shore.put("T/_f", b"abc"), shore.properties("T")
    renamed = shore.rename("T/_f", "T/f")
    assert renamed == shore.properties("T/f")
    assert renamed.modified_ns > file.modified_ns
    assert renamed.etag != file.etag
    assert shore.rename("T", "U").etag == folder.etag


def test_of_two_renames_onto_one_name_the_lost_file_is_told_of(shore: Shore) -> None:
    """Rule 5."""
    for name in ("_1", "_2", "_metadata"):
        shore.put(f"T/{name}", name.encode())
    shore.rename("T/_1", "T/1.csv")
    assert shore.told == []
    shore.rename("T/_2", "T/1.csv")
    assert [lost.path for lost in shore.told] == [f"{ZONE}/T/1.csv"]
    assert "a rename without a condition replaced this file" in shore.told[0].words
    assert shore.read("T/1.csv") == b"_2"


def test_what_is_replaced_knowingly_is_not_told_of(shore: Shore) -> None:
    """Rule 5."""
    there = shore.put("T/f", b"old")
    shore.put("T/_f", b"new")
    shore.rename("T/_f", "T/f", matching(there))
    shore.put("T/_metadata.json", b"old")
    shore.put("T/new.json", b"new")
    shore.rename("T/new.json", "T/_metadata.json")
    shore.rename("T/f", "T/f")
    assert shore.told == []


def test_a_files_tag_changes_with_content_and_metadata_only(shore: Shore) -> None:
    """Rule 6."""
    tags = [shore.create("T/f").etag]
    tags.append(shore.create("T/f").etag)
    shore.append("T/f", 0, b"abc")
    tags.append(shore.flush("T/f", 3).etag)
    tags.append(shore.put("T/f", b"abc").etag)
    tags.append(shore.put("T/f", b"abc").etag)
    tags.append(shore.lake.set_metadata(shore.at("T/f")).etag)
    assert len(set(tags)) == len(tags)
    shore.lake.read(shore.at("T/f"))[1].close()
    shore.append("T/f", 3, b"x")
    shore.put("T/g", b"x")
    assert shore.properties("T/f").etag == tags[-1]
    assert all(tag.startswith('"0x8D') and tag.endswith('"') and len(tag) == 19 for tag in tags)


def test_metadata_sets_last_modified_of_a_file_and_nothing_of_a_folder(shore: Shore) -> None:
    """Rule 6."""
    file, folder = shore.put("T/f", b"abc"), shore.properties("T")
    assert shore.lake.set_metadata(shore.at("T/f")).modified_ns > file.modified_ns
    assert shore.lake.set_metadata(shore.at("T")).etag == folder.etag
    with refused(StorageErrorCode.CONDITION_NOT_MET):
        shore.lake.set_metadata(shore.at("T/f"), matching(file))
    with refused(StorageErrorCode.PATH_NOT_FOUND):
        shore.lake.set_metadata(shore.at("T/nothing"))


def test_a_folders_tag_outlasts_changes_inside_repeated_create_and_restart(shore: Shore) -> None:
    """Rule 7."""
    before = shore.lake.create_folder(shore.at("T")).etag
    shore.put("T/f", b"abc")
    shore.rename("T/f", "T/g")
    shore.lake.delete(shore.at("T/g"))
    assert shore.lake.create_folder(shore.at("T")).etag == before
    assert Shore(shore.storage).properties("T").etag == before


def test_a_folder_dropped_and_made_anew_at_once_has_a_new_tag(shore: Shore) -> None:
    """Rule 7."""
    tags = []
    for _ in range(5):
        tags.append(shore.lake.create_folder(shore.at("T")).etag)
        shore.put("T/f", b"abc")
        shore.lake.delete_all(shore.at("T"))
    assert len(set(tags)) == 5


def test_the_engine_tells_a_folder_made_anew_by_its_identity(shore: Shore) -> None:
    """Rule 7."""
    shore.lake.create_folder(shore.at("T"))
    before = shore.storage.stat(f"{ZONE}/T")
    shore.lake.delete(shore.at("T"))
    shore.lake.create_folder(shore.at("T"))
    after = shore.storage.stat(f"{ZONE}/T")
    assert before is not None
    assert after is not None
    assert before.identity != after.identity


def test_a_recursive_delete_takes_all_away_and_leaves_nothing_behind(shore: Shore) -> None:
    """Rule 8."""
    for path in ("T/a/f", "T/b/c/f", "T/f", "U/f"):
        shore.put(path, b"x")
    shore.lake.delete_all(shore.at("T"))
    assert shore.names() == ["U"]
    assert shore.storage.list(".mirror-engine/staging") in (None, [])


def test_a_recursive_delete_shows_in_one_step(shore: Shore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 8."""
    shore.put("T/a/f", b"x")
    seen = []
    take_away = shore.storage.take_away

    class Watched:
        def __init__(self, path: str) -> None:
            self.taken = take_away(path)

        def discard(self) -> None:
            seen.append(shore.names())
            self.taken.discard()

    monkeypatch.setattr(shore.storage, "take_away", Watched)
    shore.lake.delete_all(shore.at("T"))
    assert seen == [[]]


def test_last_modified_keeps_its_full_resolution_and_order(shore: Shore) -> None:
    """Rule 9."""
    first, second = shore.put("T/a", b""), shore.put("T/b", b"")
    assert 0 < second.modified_ns - first.modified_ns < SECOND
    assert shore.storage.stat(f"{ZONE}/T/a").modified_ns == first.modified_ns  # type: ignore[union-attr]


def test_two_changes_in_one_tick_of_the_clock_have_different_tags(shore: Shore, tmp_path: Path) -> None:
    """Rule 6."""
    assert shore
    still = Shore(storage_called("local", tmp_path / "still"), clock=lambda: 5 * SECOND)
    tags = {still.put("f", b"").etag, *(still.lake.set_metadata(still.at("f")).etag for _ in range(3))}
    assert len(tags) == 4


@pytest.mark.parametrize("path", ["/ws", "/ws/db", "/ws/db/Files", "/ws/db/Tables", "/ws/db/Other", "/ws/db/Other/x"])
def test_managed_folders_cannot_be_made_renamed_or_deleted(shore: Shore, path: str) -> None:
    """Chapter 7, managed folders."""
    shore.storage.make_folder("ws/db/Other")
    shore.put("T/f", b"x")
    managed, file = shore.raw(path), shore.at("T/f")
    with shore.lake.receive() as body:
        body.write(b"x")
        for attempt in (
            lambda: shore.lake.create_folder(managed),
            lambda: shore.lake.create_folder(managed, ABSENT_ONLY),
            lambda: shore.lake.create_file(managed),
            lambda: shore.lake.put(managed, body),
            lambda: shore.lake.append(managed, 0, body),
            lambda: shore.lake.flush(managed, 0),
            lambda: shore.lake.put_block(managed, "a", body),
            lambda: shore.lake.put_block_list(managed, []),
            lambda: shore.lake.copy(file, managed),
            lambda: shore.lake.rename(file, managed),
            lambda: shore.lake.rename(managed, shore.at("T/g")),
            lambda: shore.lake.delete(managed),
            lambda: shore.lake.delete_all(managed),
        ):
            with refused(StorageErrorCode.MANAGED_FOLDER):
                attempt()
    assert shore.read("T/f") == b"x"
    assert [line.name for line in shore.lake.children(shore.raw("/ws/db"))] == ["db/Files", "db/Other", "db/Tables"]


def test_the_lenient_lake_lets_managed_folders_be_made_renamed_and_deleted(shore: Shore) -> None:
    """Chapter 7, managed folders."""
    shore.switches.lenient = True
    shore.lake.create_folder(shore.raw("/ws/db/Other"))
    shore.lake.rename(shore.raw("/ws/db/Other"), shore.raw("/ws/db/More"))
    shore.lake.create_folder(shore.lake.destination(b"/new/x/Files"))
    assert shore.items.ensure("new", "x").path == "new/x"
    assert shore.lake.destination(b"/newer").path == "newer"
    for path in ("/ws/db/More", "/ws/db/Tables", "/ws/db/Files", "/new/x", "/newer"):
        shore.lake.delete_all(shore.raw(path))
    with refused(StorageErrorCode.WORKSPACE_NOT_FOUND):
        shore.raw("/newer")
    with refused(StorageErrorCode.INVALID_URI):
        shore.lake.destination(b"/ws/a%3Ab")


def test_the_strict_lake_makes_no_workspace_and_no_item(shore: Shore) -> None:
    """Chapter 7, managed folders."""
    with refused(StorageErrorCode.WORKSPACE_NOT_FOUND):
        shore.lake.destination(b"/new/x/Files/f")
    with refused(StorageErrorCode.ARTIFACT_NOT_FOUND):
        shore.lake.destination(b"/ws/new/Files/f")
    assert [item.name for item in shore.items.items(shore.items.ensure_workspace("ws"))] == ["db"]


def test_a_rename_needs_its_source_and_its_targets_parent(shore: Shore) -> None:
    """Chapter 3."""
    shore.put("T/f", b"x")
    with refused(StorageErrorCode.SOURCE_PATH_NOT_FOUND):
        shore.rename("T/nothing", "T/g")
    with refused(StorageErrorCode.RENAME_DESTINATION_PARENT_PATH_NOT_FOUND):
        shore.rename("T/f", "U/f")
    with refused(StorageErrorCode.RENAME_DESTINATION_PARENT_PATH_NOT_FOUND):
        shore.rename("T/f", "T/f/g")
    assert shore.read("T/f") == b"x"


def test_a_rename_replaces_files_only_and_by_files_only(shore: Shore) -> None:
    """Chapters 3 and 13.4."""
    shore.put("T/f", b"x")
    shore.lake.create_folder(shore.at("U"))
    for source, target, fault in (
        ("T", "U", StorageErrorCode.PATH_ALREADY_EXISTS),
        ("T/f", "U", StorageErrorCode.PATH_CONFLICT),
        ("U", "T/f", StorageErrorCode.PATH_CONFLICT),
        ("T", "T", StorageErrorCode.INVALID_RENAME_SOURCE_PATH),
        ("T", "T/inside", StorageErrorCode.INVALID_RENAME_SOURCE_PATH),
    ):
        with refused(fault):
            shore.rename(source, target)
    assert shore.rename("T/f", "T/f") == shore.properties("T/f")
    assert shore.names() == ["T", "U"]


def test_a_rename_obeys_the_conditions_on_both_ends(shore: Shore) -> None:
    """Chapter 3."""
    source, target = shore.put("T/f", b"new"), shore.put("T/g", b"old")
    with refused(StorageErrorCode.PATH_ALREADY_EXISTS):
        shore.rename("T/f", "T/g", ABSENT_ONLY)
    with refused(StorageErrorCode.CONDITION_NOT_MET):
        shore.rename("T/f", "T/g", matching(source))
    stale = Conditions.of_source({"x-ms-source-if-match": target.etag})
    with refused(StorageErrorCode.SOURCE_CONDITION_NOT_MET):
        shore.lake.rename(shore.at("T/f"), shore.at("T/g"), source_conditions=stale)
    assert shore.read("T/g") == b"old"
    fresh = Conditions.of_source({"x-ms-source-if-match": source.etag})
    shore.lake.rename(shore.at("T/f"), shore.at("T/g"), matching(target), fresh)
    assert shore.read("T/g") == b"new"


def test_a_rename_stays_within_its_item(shore: Shore) -> None:
    """Chapter 3."""
    shore.items.ensure("ws", "other")
    shore.put("T/f", b"x")
    with refused(StorageErrorCode.INVALID_SOURCE_URI):
        shore.lake.rename(shore.at("T/f"), shore.raw("/ws/other/Files/f"))
    renamed = shore.lake.rename(shore.raw("/ws/db.MirroredDatabase/Files/LandingZone/T/f"), shore.at("T/g"))
    assert renamed == shore.properties("T/g")


def test_a_delete_needs_an_empty_folder_and_its_conditions(shore: Shore) -> None:
    """Chapter 3."""
    file = shore.put("T/f", b"x")
    with refused(StorageErrorCode.DIRECTORY_NOT_EMPTY):
        shore.lake.delete(shore.at("T"))
    other = Conditions.of({"if-match": '"other"'})
    for path in ("T", "T/f"):
        for delete in (shore.lake.delete, shore.lake.delete_all):
            with refused(StorageErrorCode.CONDITION_NOT_MET):
                delete(shore.at(path), other)
    shore.lake.delete(shore.at("T/f"), matching(file))
    shore.lake.delete(shore.at("T"))
    for delete in (shore.lake.delete, shore.lake.delete_all):
        with refused(StorageErrorCode.PATH_NOT_FOUND):
            delete(shore.at("T"))
