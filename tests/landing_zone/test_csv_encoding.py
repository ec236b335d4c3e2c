from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.landing_zone.csv_dialect import codec_of, decoded

CODECS = ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "cp1252", "shift-jis", "gb18030", "ascii", "iso8859-1"]


def outcome(content: bytes, codec: str, cuts: list[int]) -> tuple[str, bool]:
    """The text that was given, and whether it went on to the end."""
    edges = [0, *sorted({cut % (len(content) + 1) for cut in cuts}), len(content)]
    given_texts = []
    try:
        for text in decoded((content[start:end] for start, end in itertools.pairwise(edges)), codec):
            given_texts.append(text)  # noqa: PERF402 - what came before the fault counts
    except UnicodeDecodeError:
        return "".join(given_texts), False
    return "".join(given_texts), True


@given(st.text(max_size=20), st.sampled_from(CODECS), st.lists(st.integers(0, 80), max_size=8))
def test_text_survives_every_cut(text: str, codec: str, cuts: list[int]) -> None:
    content = text.encode(codec, "ignore")
    assert outcome(content, codec, cuts) == (content.decode(codec).removeprefix("\ufeff"), True)


@given(st.text("ab\n\u00e4\u3042", max_size=12), st.sampled_from(["utf-8", "utf-16-le", "shift-jis"]), st.data())
def test_all_good_text_is_given_before_a_bad_byte(text: str, codec: str, data: st.DataObject) -> None:
    content = text.encode(codec, "ignore")
    bad = {"utf-8": b"\xff", "utf-16-le": b"\x00\xdcx\x00", "shift-jis": b"\xff\xff"}[codec]
    cuts = data.draw(st.lists(st.integers(0, 60), max_size=6))
    assert outcome(content + bad + b"a\x00b\x00", codec, cuts) == (content.decode(codec), False)


@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 3]])
def test_only_the_first_byte_order_mark_is_dropped(cuts: list[int]) -> None:
    assert outcome("\ufeffa\ufeff".encode(), "utf-8", cuts) == ("a\ufeff", True)
    assert outcome(b"", "utf-8", cuts) == ("", True)
    assert outcome(b"\xfe\xff\x00a", "utf-16-le", cuts) == ("a", True)


@pytest.mark.parametrize("name", ["base64", "hex", "rot13", "idna", "utf-7", "mbcs", "", "utf\u00e48", "a\x00b"])
def test_what_is_no_encoding_of_files_is_unknown(name: str) -> None:
    assert codec_of(name) is None
