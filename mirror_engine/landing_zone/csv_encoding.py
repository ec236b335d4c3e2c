"""In which encoding the bytes of a text seem to be, where they are not in the declared one (LZ-6.4)."""

from __future__ import annotations

import codecs
import re

_SAMPLE = 256  # bytes that tell UTF-16
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_WESTERN = frozenset({"cp1252", "cp1254", "iso8859-1", "iso8859-9", "iso8859-15"})
# where letters have the bytes 0xC0 to 0xFF, so that two of them in a row are not UTF-8
_CODE_PAGES = _WESTERN | {"cp1250", "cp1251", "cp1253", "cp1257", "iso8859-2", "iso8859-4", "iso8859-13", "iso8859-16"}
_AFTER_A_WORD = frozenset("\u2026\u2019\u201d\u203a\u00bb\u2122\u00ae\u2013\u2014\xa0")  # also without a blank
_SIGNS = frozenset("\xaa\xba\xb9\xb2\xb3\xbc\xbd\xbe\xb1\xb0\xb7")  # after a letter, if none follows
_MARKED_A = "\u00c2\u00c3"  # no word but of Portuguese capitals ends in them


def seeming_encoding(head: bytes) -> str:
    """UTF-16 or UTF-32 by .NET's name if bytes have its byte order mark, or UTF-16's zeros; else `""`."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32" if head.startswith(codecs.BOM_UTF32_LE) else "utf-32BE"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16" if head.startswith(codecs.BOM_UTF16_LE) else "utf-16BE"
    pairs = head[: _SAMPLE & ~1]
    zeros = pairs[1::2].count(0), pairs[::2].count(0)
    names = [name for name, found in zip(("UTF-16", "utf-16BE"), zeros, strict=True) if 4 * found > len(pairs)]
    return names[0] if len(names) == 1 else ""


def is_utf8(piece: bytes) -> bool:
    """Whether a piece of a text, which may end within a character, is UTF-8 and not ASCII alone."""
    try:
        return not codecs.getincrementaldecoder("utf-8")().decode(piece).isascii()
    except UnicodeDecodeError:
        return False


class CodePageCheck:
    """Detects UTF-8 text that is read in a code page, where `ä` becomes two characters.

    All of it must be UTF-8, and some of it must look wrong in the code page. `NESTLÉ®` alone is UTF-8, too.

    Args:
        codec: Python's name of the declared encoding. Of others than code pages of letters above 0xBF nothing is known.
    """

    def __init__(self, codec: str) -> None:
        self._codec = codec
        self._can_be = codec in _CODE_PAGES
        self._looks_wrong = False
        self._open = ""  # the last character so far, if it is the only one after ASCII
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def feed(self, content: bytes) -> None:
        """Check the next bytes of the text."""
        if not self._can_be:
            return
        try:
            text = self._open + self._decoder.decode(content)
        except UnicodeDecodeError:
            self._can_be = False
            return
        self._open = ""
        for found in () if self._looks_wrong or text.isascii() else _NOT_ASCII.finditer(text):
            following = text[found.end() : found.end() + 1]
            if len(found[0]) == 1 and not following:
                self._open = found[0]
            elif self._is_wrong(found[0], following):
                self._looks_wrong = True
                break

    def is_utf8(self) -> bool:
        """The verdict at the end of the text."""
        looks_wrong = self._looks_wrong or (self._open and self._is_wrong(self._open, ""))
        return bool(self._can_be and looks_wrong and not self._decoder.getstate()[0])

    def _is_wrong(self, found: str, following: str) -> bool:
        """Whether non-ASCII characters, read in the code page, cannot be the end of a word."""
        if len(found) > 1:
            return True
        read = found.encode().decode(self._codec, "replace")
        is_western = self._codec in _WESTERN
        if all(each in _AFTER_A_WORD or (each.isalpha() and not is_western) for each in read[1:]):
            return is_western and read[0] in _MARKED_A and following.isalpha()
        return read[0] in _MARKED_A or following.isalpha() or not _SIGNS.issuperset(read[1:])
