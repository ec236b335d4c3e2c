"""Reads an expected table from a CSV, Parquet or JSON file, as the columns and types of the table it is held against.

CSV: a header, commas, doubled quotes, UTF-8; an empty field is NULL, a quoted empty one is empty text or binary. JSON:
an array of objects, one object a line, or what `show --json` prints. Values are written as delimited text writes them
(LZ-6.9): numbers with a point, ISO 8601 times (UTC without an offset), Base64.
"""

from __future__ import annotations

import codecs
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from mirror_engine.delta.arrow_types import delta_type
from mirror_engine.delta.parquet_footer import PARSE_FAULTS
from mirror_engine.delta.text_columns import ColumnFault, column_array
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.column_types import folded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_HEADER_BYTES = 64 * 1024
_BLOCK_BYTES = 16 * 1024 * 1024
_SEPARATORS = ";\t|"  # that other programs write instead of commas
_NUMBERS = "Write numbers with a point, and nothing but digits beside it; in CSV NULL is an empty field."
_HINTS = {  # how values of a type are written; of all others as numbers
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
    hint = _HINTS.get(_WITHIN.get(word, word), _NUMBERS)
    try:
        if word == "string":
            return pa.array(_texts(values), wanted)
        cells = [None if value is None else _written(value) for value in values]
        if word.startswith("decimal"):
            return pa.array(_decimals(cells), wanted)
        typed = column_array(cells, _WITHIN.get(word, word)).cast(wanted)
        return _with_empty(typed, cells) if word == "binary" else typed
    except ColumnFault as fault:
        raise UsageError(f"{path}, row {first + fault.position + 1}: column {name} is not {word}", hint) from None
    except (pa.ArrowException, ArithmeticError):
        raise UsageError(f"{path}: column {name} holds a value that no {word} can be", hint) from None


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
