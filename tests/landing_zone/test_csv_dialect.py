from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.landing_zone.csv_dialect import RecordReader, TextDialect, decoded
from mirror_engine.landing_zone.diagnostics import RejectedFile

DIALECTS = st.builds(
    TextDialect,
    row_separator=st.sampled_from(["\r\n", "\n", "\r"]),
    column_separator=st.sampled_from([",", ";", "|", "\t"]),
    quote=st.sampled_from(['"', "'"]),
    escape=st.sampled_from(["\\", "/", '"', ""]),
    null_value=st.sampled_from(["", "N/A", "NULL"]),
)
CELLS = st.none() | st.text("ab \"'\\/,;|\t\r\nN\u00e4\U0001f600", max_size=6) | st.just("N/A")


def pieces(text, cuts):
    edges = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def read(text, dialect=None, cuts=(), row_bytes=1 << 20):
    reader = RecordReader(dialect or TextDialect(), "Orders/1.csv", row_bytes)
    return [record for records in reader.records(pieces(text, cuts)) for record in records], reader


def rows(text, **options):
    return read(text, TextDialect(**options))[0][1:]


def refused(text, dialect=None, row_bytes=1 << 20):
    """The message, which is the same whether the header comes alone or with all rows."""
    messages = set()
    for cuts in ((), (text.find("\n") + 1,)):
        with pytest.raises(RejectedFile) as caught:
            read(text, dialect, cuts, row_bytes)
        messages.add(caught.value.message)
    (message,) = messages
    return message


@pytest.mark.parametrize(
    ("field", "cell"),
    [
        (r'"\\\""', '\\"'),
        ('""""', '"'),
        (r"out\"side", r"out\"side"),
        ('5" disk', '5" disk'),
        (' "x"', ' "x"'),
    ],
)
def test_a_field_is_read_by_its_quotes_and_escapes(field, cell):
    for text in (f"h,i\r\n{field},x\r\n", f"h,i\r\n{field},x"):
        assert rows(text) == [[cell, "x"]]
    assert rows(f"h,i\r\nx,{field}\r\n") == [["x", cell]]


def test_only_one_carriage_return_belongs_to_the_line_end():
    for cuts in ((), (3,)):
        assert read("h\r\na\r\r\nb\r\n", None, cuts)[0] == [["h"], ["a\r"], ["b"]]


def test_a_header_is_never_null():
    assert read("N/A,b,\r\n", TextDialect(null_value="N/A"))[0] == [["N/A", "b", ""]]


def test_blank_lines_are_skipped_and_not_counted():
    assert rows('\r\n\r\na\r\n\r\n1\r\n""\r\n\r\n2') == [["1"], [""], ["2"]]
    assert refused("a,b\r\n\r\n1,2\r\n\r\n3\r\n").startswith("Orders/1.csv, row 2: ")


@pytest.mark.parametrize(
    ("text", "declared", "differs"),
    [
        ("a,b\r\n1,2\r\n", "\r\n", False),
        ("a,b\n1,2\n", "\r\n", True),
        ("a,b\r\n1,2\n", "\r\n", True),
        ("a,b\r\n1,2", "\r\n", False),
        ("a,b\r\n1,2\r\n", "\n", True),
        ("a,b\r1,2\r", "\r", False),
        ("a,b\r\n1,2\r\n", "\r", True),
    ],
)
def test_other_line_ends_are_accepted_and_reported(text, declared, differs):
    for cuts in ((), range(len(text))):
        records, reader = read(text, TextDialect(row_separator=declared), cuts)
        assert records == [["a", "b"], ["1", "2"]]
        assert reader.other_line_ends is differs


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('a,"b\r\n1,2\r\n', "csv: header: a quote is opened and never closed"),
        ('a,b\r\n"1\r\n2","3",4\r\n', "row 1: at least 3 fields, the header has 2"),
    ],
)
def test_corrupt_text_is_rejected_at_its_row(text, fault):
    message = refused(text)
    assert fault in message
    assert message.endswith("[ME061]")


@pytest.mark.parametrize(
    "row", ["x" * 101, "\u00e4" * 51, '"' + "x\n" * 51, '"' + "x" * 50 + "\n" + "x" * 50 + '"', '"' + "x" * 100 + '"']
)
def test_a_row_beyond_the_limit_is_rejected(row):
    for text in (f"h\n{row}", f'h\n{row}"\n', f"h\n{row}\n1\n"):
        assert "[ME075]" in refused(text, row_bytes=100)


