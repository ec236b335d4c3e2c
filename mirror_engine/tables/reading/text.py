"""Opens a delimited-text change file: its header matched to the declared columns, its rows typed (LZ-6)."""

from __future__ import annotations

import re
from codecs import BOM_UTF32_BE
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.landing_zone.change import MARKER_COLUMN, has_outer_underscore
from mirror_engine.landing_zone.csv_dialect import BOM, RecordReader, decoded, shown_character, spelled_encoding
from mirror_engine.landing_zone.csv_encoding import CodePageCheck, seeming_encoding
from mirror_engine.landing_zone.csv_header import (
    AS_READ,
    HEAD_BYTES,
    MAX_COMPARED,
    foreign_format,
    header_fault,
    is_header,
    likely_options,
    meant_name,
    partial_fault,
)
from mirror_engine.landing_zone.csv_values import FORMS, PARSERS, CellFault
from mirror_engine.landing_zone.diagnostics import RejectedFile, without_errors
from mirror_engine.landing_zone.schema import Column, folded, in_other_case, same_named
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.reading.open_file import OpenFile
from mirror_engine.tables.reading.row_rules import effective_markers, help_for_null
from mirror_engine.tables.reading.snappy import is_snappy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.csv_dialect import Record
    from mirror_engine.landing_zone.csv_header import HeaderFault
    from mirror_engine.landing_zone.metadata import Metadata


_LINE_END = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # those of `str.splitlines`
_MAY_BE_ROW = "if the first line is a row, write the names of the columns before it; otherwise "
TIME = "time"  # of an `ITime` column, a string to Delta
_MARKER = "marker"
_INTEGER = r"^-?[0-9]{1,19}$"
_NUMBER = r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_DAY = r"^(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-[0-9]{2}-[0-9]{2}"  # not in the year 0
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_TO_MICROSECONDS = 26  # characters of a timestamp up to its sixth decimal


def _timestamps(texts: pa.Array) -> pa.Array:
    utc = pc.replace_substring(texts, "+00:00", "Z")
    return pc.ascii_rtrim(pc.utf8_slice_codeunits(utc, 0, _TO_MICROSECONDS), "Z").cast(pa.timestamp("us"))


# What is read as a whole column: the form that all cells must have, and how Arrow makes values of them.
_WHOLE: dict[str, tuple[str, Callable[[pa.Array], pa.Array]]] = {
    "short": (_INTEGER, lambda texts: texts.cast(pa.int16())),
    "integer": (_INTEGER, lambda texts: texts.cast(pa.int32())),
    "long": (_INTEGER, lambda texts: texts.cast(pa.int64())),
    "float": (_NUMBER, lambda texts: texts.cast(pa.float32())),
    "double": (_NUMBER, lambda texts: texts.cast(pa.float64())),
    "boolean": (r"(?i)^(?:true|false)$", lambda texts: pc.equal(pc.ascii_lower(texts), "true")),
    "date": (_DAY + "$", lambda texts: texts.cast(pa.date32())),
    "timestamp": (_DAY + f"[T ]{_CLOCK}" + r"(?:\.[0-9]+)?(?:Z|\+00:00)?$", _timestamps),
    TIME: (f"^{_CLOCK}" + r"(?:\.[0-9]{1,9})?$", lambda texts: texts),
}


def column_array(cells: Sequence[str | None], kind: str) -> pa.Array:
    """The values of a column of a declared type in Delta's words, or of `TIME` (LZ-6.8, LZ-6.9).

    `None` is NULL, and so is a quoted empty field but in a String.

    Raises:
        CellFault: the first cell that is not a value of the type, with its position.
    """
    if kind == "string":
        return pa.array(cells, pa.string())
    cells = [cell or None for cell in cells]
    if kind in _WHOLE:
        form, cast = _WHOLE[kind]
        texts = pa.array(cells, pa.string())
        with suppress(pa.ArrowInvalid):
            if pc.all(pc.match_substring_regex(texts, form), min_count=0).as_py():
                values = cast(texts)
                if not (pa.types.is_floating(values.type) and pc.any(pc.is_inf(values)).as_py()):
                    return values.cast(arrow_type(kind)) if kind != TIME else values
    return _cell_by_cell(cells, kind)


