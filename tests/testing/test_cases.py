"""Cases are read as fixtures/README.md describes: each block as its bytes, and every mistake with its line."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror_engine.landing_zone.diagnostics import PAGES
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.testing.cases import parse

README = (Path(__file__).parents[2] / "fixtures/README.md").read_text(encoding="utf-8")
WHOLE = re.search(r"^~~~markdown\n(.*?)^~~~$", README, re.MULTILINE | re.DOTALL)[1]


def landed(info, text=""):
    """The one file of a case whose only block this is."""
    block = f"~~~{info}\n{text}\n~~~" if text else f"~~~{info}\n~~~"
    (file,) = (
        parse("a", f"---\nrules: LZ-1.1\n---\n\n# A\n\n## Lands\n\n{block}\n\n## Result: caught_up\n").stages[0].files
    )
    return file


def test_readme_shows_a_case_of_two_stages():
    case = parse("a", WHOLE)
    assert [(stage.title, stage.removed, len(stage.files)) for stage in case.stages] == [
        ("", (), 2),
        ("the file is deleted and landed corrected", ("Orders/00000000000000000001.parquet",), 1),
    ]
    assert case.rules == ("LZ-4.12", "LZ-3.11")
    assert (case.title[:11], case.result, case.diagnostics) == ("A rejection", "caught_up", ())
    assert [(each.code, each.path, each.row) for each in case.earlier] == [
        ("ME037", "Orders/00000000000000000001.parquet", 2)
    ]
    assert case.tables["dbo/Orders"].rows == ({"Id": "A1", "City": "Linz"}, {"Id": "B7", "City": None})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", '"a, b:c"', "a, b:c"),
        ("binary[2]", '"00ff"', b"\x00\xff"),
        ("double", '"NaN"', float("nan")),
        ("int8", "-1", -1),
        ("decimal128(9,2)", '"1.50"', 1.5),
        ("timestamp[ns,UTC]", '"2026-01-01T12:00:00.000000001Z"', 1767268800000000001),
        ("list<int32>", "[1, 2]", [1, 2]),
        ("map<string,int32>", '{"a": 1}', [("a", 1)]),
        ("struct<a:int64>", '{"a": 1}', {"a": 1}),
    ],
)
def test_rows_become_parquet_of_their_types(kind, text, value):
    content = landed("rows T/a.parquet", f'"x, y":{kind}, Id:int32 not null\n{text},\n  7\nnull, 8').content
    column, numbers = (chunked.combine_chunks() for chunked in pq.read_table(io.BytesIO(content)).columns)
    found = column.cast(pa.int64())[0].as_py() if pa.types.is_timestamp(column.type) else column[0].as_py()
    assert str(found) == str(value) or found == value
    assert column[1].as_py() is None
    assert numbers.to_pylist() == [7, 8]
    assert not pq.read_schema(io.BytesIO(content)).field("Id").nullable


def test_options_of_a_block_are_kept():
    file = landed("text at=2026-01-01T12:00:00.000000001Z write=in-place zone=older T/a b.csv", "x")
    assert (file.path, file.modified_ns, file.is_in_place) == ("T/a b.csv", 1767268800000000001, True)
    assert (file.zone, landed("text T/a").zone) == (OLDER_ZONE, ZONE)
    codec = pq.ParquetFile(io.BytesIO(landed("rows compression=zstd T/a", "Id:int32\n1").content)).metadata
    assert codec.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("rules:", "colour: red\nrules:", "a.md: unknown fields in the front matter: colour"),
        ("rules:", "rules", "a.md: no front matter"),
        ("rules:", "options: colour=red\nrules:", "unknown options: colour"),
        ('"B7", null, 0', "B7, null, 0", "a.md:25: B7, null, 0 is not a row of JSON values: Expecting value"),
        ("# A rejection", "A rejection", "a.md lacks a title"),
        ("## Then the", "## And the", 'a.md:19: "And the file is deleted and landed corrected" is not'),
        ("```json", "```yaml", 'a.md:9: "yaml Orders/_metadata.json" is not `removed`, or base64, csv'),
        ("```json", "```json colour=red", 'a.md:9: "json colour=red Orders/_metadata.json" is not'),
        ("## Result: caught_up", "## Fixed", 'a.md:31: "Fixed" is not'),
        ("```removed", "```removed x", 'a.md:21: "removed x" is not'),
        ('"B7", "Graz", 3', '"B7", "Graz"', "a.md:13: 2 values in a row of 3 columns"),
        ("City:string, __row", "City:strong, __row", "a.md:13: No type alias for strong"),
        ("Id:string, City:string, __row", "Id, City:string, __row", 'a.md:13: "Id, City:string, '),
        (", row 2\n```", ", row 2\n", "a.md:33: no end of ```earlier"),
        ("```earlier", "```later", 'a.md:39: "later" is not table, diagnostics'),
        ("ME037 Orders", "ME37 Orders", 'a.md:39: "ME37 Orders/00000000000000000001.parquet, row 2" is not'),
    ],
)
def test_mistake_is_named_with_its_line(old, new, error):
    assert old in WHOLE
    with pytest.raises(ValueError, match=re.escape(error)):
        parse("a", WHOLE.replace(old, new, 1))


def test_fixed_form_lands_a_path_once_where_it_is_first_named():
    text = (PAGES / "ME026.md").read_text(encoding="utf-8")
    stages = parse("ME026", text).stages
    fixed = parse("ME026", text).fixed_stages()
    assert [[file.path[-9:] for file in stage.files] for stage in stages] == [
        ["data.json", "1.parquet"],
        ["1.parquet", "2.parquet"],
    ]
    assert [[file.path[-9:] for file in stage.files] for stage in fixed] == [
        ["data.json", "1.parquet"],
        ["2.parquet", "3.parquet"],
    ]
    left_out = parse("ME064", (PAGES / "ME064.md").read_text(encoding="utf-8")).fixed_stages()
    assert [[file.path[-9:] for file in stage.files] for stage in left_out] == [["data.json", "1.parquet"]]
