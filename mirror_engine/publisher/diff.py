"""Compare a table with an expected one: a CSV, JSON or Parquet file, row by row and cell by cell."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.csv_values import CellFault, integer, parser, timestamp
from mirror_engine.landing_zone.schema import folded
from mirror_engine.tables.arrow_types import delta_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Pairs = tuple[Integers, Integers]  # positions in the table, and in the expected one

Row = dict[str, Any]

_READ_FAULTS = (pa.ArrowException, OSError, MemoryError, OverflowError, ValueError, TypeError, NotImplementedError)
_NUMBER_HELP = "Write numbers with a point and without separators; in CSV NULL is an empty field."
_HELP = {  # how values of a type are written; all others are numbers
    "timestamp": "Write times in ISO 8601: 2026-03-28T08:15:29Z.",
    "timestamp_ntz": "Write times in ISO 8601: 2026-03-28T08:15:29Z.",
    "date": "Write dates in ISO 8601: 2026-03-28.",
    "boolean": "Write true or false.",
    "binary": "Write binary in Base64.",
    "string": "Write text in quotation marks.",  # only JSON has values that are no text
}
_FAMILY = re.compile(
    r"(?P<number>u?int|halffloat|float|double|decimal)|(?P<text>(large_)?string)|(?P<binary>\w*binary)|"
    r"(?P<timestamp>timestamp)|(?P<date>date)|(?P<boolean>bool)"
)


@dataclass(frozen=True)
class DifferentRow:
    """One row that both tables have under one key, and its cells that differ: expected value, found value."""

    key: Row
    cells: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Difference:
    """The difference between a table and the expected one.

    Attributes:
        key: the columns by which rows were matched; empty where they were compared as multisets.
        equal_rows, missing_rows, unexpected_rows, different_rows: how many; missing: expected, and not in the table.
        missing_columns: only in the expected table.
        unexpected_columns: only in the table; not compared.
        different_cells: by column, in how many of the different rows.
        missing, unexpected, different: the first of them.
    """

    key: tuple[str, ...]
    equal_rows: int
    missing_rows: int
    unexpected_rows: int
    different_rows: int
    missing_columns: tuple[str, ...]
    unexpected_columns: tuple[str, ...]
    different_cells: Mapping[str, int]
    missing: tuple[Row, ...]
    unexpected: tuple[Row, ...]
    different: tuple[DifferentRow, ...]

    @property
    def is_equal(self) -> bool:
        """Whether both tables have the same columns and rows."""
        rows = self.missing_rows + self.unexpected_rows + self.different_rows
        return not (rows or self.missing_columns or self.unexpected_columns)


def compare(
    table: pa.Table, expected: pa.Table, key: Sequence[str] = (), *, tolerance: float = 0.0, limit: int | None = 20
) -> Difference:
    """Compare a table with the expected one.

    Args:
        table: the table.
        expected: with columns in the table's spelling and types, as `read_expected` returns them.
        key: columns by which rows are matched, in any case; none: rows are compared as multisets.
        tolerance: by how much two floats may differ and count as equal. Rows without a key are then matched by their
            other columns, several of the same ones in the order of their floats.
        limit: how many rows of each kind to return; None for all.

    Raises:
        UsageError: a key column is missing in one of the tables, or they have no column in common.
    """
    names = [name for name in expected.column_names if name in table.column_names]
    if not names:
        sides = (", ".join(side.column_names) or "none" for side in (table, expected))
        actual_names, expected_names = sides
        raise UsageError(
            "the tables have no column in common", f"The table has {actual_names}; the expected one {expected_names}."
        )
    pairing = _Pairing(table, expected, names, _key_columns(key, table, expected), tolerance)
    first = slice(None, limit)
    return Difference(
        key=tuple(pairing.key),
        equal_rows=expected.num_rows - len(pairing.missing) - len(pairing.different),
        missing_rows=len(pairing.missing),
        unexpected_rows=len(pairing.unexpected),
        different_rows=len(pairing.different),
        missing_columns=tuple(name for name in expected.column_names if name not in names),
        unexpected_columns=tuple(name for name in table.column_names if name not in names),
        different_cells=pairing.different_cells(),
        missing=tuple(expected.take(pairing.missing[first]).to_pylist()),
        unexpected=tuple(table.take(pairing.unexpected[first]).to_pylist()),
        different=pairing.different_rows(first),
    )


def _key_columns(key: Sequence[str], table: pa.Table, expected: pa.Table) -> list[str]:
    known = {folded(name): name for name in table.column_names}
    columns = []
    for name in key:
        column = known.get(folded(name))
        if column is None:
            raise UsageError(f"key column {name}: the table has no such column", f"It has {', '.join(known)}.")
        if column not in expected.column_names:
            raise UsageError(f"key column {column}: the expected table lacks it", "Add it, or name another: --key.")
        columns.append(column)
    return columns


class _Pairing:
    """Pairs of rows of a table and the expected one: equal rows first, the others by key.

    Attributes:
        missing: rows of the expected table without a partner.
        unexpected: rows of the table without a partner.
        different: which of the pairs differ in any column.
    """

    def __init__(
        self, table: pa.Table, expected: pa.Table, names: Sequence[str], key: Sequence[str], tolerance: float
    ) -> None:
        self.key = list(key)
        self._table, self._expected, self._tolerance = table, expected, tolerance
        self._floats = [name for name in names if pa.types.is_floating(table.schema.field(name).type)]
        ids, expected_ids = self._ids(names, np.arange(table.num_rows), np.arange(expected.num_rows))
        rows, expected_rows = _unmatched(ids, expected_ids), _unmatched(expected_ids, ids)
        is_near = bool(tolerance and self._floats)
        if key or is_near:
            match_by = key or [name for name in names if name not in self._floats]
            self._pairs: Pairs = self._paired(rows, expected_rows, match_by)
        else:
            self._pairs = rows[:0], expected_rows[:0]
        self._cells = {name: self._differ(name) for name in names if name not in key}
        none = np.zeros(len(self._pairs[0]), np.bool_)
        self.different = np.flatnonzero(np.logical_or.reduce([none, *self._cells.values()]))
        if not key:  # rows that are not near have nothing to do with each other
            self._pairs = (np.delete(self._pairs[0], self.different), np.delete(self._pairs[1], self.different))
            self._cells, self.different = {}, self.different[:0]
        self.unexpected = np.setdiff1d(rows, self._pairs[0])
        self.missing = np.setdiff1d(expected_rows, self._pairs[1])

    def different_cells(self) -> dict[str, int]:
        """In how many pairs each column differs; columns that never do are left out."""
        counts = {name: int(differs.sum()) for name, differs in self._cells.items()}
        return {name: count for name, count in counts.items() if count}

    def different_rows(self, first: slice) -> tuple[DifferentRow, ...]:
        """The first different pairs with their values."""
        positions = self.different[first]
        rows = self._table.take(self._pairs[0][positions]).to_pylist()
        expected_rows = self._expected.take(self._pairs[1][positions]).to_pylist()
        return tuple(
            DifferentRow(
                {name: row[name] for name in self.key},
                {name: (expected[name], row[name]) for name, differs in self._cells.items() if differs[position]},
            )
            for position, row, expected in zip(positions, rows, expected_rows, strict=True)
        )

    def _differ(self, name: str) -> NDArray[np.bool_]:
        column = self._table.column(name).take(self._pairs[0])
        expected = self._expected.column(name).take(self._pairs[1])
        codes, expected_codes = _codes(column, expected)
        differs: NDArray[np.bool_] = codes != expected_codes
        if self._tolerance and name in self._floats:
            near = pc.less_equal(pc.abs(pc.subtract(column, expected)), self._tolerance)
            differs &= ~pc.fill_null(near, False).to_numpy().astype(np.bool_)
        return differs

    def _paired(self, rows: Integers, expected_rows: Integers, match_by: Sequence[str]) -> Pairs:
        """Rows matched by columns; several with the same values in the order they come, or of their floats."""
        rows, expected_rows = self._ordered(self._table, rows), self._ordered(self._expected, expected_rows)
        ids, expected_ids = self._ids(match_by, rows, expected_rows)
        ranked = _joined(np.concatenate([ids, expected_ids]), np.concatenate([_rank(ids), _rank(expected_ids)]))
        _, first, second = np.intersect1d(
            ranked[: len(rows)], ranked[len(rows) :], assume_unique=True, return_indices=True
        )
        order = np.argsort(expected_rows[second])
        return rows[first][order], expected_rows[second][order]

    def _ordered(self, table: pa.Table, rows: Integers) -> Integers:
        """The rows in the order of their floats where these may differ a little, so that near ones are paired."""
        if not self._tolerance or not self._floats:
            return rows
        floats = table.select(self._floats).take(rows)
        order = pc.sort_indices(floats, sort_keys=[(name, "ascending") for name in self._floats])
        ordered: Integers = rows[order.to_numpy()]
        return ordered

    def _ids(self, names: Sequence[str], rows: Integers, expected_rows: Integers) -> Pairs:
        """A number for each row of both tables; rows that are equal in these columns have the same one."""
        ids = np.zeros(len(rows) + len(expected_rows), np.int64)
        for name in names:
            column, expected = self._table.column(name).take(rows), self._expected.column(name).take(expected_rows)
            ids = _joined(ids, np.concatenate(_codes(column, expected)))
        return ids[: len(rows)], ids[len(rows) :]


def _codes(column: pa.ChunkedArray, expected: pa.ChunkedArray) -> Pairs:
    """A number for each value of both columns; equal values have the same one, and NULL has its own."""
    both = pa.chunked_array([*column.chunks, *expected.chunks], column.type)
    if pa.types.is_floating(both.type):
        both = pc.add(both, pa.scalar(0.0, both.type))  # -0.0 becomes 0.0
    parts = both.dictionary_encode(null_encoding="encode").chunks  # all of one dictionary
    codes: Integers = np.concatenate([np.zeros(0, np.int64), *(np.asarray(part.indices, np.int64) for part in parts)])
    return codes[: len(column)], codes[len(column) :]


def _joined(ids: Integers, codes: Integers) -> Integers:
    """A number for each pair of numbers, counted from 0."""
    width = int(codes.max(initial=0)) + 1
    joined: Integers = np.unique(ids * width + codes, return_inverse=True)[1].astype(np.int64)
    return joined


def _unmatched(ids: Integers, others: Integers) -> Integers:
    """Positions of ids that have no equal among the others, one for one."""
    largest = max(int(ids.max(initial=0)), int(others.max(initial=0)))
    counts = np.bincount(others, minlength=largest + 1)
    return np.flatnonzero(_rank(ids) >= counts[ids])


def _rank(ids: Integers) -> Integers:
    """For each id how many of the same come before it."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    positions = np.arange(len(ids), dtype=np.int64)
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ids)]
    ranks: Integers = np.empty_like(positions)
    ranks[order] = positions - np.maximum.accumulate(np.where(begins, positions, 0))
    return ranks


