"""The key a person means: `42`, or `Line=1` beside `Order=7`; and which rows have it (LZ-4.9)."""

from __future__ import annotations

from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.delta.arrow_types import delta_type
from mirror_engine.delta.collapse import comparable
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.column_types import folded
from mirror_engine.landing_zone.text_cells import CellFault, integer, parser, timestamp

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


class WantedKey:
    """A key as it was written, found in rows of any schema that has its columns.

    Attributes:
        texts: by key column, as `_metadata.json` spells it.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = dict(texts)
        self._values: dict[tuple[str, pa.DataType], pa.ChunkedArray[Any]] = {}

    @classmethod
    def parse(
        cls, given: Sequence[str], table: str, key_columns: Sequence[str], columns: Collection[str] = ()
    ) -> WantedKey:
        """Read `--key` as it was given, once for each column; a single key needs no name and may hold `=`.

        Args:
            given: as it stands on the command line.
            table: its name, for messages.
            key_columns: as the metadata declares them.
            columns: all that the table is known to have; what stands before `=` may be one of them by mistake.

        Raises:
            UsageError: a column is no key column, or one is missing.
        """
        if not key_columns:
            raise UsageError(
                f"{table}: has no keyColumns, so that no row can be told from another",
                "Trace a file instead: --file NAME; or look at all rows: mirror-engine show.",
            )
        known = {folded(name): name for name in key_columns}
        others = {folded(name) for name in columns} - set(known)
        hint = f"The key is {', '.join(key_columns)}: {' '.join(f'--key {name}=…' for name in key_columns)}"
        texts: dict[str, str] = {}
        for text in given:
            name, has_name, value = text.partition("=")
            if len(known) == 1 and folded(name) not in ({*known, *others} if has_name else ()):
                name, has_name, value = key_columns[0], "=", text
            column = known.get(folded(name))
            if column is None or column in texts:
                fault = "named twice" if column else "is not a key column" if has_name else "names no column"
                raise UsageError(f"--key {text}: {name if has_name else text} {fault} of {table}", hint)
            texts[column] = value
        if lacking := [name for name in key_columns if name not in texts]:
            raise UsageError(f"--key: {', '.join(lacking)} of {table} is not given", hint)
        return cls({name: texts[name] for name in key_columns})

    def rows_of(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """Which rows have the key, as booleans; rows with NULL in it, or without a column of it, never do (LZ-4.8).

        Raises:
            UsageError: a value is none of its column's type.
        """
        found: pa.Array[Any] = pa.array(np.ones(batch.num_rows, dtype=np.bool_))
        columns = {folded(name): name for name in batch.schema.names}
        for name, text in self.texts.items():
            if folded(name) not in columns:
                return pa.array(np.zeros(batch.num_rows, dtype=np.bool_))
            cells = batch.column(columns[folded(name)])
            wanted = self._value(name, text, cells.type)
            same = pc.equal(comparable(pa.chunked_array([cells])).combine_chunks(), wanted[0])
            found = pc.and_(found, pc.fill_null(same, False))
        return found

    def _value(self, name: str, text: str, kind: pa.DataType) -> pa.ChunkedArray[Any]:
        if (name, kind) not in self._values:
            self._values[name, kind] = comparable(pa.chunked_array([_parsed(name, text, kind)]))
        return self._values[name, kind]


def _parsed(name: str, text: str, kind: pa.DataType) -> pa.Array[Any]:
    """One value in a column's type, by the rules of delimited text (LZ-6.9)."""
    word = delta_type(kind) or str(kind)
    try:
        return pa.array([_plain(text, word)], kind)
    except (CellFault, pa.ArrowException, DecimalException, OverflowError):
        raise UsageError(f"--key {name}={text}: no value of type {word}", f"Key column {name} is {word}.") from None


def _plain(text: str, word: str) -> object:
    if word.startswith("decimal"):
        return Decimal(text)
    if word == "byte":
        return integer(text, 8)
    if word == "timestamp_ntz":
        return timestamp(text).replace(tzinfo=None)
    return parser(word)(text)
