"""Compares a mirrored table with an expected one: rows by key, cell by cell; without a key as multisets of rows.

Values are compared as the protocol compares keys (LZ-4.9): NaN equals NaN, -0.0 equals 0.0, all else exactly; NULL
equals NULL. Every column becomes integer codes that both tables share, so that a row costs a few integers besides
the tables themselves.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.schema import folded
from mirror_engine.tables.arrow_types import delta_type
from mirror_engine.tables.reading.parquet_footer import PARSE_FAULTS
from mirror_engine.tables.reading.text import ColumnFault, column_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Truths = NDArray[np.bool_]
    _Both = tuple[pa.ChunkedArray, pa.ChunkedArray]
    Floats = NDArray[np.float64]
    from collections.abc import Callable
    from pathlib import Path


def near_pairs(
    mine: Integers, theirs: Integers, here: Floats, there: Floats, tolerance: float
) -> tuple[Integers, Integers]:
    """Positions of rows that belong together, of mine and of theirs.

    Every row takes the first partner left that is near in all floats, both sides in the order of one of them. Of a
    single float these are as many pairs as there can be; of several they may be fewer, where nearness overlaps.

    Args:
        mine: a number for each row; only rows of one number may meet.
        theirs: the other table's.
        here: my rows' floats, all of them finite.
        there: the other table's.
        tolerance: by how much each may differ.
    """
    widest = max(range(here.shape[1]), key=lambda at: len(np.unique(here[:, at])))
    ours, others = np.lexsort((here[:, widest], mine)), np.lexsort((there[:, widest], theirs))
    partners, groups = there[others].tolist(), theirs[others].tolist()
    after = list(range(len(partners) + 1))  # for each partner the first one left that is not before it
    pairs, low = [], 0
    for place, group, row in zip(ours.tolist(), mine[ours].tolist(), here[ours].tolist(), strict=True):
        while low < len(partners) and (
            groups[low] < group or (groups[low] == group and row[widest] - partners[low][widest] > tolerance)
        ):
            low += 1  # no later row can have it either
        at = _left(after, low)
        while at < len(partners) and groups[at] == group and partners[at][widest] - row[widest] <= tolerance:
            if all(abs(one - other) <= tolerance for one, other in zip(row, partners[at], strict=True)):
                pairs.append((place, others[at]))
                after[at] = at + 1
                break
            at = _left(after, at + 1)
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _left(after: list[int], at: int) -> int:
    while after[at] != at:
        after[at] = after[after[at]]
        at = after[at]
    return at


Row = dict[str, Any]


@dataclass(frozen=True)
class DifferentRow:
    """One row that both tables have under one key, and its cells that differ: expected value, found value."""

    key: Row
    cells: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Difference:
    """What tells a table from the expected one.

    Attributes:
        key: the columns by which rows were matched; empty where they were compared as multisets.
        equal_rows, missing_rows, surplus_rows, different_rows: how many; missing ones are expected and not there.
        missing_columns: expected and not in the table.
        surplus_columns: in the table and not expected; not compared.
        different_cells: by column, in how many of the different rows.
        missing, surplus, different: the first of them.
    """

    key: tuple[str, ...]
    equal_rows: int
    missing_rows: int
    surplus_rows: int
    different_rows: int
    missing_columns: tuple[str, ...]
    surplus_columns: tuple[str, ...]
    different_cells: Mapping[str, int]
    missing: tuple[Row, ...]
    surplus: tuple[Row, ...]
    different: tuple[DifferentRow, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the tables are one and the same, columns and rows."""
        rows = self.missing_rows + self.surplus_rows + self.different_rows
        return not (rows or self.missing_columns or self.surplus_columns)


def compare(
    found: pa.Table, expected: pa.Table, key: Sequence[str] = (), *, tolerance: float = 0.0, limit: int | None = 20
) -> Difference:
    """Compare a table with the expected one.

    Args:
        found: the table.
        expected: with columns in the table's spelling and types, as `expected_table.read_expected` gives them.
        key: columns by which rows are matched, in any case; none: rows are compared as multisets.
        tolerance: by how much two floats may differ and count as equal; see `near_pairs` for rows without a key.
        limit: how many rows of each kind are told; None for all.

    Raises:
        UsageError: a key column is missing in one of the tables, or they have no column in common.
    """
    names = [name for name in expected.column_names if name in found.column_names]
    if not names:
        here, there = (", ".join(table.column_names) or "none" for table in (found, expected))
        raise UsageError("the tables have no column in common", f"The table has {here}; the expected one has {there}.")
    pairing = _Pairing(found, expected, names, _key_columns(key, found, expected), tolerance)
    first = slice(None, limit)
    return Difference(
        key=tuple(pairing.key),
        equal_rows=expected.num_rows - len(pairing.missing) - len(pairing.different),
        missing_rows=len(pairing.missing),
        surplus_rows=len(pairing.surplus),
        different_rows=len(pairing.different),
        missing_columns=tuple(name for name in expected.column_names if name not in names),
        surplus_columns=tuple(name for name in found.column_names if name not in names),
        different_cells=pairing.different_cells(),
        missing=tuple(expected.take(pairing.missing[first]).to_pylist()),
        surplus=tuple(found.take(pairing.surplus[first]).to_pylist()),
        different=pairing.different_rows(first),
    )