def read_expected(path: Path, schema: pa.Schema) -> pa.Table:
    """Read an expected table.

    Args:
        path: a file that ends in `.csv`, `.parquet`, `.json`, `.jsonl` or `.ndjson`.
        schema: of the table: columns that it has, in any case, get its spelling and type; others are kept as text.

    Raises:
        UsageError: no such file or format; a column is there twice; a value is not of its column's type.
    """
    readers: dict[str, Callable[[Path, pa.Schema], pa.Table]] = {".csv": _csv, ".parquet": _parquet}
    readers |= dict.fromkeys((".json", ".jsonl", ".ndjson"), _json)
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{path}: unknown format of an expected table", f"Known are {', '.join(readers)}.")
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    try:
        table = reader(path, schema)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeEncodeError:
        raise UsageError(f"{path}: holds half of a surrogate pair, which is no text") from None
    spelling = {folded(name): name for name in schema.names}
    names = [spelling.get(folded(name), name) for name in table.column_names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{path}: column {twice} is there twice", "Names are compared without regard to case.")
    types = [schema.field(name).type if name in schema.names else None for name in names]
    columns = zip(names, table.columns, types, strict=True)
    return pa.table(
        [column if kind is None else _cast(path, name, column, kind) for name, column, kind in columns], names=names
    )


def _csv(path: Path, schema: pa.Schema) -> pa.Table:  # noqa: ARG001 - as readers are called
    invalid: list[str] = []

    def refuse(row: pacsv.InvalidRow) -> str:
        invalid.append(f"line {row.number}: {row.actual_columns} fields for {row.expected_columns}")
        return "error"

    try:
        content = path.read_bytes()
        content.decode()  # Arrow cannot report an invalid row that is no text
        content += b"" if content.endswith((b"\n", b"\r")) else b"\n"  # Arrow takes no header without a line end
        # one thread, or an invalid row would have no number; a block holds the longest row
        reading = pacsv.ReadOptions(use_threads=False, block_size=max(len(content), 1))
        parsing = pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse)
        with pacsv.open_csv(pa.BufferReader(content), reading, parsing) as header:
            names = header.schema.names
        parsing.ignore_empty_lines = len(names) > 1  # of a single column, one is a NULL
        converting = pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        return pacsv.read_csv(pa.BufferReader(content), reading, parsing, converting)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: {invalid[0] if invalid else 'not CSV in UTF-8 with a header'}",
            "Separate fields by commas; quote fields that hold commas or quotes, and double the quotes.",
        ) from error


