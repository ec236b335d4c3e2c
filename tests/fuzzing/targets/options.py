"""`mirror-engine.toml`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fuzzing.bytes_mutations import mutated_bytes
from fuzzing.target import Target
from quick_folder import quick_folder

from mirror_engine.config import CONFIG_FILE, load, option_name, options
from mirror_engine.errors import ConfigError

if TYPE_CHECKING:
    from random import Random

VALUES = (
    *(b"1", b"true", b"'utc'", b"1e400", b"nan", b"-0.0", b"0x" + b"f" * 6000, b"9" * 5000, b"[" * 3000, b"[[[]]]"),
    *(
        b"1979-05-27T07:32:00Z",
        b"07:32:00",
        b"{ a = 1 }",
        b'"\\ud800"',
        b'"""\n"""',
        b"'256MB'",
        b"'1e3MB'",
        b"'9" * 400,
    ),
)


def seeds() -> list[bytes]:
    """Every option, each in a few spellings."""
    good = b'default_schema = "dbo"\nmax_row_size = "64MiB"\nworkers = 2\nstrict = false\npoll_interval = 1.5\n'
    return [good, b"\xef\xbb\xbf" + good, b"[table]\nworkers = 2\n", b""]


def run(content: bytes) -> None:
    """Options, or every wrong one named."""
    with quick_folder() as folder:
        (Path(folder) / CONFIG_FILE).write_bytes(content)
        with suppress(ConfigError):
            try:
                load(Path(folder), {}, {})
            except ConfigError as wrong:
                str(wrong).encode()
                raise


def shaped(content: bytes, random: Random) -> bytes:
    """One more option, with any value."""
    if random.random() < 0.3:
        return mutated_bytes(content, random, VALUES)
    return content + option_name(random.choice(list(options()))).encode() + b" = " + random.choice(VALUES) + b"\n"


TARGET = Target("options", seeds, run, shaped)