def _key_columns(key: Sequence[str], found: pa.Table, expected: pa.Table) -> list[str]:
    known = {folded(name): name for name in found.column_names}
    chosen = []
    for name in key:
        column = known.get(folded(name))
        if column is None:
            raise UsageError(f"key column {name}: the table has none of that name", f"It has {', '.join(known)}.")
        if column not in expected.column_names:
            raise UsageError(f"key column {column}: the expected table lacks it", "Add it, or name another: --key.")
        chosen.append(column)
    return chosen


class _Pairing:
    """Which row of one table belongs to which of the other: equal ones first, the rest by key.

    Attributes:
        missing: rows of the expected table without a partner.
        surplus: rows of the found table without a partner.
        different: which of the pairs differ in any column.
    """

    def __init__(
        self, found: pa.Table, expected: pa.Table, names: Sequence[str], key: Sequence[str], tolerance: float
    ) -> None:
        self.key = list(key)
        self._found, self._expected, self._names, self._tolerance = found, expected, names, tolerance
        self._floats = [name for name in names if pa.types.is_floating(found.schema.field(name).type)]
        both = [(found.column(name), expected.column(name)) for name in names]
        mine, theirs = _ids(both, found.num_rows, expected.num_rows)
        here, there = _unmatched(mine, theirs), _unmatched(theirs, mine)
        if key:
            self.surplus, self.missing, self._pairs = self._paired(here, there)
        elif tolerance and self._floats:
            self.surplus, self.missing, self._pairs = self._near(here, there)
        else:
            self.surplus, self.missing, self._pairs = here, there, (here[:0], there[:0])
        # without a key, rows that are not equal have nothing to do with each other
        self._cells = {name: self._differ(name) for name in names if name not in key} if key else {}
        none = np.zeros(len(self._pairs[0]), np.bool_)
        self.different = np.flatnonzero(np.logical_or.reduce([none, *self._cells.values()]))

    def different_cells(self) -> dict[str, int]:
        """In how many pairs each column differs; columns that never do are left out."""
        counts = {name: int(differs.sum()) for name, differs in self._cells.items()}
        return {name: count for name, count in counts.items() if count}

    def different_rows(self, first: slice) -> tuple[DifferentRow, ...]:
        """The first different pairs with their values."""
        chosen = self.different[first]
        there = self._found.take(self._pairs[0][chosen]).to_pylist()
        wanted = self._expected.take(self._pairs[1][chosen]).to_pylist()
        return tuple(
            DifferentRow(
                {name: row[name] for name in self.key},
                {name: (want[name], row[name]) for name, differs in self._cells.items() if differs[pair]},
            )
            for pair, row, want in zip(chosen, there, wanted, strict=True)
        )

    def _differ(self, name: str) -> Truths:
        here = self._found.column(name).take(self._pairs[0])
        there = self._expected.column(name).take(self._pairs[1])
        mine, theirs = _codes(here, there)
        apart: Truths = mine != theirs
        if self._tolerance and name in self._floats:
            near = pc.less_equal(pc.abs(pc.subtract(here, there)), self._tolerance)
            apart &= ~pc.fill_null(near, False).to_numpy().astype(np.bool_)
        return apart

    def _near(self, here: Integers, there: Integers) -> tuple[Integers, Integers, Any]:
        """Rows left of each table without a key, matched where they are equal but for floats near each other."""
        both = [(self._found.column(name).take(here), self._expected.column(name).take(there)) for name in self._names]
        mine, theirs = _ids(map(_but_for_floats, both), len(here), len(there))
        floats = [pair for pair in both if pa.types.is_floating(pair[0].type)]
        mine_near, theirs_near = (_finite(side) for side in zip(*floats, strict=True))
        first, second = near_pairs(mine, theirs, mine_near, theirs_near, self._tolerance)
        return np.delete(here, first), np.delete(there, second), (here[first], there[second])

    def _paired(self, here: Integers, there: Integers) -> tuple[Integers, Integers, Any]:
        """Rows left of each table, matched by the key; several of one key in the order they come."""
        here, there = self._ordered(self._found, here), self._ordered(self._expected, there)
        both = ((self._found.column(name).take(here), self._expected.column(name).take(there)) for name in self.key)
        mine, theirs = _ids(both, len(here), len(there))
        places = _joined(np.concatenate([mine, theirs]), np.concatenate([_rank(mine), _rank(theirs)]))
        _, first, second = np.intersect1d(
            places[: len(here)], places[len(here) :], assume_unique=True, return_indices=True
        )
        order = np.argsort(there[second])
        pairs = here[first][order], there[second][order]
        return np.sort(np.delete(here, first)), np.sort(np.delete(there, second)), pairs

    def _ordered(self, table: pa.Table, rows: Integers) -> Integers:
        """The rows by their floats where these may differ a little, so that near ones meet."""
        if not self._tolerance or not self._floats:
            return rows
        order = pc.sort_indices(
            table.select(self._floats).take(rows), sort_keys=[(name, "ascending") for name in self._floats]
        )
        ordered: Integers = rows[order.to_numpy()]
        return ordered


