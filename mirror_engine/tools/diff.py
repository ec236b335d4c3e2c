"""Compare a table with an expected one: a CSV, JSON or Parquet file, row by row and cell by cell."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.csv_dialect import RecordReader, TextDialect, decoded
from mirror_engine.landing_zone.csv_values import PARSERS, CellFault
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.schema import folded
from mirror_engine.tables.arrow_types import delta_type
from mirror_engine.tables.reading.text import column_array
from mirror_engine.tools.difference import Difference, DifferentCell, DifferentRow, OtherColumns, RowCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Pairs = tuple[Integers, Integers]  # of the table, and of the expected one
    _Columns = Sequence[tuple[str, pa.ChunkedArray | Sequence[str | None]]]  # by name; text has no type yet

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
_FAMILY = re.compile(  # types between which a value keeps its meaning
    r"(?P<number>u?int|halffloat|float|double|decimal)|(?P<text>(large_)?string)|(?P<binary>\w*binary)|"
    r"(?P<timestamp>timestamp)|(?P<date>date)|(?P<boolean>bool)"
)


@dataclass(frozen=True)
class MatchedRows:
    """Rows of a table and of the expected one that have no equal, by position; numpy arrays, no row as an object."""

    key: tuple[str, ...]  # as in `Difference`
    first: Integers  # pairs of rows with the same key: in the table,
    second: Integers  # and in the expected one
    cells: Mapping[str, NDArray[np.bool_]]  # by column, in which of these pairs its values differ
    missing: Integers  # in the expected table
    unexpected: Integers  # in the table
    equal_rows: int


def match(table: pa.Table, expected: pa.Table, key: Sequence[str] = (), *, tolerance: float = 0.0) -> MatchedRows:
    """Match the rows of a table with those of the expected one; arguments and errors are those of `compare`."""
    names = [name for name in expected.column_names if name in table.column_names]
    if not names:
        has, wants = (", ".join(side.column_names) or "none" for side in (table, expected))
        raise UsageError("the tables have no column in common", f"The table has {has}; the expected one {wants}.")
    match_by = _key_columns(key, table.column_names)
    _check_expected(match_by, expected)
    codes = {name: _codes(table.column(name), expected.column(name)) for name in names}
    floats = [name for name in names if tolerance and pa.types.is_floating(table.schema.field(name).type)]
    ids, expected_ids = _ids(codes.values(), np.arange(table.num_rows), np.arange(expected.num_rows))
    rows, expected_rows = _unmatched(ids, expected_ids), _unmatched(expected_ids, ids)
    first, second = rows[:0], expected_rows[:0]  # pairs of rows that are not equal, by position
    if match_by or floats:
        columns = match_by or [name for name in names if name not in floats]
        first, second = _paired(
            [codes[name] for name in columns], _ordered(table, rows, floats), _ordered(expected, expected_rows, floats)
        )
    cells: dict[str, NDArray[np.bool_]] = {}  # by column, in which pairs its values differ
    for name in names:
        differs = codes[name][0][first] != codes[name][1][second]
        if name in floats:
            distance = pc.subtract(table.column(name).take(first), expected.column(name).take(second))
            near = pc.less_equal(pc.abs(distance), tolerance)
            differs &= ~pc.fill_null(near, False).to_numpy().astype(np.bool_)
        if differs.any():
            cells[name] = differs
    different = np.flatnonzero(np.logical_or.reduce([np.zeros(len(first), np.bool_), *cells.values()]))
    if not match_by:  # rows that are not near have nothing to do with each other
        first, second = np.delete(first, different), np.delete(second, different)
        cells, different = {}, different[:0]
    missing, unexpected = np.setdiff1d(expected_rows, second), np.setdiff1d(rows, first)
    return MatchedRows(
        key=tuple(match_by),
        first=first[different],
        second=second[different],
        cells={name: differs[different] for name, differs in cells.items()},
        missing=missing,
        unexpected=unexpected,
        equal_rows=expected.num_rows - len(missing) - len(different),
    )


def key_of(key: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Choose the columns of a key among those of its table, in the table's spelling.

    Raises:
        UsageError: there is no key, or the table lacks a column of it.
    """
    if names := _key_columns(key, known):
        return names
    raise UsageError("the table has no key", "Name the columns that identify a row: --key Id,Line.")


