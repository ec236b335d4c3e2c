"""Text for people: names without control characters, numbers with their nouns."""

from __future__ import annotations

import re

# Control characters, those that change the direction of text, that break a line, and that nobody sees
_BIDIRECTIONAL = [0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_INVISIBLE = [0x200B, 0x2060, 0xFEFF]  # not the joiners, which some scripts and emoji need
CONTROLS = [*range(32), *range(127, 160), *_BIDIRECTIONAL, 0x2028, 0x2029, *_INVISIBLE]
UNSAFE = {code: repr(chr(code))[1:-1] for code in (*CONTROLS, *range(0xD800, 0xE000))}


def printable(text: str) -> str:
    """A name on one line of a terminal, log or page: `UNSAFE` characters are escaped."""
    return text if text.isprintable() else text.translate(UNSAFE)


def count(number: int, noun: str) -> str:
    """`1 file`, `1,204 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


_FRONT_MATTER = re.compile(r"---\n((?:\w+: .+\n)+)---\n")


def front_matter(page: str) -> tuple[dict[str, str], str]:
    """The fields in the front matter of a Markdown page, lines of `field: value` between two of `---`, and the rest.

    Raises:
        ValueError: the page does not begin with front matter.
    """
    match = _FRONT_MATTER.match(page)
    if match is None:
        raise ValueError("no front matter: lines of `field: value` between two of `---`")
    return dict(line.split(": ", 1) for line in match[1].splitlines()), page[match.end() :]