def _but_for_floats(columns: _Both) -> _Both:
    """Floats as nothing but what no other can be near to: NULL, NaN, infinities."""
    found, expected = columns
    if not pa.types.is_floating(found.type):
        return columns
    return tuple(pc.if_else(pc.is_finite(column), pa.scalar(0.0, column.type), column) for column in (found, expected))


def _finite(columns: Iterable[pa.ChunkedArray]) -> NDArray[np.float64]:
    """Floats side by side, a row each; 0 where there is none, or no finite one."""
    numbers = (pc.if_else(pc.is_finite(column), column, None).fill_null(0.0).to_numpy() for column in columns)
    return np.stack([np.asarray(values, np.float64) for values in numbers], axis=1)


def _ids(columns: Iterable[_Both], mine: int, theirs: int) -> tuple[Integers, Integers]:
    """A number for each row of both tables, so many of each; rows that are equal in every column have the same one."""
    ids = np.zeros(mine + theirs, np.int64)
    for at, column in enumerate(columns):
        codes = np.concatenate(_codes(*column))
        ids = _joined(ids, codes) if at else codes
    return ids[:mine], ids[mine:]


def _codes(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> tuple[Integers, Integers]:
    """A number for each value of both columns; equal values have the same one, and NULL has its own."""
    both = pa.chunked_array([*found.chunks, *expected.chunks], found.type)
    if pa.types.is_floating(both.type):
        both = pc.add(both, pa.scalar(0.0, both.type))  # -0.0 becomes 0.0
    parts = both.dictionary_encode(null_encoding="encode").chunks  # all of one dictionary
    codes: Integers = np.concatenate([np.zeros(0, np.int64), *(np.asarray(part.indices, np.int64) for part in parts)])
    return codes[: len(found)], codes[len(found) :]


def _joined(one: Integers, other: Integers) -> Integers:
    """A number for each pair of numbers, counted from 0."""
    width = int(other.max(initial=0)) + 1
    joined: Integers = np.unique(one * width + other, return_inverse=True)[1].astype(np.int64)
    return joined


def _unmatched(mine: Integers, theirs: Integers) -> Integers:
    """Rows of mine that have no equal among theirs, one for one."""
    most = max(int(mine.max(initial=0)), int(theirs.max(initial=0)))
    counts = np.bincount(theirs, minlength=most + 1)
    return np.flatnonzero(_rank(mine) >= counts[mine])


def _rank(ids: Integers) -> Integers:
    """For each row how many of the same number come before it."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    places = np.arange(len(ids), dtype=np.int64)
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ids)]
    ranks: Integers = np.empty_like(places)
    ranks[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return ranks


_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_HEADER_BYTES = 64 * 1024
_BLOCK_BYTES = 16 * 1024 * 1024
_SEPARATORS = ";\t|"  # that other programs write instead of commas
_NUMBERS = "Write numbers with a point, and nothing but digits beside it; in CSV NULL is an empty field."
_HELP = {  # how values of a type are written; of all others as numbers
    "timestamp": "Write times in ISO 8601: 2026-03-28T08:15:29Z.",
    "date": "Write dates in ISO 8601: 2026-03-28.",
    "boolean": "Write true or false.",
    "binary": "Write binary in Base64.",
    "string": "Write text in quotation marks.",  # only JSON has values that are none
}
_WITHIN = {"byte": "long", "timestamp_ntz": "timestamp"}  # types that delimited text does not declare


def read_expected(path: Path, schema: pa.Schema) -> pa.Table:
    """An expected table.

    Args:
        path: a file that ends in `.csv`, `.parquet`, `.json`, `.jsonl` or `.ndjson`.
        schema: of the table: columns that are known to it, in any case, get its spelling and type.

    Raises:
        UsageError: no such file or form of file; a column is there twice; a value is none of its column's type.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{path}: no form of an expected table", f"Known are {', '.join(_READERS)}.")
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    try:
        return reader(path, schema)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeEncodeError:
        raise UsageError(f"{path}: it holds half of a surrogate pair, which is no text") from None


def _csv(path: Path, schema: pa.Schema) -> pa.Table:
    wrong: list[str] = []

    def refuse(row: pacsv.InvalidRow) -> str:
        wrong.append(f"line {row.number}: {row.actual_columns} fields for {row.expected_columns}")
        return "error"

    # one thread, or a wrong row would have no number
    reading = pacsv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
    parsing = pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse)
    try:
        _check_encoding(path)
        _check_separator(path, schema)
        with pacsv.open_csv(_lines(path), reading, parsing) as header:
            names = header.schema.names
        parsing.ignore_empty_lines = len(names) > 1  # of a single column, one is a NULL
        text = pacsv.read_csv(
            _lines(path),
            reading,
            parsing,
            pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        fault = wrong[0] if wrong else "no CSV in UTF-8 with a header"
        raise UsageError(
            f"{path}: {fault}", "Quote fields that hold commas or quotes, and double the quotes."
        ) from error
    columns = [(name, text.column(at).chunks) for at, name in enumerate(text.column_names)]
    return _table(path, schema, columns, lambda chunk: chunk.to_pylist())


def _check_encoding(path: Path) -> None:
    """Read it once as text: Arrow tells of a wrong row in text, too, and cannot where that is none.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            decoder.decode(block)
    decoder.decode(b"", final=True)


def _check_separator(path: Path, schema: pa.Schema) -> None:
    """Refuse a header that is one field, and names columns of the table where it is cut at something else."""
    known = {folded(name) for name in schema.names}
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = file.readline(_HEADER_BYTES).rstrip("\r\n")
    if "," in header or folded(header.strip('"')) in known:
        return
    for separator in _SEPARATORS:
        names = [name.strip('" ') for name in header.split(separator)]
        if len(names) > 1 and any(folded(name) in known for name in names):
            word = "a tab" if separator == "\t" else f"`{separator}`"
            raise UsageError(
                f"{path}: its header is {', '.join(names)}, with {word} between the names",
                "Separate fields by commas, in every line.",
            )


def _lines(path: Path) -> Path | pa.BufferReader:
    """What Arrow is to read: it takes no header that has no line end."""
    with path.open("rb") as file:
        begin = file.read(_HEADER_BYTES)
    is_whole = len(begin) < _HEADER_BYTES
    return pa.BufferReader(begin + b"\n") if is_whole and not begin.endswith((b"\n", b"\r")) else path


def _json(path: Path, schema: pa.Schema) -> pa.Table:
    rows = _json_rows(path)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [(name, [[row.get(name) for row in rows]]) for name in names or schema.names]
    return _table(path, schema, columns, lambda values: values)


def _json_rows(path: Path) -> Sequence[dict[str, Any]]:
    """The objects of a JSON file; numbers stay exact."""
    text = path.read_bytes()
    decoder = json.JSONDecoder(parse_float=Decimal, parse_constant=str)
    try:
        try:
            found = decoder.decode(text.decode("utf-8-sig"))
        except json.JSONDecodeError:
            # not splitlines(): text may hold other line ends as they are
            found = [decoder.decode(line) for line in text.decode("utf-8-sig").split("\n") if line.strip()]
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise UsageError(f"{path}: no JSON in UTF-8", "Write an array of objects, or one object a line.") from error
    if isinstance(found, dict):
        found = found["rows"] if isinstance(found.get("rows"), list) else [found]
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UsageError(f"{path}: rows are objects", "Write an array of objects, or one object a line.")
    return found


def _table(
    path: Path, schema: pa.Schema, columns: Sequence[tuple[str, Sequence[Any]]], values: Callable[[Any], Sequence[Any]]
) -> pa.Table:
    """Columns of text or JSON values, in parts, as typed ones."""
    spelled = _spelled(path, [name for name, _ in columns], schema)
    arrays, fields = [], []
    for name, (_, parts) in zip(spelled, columns, strict=True):
        known = name in schema.names
        kind = schema.field(name).type if known else pa.string()
        typed, rows = [], 0
        for part in parts:
            cells = values(part)
            typed.append(_typed(path, name, cells, kind, rows) if known else _as_text(cells))
            rows += len(cells)
        arrays.append(pa.chunked_array(typed, kind))
        fields.append(pa.field(name, kind))
    return pa.table(arrays, schema=pa.schema(fields))


def _spelled(path: Path, names: Sequence[str], schema: pa.Schema) -> list[str]:
    """The names as the table spells them."""
    known = {folded(name): name for name in schema.names}
    spelled = [known.get(folded(name), name) for name in names]
    twice = next((name for name in spelled if spelled.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{path}: column {twice} is there twice", "Names are one and the same in any case.")
    return spelled


def _typed(path: Path, name: str, values: Sequence[Any], wanted: pa.DataType, first: int) -> pa.Array:
    """One column's values in the table's type; an error names the row and never the value."""
    word = delta_type(wanted) or "string"
    help = _HELP.get(_WITHIN.get(word, word), _NUMBERS)
    try:
        if word == "string":
            return pa.array(_texts(values), wanted)
        cells = [None if value is None else _written(value) for value in values]
        if word.startswith("decimal"):
            return pa.array(_decimals(cells), wanted)
        typed = column_array(cells, _WITHIN.get(word, word)).cast(wanted)
        return _with_empty(typed, cells) if word == "binary" else typed
    except ColumnFault as fault:
        raise UsageError(f"{path}, row {first + fault.position + 1}: column {name} is not {word}", help) from None
    except (pa.ArrowException, ArithmeticError):
        raise UsageError(f"{path}: column {name} holds a value that no {word} can be", help) from None


def _with_empty(typed: pa.Array, cells: Sequence[str | None]) -> pa.Array:
    """Binary values with those of no bytes, which are NULL only in a change file (LZ-6.8)."""
    return pc.if_else(pa.array([cell == "" for cell in cells], pa.bool_()), pa.scalar(b"", typed.type), typed)


def _as_text(values: Sequence[Any]) -> pa.Array:
    """The values of a column that the table lacks: they are shown and not compared."""
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _texts(values: Sequence[Any]) -> Sequence[str | None]:
    for at, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            raise ColumnFault(at, "format")
    return values


def _written(value: object) -> str:
    """A JSON value as delimited text writes it; what is no plain value becomes text that no type takes."""
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | Decimal():
            return str(value)
        case _:
            return "not a plain value"


def _decimals(cells: Sequence[str | None]) -> list[Decimal | None]:
    found: list[Decimal | None] = []
    for cell in cells:
        if cell and _DECIMAL.fullmatch(cell.strip()) is None:
            raise ColumnFault(len(found), "format")
        found.append(Decimal(cell.strip()) if cell else None)
    return found


def _parquet(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        read = pq.read_table(path, partitioning=None)
        read.validate(full=True)
    except PARSE_FAULTS as error:
        raise UsageError(f"{path}: no Parquet file") from error
    arrays = []
    names = _spelled(path, read.column_names, schema)
    for name, column in zip(names, read.columns, strict=True):
        arrays.append(_cast(path, name, column, schema.field(name).type) if name in schema.names else column)
    return pa.table(arrays, names=names)


def _cast(path: Path, name: str, column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    fault = f"{path}: column {name} is {column.type}, the table's is {delta_type(wanted) or wanted}"
    if not pa.types.is_null(column.type) and _family(column.type) != _family(wanted):
        raise UsageError(fault, "Write the expected table with the table's types, or as CSV.")
    try:
        if pa.types.is_integer(column.type) and pa.types.is_decimal(wanted):
            column = column.cast(pa.decimal256(76, wanted.scale))  # Arrow wants room for every integer
        return column.cast(wanted)
    except pa.ArrowException:
        raise UsageError(fault, "A value of it cannot be one of the table's.") from None


def _family(kind: pa.DataType) -> str:
    """Types between which a value keeps its meaning."""
    tests = {
        "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
        "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        "binary": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
        "timestamp": (pa.types.is_timestamp,),
        "date": (pa.types.is_date,),
    }
    return next((name for name, several in tests.items() if any(test(kind) for test in several)), str(kind))


_READERS: dict[str, Callable[[Path, pa.Schema], pa.Table]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".json": _json,
    ".jsonl": _json,
    ".ndjson": _json,
}