def test_a_row_at_the_limit_is_read_and_one_over_two_lines_counted_once():
    assert len(read("h\n" + "x" * 100 + "\n", row_bytes=100)[0]) == 2
    row = '"' + "x" * 48 + "\n" + "x" * 48 + '"\n'
    assert len(read("h\n" + row * 3, row_bytes=100)[0]) == 4


def test_an_endless_row_is_rejected_early():
    taken = []

    def endless():
        while True:
            taken.append("x" * 100)
            yield taken[-1]

    reader = RecordReader(TextDialect(), "f", row_bytes=1000)
    with pytest.raises(RejectedFile, match="ME075"):
        list(reader.records(endless()))
    assert len(taken) <= 12


def test_hostile_rows_take_little_time():
    many = 1 << 17
    assert "never closed" in refused('h\n"' + '""' * many)
    assert "fields" in refused("h\n" + ',"x"' * (many // 2))
    assert "fields" in refused("," * many)
    assert rows('h\n"' + '""' * many + '"\n') == [['"' * many]]


def written(records, dialect, styles):
    """A reference writer: each field in one of the styles that a publisher may choose."""
    lines = []
    for number, record in enumerate(records):
        fields = [field(cell, dialect, styles[(number + at) % len(styles)]) for at, cell in enumerate(record)]
        lines.append(dialect.column_separator.join(fields))
    return dialect.row_separator.join(lines) + dialect.row_separator


def field(cell, dialect, style):
    if cell is None:
        return dialect.null_value if style % 2 else ""
    special = {dialect.column_separator, dialect.quote, "\r", "\n"}
    if style % 3 == 0 and cell not in {"", dialect.null_value} and not special & set(cell):
        return cell
    quote, escape = dialect.quote, dialect.escape
    if escape in {"", quote}:
        return quote + cell.replace(quote, quote * 2) + quote
    freed = cell.replace(escape, escape * 2)
    return quote + freed.replace(quote, escape + quote if style % 2 else quote * 2) + quote


@given(
    st.integers(2, 4).flatmap(lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=6)),
    DIALECTS,
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_what_a_publisher_writes_is_what_is_read(records, dialect, styles, cuts):
    width = len(records[0]) if records else 2
    header = [f"column {at}" for at in range(width)]
    text = written([header, *records], dialect, styles)
    found, reader = read(text, dialect, cuts)
    assert found == [header, *records]
    assert reader.row == len(records)
    assert not reader.other_line_ends


@given(st.text("ab\"'\\,;\r\n\t\u00e4", max_size=60), DIALECTS, st.lists(st.integers(0, 60), max_size=5))
def test_any_cut_of_any_text_gives_the_same_outcome(text, dialect, cuts):
    def outcome(cut_at):
        try:
            return read(text, dialect, cut_at)[0]
        except RejectedFile as refusal:
            return refusal.message

    assert outcome(()) == outcome(cuts) == outcome(range(len(text)))


# --- encodings

CODECS = ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "cp1252", "shift-jis", "gb18030", "ascii", "iso8859-1"]


def decoding(content, codec, cuts):
    """The text that was given, and whether it went on to the end."""
    given_texts = []
    try:
        for text in decoded(pieces(content, cuts), codec):
            given_texts.append(text)  # noqa: PERF402 - what came before the fault counts
    except UnicodeDecodeError:
        return "".join(given_texts), False
    return "".join(given_texts), True


@given(st.text(max_size=20), st.sampled_from(CODECS), st.lists(st.integers(0, 80), max_size=8))
def test_text_survives_every_cut(text, codec, cuts):
    content = text.encode(codec, "ignore")
    assert decoding(content, codec, cuts) == (content.decode(codec).removeprefix("\ufeff"), True)


@given(st.text("ab\n\u00e4\u3042", max_size=12), st.sampled_from(["utf-8", "utf-16-le", "shift-jis"]), st.data())
def test_all_good_text_is_given_before_a_bad_byte(text, codec, data):
    content = text.encode(codec, "ignore")
    bad = {"utf-8": b"\xff", "utf-16-le": b"\x00\xdcx\x00", "shift-jis": b"\xff\xff"}[codec]
    cuts = data.draw(st.lists(st.integers(0, 60), max_size=6))
    assert decoding(content + bad + b"a\x00b\x00", codec, cuts) == (content.decode(codec), False)


@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 3]])
def test_byte_order_mark_decides_the_order_of_bytes(cuts):
    assert decoding(b"\xfe\xff\x00a", "utf-16-le", cuts) == ("a", True)