def _json(path: Path, schema: pa.Schema) -> pa.Table:
    rows = _json_rows(path)
    names = list(dict.fromkeys(name for row in rows for name in row)) or schema.names
    types = {folded(field.name): field.type for field in schema}
    return pa.table(
        [
            pa.array(
                [_written(path, name, at, row.get(name), types.get(folded(name))) for at, row in enumerate(rows, 1)],
                pa.string(),
            )
            for name in names
        ],
        names=names,
    )


def _json_rows(path: Path) -> Sequence[Row]:
    """The objects of a JSON file; numbers stay exact."""
    decoder = json.JSONDecoder(parse_float=Decimal, parse_constant=str)
    try:
        text = path.read_bytes().decode("utf-8-sig")
        try:
            rows = decoder.decode(text)
        except json.JSONDecodeError:
            # not splitlines(): text may hold other line ends as they are
            rows = [decoder.decode(line) for line in text.split("\n") if line.strip()]
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON in UTF-8", "Write an array of objects, or one object a line.") from error
    if isinstance(rows, dict):
        rows = rows["rows"] if isinstance(rows.get("rows"), list) else [rows]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{path}: rows are not objects", "Write an array of objects, or one object a line.")
    return rows


def _written(path: Path, name: str, row: int, value: object, kind: pa.DataType | None) -> str | None:
    """A JSON value as delimited text writes it."""
    match value:
        case None | str():
            return value
        case _ if kind is None:
            return str(value)
        case bool() if not pa.types.is_string(kind):
            return str(value).lower()
        case int() | Decimal() if not pa.types.is_string(kind):
            return str(value)
        case _:
            raise _not_of_type(path, name, row, kind)


