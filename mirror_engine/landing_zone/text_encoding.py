"""Names of encodings as .NET and IANA spell them, and bytes in them turned into text."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BOM = "\ufeff"
_ALIASES = {
    "unicode": "utf-16-le",
    "utf-16": "utf-16-le",
    "utf16": "utf-16-le",
    "ucs-2": "utf-16-le",
    "unicodefffe": "utf-16-be",
    "bigendianunicode": "utf-16-be",
    "utf-32": "utf-32-le",
    "utf32": "utf-32-le",
    "utf-8-sig": "utf-8",
    "utf-8-bom": "utf-8",
    "utf-8 with bom": "utf-8",
    "utf-8 without bom": "utf-8",
    "iso-8859-8-i": "iso8859-8",
    "macintosh": "mac-roman",
    "us-ascii": "ascii",
}
# .NET's code pages that Python knows under their number alone
_CODE_PAGE = re.compile(r"(?:windows|x-cp|ibm|cp|dos)-?0*(\d{3,5})", re.IGNORECASE)
# Text encodings to Python that are none for a change file, or that decode to what is no character.
_NOT_FOR_FILES = {
    "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem", "utf-7", "charmap",
}  # fmt: skip
_WIDE = {"utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"}


def codec_of(name: str) -> str | None:
    """Python's one name for an encoding that .NET or IANA calls `name`, in any case; None where there is none.

    `utf-16` and `utf-32` without more mean little endian, as in .NET; a byte order mark in the file overrules it.
    """
    wanted = " ".join(name.casefold().split())
    page = _CODE_PAGE.fullmatch(wanted)
    if not wanted.isascii():
        return None  # codecs.lookup would pass over the letters it does not know
    for spelling in (_ALIASES.get(wanted, wanted), f"cp{page[1]}" if page else wanted):
        try:
            codec = codecs.lookup(spelling)
        except (LookupError, ValueError):
            continue
        is_text = bool(getattr(codec, "_is_text_encoding", True))
        found = codec.name.replace("_", "-")
        return _ALIASES.get(found, found) if is_text and found not in _NOT_FOR_FILES else None
    return None


def decoded(chunks: Iterable[bytes], codec: str) -> Iterator[str]:
    """Bytes as text, chunk by chunk, without the byte order mark (LZ-6.4).

    Args:
        chunks: in order, cut anywhere.
        codec: as `codec_of` names it.

    Raises:
        UnicodeDecodeError: after all text before it was given, at the first byte that is no text.
    """
    decoder: codecs.IncrementalDecoder | None = None
    first = True
    head = b""
    for chunk in chunks:
        head += chunk
        if decoder is None and len(head) < len(codecs.BOM_UTF32_LE):
            continue
        decoder = decoder or codecs.getincrementaldecoder(_overruled(codec, head))()
        for text in _step(decoder, head, final=False):
            yield text.removeprefix(BOM) if first else text
            first = first and not text
        head = b""
    decoder = decoder or codecs.getincrementaldecoder(_overruled(codec, head))()
    for text in _step(decoder, head, final=True):
        yield text.removeprefix(BOM) if first else text


def _overruled(codec: str, head: bytes) -> str:
    if codec not in _WIDE:
        return codec
    marks = (
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    )
    return next((named for mark, named in marks if named[:6] == codec[:6] and head.startswith(mark)), codec)


def _step(decoder: codecs.IncrementalDecoder, chunk: bytes, *, final: bool) -> Iterator[str]:
    pending, flags = decoder.getstate()
    try:
        text = decoder.decode(chunk, final)
        if not text.isascii():
            text.encode()
    except UnicodeDecodeError as error:
        decoder.setstate((b"", flags))
        # what is good before the bad byte is given first, so that the reader can say the row
        yield decoder.decode((pending + chunk)[: error.start], False)
        raise
    except UnicodeEncodeError as error:
        yield text[: error.start]
        raise UnicodeDecodeError("text", b"", 0, 1, "half of a surrogate pair") from None
    yield text
