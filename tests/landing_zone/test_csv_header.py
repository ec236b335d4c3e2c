"""A header that names no declared column is explained: by another dialect, near names, or a missing header."""

from __future__ import annotations

import pytest

from mirror_engine.landing_zone.csv_dialect import TextDialect
from mirror_engine.landing_zone.csv_header import header_fault, likely_options, meant_name

NAMES = ["id", "name", "price"]
ROWS = "id,name,price\n1,a,2.5\n2,b,3.5\n"


def text(separator=",", quote="", end="\n", encoding="utf-8"):
    lines = [[f"{quote}{cell}{quote}" for cell in line.split(",")] for line in ROWS.splitlines()]
    return "".join(separator.join(line) + end for line in lines).encode(encoding)


@pytest.mark.parametrize(
    ("content", "dialect", "options"),
    [
        (text(";"), {}, "`ColumnSeparator` `;`"),
        (text("\t"), {}, "`ColumnSeparator` `\\t`"),
        (text("|"), {"column_separator": ";"}, "`ColumnSeparator` `|`"),
        (text(quote='"'), {"quote": "'"}, '`QuoteCharacter` `"`'),
        (text(quote="'"), {"escape": ""}, "`QuoteCharacter` `'`"),
        (text(";", quote="'"), {}, "`ColumnSeparator` `;` and `QuoteCharacter` `'`"),
        (text(end="\r"), {"row_separator": "\n"}, "`RowSeparator` `\\r`"),
        (text(end="\n"), {"row_separator": "\r"}, "`RowSeparator` `\\n`"),
        (text(encoding="utf-16-le"), {}, "`Encoding` `UTF-16`"),
        (text(encoding="utf-16-be"), {}, "`Encoding` `UTF-16BE`"),
        (text(";", encoding="utf-16"), {}, "`Encoding` `UTF-16` and `ColumnSeparator` `;`"),
        (text(), {"encoding": "utf-16-le"}, "`Encoding` `UTF-8`"),
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
        (["id;name;price"], "it is one field `id;name;price`", "is `ColumnSeparator` `;`? Correct the metadata"),
        (["1", "a", "2.5"], "the first line is 3 fields and looks like a row", "is `FirstRowAsHeader` false?"),
        (["1;secret"], "the first line is one field and looks like a row", "is `FirstRowAsHeader` false?"),
        (["x@y.org", "Anna"], "the first line is 2 fields and looks like a row", "is `FirstRowAsHeader` false?"),
        (["nmae", "prices"], "it is 2 fields `nmae`, `prices`", "did you mean `name`, `price`?"),
        (["sep="], "it is one field `sep=`", "write the declared names as the first line: id, name, price"),
        (["Smith", "Anna", "Linz"], "the first line is 3 fields", "write the declared names as the first line"),
        (['[{"id": 1', '"name": "a"}]'], "it is JSON", "write delimited text"),
        (["PAR1\x15\x04"], "it is a Parquet file", "is `FileFormat` `Parquet`?"),
        (["i\0d\0", "\0n\0a\0m\0e\0"], "it is in another encoding", "is `Encoding` `UTF-16`?"),
        (["k" * 300], f"it is one field `{'k' * 100}…`", "write the declared names"),
    ],
)
def test_header_fault_shows_names_but_no_rows(header, found, advice):
    fault = header_fault(header, ",".join(header).encode(), TextDialect(), NAMES)
    assert fault.found == found
    assert fault.advice.startswith(advice)


def test_meant_name_forgives_blanks_quotes_and_a_byte_order_mark():
    for name in (" name", "name ", "'name'", "\ufeffname", "ï»¿name", "Nmae"):
        assert meant_name(name, NAMES) == "did you mean `name`? If not, "
    assert meant_name("weight", NAMES) == ""