def _cell_by_cell(cells: Sequence[str | None], kind: str) -> pa.Array:
    parse = PARSERS[kind]
    values: list[object] = []
    try:
        for cell in cells:
            values.append(None if cell is None else parse(cell))  # noqa: PERF401 - their number says which cell failed
    except CellFault as fault:
        raise CellFault(fault.fault, len(values)) from None
    return pa.array(values, arrow_type("string" if kind == TIME else kind))


CHUNK_BYTES = 256 * 1024
_CODECS = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # a frame of ZSTD without data, which may be the first
_FOREIGN_TAIL = re.compile(
    "header check|unknown compression method"
)  # of zlib, behind the first member: its own was seen
_HEAD_BYTES = max(map(len, _CODECS))


def _repeated_at(header: Record, rows: list[Record]) -> int | None:
    """Where a header of several names is first repeated, maybe behind a byte order mark."""
    spellings = [header, [f"{BOM}{header[0]}", *header[1:]]]
    return min((rows.index(each) for each in spellings if len(header) > 1 and each in rows), default=None)


class _Field(NamedTuple):
    """A column to read: its place in the header, and a declared type, `TIME` or `_MARKER`."""

    at: int
    column: Column
    kind: str


class TextChangeFile(OpenFile):
    """An `OpenFile` over delimited text. Timestamps are UTC by rule, so that no column is naive.

    Raises:
        RejectedFile: ME023, ME024, ME036, ME053, ME061, ME075, ME094; under `strict` also ME034, ME052 and ME095.
        StorageUnavailable: the bytes could not be read.
    """

    def __init__(self, handle: BinaryIO, path: str, metadata: Metadata, config: Config) -> None:
        super().__init__(handle, path, config)
        self._metadata = metadata
        if is_snappy(handle):
            raise self._broken("it is compressed with Snappy", AS_READ)
        if next(self._text_bytes(), None) is None:
            raise self._rejected("ME023")
        try:
            first = next(self._records(self._reader()), None)
        except RejectedFile:
            if fault := foreign_format(self._head()) or self._misread_encoding():
                raise self._foreign(fault) from None
            raise
        if first is None:
            raise self._rejected(
                "ME061", reason="there is no header", help="write the columns' names in the first line"
            )
        try:
            fields = self._matched([name or "" for name in first[0]])
        except RejectedFile as error:
            raise RejectedFile(error.diagnostic, self.diagnostics) from None
        self._fields = sorted(fields, key=lambda field: field.kind == _MARKER)
        self.columns = tuple(field.column for field in fields if field.kind != _MARKER)
        without_errors(self._noted)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows in file order; see `OpenFile`. Markers and nullability are checked already.

        Raises:
            RejectedFile: ME024, ME037, ME048, ME060, ME061, ME075, at the first row that is wrong.
            StorageUnavailable: the bytes could not be read.
        """
        reader = self._reader()
        first_row, header, again = 1, None, None  # `again`: the row that is the header once more
        expanded = 0
        check = CodePageCheck(self._metadata.dialect.encoding)
        for records in self._records(reader, check):
            header, rows = (header, records) if header else (records[0], records[1:])
            if again is None and (at := _repeated_at(header, rows)) is not None:
                again = first_row + at
                self._note("ME099", again)
            if rows:
                try:
                    batch = self._batch(rows, first_row)
                except RejectedFile as error:
                    if again != error.diagnostic.row:
                        raise
                    raise RejectedFile(error.diagnostic, [self._diagnostic("ME099", again)]) from None
                first_row += len(rows)
                expanded += batch.nbytes
                self._check_total(expanded, first_row - 1)
                yield batch
        if reader.other_line_ends:
            declared = self._metadata.dialect.row_separator
            found = "\n" if declared == "\r\n" else "\r\n"
            self._note("ME062", found=shown_character(found), declared=shown_character(declared))
        if check.is_utf8():
            self._note("ME098", declared=spelled_encoding(self._metadata.dialect.encoding))
        if first_row == 1:
            self._note("ME058")

    def _reader(self) -> RecordReader:
        config = self._config
        return RecordReader(self._metadata.dialect, self._path, config.max_row_size, strict=config.strict)

    def _records(self, reader: RecordReader, check: CodePageCheck | None = None) -> Iterator[list[Record]]:
        content = self._text_bytes() if check is None else self._checked(check)
        return reader.records(decoded(content, self._metadata.dialect.encoding))

    def _checked(self, check: CodePageCheck) -> Iterator[bytes]:
        for content in self._text_bytes():
            check.feed(content)
            yield content

    def _text_bytes(self) -> Iterator[bytes]:
        """Yield the decompressed text; GZIP and ZSTD are known by their first bytes (ME024)."""
        handle = self._handle
        handle.seek(0)
        head = handle.read(_HEAD_BYTES)
        handle.seek(0)
        codec = next((codec for magic, codec in _CODECS.items() if head.startswith(magic)), "")
        codec = codec or ("zstd" if _SKIPPABLE.match(head) else "")
        is_utf8 = self._metadata.dialect.encoding == "utf-8"
        is_marked = head.startswith(BOM_UTF32_BE)
        if not codec and is_utf8 and head.startswith(b"\0") and not is_marked:
            dialect, names = self._metadata.dialect, [column.name for column in self._metadata.declared_columns]
            if likely_options(start := handle.read(HEAD_BYTES), dialect, names):
                fault = header_fault([""], start, dialect, names)
                raise self._foreign(fault)
            raise self._broken("it is neither text nor compressed with GZIP or ZSTD", AS_READ)
        read = handle.read
        try:
            if codec:
                kept_open = SimpleNamespace(read=handle.read, close=lambda: None, closed=False)  # it is read again
                read = pa.CompressedInputStream(pa.PythonFile(kept_open, mode="r"), codec).read
            yield from iter(partial(read, CHUNK_BYTES), b"")
        except (OSError, EOFError, pa.ArrowException) as error:
            if _FOREIGN_TAIL.search(str(error)):
                help = "land it without what follows its compressed data"
                raise self._broken(f"its {codec} data is followed by other bytes", help) from error
            raise self._broken(f"its {codec} data is damaged or ends early") from error

    def _misread_encoding(self) -> HeaderFault | None:
        """Explain a header that is unreadable in the declared encoding but readable in the default one."""
        names, keys = [column.name for column in self._metadata.declared_columns], self._metadata.key_columns
        head, dialect = self._head(), self._metadata.dialect
        if dialect.encoding == "utf-8" or "Encoding" not in likely_options(head, dialect, names, keys):
            return None
        return header_fault([""], head, dialect, names, keys)

    def _head(self) -> bytes:
        return next(self._text_bytes())[:HEAD_BYTES]

    def _matched(self, header: list[str]) -> list[_Field]:
        """The marker and the declared columns among a header's names (LZ-4.10, LZ-6.5)."""
        declared = {folded(column.name): column for column in self._metadata.declared_columns}
        declared[folded(MARKER_COLUMN)] = Column(MARKER_COLUMN, "byte")
        is_sure = is_header(header, [column.name for column in self._metadata.declared_columns])
        fields: list[_Field] = []
        undeclared: dict[int, str] = {}
        seen: dict[str, int] = {}
        twice: RejectedFile | None = None
        for at, name in enumerate(header):
            key = folded(name)
            if key in seen and name:
                if key == folded(MARKER_COLUMN):
                    found = self._rejected("ME036", found="occurs twice")
                elif is_sure or key in declared:
                    found = self._rejected("ME053", **same_named(header[seen[key]], name))
                else:
                    found = self._rejected(
                        "ME053", reason=f"fields {seen[key] + 1} and {at + 1} of the header are equal"
                    )
                twice = twice or found
                continue
            seen[key] = at
            if (column := declared.get(key)) is not None:
                kind = TIME if column.name in self._metadata.time_columns else column.type
                if column.name == MARKER_COLUMN:
                    kind, self.marker = _MARKER, name
                fields.append(_Field(at, column, kind))
            else:
                undeclared[at] = name
        named = {header[field.at]: field.column.name for field in fields}
        if respelled := {name: column for name, column in named.items() if name != column}:
            self._note("ME052", **in_other_case(respelled))
        is_foreign = all(field.kind == _MARKER for field in fields)
        self._explain(header, undeclared, is_foreign=is_foreign, is_sure=is_sure)
        if twice:  # of a header, not of a row in its place
            raise twice
        marker_at = next((field.at for field in fields if field.kind == _MARKER), len(header) - 1)
        if marker_at != len(header) - 1:
            self._note("ME034", position=marker_at + 1, count=len(header))
        return fields

    def _explain(self, header: list[str], undeclared: Mapping[int, str], *, is_foreign: bool, is_sure: bool) -> None:
        """Note the undeclared columns of a header (ME057), by their places where it may be a row.

        Raises:
            RejectedFile: ME061 where it runs into the rows, ME094 where it is foreign or so in part.
        """
        metadata = self._metadata
        names, keys = [column.name for column in metadata.declared_columns], metadata.key_columns
        head = self._head() if undeclared else b""
        other = foreign_format(head) if is_foreign else None
        if not other and (fault := next(filter(None, map(self._fault_of, undeclared.values())), None)):
            likely = likely_options(head, metadata.dialect, names, keys)
            if not (is_foreign and "Encoding" in likely):
                raise self._rejected("ME061", reason=f"header: {fault[0]}", help=fault[1])
        if is_foreign:
            raise self._foreign(header_fault(header, head, metadata.dialect, names, keys))
        if undeclared and (fault_in_part := partial_fault(header, head, metadata.dialect, names, keys)):
            raise self._rejected("ME094", reason=f"header: {fault_in_part.found}", help=fault_in_part.advice)
        strangers = set(undeclared.values())  # a declared `rowMarker` is meant, `_rowMarker_` is not
        self._note_misspelled_marker(name for name in header if name in strangers or has_outer_underscore(name))
        present = set(map(folded, header))
        absent = [name for name in names if folded(name) not in present]
        can_compare = len(undeclared) <= MAX_COMPARED
        for at, name in undeclared.items():
            if not self._is_meant_as_marker(name):
                meant = meant_name(name, absent) if name and can_compare else ""
                details = {"shown": f"field {at + 1} of the header"}
                if not name:
                    details["shown"] += " (without a name)"
                    meant = "if it is a separator too many, ignore this; otherwise name and "
                elif is_sure:
                    details = {"column": name, "shown": f"column `{name}`"}
                self._note("ME057", **details, meant=meant or ("" if is_sure else _MAY_BE_ROW))

    def _foreign(self, fault: HeaderFault) -> RejectedFile:
        reason = f"no declared column is in the header: {fault.found}"
        return self._rejected("ME094", reason=reason, help=fault.advice)

    def _fault_of(self, name: str) -> tuple[str, str] | None:
        """Why a name cannot be a column's, and what to do: another encoding, or a header that runs into rows."""
        dialect = self._metadata.dialect
        if "\x00" in name:
            seen = seeming_encoding(name.encode("utf-8", "replace")) or "what it is"
            return (
                f"NUL characters, read as {dialect.encoding}",
                f"set `Encoding` to {seen}, or write the file in utf-8",
            )
        if end := _LINE_END.search(name):
            found, declared = shown_character(end[0]), shown_character(dialect.row_separator)
            can_be_set = end[0] in {"\r\n", "\n", "\r"}
            return (
                f"it does not end in `RowSeparator` ({declared})" + ("" if can_be_set else f" but in {found}"),
                f"set `RowSeparator` to {found}, or change the file" if can_be_set else f"end each line in {declared}",
            )
        return None

    def _batch(self, rows: list[Record], first_row: int) -> pa.RecordBatch:
        """Typed rows; a rejection names the first row that is wrong, and its first column that is."""
        by_column = list(zip(*rows, strict=True))
        arrays: list[pa.Array] = []
        rejections: list[RejectedFile] = []
        for field in self._fields:
            try:
                arrays.append(self._array(field, by_column[field.at], first_row))
            except RejectedFile as rejected:
                rejections.append(rejected)
        if rejections:
            raise min(rejections, key=lambda rejected: rejected.diagnostic.row or 0)
        return pa.RecordBatch.from_arrays(arrays, [field.column.name for field in self._fields])

    def _array(self, field: _Field, cells: Sequence[str | None], first_row: int) -> pa.Array:
        if field.kind == _MARKER:
            return effective_markers(pa.array(cells, pa.string()), self._path, first_row, is_text=True)
        try:
            values = column_array(cells, field.kind)
        except CellFault as cell:
            row = first_row + cell.position
            known, form = FORMS[field.kind]
            known = known if cell.fault == "format" else f"within the range of {known.removeprefix('a valid ')}"
            details = {"column": field.column.name, "type": field.kind, "fault": cell.fault, "known": known}
            raise self._rejected("ME060", row, **details, help=f"; write {form}") from None
        if values.null_count and not field.column.nullable:
            row = first_row + values.is_valid().index(pa.scalar(False)).as_py()
            help = help_for_null(field.column.name, self._metadata.key_columns, is_text=True)
            raise self._rejected("ME048", row, column=field.column.name, help=help)
        return values
