"""A change file that is a data file of its table as it lies."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Original:
    """The file itself (LZ-4.19).

    Attributes:
        name: under which it comes to lie in the table's folder.
        size: in bytes.
        footer: its Parquet metadata; columns are the table's, in exactly its types.
        open: its bytes, from the beginning.
        check: raises `ZoneChanged` where something else lies there by now.
    """

    name: str
    size: int
    footer: Any
    open: Callable[[], BinaryIO]
    check: Callable[[], None]


def data_file_name() -> str:
    """A new name, as Delta gives them to data files."""
    return f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
