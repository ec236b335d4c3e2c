"""What is fuzzed: something that parses bytes from outside, what it is begun with, and how its bytes are changed."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzzing.bytes_mutations import mutated_bytes

from mirror_engine.landing_zone.diagnostics import UNSAFE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from random import Random

    from mirror_engine.landing_zone.diagnostics import Diagnostic

FIXTURES = Path(__file__).parents[2] / "fixtures"
_HEAD = struct.Struct("<HI")

Mutation = "Callable[[bytes, Random], bytes]"


@dataclass(frozen=True)
class Target:
    """One parser.

    Attributes:
        name: for the command line and the report.
        seeds: valid examples.
        run: parses one input; what it lets out is a finding.
        shaped: changes an input where its form is known; anything else is changed as bytes.
        most_bytes: by how much one input may raise the memory's peak.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], None]
    shaped: Callable[[bytes, Random], bytes]
    most_bytes: int = 400 << 20

    @property
    def begun_with(self) -> Sequence[bytes]:
        """The seeds, made once."""
        return _made(self.seeds)

    def mutated(self, content: bytes, random: Random) -> bytes:
        """The input with a few changes, of its form or of its bytes."""
        for _ in range(random.choice((1, 1, 2, 4))):
            if random.random() < 0.6:
                content = self.shaped(content, random)
            else:
                content = mutated_bytes(content, random, self.begun_with)
        return content


@cache
def _made(seeds: Callable[[], Sequence[bytes]]) -> Sequence[bytes]:
    return tuple(seeds())


def packed(files: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> bytes:
    """Several files as one input."""
    pairs = files.items() if hasattr(files, "items") else files
    return b"".join(_HEAD.pack(len(path), len(content)) + path + content for path, content in pairs)


def unpacked(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The files of one input; a broken end is left out."""
    at = 0
    while at + _HEAD.size <= len(content):
        path_bytes, content_bytes = _HEAD.unpack_from(content, at)
        middle = at + _HEAD.size + path_bytes
        at = middle + content_bytes
        if at > len(content):
            return
        yield content[middle - path_bytes : middle], content[middle:at]


def fixture_files(pattern: str) -> list[bytes]:
    """The contents of the golden fixtures' files of a name."""
    return sorted({path.read_bytes() for path in FIXTURES.glob(f"*/landing_zone/**/{pattern}")})


def check_said(diagnostics: Iterable[Diagnostic]) -> None:
    """Whatever is said can be printed on one line of a log, and is not endless."""
    for diagnostic in diagnostics:
        for line in (diagnostic.full_message, diagnostic.help):
            assert line == line.translate(UNSAFE), diagnostic.code
            line.encode()
            assert len(line) < 1 << 20, diagnostic.code


def check_plain(value: Any) -> None:
    """A value's text is text: half a surrogate pair could not be written down."""
    str(value).encode()