def distinct_keys(table: pa.Table, keys: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return each key once: of a table's key columns, and of the keys that its source has.

    Raises:
        UsageError: the keys lack one of the columns.
    """
    names = table.column_names
    _check_expected(names, keys)
    return _distinct(table), _distinct(keys.select(names))


def diff_tables(
    table: pa.Table, expected: pa.Table, key: Sequence[str] = (), *, tolerance: float = 0.0, limit: int | None = 20
) -> Difference:
    """Compare a table with the expected one, which has columns in its spelling and types, as of `read_expected`.

    Rows are matched by the columns of `key`, in any case, also as `Id,Line`; without one they are compared as
    multisets. Two floats that differ by `tolerance` count as equal; rows without a key are then matched by their other
    columns, several of the same ones in the order of their floats. `limit` rows of each kind are returned. Raises
    `UsageError` where a key column is missing in one of the tables, or they have no column in common.
    """
    found = match(table, expected, key, tolerance=tolerance)
    actual, wanted = table.take(found.first[:limit]).to_pylist(), expected.take(found.second[:limit]).to_pylist()
    counts = RowCounts(found.equal_rows, len(found.missing), len(found.unexpected), len(found.first))
    has, wants = table.column_names, expected.column_names
    columns = OtherColumns(
        tuple(name for name in wants if name not in has), tuple(name for name in has if name not in wants)
    )
    return Difference(
        key=found.key,
        equal=not (counts.missing or counts.unexpected or counts.different or columns.missing or columns.unexpected),
        counts=counts,
        columns=columns,
        different_cells={name: int(differs.sum()) for name, differs in found.cells.items()},
        missing=tuple(expected.take(found.missing[:limit]).to_pylist()),
        unexpected=tuple(table.take(found.unexpected[:limit]).to_pylist()),
        different=tuple(
            DifferentRow(
                {name: row[name] for name in found.key},
                [DifferentCell(name, target[name], row[name]) for name, differs in found.cells.items() if differs[at]],
            )
            for at, (row, target) in enumerate(zip(actual, wanted, strict=True))
        ),
    )


def _key_columns(key: Sequence[str], columns: Sequence[str]) -> list[str]:
    known = {folded(name): name for name in columns}
    found = []
    # a column whose name contains a comma may be given as it is
    for name in (name for text in key for name in ([text] if folded(text) in known else text.split(","))):
        column = known.get(folded(name))
        if column is None:
            raise UsageError(f"key column {name}: the table has no such column", f"It has {', '.join(known)}.")
        found.append(column)
    return [*dict.fromkeys(found)]  # one may be named twice


def _check_expected(key: Sequence[str], expected: pa.Table) -> None:
    for column in key:
        if column not in expected.column_names:
            raise UsageError(f"key column {column}: the expected table lacks it", "Add it, or name another: --key.")


def _distinct(table: pa.Table) -> pa.Table:
    """Drop repeated rows, keeping the first of each."""
    ids, _ = _ids((_codes(column, column[:0]) for column in table.columns), np.arange(table.num_rows), np.arange(0))
    return table.take(np.sort(np.unique(ids, return_index=True)[1]))


def _codes(column: pa.ChunkedArray, expected: pa.ChunkedArray) -> Pairs:
    """A number for each value of both columns; equal values have the same one, and NULL has its own."""
    both = pa.chunked_array([*column.chunks, *expected.chunks], column.type)
    if pa.types.is_floating(both.type):
        both = pc.add(both, pa.scalar(0.0, both.type))  # -0.0 becomes 0.0
    parts = both.dictionary_encode(null_encoding="encode").chunks  # all of one dictionary
    codes: Integers = np.concatenate([np.zeros(0, np.int64), *(np.asarray(part.indices, np.int64) for part in parts)])
    return codes[: len(column)], codes[len(column) :]


def _ids(columns: Iterable[Pairs], rows: Integers, expected_rows: Integers) -> Pairs:
    """A number for each of the rows, by position; rows that are equal in these columns have the same one."""
    ids = np.zeros(len(rows) + len(expected_rows), np.int64)
    for codes, expected_codes in columns:
        both = np.concatenate([codes[rows], expected_codes[expected_rows]])
        ids = np.unique(ids * (int(both.max(initial=0)) + 1) + both, return_inverse=True)[1].astype(np.int64)
    return ids[: len(rows)], ids[len(rows) :]


def _unmatched(ids: Integers, others: Integers) -> Integers:
    """Positions of ids that have no equal among the others, one for one."""
    counts = np.bincount(others, minlength=int(ids.max(initial=0)) + 1)
    return np.flatnonzero(_rank(ids) >= counts[ids])


def _rank(ids: Integers) -> Integers:
    """For each id, the number of equal ids before it."""
    order = np.argsort(ids, kind="stable")
    ranks: Integers = np.empty_like(order)
    ranks[order] = np.arange(len(ids)) - np.searchsorted(ids, ids[order], sorter=order)
    return ranks


def _paired(columns: Sequence[Pairs], rows: Integers, expected_rows: Integers) -> Pairs:
    """Rows that are equal in these columns, one for one in the order they come."""
    ids, expected_ids = _ids(columns, rows, expected_rows)
    ranks = _rank(ids), _rank(expected_ids)
    ids, expected_ids = _ids([(ids, expected_ids), ranks], np.arange(len(rows)), np.arange(len(expected_rows)))
    _, first, second = np.intersect1d(ids, expected_ids, assume_unique=True, return_indices=True)
    order = np.argsort(expected_rows[second])
    return rows[first][order], expected_rows[second][order]


def _ordered(table: pa.Table, rows: Integers, floats: Sequence[str]) -> Integers:
    """The rows in the order of floats that may differ a little, so that near ones are paired."""
    if not floats:
        return rows
    order = pc.sort_indices(table.select(floats).take(rows), sort_keys=[(name, "ascending") for name in floats])
    ordered: Integers = rows[order.to_numpy()]
    return ordered


def read_expected(path: Path, schema: pa.Schema, *, known_only: bool = False) -> pa.Table:
    """Read an expected table: a file that ends in `.csv`, `.parquet`, `.json`, `.jsonl` or `.ndjson`.

    CSV is read as change files are (LZ-6.8, LZ-6.9), with quotes doubled. Columns that the table's schema has, in any
    case, get its spelling and type; others are kept as text, or left out with `known_only`. Raises `UsageError`: no
    such file or format; a column is there twice; a value is not of its column's type.
    """
    names = {*map(folded, schema.names)} if known_only else None
    readers: dict[str, Callable[[Path], _Columns]] = {".csv": _csv, ".parquet": partial(_parquet, names=names)}
    readers |= dict.fromkeys((".json", ".jsonl", ".ndjson"), partial(_json, schema=schema))
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{path}: unknown format of an expected table", f"Known are {', '.join(readers)}.")
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    try:
        columns = [(name, column) for name, column in reader(path) if names is None or folded(name) in names]
        return _fitted(path, columns, schema)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeEncodeError:
        raise UsageError(f"{path}: contains half of a surrogate pair, which is not text") from None


def expected_rows(expected: object, schema: pa.Schema) -> pa.Table:
    """An expected table in memory, as `read_expected` gives one.

    Of rows as dicts, in which a column that a row lacks is NULL, or an Arrow table, or what becomes one. Raises
    `UsageError`: it is none; a column is there twice; a value is not of its column's type.
    """
    place = Path("expected")
    try:
        if isinstance(expected, (list, tuple)):
            names = dict.fromkeys(name for row in expected for name in row) or schema.names
            expected = {name: [row.get(name) for row in expected] for name in names}
        table = pa.table(expected)
    except (*_READ_FAULTS, AttributeError) as error:
        raise UsageError(f"{place}: no table", "Give rows as dicts, or an Arrow table.") from error
    return _fitted(place, list(zip(table.column_names, table.columns, strict=True)), schema)


def _fitted(path: Path, columns: _Columns, schema: pa.Schema) -> pa.Table:
    """The columns that a table's schema has, in any case, with its spelling and types."""
    spelling = {folded(name): name for name in schema.names}
    cells: dict[str, Any] = {}
    for given, column in columns:
        name = spelling.get(folded(given), given)
        if name in cells:
            raise UsageError(f"{path}: column {name} is there twice", "Names are compared without regard to case.")
        kind = schema.field(name).type if name in schema.names else None
        if isinstance(column, pa.ChunkedArray):
            cells[name] = column if kind is None else _cast(path, name, column, kind)
            continue
        try:
            cells[name] = typed(column, kind or pa.string())
        except CellFault as invalid:
            raise _not_of_type(path, name, invalid.position + 1, kind) from None
    return pa.table(cells)


def _csv(path: Path) -> _Columns:
    content = path.read_bytes()
    reader = RecordReader(TextDialect(row_separator="\n" if b"\n" in content else "\r", escape='"'), str(path))
    try:
        header, *rows = chain.from_iterable(reader.records(decoded([content], "utf-8")))
    except (RejectedFile, ValueError) as error:
        found = error.diagnostic.full_message if isinstance(error, RejectedFile) else f"{path}: there is no header"
        help = "Write CSV in UTF-8 with a header; quote fields that hold commas or quotes, and double the quotes."
        raise UsageError(found, help) from None
    return [(name or "", [row[at] for row in rows]) for at, name in enumerate(header)]


def _json(path: Path, schema: pa.Schema) -> _Columns:
    rows = _json_rows(path)
    types = {folded(field.name): field.type for field in schema}
    names = dict.fromkeys(name for row in rows for name in row) or schema.names
    return [
        (
            name,
            [
                _written(path, name, number, row.get(name), types.get(folded(name)))
                for number, row in enumerate(rows, 1)
            ],
        )
        for name in names
    ]


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
        case bool() | int() | Decimal() if not pa.types.is_string(kind):
            return str(value).lower()
        case _:
            raise _not_of_type(path, name, row, kind)


def _parquet(path: Path, names: Collection[str] | None) -> _Columns:
    """The columns of these folded names; all without."""
    try:
        chosen = names and [name for name in pq.read_schema(path).names if folded(name) in names]
        table = pq.read_table(path, columns=chosen, partitioning=None)
        table.validate(full=True)
    except _READ_FAULTS as error:
        raise UsageError(f"{path}: not a Parquet file") from error
    return list(zip(table.column_names, table.columns, strict=True))


def _cast(path: Path, name: str, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column in the table's type, where values keep their meaning."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    message = f"{path}: column {name} is {column.type}, the table's is {delta_type(kind) or kind}"
    families = [match and match.lastgroup for match in (_FAMILY.match(str(each)) for each in (column.type, kind))]
    if not pa.types.is_null(column.type) and families[0] != families[1]:
        raise UsageError(message, "Write the expected table with the table's types, or as CSV.")
    try:
        if pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
            column = column.cast(pa.decimal256(76, kind.scale))  # Arrow wants room for every integer
        return column.cast(kind)
    except pa.ArrowException:
        raise UsageError(message, "One of its values does not fit the table's type.") from None


def _not_of_type(path: Path, name: str, row: int, kind: pa.DataType | None) -> UsageError:
    word = delta_type(kind) or str(kind)
    return UsageError(f"{path}, row {row}: column {name} is not {word}", _HELP.get(word, _NUMBER_HELP))


def typed(texts: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Text as values of a Delta type, by the rules of delimited text (LZ-6.8, LZ-6.9).

    Empty text is a value of text and binary, and NULL of other types. Raises `CellFault` at the first text that is no
    value of the type, with its position.
    """
    if not (pa.types.is_decimal(kind) or pa.types.is_binary(kind)):
        return column_array(texts, delta_type(kind) or "string").cast(kind)
    parse = PARSERS["binary"]
    if pa.types.is_decimal(kind):
        texts, parse = [text or None for text in texts], Decimal
        with suppress(pa.ArrowInvalid):
            return pa.array(texts, pa.string()).cast(kind)
    values: list[Any] = []
    try:
        for text in texts:  # not a comprehension: how far it came is the position
            values.append(None if text is None else pa.scalar(parse(text), kind))  # noqa: PERF401 - see above
    except (CellFault, ArithmeticError, pa.ArrowException):
        raise CellFault("format", len(values)) from None
    return pa.array(values, kind)
