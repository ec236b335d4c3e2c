"""File names, detection order and gaps (protocol chapter 3)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.landing_zone.detection import LAST, detect, is_data, marks_after, numbered_name, sequence_of
from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.landing_zone.listing import Entry
from mirror_engine.landing_zone.metadata import FileFormat, Metadata, Strategy
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import AppliedFile, FolderProgress, Mark

ITEMS = TableName("Sales", "Items")
NUMBERED = Metadata()
TEXT = Metadata(file_format=FileFormat.CSV, extension="csv")
TIMED = Metadata(strategy=Strategy.LAST_UPDATE_TIME)
PARTITIONED = Metadata(partitioned=True)


def name(number, extension="parquet"):
    return f"{number:020d}.{extension}"


def file(path, modified_ns=0, identity="i", size=1):
    return Entry(name(path) if isinstance(path, int) else path, size, modified_ns, identity)


def progress(*applied, watermarks=None):
    files = {each.path: AppliedFile(each.etag, "d", 0, 1, each.modified_ns) for each in applied}
    marks = marks_after({}, files, in_order=False)
    in_order = {
        place: replace(marks.get(place, Mark()), watermark=number) for place, number in (watermarks or {}).items()
    }
    return FolderProgress({**marks, **in_order}, files)


NOTHING = FolderProgress()


def look(files, metadata=NUMBERED, known=NOTHING, first_file="1", **options):
    sighted = [each if isinstance(each, Entry) else file(each) for each in files]
    return detect(ITEMS, sighted, metadata, known, first_file, **options)


def paths(files):
    return [each.path for each in files]


def said(found):
    return [(each.code, each.path.removeprefix("Sales.schema/Items").lstrip("/")) for each in found.diagnostics]


def test_a_number_has_a_name_but_for_those_outside_twenty_digits():
    assert [numbered_name(1), numbered_name(LAST, "csv")] == [name(1), name(LAST, "csv")]
    assert [sequence_of(text) for text in (name(1), name(LAST), name(3, "csv.gz"), "_" + name(1))] == [1, LAST, 3, 0]
    for number in (0, -1, LAST + 1):
        with pytest.raises(ValueError, match="sequence is"):
            numbered_name(number)


IN_DAY_1 = progress(file(f"day=1/{name(1)}"), watermarks={"day=1": 1})
ONE_AND_TWO = progress(file(1), file(2), watermarks={"": 2})
ARCHIVED = progress(file("b.parquet", 2))  # by Fabric, which tells no etag of `a.parquet`
ARCHIVED = replace(ARCHIVED, applied={"a.parquet": AppliedFile("", "", 0, 0, 9), **ARCHIVED.applied})
CASES = {
    # in sequence
    "files are taken by number up to the first gap": (
        ([4, 2, 1, 5],),
        {
            "ready": [1, 2],
            "later": [4, 5],
            "missing_file": name(3),
            "next_files": {"": name(3)},
            "said": [("ME019", "")],
        },
    ),
    "nothing waits where nothing is missing": (([1, 2],), {"ready": [1, 2], "later": [], "missing_file": None}),
    "after a commit the lowest number present means nothing": (
        ([5], NUMBERED, progress(watermarks={"": 2}), "lowest"),
        {"missing_file": name(3), "said": [("ME019", ""), ("ME073", "")]},
    ),
    "the extension is the table's in any case": (
        ([name(1, "CSV"), name(2, "csv"), name(3)], TEXT),
        {"ready": [name(1, "CSV"), name(2, "csv")], "next_files": {"": name(3, "csv")}, "said": [("ME021", name(3))]},
    ),
    "a number behind the watermark is never read": (
        ([2, 4], NUMBERED, progress(watermarks={"": 3})),
        {"ready": [4], "said": [("ME022", name(2)), ("ME073", "")]},
    ),
    "of two spellings of one number the plain one counts": (
        ([name(1, "PARQUET"), 1, 2],),
        {"ready": [1, 2], "said": [("ME022", name(1, "PARQUET"))]},
    ),
    "an unchanged applied file has no diagnostic": (([1, 2, 3], NUMBERED, ONE_AND_TWO), {"ready": [3], "ignored": []}),
    "an applied path with other content is not read": (
        ([file(1, size=9)], NUMBERED, progress(file(1), watermarks={"": 1})),
        {"ignored": [1], "said": [("ME026", name(1))]},
    ),
    "without its etag an applied path holds the applied file if that is not newer than the commit": (
        ([file("a.parquet", 9)], TIMED, ARCHIVED),
        {"ignored": [], "said": []},
    ),
    "and another one if it is": (
        ([file("a.parquet", 10)], TIMED, ARCHIVED),
        {"ignored": ["a.parquet"], "said": [("ME026", "a.parquet")]},
    ),
    "no file is late for the time of a commit": (([file("c.parquet", 3)], TIMED, ARCHIVED), {"ready": ["c.parquet"]}),
    "the newest applied file may be deleted": (([], NUMBERED, ONE_AND_TWO), {"said": [("ME073", name(2))]}),
    "the last number has no next": (
        ([LAST], NUMBERED, progress(watermarks={"": LAST - 1})),
        {"ready": [LAST], "next_files": {}, "said": [("ME073", "")]},
    ),
    "back in sequential mode the next is the highest applied plus one": (
        ([2, 6, 7, 8, "a.parquet", "b.parquet"], NUMBERED, progress(file(2), file(7), file("a.parquet"))),
        {"ready": [8], "said": [("ME020", "b.parquet"), ("ME022", name(6))]},
    ),
    # in order of time
    "every name with the extension is taken oldest first": (
        ([file("b.PARQUET", 2), file(9, 3), file("z.parquet", 1), file("c.csv", 0)], TIMED),
        {"ready": ["z.parquet", "b.PARQUET", 9], "missing_file": None, "next_files": {}, "said": [("ME021", "c.csv")]},
    ),
    "a late file with an older time is applied when first seen": (
        ([file("a.parquet", 5), file("b.parquet", 4), file("c.parquet", 5)], TIMED, progress(file("a.parquet", 5))),
        {"ready": ["b.parquet", "c.parquet"], "said": [("ME029", "b.parquet")]},
    ),
    # partitions
    "watermarks are per leaf": (
        ([f"day=1/{name(1)}", f"day=1/{name(2)}", f"day=2/{name(1)}"], PARTITIONED, IN_DAY_1),
        {"ready": [f"day=1/{name(2)}", f"day=2/{name(1)}"]},
    ),
    "with the flag files outside a leaf are ignored": (
        ([1, f"day=1/{name(1)}", f"day=1/hour=2/{name(1)}"], PARTITIONED),
        {"ready": [f"day=1/hour=2/{name(1)}"], "said": [("ME031", name(1)), ("ME031", f"day=1/{name(1)}")]},
    ),
    "leaves of other columns than the first are ignored": (
        ([f"b=1/{name(1)}", f"a=1/{name(1)}", f"a=2/c=1/{name(1)}", f"A=3/{name(1)}"], PARTITIONED),
        {"ready": [f"A=3/{name(1)}", f"a=1/{name(1)}"], "said": [("ME031", "a=2/c=1"), ("ME031", "b=1")]},
    ),
    "leaves name a column in any case and number for themselves": (
        ([f"Day=1/{name(1)}", f"day=1/{name(1)}", f"day=1/{name(2)}"], PARTITIONED),
        {"ready": [f"Day=1/{name(1)}", f"day=1/{name(1)}", f"day=1/{name(2)}"], "partition_columns": ("Day",)},
    ),
    "a table keeps the columns it has": (
        ([f"a=1/{name(1)}", f"day=1/{name(1)}", f"day=2/{name(1)}"], PARTITIONED, IN_DAY_1),
        {"ready": [f"day=2/{name(1)}"], "said": [("ME031", "a=1")]},
    ),
    "a table without partitions gets none later": (
        ([1, f"day=1/{name(1)}"], PARTITIONED, progress(file(1), watermarks={"": 1})),
        {"said": [("ME031", "day=1")]},
    ),
    "a key without a partition column is reported": (
        ([f"day=1/hour=1/{name(1)}"], replace(PARTITIONED, key_columns=("Id", "DAY"))),
        {"ready": [f"day=1/hour=1/{name(1)}"], "said": [("ME033", "")]},
    ),
    "a deleted leaf is reported with its next number": (
        ([f"day=2/{name(1)}"], PARTITIONED, progress(file(f"day=1/{name(3)}"), watermarks={"day=1": 3})),
        {
            "ready": [f"day=2/{name(1)}"],
            "next_files": {"day=1": name(4), "day=2": name(2)},
            "said": [("ME073", f"day=1/{name(3)}")],
        },
    ),
    "leaves in order of time follow each other by path": (
        ([file("d=2/a.parquet", 1), file("d=1/b.parquet", 9), file("d=1/c.parquet", 5)],
         replace(TIMED, partitioned=True)),
        {"ready": ["d=1/c.parquet", "d=1/b.parquet", "d=2/a.parquet"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_files_are_detected_as_the_protocol_says(case):
    given_files, expected = CASES[case]
    found = look(*given_files)
    actual = {**vars(found), "said": said(found)}
    for field, value in {"ready": [], "said": [], **expected}.items():
        files = field in {"ready", "later", "ignored"}
        wanted = [name(each) if isinstance(each, int) else each for each in value] if files else value
        assert (paths(actual[field]) if files else actual[field]) == wanted, field


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("1.parquet", "ME020", "1 digit, expected 20 digits before `.parquet`"),
        ("000000000000000000001.parquet", "ME020", "21 digits, expected 20 digits"),
        ("²" * 20 + ".parquet", "ME020", "`²²²²²²²²²²²²²²²²²²²²`, expected 20 digits"),
        ("+0000000000000000001.parquet", "ME020", "`+0000000000000000001`, expected"),
        ("163A09D2-8248-423F-9AB4-CEE3366BA59C.parquet", "ME020", "`163A09D2-8248-423F-9AB4-CEE3366BA59C`, exp"),
        ("00000000000000000001.x.parquet", "ME020", "`.x` after the digits, expected 20 digits before `.parquet`"),
        ("00000000000000000001.csv", "ME021", "extension `csv`, expected `parquet`"),
        ("00000000000000000001", "ME021", "no extension, expected `parquet`"),
        ("00000000000000000001.parquet.tmp", "ME021", "extension `parquet.tmp`,"),
        ("_00000000000000000001.parquet", "ME082", "name starts with `_`"),
        (".00000000000000000001.parquet", "ME082", "name starts with `.`"),
        (name(0), "ME022", "last applied (0)"),
    ],
)
def test_another_name_is_ignored_with_its_reason(path, code, text):
    found = look([path])
    assert (paths(found.ready), paths(found.ignored), said(found)) == ([], [path], [(code, path)])
    assert text in found.diagnostics[0].message


@pytest.mark.parametrize(("last", "following"), [(2, name(3)), (LAST, "none")])
def test_the_next_number_is_named_where_the_newest_applied_file_is_gone(last, following):
    """LZ-8.4."""
    found = look([], known=progress(file(last), watermarks={"": last}))
    assert f"next number is {following}" in found.diagnostics[0].message


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
def test_detection_keeps_its_promises(files, applied, metadata, start, rng):
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


def assert_unbroken(found, known, start):
    for partition in {each.partition for each in found.ready}:
        numbers = [int(each.name[:20]) for each in found.ready if each.partition == partition]
        done = [each.rpartition("/") for each in known.applied]
        below = max((int(last[:20]) for folder, _, last in done if folder == partition and "000" in last), default=0)
        first = min(numbers) if start == "lowest" and not below else below + 1
        assert numbers == list(range(first, first + len(numbers)))
        later = [int(each.name[:20]) for each in found.later if each.partition == partition]
        assert all(number > numbers[-1] + 1 for number in later)


@given(st.sets(st.integers(1, 12)), st.integers(0, 3))
def test_landing_the_missing_numbers_lets_everything_through(numbers, watermark):
    known = progress(watermarks={"": watermark})
    waiting = {number for number in numbers if number > watermark}
    whole = waiting | set(range(watermark + 1, max(waiting, default=watermark)))
    assert len(look(numbers | whole, known=known).ready) == len(whole)


def test_an_overwritten_file_is_an_error_under_strict():
    (said,) = look([file(1, size=9)], known=progress(file(1), watermarks={"": 1}), strict=True).diagnostics
    assert said.severity is Severity.ERROR


@pytest.mark.parametrize("extension", ["parquet", "parq", "csv.gz", "avro", "jsonl", "PARQUET ", "dat", ""])
def test_numbered_file_of_any_format_is_data(extension):
    assert is_data(f"{1:020}.{extension}".rstrip("."))


@pytest.mark.parametrize(
    "name", [f"{1:020}.parquet.tmp", f"{1:020}.tmp", f"{1:020}.part", "_1.parquet", "conf.json", "1"]
)
def test_temporary_and_other_names_are_no_data(name):
    """A publisher may be writing there (LZ-3.9)."""
    assert not is_data(name)