def _parquet(path: Path, schema: pa.Schema) -> pa.Table:  # noqa: ARG001 - as readers are called
    try:
        table = pq.read_table(path, partitioning=None)
        table.validate(full=True)
    except _READ_FAULTS as error:
        raise UsageError(f"{path}: not a Parquet file") from error
    return table


def _cast(path: Path, name: str, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """One column in the table's type; an error names the row and never the value."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if path.suffix.lower() != ".parquet":
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            column = pc.if_else(pc.equal(column, ""), None, column)  # a quoted empty field (LZ-6.8)
        try:
            return typed(column, kind)
        except InvalidValue as invalid:
            raise _not_of_type(path, name, invalid.position + 1, kind) from None
    message = f"{path}: column {name} is {column.type}, the table's is {delta_type(kind) or kind}"
    if not pa.types.is_null(column.type) and _family(column.type) != _family(kind):
        raise UsageError(message, "Write the expected table with the table's types, or as CSV.")
    try:
        if pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
            column = column.cast(pa.decimal256(76, kind.scale))  # Arrow wants room for every integer
        return column.cast(kind)
    except pa.ArrowException:
        raise UsageError(message, "One of its values does not fit the table's type.") from None


def _family(kind: pa.DataType) -> str | None:
    """The name that types share between which a value keeps its meaning; None for types no table has."""
    match = _FAMILY.match(str(kind))
    return match.lastgroup if match else None


def _not_of_type(path: Path, name: str, row: int, kind: pa.DataType) -> UsageError:
    word = delta_type(kind) or str(kind)
    return UsageError(f"{path}, row {row}: column {name} is not {word}", _HELP.get(word, _NUMBER_HELP))


class InvalidValue(Exception):
    """Text that is no value of a type; `position` is its place in the column, from 0."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def typed(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Text as values of a Delta type, by the rules of delimited text (LZ-6.9); empty text is no NULL.

    Raises:
        InvalidValue: the first text that is no value of the type.
    """
    if pa.types.is_string(kind):
        return texts
    # Arrow also takes hexadecimal numbers, 1 as true, and infinity for what is too large
    has_words = pa.types.is_boolean(kind) or pc.any(pc.match_substring_regex(texts, "[^-+0-9.:TZ ]")).as_py()
    if not (has_words or pa.types.is_binary(kind)):
        with suppress(pa.ArrowInvalid):
            return texts.cast(kind)
    values: list[Any] = []
    try:
        # not a comprehension: how far it came is the position
        for text in texts.to_pylist():
            values.append(None if text is None else pa.scalar(_value(text, kind), kind))  # noqa: PERF401 - see above
    except (CellFault, ArithmeticError, pa.ArrowException):
        raise InvalidValue(len(values)) from None
    return pa.chunked_array([pa.array(values, kind)])


def _value(text: str, kind: pa.DataType) -> object:
    word = delta_type(kind) or "string"
    if word.startswith("decimal"):
        return Decimal(text)
    if word == "byte":
        return integer(text, 8)
    if word == "timestamp_ntz":
        return timestamp(text).replace(tzinfo=None)
    return parser(word)(text)
