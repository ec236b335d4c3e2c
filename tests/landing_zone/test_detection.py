"""File names, detection order and gaps (protocol chapter 3)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.landing_zone.detection import LAST, detect, is_data, marks_after, numbered_name, sequence_of
from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.landing_zone.listing import Entry
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import AppliedFile, FolderProgress, Mark

ITEMS = TableName("Sales", "Items")
NUMBERED = Metadata()
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
ARCHIVED = progress(file("b.parquet", 2))  # by Fabric, which tells no etag of `a.parquet`
ARCHIVED = replace(ARCHIVED, applied={"a.parquet": AppliedFile("", "", 0, 0, 9), **ARCHIVED.applied})
CASES = {
    # in sequence
    "after a commit the lowest number present means nothing": (
        ([5], NUMBERED, progress(watermarks={"": 2}), "lowest"),
        {"missing_file": name(3), "said": [("ME019", ""), ("ME073", "")]},
    ),
    "of two spellings of one number the plain one counts": (
        ([name(1, "PARQUET"), 1, 2],),
        {"ready": [1, 2], "said": [("ME022", name(1, "PARQUET"))]},
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
    "the last number has no next": (
        ([LAST], NUMBERED, progress(watermarks={"": LAST - 1})),
        {"ready": [LAST], "next_files": {}, "said": [("ME073", "")]},
    ),
    "back in sequential mode the next is the highest applied plus one": (
        ([2, 6, 7, 8, "a.parquet", "b.parquet"], NUMBERED, progress(file(2), file(7), file("a.parquet"))),
        {"ready": [8], "said": [("ME020", "b.parquet"), ("ME022", name(6))]},
    ),
    # partitions
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
        ("+0000000000000000001.parquet", "ME020", "`+0000000000000000001`, expected"),
        ("00000000000000000001.parquet.tmp", "ME021", "extension `parquet.tmp`,"),
        (".00000000000000000001.parquet", "ME082", "name starts with `.`"),
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
