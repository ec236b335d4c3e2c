"""A header that names no declared column is explained: by another dialect, near names, or a missing header."""

from __future__ import annotations

import pytest

from mirror_engine.landing_zone.csv_dialect import TextDialect
from mirror_engine.landing_zone.csv_header import header_fault, likely_options, meant_name, partial_fault

NAMES = ["id", "name", "price"]
ROWS = "id,name,price\n1,a,2.5\n2,b,3.5\n"


def text(separator=",", quote="", end="\n", encoding="utf-8"):
    lines = [[f"{quote}{cell}{quote}" for cell in line.split(",")] for line in ROWS.splitlines()]
    return "".join(separator.join(line) + end for line in lines).encode(encoding)


@pytest.mark.parametrize(
    ("content", "dialect", "options"),
    [
        (text("|"), {"column_separator": ";"}, "`ColumnSeparator` `|`"),
        (text(quote='"'), {"quote": "'"}, '`QuoteCharacter` `"`'),
        (text(quote="'"), {"escape": ""}, "`QuoteCharacter` `'`"),
        (text(";", quote="'"), {}, "`ColumnSeparator` `;` and `QuoteCharacter` `'`"),
        (text(end="\r"), {"row_separator": "\n"}, "`RowSeparator` `\\r`"),
        (text(end="\n"), {"row_separator": "\r"}, "`RowSeparator` `\\n`"),
        (text(encoding="utf-16-be"), {}, "`Encoding` `UTF-16BE`"),
        (text(";", encoding="utf-16"), {}, "`Encoding` `UTF-16` and `ColumnSeparator` `;`"),
        (text(";", encoding="utf-8-sig"), {"encoding": "cp1252"}, "`Encoding` `UTF-8` and `ColumnSeparator` `;`"),
        ("id;name;price\n1;é".encode()[:-1], {}, "`ColumnSeparator` `;`"),  # it ends within a character
        (text(), {}, ""),
        (b"1,a,2.5\n", {}, ""),
        (b"", {}, ""),
        (b"\xff\xfe\x00", {}, ""),
    ],
)
def test_likely_options_name_what_fits_the_first_line(content, dialect, options):
    assert likely_options(content, TextDialect(**dialect), NAMES) == options


@pytest.mark.parametrize(
    ("header", "found", "advice"),
    [
        (["1;secret"], "the first line is one field and looks like a row", "is `FirstRowAsHeader` false?"),
        (["id;name;price;" + "k" * 300], f"it is one field `id;name;price;{'k' * 86}…`", "is `ColumnSeparator` `;`?"),
        (["x@y.org", "Anna"], "the first line is 2 fields and looks like a row", "is `FirstRowAsHeader` false?"),
        (["nmae", "prices"], "the first line is 2 fields", "did you mean `name`, `price`?"),
        (["Weight"], "the first line is one field", "write the declared names as the first line: id, name, price"),
        (["Smith", "Anna", "Linz"], "the first line is 3 fields", "write the declared names as the first line"),
        (['[{"id": 1', '"name": "a"}]'], "it is JSON", "write delimited text"),
        (["PAR1\x15\x04"], "it is a Parquet file", "is `FileFormat` `Parquet`?"),
        (["i\0d\0", "\0n\0a\0m\0e\0"], "it is in another encoding", "is `Encoding` `UTF-16`?"),
        (["Smith", "Anna", "Linz", "d", "e"], "the first line is 5 fields", "write the declared names"),
        (["k" * 300], "the first line is one field", "write the declared names"),
    ],
)
def test_header_fault_shows_names_but_no_rows(header, found, advice):
    fault = header_fault(header, ",".join(header).encode(), TextDialect(), NAMES)
    assert fault.found == found
    assert fault.advice.startswith(advice)


