"""File names, detection order and gaps (protocol chapter 3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.landing_zone.detection import LAST, ChangeFileName, Detection, detect
from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.landing_zone.listing import LandedFile
from mirror_engine.landing_zone.metadata import FileFormat, Metadata, Strategy
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import AppliedFile, Progress

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

ITEMS = TableName("Sales", "Items")
NUMBERED = Metadata()
TIMED = Metadata(strategy=Strategy.LAST_UPDATE_TIME)
PARTITIONED = Metadata(partitioned=True)


def name(number: int, extension: str = "parquet") -> str:
    return f"{number:020d}.{extension}"


def file(path: str | int, modified_ns: int = 0, identity: str = "i", size: int = 1) -> LandedFile:
    return LandedFile(name(path) if isinstance(path, int) else path, size, modified_ns, identity)


def progress(*applied: LandedFile, watermarks: Mapping[str, int] | None = None) -> Progress:
    files = {each.path: AppliedFile(each.etag, "d", 0, 1, each.modified_ns) for each in applied}
    return Progress("g", "i", applied=files, watermarks=watermarks or {})


def look(
    files: Iterable[LandedFile | str | int],
    metadata: Metadata = NUMBERED,
    known: Progress | None = None,
    **options: Any,
) -> Detection:
    sighted = [each if isinstance(each, LandedFile) else file(each) for each in files]
    return detect(ITEMS, sighted, metadata, known, **options)


def paths(files: Iterable[LandedFile]) -> list[str]:
    return [each.path for each in files]


def said(found: Detection) -> list[tuple[str, str]]:
    return [(each.code, each.path.removeprefix("Sales.schema/Items").lstrip("/")) for each in found.diagnostics]


class TestName:
    @pytest.mark.parametrize(
        "text",
        [name(1), name(LAST), "00000000000000000007.PARQUET", "00000000000000000007.csv.gz", name(3, "Ümlaut")],
    )
    def test_a_name_prints_as_it_was_spelled(self, text: str) -> None:
        assert str(ChangeFileName.parse(text)) == text

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "1.parquet",
            name(0),
            "0000000000000000001.parquet",
            "000000000000000000001.parquet",
            "00000000000000000001",
            "00000000000000000001.",
            "00000000000000000001parquet",
            "²0000000000000000001.parquet",
            "²" * 20 + ".parquet",
            "\u0660" * 20 + ".parquet",
            " 0000000000000000001.parquet",
            "+0000000000000000001.parquet",
            "0000_000000000000001.parquet",
            "_00000000000000000001.parquet",
            "00000000000000000001\n.parquet",
        ],
    )
    def test_another_name_is_not_parsed(self, text: str) -> None:
        assert ChangeFileName.parse(text) is None

    def test_a_tables_own_extension_may_be_asked_for_in_any_case(self) -> None:
        assert ChangeFileName.parse(name(1, "CSV"), "csv") == ChangeFileName(1, "CSV")
        assert ChangeFileName.parse(name(1), "csv") is None
        assert ChangeFileName.parse(name(1, "csv.temp"), "csv") is None

    @pytest.mark.parametrize("sequence", [0, -1, LAST + 1])
    def test_no_name_has_a_sequence_outside_twenty_digits(self, sequence: int) -> None:
        with pytest.raises(ValueError, match="sequence is"):
            ChangeFileName(sequence)

    def test_names_order_by_number(self) -> None:
        assert ChangeFileName(9, "z") < ChangeFileName(10, "a")

    def test_a_name_knows_the_following_one_but_for_the_last(self) -> None:
        assert str(ChangeFileName(9, "csv").following) == name(10, "csv")
        assert ChangeFileName(LAST).following is None


class TestInSequence:
    def test_files_are_taken_by_number_up_to_the_first_gap(self) -> None:
        found = look([4, 2, 1, 5])
        assert paths(found.ready) == [name(1), name(2)]
        assert paths(found.later) == [name(4), name(5)]
        assert found.missing_file == name(3)
        assert found.next_files == {"": name(3)}
        assert [each.full_message for each in found.diagnostics] == [
            f"Sales.schema/Items: `{name(3)}` is missing; 2 later files pending [ME019]"
        ]

    def test_nothing_waits_where_nothing_is_missing(self) -> None:
        found = look([1, 2])
        assert (found.later, found.missing_file, found.diagnostics) == ((), None, ())
        assert found.next_files == {"": name(3)}

    def test_an_empty_folder_expects_the_first_file(self) -> None:
        assert look([]) == Detection(next_files={"": name(1)})

    def test_a_lone_second_file_blocks(self) -> None:
        assert look([2]).missing_file == name(1)

    def test_numbering_may_begin_at_the_lowest(self) -> None:
        found = look([5, 4, 7], first_file="lowest")
        assert paths(found.ready) == [name(4), name(5)]
        assert found.missing_file == name(6)

    def test_after_a_commit_the_lowest_number_present_means_nothing(self) -> None:
        assert look([5], known=progress(watermarks={"": 2}), first_file="lowest").missing_file == name(3)

    def test_the_extension_is_the_tables_in_any_case(self) -> None:
        text = Metadata(file_format=FileFormat.CSV, extension="csv")
        found = look([name(1, "CSV"), name(2, "csv"), name(3)], text)
        assert paths(found.ready) == [name(1, "CSV"), name(2, "csv")]
        assert found.next_files == {"": name(3, "csv")}
        assert said(found) == [("ME021", name(3))]

    @pytest.mark.parametrize(
        ("path", "code", "text"),
        [
            ("1.parquet", "ME020", "1 digit, expected 20"),
            ("000000000000000000001.parquet", "ME020", "21 digits, expected 20"),
            ("²" * 20 + ".parquet", "ME020", "not only digits"),
            ("163A09D2-8248-423F-9AB4-CEE3366BA59C.parquet", "ME020", "not only digits"),
            ("00000000000000000001.x.parquet", "ME020", "not only digits"),
            ("00000000000000000001.csv", "ME021", "extension csv, expected parquet"),
            ("00000000000000000001", "ME021", "extension none, expected parquet"),
            ("00000000000000000001.parquet.tmp", "ME021", "extension parquet.tmp,"),
            ("00000000000000000001.csv.temp", "ME021", "extension csv.temp,"),
            ("00000000000000000001.parquet.uploading", "ME021", "extension parquet.uploading,"),
            ("_00000000000000000001.parquet", "ME021", "extension parquet behind a leading `_`"),
            (".00000000000000000001.parquet", "ME021", "extension parquet behind a leading `.`"),
            ("_schema.json", "ME021", "extension json behind"),
            (name(0), "ME022", "last applied (0)"),
        ],
    )
    def test_another_name_is_ignored_with_its_reason(self, path: str, code: str, text: str) -> None:
        found = look([path])
        assert (paths(found.ready), paths(found.ignored), said(found)) == ([], [path], [(code, path)])
        assert text in found.diagnostics[0].message

    def test_a_number_behind_the_watermark_is_never_read(self) -> None:
        found = look([2, 4], known=progress(watermarks={"": 3}))
        assert paths(found.ready) == [name(4)]
        assert ("ME022", name(2)) in said(found)

    def test_of_two_spellings_of_one_number_the_plain_one_counts(self) -> None:
        twin = name(1, "PARQUET")
        found = look([twin, 1, 2])
        assert paths(found.ready) == [name(1), name(2)]
        assert said(found) == [("ME022", twin)]
        assert "last applied (1)" in found.diagnostics[0].message

    def test_two_odd_spellings_are_decided_by_name(self) -> None:
        assert paths(look([name(1, "parqueT"), name(1, "PARQUET")]).ready) == [name(1, "PARQUET")]

    def test_an_unchanged_applied_file_has_no_diagnostic(self) -> None:
        known = progress(file(1), file(2), watermarks={"": 2})
        found = look([1, 2, 3], known=known)
        assert (paths(found.ready), found.diagnostics, found.ignored) == ([name(3)], (), ())

    def test_an_applied_path_with_other_content_is_not_read(self) -> None:
        known = progress(file(1), watermarks={"": 1})
        found = look([file(1, size=9)], known=known)
        assert (found.ready, said(found)) == ((), [("ME026", name(1))])
        strict = look([file(1, size=9)], known=known, strict=True)
        assert strict.diagnostics[0].severity is Severity.ERROR

    def test_the_newest_applied_file_may_be_deleted(self) -> None:
        found = look([], known=progress(file(1), file(2), watermarks={"": 2}))
        assert said(found) == [("ME073", name(2))]
        assert "next number is 00000000000000000003.parquet" in found.diagnostics[0].message

    def test_older_applied_files_are_not_missed(self) -> None:
        assert look([2], known=progress(file(1), file(2), watermarks={"": 2})).diagnostics == ()

    def test_the_last_number_has_no_next(self) -> None:
        found = look([LAST], known=progress(watermarks={"": LAST - 1}))
        assert paths(found.ready) == [name(LAST)]
        assert found.next_files == {}
        after = look([], known=progress(file(LAST), watermarks={"": LAST}))
        assert [each.message for each in after.diagnostics] == ["newest applied file was deleted; next number is none"]

    def test_back_in_sequential_mode_the_next_is_the_highest_applied_plus_one(self) -> None:
        known = progress(file(2), file(7), file("a.parquet"))
        found = look([2, 6, 7, 8, "a.parquet", "b.parquet"], known=known)
        assert paths(found.ready) == [name(8)]
        assert said(found) == [("ME020", "b.parquet"), ("ME022", name(6))]


class TestInOrderOfTime:
    def test_every_name_with_the_extension_is_taken_oldest_first(self) -> None:
        found = look([file("b.PARQUET", 2), file(9, 3), file("z.parquet", 1), file("c.csv", 0)], TIMED)
        assert paths(found.ready) == ["z.parquet", "b.PARQUET", name(9)]
        assert (found.missing_file, found.next_files) == (None, {})
        assert said(found) == [("ME021", "c.csv")]

    def test_equal_times_are_ordered_by_name_and_reported(self) -> None:
        found = look([file("b.parquet", 1), file("a.parquet", 1), file("c.parquet", 2)], TIMED)
        assert paths(found.ready) == ["a.parquet", "b.parquet", "c.parquet"]
        assert [each.full_message for each in found.diagnostics] == [
            "Sales.schema/Items/a.parquet: 2 files have the same modification time; their order is undefined [ME028]"
        ]

    def test_a_late_file_with_an_older_time_is_applied_when_first_seen(self) -> None:
        known = progress(file("a.parquet", 5))
        found = look([file("a.parquet", 5), file("b.parquet", 4), file("c.parquet", 5)], TIMED, known)
        assert paths(found.ready) == ["b.parquet", "c.parquet"]
        assert said(found) == [("ME029", "b.parquet")]

    def test_applied_paths_are_kept_after_a_change_of_strategy(self) -> None:
        found = look([1, 2], TIMED, progress(file(1), watermarks={"": 1}))
        assert paths(found.ready) == [name(2)]

    @pytest.mark.parametrize("path", ["_a.parquet", "a.parquet.tmp", "a.parquet.uploading", "aparquet"])
    def test_temporary_names_are_ignored(self, path: str) -> None:
        assert said(look([path], TIMED)) == [("ME021", path)]


class TestPartitions:
    def test_each_leaf_has_its_own_numbers_and_gaps_in_path_order(self) -> None:
        files = [f"day=2/{name(1)}", f"day=1/{name(2)}", f"day=1/{name(1)}", f"day=2/{name(3)}"]
        found = look(files, PARTITIONED)
        assert paths(found.ready) == [f"day=1/{name(1)}", f"day=1/{name(2)}", f"day=2/{name(1)}"]
        assert found.missing_file == f"day=2/{name(2)}"
        assert found.next_files == {"day=1": name(3), "day=2": name(2)}
        assert found.partition_columns == ("day",)
        assert said(found) == [("ME019", "day=2")]

    def test_watermarks_are_per_leaf(self) -> None:
        known = progress(file(f"day=1/{name(1)}"), watermarks={"day=1": 1})
        found = look([f"day=1/{name(1)}", f"day=1/{name(2)}", f"day=2/{name(1)}"], PARTITIONED, known)
        assert paths(found.ready) == [f"day=1/{name(2)}", f"day=2/{name(1)}"]

    def test_without_the_flag_such_folders_are_ignored_once_each(self) -> None:
        found = look([1, f"day=1/{name(1)}", f"day=1/{name(2)}"])
        assert paths(found.ready) == [name(1)]
        assert paths(found.ignored) == [f"day=1/{name(1)}", f"day=1/{name(2)}"]
        assert said(found) == [("ME030", "day=1")]

    def test_with_the_flag_files_outside_a_leaf_are_ignored(self) -> None:
        found = look([1, f"day=1/{name(1)}", f"day=1/hour=2/{name(1)}"], PARTITIONED)
        assert paths(found.ready) == [f"day=1/hour=2/{name(1)}"]
        assert said(found) == [("ME031", name(1)), ("ME031", f"day=1/{name(1)}")]
        assert "not in a partition folder of `day/hour`" in found.diagnostics[0].message

    def test_leaves_of_other_columns_than_the_first_are_ignored(self) -> None:
        found = look([f"b=1/{name(1)}", f"a=1/{name(1)}", f"a=2/c=1/{name(1)}", f"A=3/{name(1)}"], PARTITIONED)
        assert paths(found.ready) == [f"A=3/{name(1)}", f"a=1/{name(1)}"]
        assert said(found) == [("ME031", "a=2/c=1"), ("ME031", "b=1")]

    def test_leaves_name_a_column_in_any_case_and_number_for_themselves(self) -> None:
        found = look([f"Day=1/{name(1)}", f"day=1/{name(1)}", f"day=1/{name(2)}"], PARTITIONED)
        assert paths(found.ready) == [f"Day=1/{name(1)}", f"day=1/{name(1)}", f"day=1/{name(2)}"]
        assert (found.partition_columns, said(found)) == (("Day",), [])

    def test_a_table_keeps_the_columns_it_has(self) -> None:
        known = progress(file(f"day=1/{name(1)}"), watermarks={"day=1": 1})
        found = look([f"a=1/{name(1)}", f"day=1/{name(1)}", f"day=2/{name(1)}"], PARTITIONED, known)
        assert paths(found.ready) == [f"day=2/{name(1)}"]

    def test_a_table_without_partitions_gets_none_later(self) -> None:
        found = look([1, f"day=1/{name(1)}"], PARTITIONED, progress(file(1), watermarks={"": 1}))
        assert (found.ready, said(found)) == ((), [("ME031", "day=1")])

    def test_ignored_files_name_no_columns(self) -> None:
        found = look([f"a=1/_{name(1)}", f"b=1/{name(1)}"], PARTITIONED)
        assert found.partition_columns == ("b",)

    def test_a_key_without_a_partition_column_is_reported(self) -> None:
        files = [f"day=1/hour=1/{name(1)}"]
        assert said(look(files, replace(PARTITIONED, key_columns=("Id", "DAY")))) == [("ME033", "")]
        assert said(look(files, replace(PARTITIONED, key_columns=("Id", "day", "hour")))) == []

    def test_a_deleted_leaf_is_reported_with_its_next_number(self) -> None:
        known = progress(file(f"day=1/{name(3)}"), watermarks={"day=1": 3})
        found = look([f"day=2/{name(1)}"], PARTITIONED, known)
        assert said(found) == [("ME073", f"day=1/{name(3)}")]
        assert found.next_files == {"day=1": name(4), "day=2": name(2)}

    def test_leaves_in_order_of_time_follow_each_other_by_path(self) -> None:
        timed = replace(TIMED, partitioned=True)
        found = look([file("d=2/a.parquet", 1), file("d=1/b.parquet", 9), file("d=1/c.parquet", 5)], timed)
        assert paths(found.ready) == ["d=1/c.parquet", "d=1/b.parquet", "d=2/a.parquet"]


names = st.one_of(
    st.integers(0, 6).map(name),
    st.sampled_from([name(2, "PARQUET"), name(3, "csv"), "_x.parquet", "a.parquet", "7.parquet", "b.parquet.tmp"]),
)
folders = st.sampled_from(["", "", "d=1/", "d=2/", "e=1/", "d=1/e=1/"])
listings = st.lists(
    st.builds(lambda f, n, m, i: file(f + n, m, i), folders, names, st.integers(0, 2), st.sampled_from("ab")),
    max_size=12,
    unique_by=lambda each: each.path,
)
metadatas = st.builds(Metadata, strategy=st.sampled_from(Strategy), partitioned=st.booleans())


@pytest.mark.slow
@given(listings, listings, metadatas, st.sampled_from(["1", "lowest"]), st.randoms())
def test_detection_keeps_its_promises(
    files: list[LandedFile], applied: list[LandedFile], metadata: Metadata, start: Any, rng: random.Random
) -> None:
    """Whatever lies there: no gap is jumped, nothing is read twice, every file has one fate, order does not count."""
    known = progress(*applied)
    found = look(files, metadata, known, first_file=start)
    shuffled = files[:]
    rng.shuffle(shuffled)
    assert look(shuffled, metadata, known, first_file=start) == found
    fates = paths((*found.ready, *found.later, *found.ignored))
    assert len(set(fates)) == len(fates)
    unchanged = {each.path for each in files if each.path in known.applied} - set(paths(found.ignored))
    assert set(fates) | unchanged == {each.path for each in files}
    assert not set(paths((*found.ready, *found.later))) & set(known.applied)
    if metadata.strategy is Strategy.SEQUENTIAL:
        assert_unbroken(found, known, start)


def assert_unbroken(found: Detection, known: Progress, start: str) -> None:
    for partition in {each.partition for each in found.ready}:
        numbers = [int(each.name[:20]) for each in found.ready if each.partition == partition]
        done = [each.rpartition("/") for each in known.applied]
        below = max((int(last[:20]) for folder, _, last in done if folder == partition and "000" in last), default=0)
        first = min(numbers) if start == "lowest" and not below else below + 1
        assert numbers == list(range(first, first + len(numbers)))
        later = [int(each.name[:20]) for each in found.later if each.partition == partition]
        assert all(number > numbers[-1] + 1 for number in later)


@given(st.sets(st.integers(1, 12)), st.integers(0, 3))
def test_landing_the_missing_numbers_lets_everything_through(numbers: set[int], watermark: int) -> None:
    known = progress(watermarks={"": watermark})
    waiting = {number for number in numbers if number > watermark}
    whole = waiting | set(range(watermark + 1, max(waiting, default=watermark)))
    assert len(look(numbers | whole, known=known).ready) == len(whole)
