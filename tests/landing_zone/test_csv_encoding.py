# ruff: noqa: RUF001 - words of many languages
"""UTF-8 in a text of a declared code page is noticed, and honest text of a code page is left alone."""

from __future__ import annotations

import pytest

from mirror_engine.landing_zone.csv_encoding import CodePageCheck

HONEST = {
    "cp1252": "Köln, Größe 10 °C|naïve café|NESTLÉ®|CAFÉ™|L’ÉTÉ…|“Málaga” – 5 €|POKÉ–BAR|IRMÃ|MAÇÃ|SÃO|AMANHÃ…"
    "|UNITÉ²|Ø½|Ø±0.1|CITÉ¹ |SEÑª|Ñº 5|Ü³|PASSÉ·",
    "iso8859-9": "Ğ±1|GRÅ|Ñandú|TJÖ»|ß|ÅÄÖ|Ã|Â|IRMÃ, 2",
    "iso8859-15": "Šárka|œuvre|5 €|ŸNESTLÉ®",
    "cp1250": "Łódź|STÓŁ|PÓŁ|žluťoučký kůň|PĂŞUNE|ŻÓŁW|Ă",
    "cp1251": "Москва|Ні|Так|Её|ещё|її|Привет, мир|№ 5",
    "cp1253": "Αθήνα|Ελλάς ΑΕ|Ώρα",
    "cp1257": "Rīga|Vilnius – Šiauliai|ŽĄSIS",
    "cp1254": "İstanbul|IĞDIR|GÜŞ…",
    "iso8859-2": "Łódź|STÓŁ|Žďár",
}
MISREAD = {
    "cp1252": "Köln|Straße|é|naïve café|Málaga|Österreich|5 €|“quoted”|it’s|…|Łódź|Москва|東京|😀|à la carte, déjà",
    "iso8859-1": "Köln|Ö|10 °C|São Paulo|\ufeffid",
    "cp1254": "kısa|più|habló|n°2|5²",
    "cp1250": "Łódź, STÓŁ|žluťoučký kůň|5 €",
    "cp1251": "Москва|Ні, ще ні|Её ещё|№ 5",
    "cp1253": "Αθήνα|5 €",
    "iso8859-2": "Łódź, STÓŁ|Příliš žluťoučký",
}


def is_utf8(content, codec, piece=1 << 16):
    check = CodePageCheck(codec)
    for at in range(0, len(content), piece):
        check.feed(content[at : at + piece])
    return check.is_utf8()


@pytest.mark.parametrize(
    ("codec", "text"), [(codec, text) for codec, texts in HONEST.items() for text in texts.split("|")]
)
def test_honest_text_of_a_code_page_is_not_taken_for_utf8(codec, text):
    for end in ("\r\n", ",", "", "®", "…"):
        assert not is_utf8(f"1,{text}{end}".encode(codec, "ignore"), codec)


@pytest.mark.parametrize(
    ("codec", "text"), [(codec, text) for codec, texts in MISREAD.items() for text in texts.split("|")]
)
def test_utf8_read_in_a_code_page_is_noticed(codec, text):
    for piece in (1, 2, 1 << 16):  # within a character, too
        assert is_utf8(f"1,{text}\r\n".encode(), codec, piece)
    assert not is_utf8(f"1,{text},ä\r\n".encode()[:-3], codec)
    assert not is_utf8(f"1,{text}\r\n".encode() + "2,é\r\n".encode(codec, "replace").replace(b"?", b"\xe9"), codec)


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "shift-jis", "gb18030", "cp866", "cp437", "cp874", "ascii"])
def test_other_encodings_are_left_alone(codec):
    assert not is_utf8("Köln, Москва".encode(), codec)


def test_long_text_without_ascii_is_looked_at_once():
    check = CodePageCheck("cp1252")
    for _ in range(3):
        check.feed("東京".encode() * 1000)
    assert len(check._open) <= 1
    assert check.is_utf8()