@pytest.mark.parametrize(
    ("separator", "shown"),
    [
        (":", "`:`"),
        (" ", "` `"),
        ("\\t", "a backslash and `t`"),
        ("\x01", "`\\x01`"),
        ("\uff0c", "`\uff0c`"),
    ],
)
def test_separator_that_cannot_be_declared_is_named(separator, shown):
    fault = header_fault([separator.join(NAMES)], text(separator), TextDialect(), NAMES)
    assert fault.found == f"{shown} is between `id`, `name`, `price`"
    assert fault.advice.endswith(f"; `ColumnSeparator` cannot be {shown}")


@pytest.mark.parametrize(
    ("content", "line", "advice"),
    [
        (b"# exported\r\n" + text(), 2, "delete everything before them"),
        (b"Products;;\n\n" + text(), 3, "delete everything before them"),
        (b"sep=,\n" + text(), 2, "delete everything before them"),
        (
            b"sep=;\n" + text(";"),
            2,
            "delete everything before them; is `ColumnSeparator` `;`? Correct the metadata, too",
        ),
        (text(encoding="utf-16-le").replace(b"i\0d\0", b"x\0\n\0i\0d\0", 1), 2, "delete everything before them"),
    ],
)
def test_header_behind_other_lines_is_found(content, line, advice):
    dialect = TextDialect(encoding="utf-16-le" if b"\0" in content else "utf-8")
    fault = header_fault(["Products"], content, dialect, NAMES, ["id"])
    assert fault == (f"the names of the columns are in line {line}", advice)


def test_likely_options_name_the_key_and_leave_no_name_in_quotes():
    """Else who follows them loses columns, without an error."""
    whole_line = b'"id,name,price,__rowMarker__"\n"1,a,2,2"\n'
    assert likely_options(whole_line, TextDialect(), NAMES) == ""
    fault = header_fault(["id,name,price,__rowMarker__"], whole_line, TextDialect(), NAMES)
    assert fault.found == "one pair of quotes is around `id`, `name`, `price`, `__rowMarker__`"
    assert likely_options(b"code;name;price\n", TextDialect(), NAMES) == "`ColumnSeparator` `;`"
    assert likely_options(b"code;name;price\n", TextDialect(), NAMES, ["id"]) == ""
    assert likely_options(b"id;a;b;c;d\n", TextDialect(), NAMES) == ""


def partial(*header, keys=("id",), names=NAMES):
    return partial_fault(header, ",".join(header).encode(), TextDialect(), names, keys)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (("id", "name;price;__rowMarker__"), "`;` is between `name`, `price`, `__rowMarker__`"),
        (("id", "weight|__rowMarker__"), "`|` is between `__rowMarker__`"),
        (("id;name", "price"), "`;` is between `id`, `name`"),
        (("id", "name^price^__rowMarker__"), "`^` is between `name`, `price`, `__rowMarker__`"),
        (("id", "'name'", "'price'"), "it names more declared columns if it is read in another way"),
        (("1", "name", "2.5"), "the first line is 3 fields and looks like a row"),
        (("Ann", "name", "Linz"), "its 3 fields are without the key `id`"),
        (("INSERT INTO t (id", "name", "price) VALUES (1", "'Ann'", "2.5);"), "its 5 fields are without the key `id`"),
    ],
)
def test_header_that_is_right_by_chance_is_explained(header, found):
    assert partial(*header).found == found


@pytest.mark.parametrize(
    "header",
    [
        ("id", "name", "price", "weight"),
        ("id", "nom", "prix"),
        ("id", "2023", "2024"),
        ("id", "name price"),
        ("id", "name", "price", "name;price"),
        ("id", "name", "", "Größe (cm)", "a;b"),
        ("id", " __rowMarker__"),
        ("code", "name", "price"),
        ("name", "weight", "2024", "__rowMarker__"),
    ],
)
def test_header_with_a_few_undeclared_names_is_no_fault(header):
    assert partial(*header) is None


def test_meant_name_forgives_blanks_quotes_and_a_byte_order_mark():
    for name in (" name", "name ", "'name'", "\ufeffname", "ï»¿name", "Nmae"):
        assert meant_name(name, NAMES) == "did you mean `name`? If not, "
    assert meant_name("weight", NAMES) == ""
