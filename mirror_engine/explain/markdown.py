"""Cases and pages as Markdown: headings, fenced blocks with what stands behind the fence, and text between them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_PART = re.compile(r"^(#{1,2}) (.+)$|^(?P<fence>```|~~~)(\S.*)\n([\s\S]*?)^(?P=fence)$", re.MULTILINE)
_OPEN = re.compile(r"^(?:```|~~~).*", re.MULTILINE)
_WORD = r"at=\S+|compression=\S+|encoding=\S+|ends=lf|times=int96|write=in-place|zone=older"
_INFO = re.compile(rf"(\w+)((?: (?:{_WORD}))*)(?: (?!\w+=\S+ )(.+))?")
_TITLES = {
    "diagnostics": "Reported",
    "earlier": "Reported on the way",
    "removed": "Deleted",
    "validate": "Reported by `validate`",
    "without": "Not landed",
    "zone": "All files in the landing zone",
}


class Part(NamedTuple):
    """A heading, a fenced block, or text between them."""

    line: int  # 1-based, in the text
    level: str  # `#` or `##` of a heading, `` ` `` of a block, `""` of text
    words: str  # of the heading; behind the fence; the text
    text: str = ""  # in the block, without the last line end

    @property
    def block(self) -> Block:
        """A block's kind, options, path and text; raises `ValueError` where its fence says something else."""
        match = _INFO.fullmatch(self.words)
        if match is None:
            raise ValueError(f'"{self.words}" is not a kind of block with options and a path')
        options = dict(option.split("=", 1) for option in match[2].split())
        return Block(match[1], options, match[3] or "", self.text)


class Block(NamedTuple):
    """A fenced block: a file that lands, or what is expected; fixtures/README.md has the kinds and options."""

    kind: str
    options: dict[str, str]
    path: str
    text: str

    @property
    def title(self) -> str:
        """What the block shows; empty for a session."""
        if self.kind == "table":
            return f"Tables/{self.path}"
        form = [self.kind] if self.kind in {"base64", "escaped"} else []  # what is shown are not the bytes
        notes = ", ".join([*form, *(f"{name} {value}" for name, value in self.options.items())])
        title = _TITLES.get(self.kind, self.path)
        return f"{title} ({notes})" if notes else title


def parts(text: str) -> Iterator[Part]:
    """The parts of a Markdown text in order.

    Raises:
        ValueError: a block does not end.
    """
    end, line = 0, 1
    for match in _PART.finditer(text):
        yield from _prose(text[end : match.start()], line)
        line += text.count("\n", end, match.start())
        level, heading, _, words, block = match.groups()
        yield Part(line, level or "`", heading or words, (block or "").removesuffix("\n"))
        line += text.count("\n", match.start(), match.end())
        end = match.end()
    yield from _prose(text[end:], line)


def _prose(text: str, line: int) -> Iterator[Part]:
    if unread := _OPEN.search(text):
        raise ValueError(f"no end of {unread[0]}")
    if text.strip():
        yield Part(line, "", text.strip())
