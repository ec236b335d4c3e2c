"""Generates table folders as described, and their change files: mostly good, sometimes refused."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

BY_TIME = "LastUpdateTimeFileDetection"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
UTC, NAIVE = pa.timestamp("us", tz="UTC"), pa.timestamp("ms")
# few values, so that keys repeat; each Arrow type with its declared text type
VALUES = {
    pa.string(): ("String", ["a", "A", "", "a\r\nb", 'q"\\,']),
    pa.int32(): ("Int32", [0, 1, -(2**31)]),
    pa.int64(): ("Int64", [0, 1, 2**53 + 1]),
    pa.float64(): ("Double", [0.0, -0.0, 0.5, float("nan")]),
    pa.bool_(): ("Boolean", [True, False]),
    pa.date32(): ("IDate", [date(2026, 1, 1), date(1, 1, 1)]),
    UTC: ("DateTime", [NOON, NOON.replace(microsecond=1000)]),
    pa.decimal128(9, 2): ("", [Decimal("1.50"), Decimal("-0.01")]),
    pa.binary(): ("ByteArray", [b"", b"\x00\xff"]),
}
DRIFTED = {pa.int32(): pa.int64(), pa.float64(): pa.float32(), UTC: NAIVE, pa.decimal128(9, 2): pa.decimal128(9, 3)}
MARKER_KINDS = [pa.int32(), pa.int32(), pa.int8(), pa.int64(), pa.string(), pa.uint8(), pa.float64()]


@dataclass(frozen=True)
class Folder:
    """One table folder: how it is described, and the columns its files choose from."""

    path: str
    metadata: dict[str, Any]
    columns: dict[str, Any]

    @property
    def is_text(self):
        return self.metadata.get("FileFormat") == "CSV"

    @property
    def extension(self):
        return "csv" if self.is_text else "parquet"


@st.composite
def folders(draw, path):
    """A described folder."""
    is_text = draw(st.booleans())
    kinds = [kind for kind, (name, _) in VALUES.items() if name or not is_text]
    columns = {"Id": draw(st.sampled_from(kinds[:4])), "Line": draw(st.sampled_from(kinds))}
    columns |= {name: draw(st.sampled_from(kinds)) for name in ("Note", "Höhe, cm")}
    partitioned = draw(st.sampled_from([False, False, False, True]))
    keys = draw(st.sampled_from([["Id"], ["Id"], ["id"], ["Id", "Line"], [], ["Id", "day"] if partitioned else ["Id"]]))
    metadata = {"keyColumns": keys, "isPartitionEnabled": partitioned}
    if draw(st.sampled_from([False, False, True])) and not partitioned:
        metadata["fileDetectionStrategy"] = BY_TIME
    if draw(st.integers(0, 2)) == 1 and (keys or draw(st.integers(0, 9)) == 7):
        metadata["isUpsertDefaultRowMarker"] = True
    if is_text:
        declared = [
            {"Name": name, "DataType": VALUES[kind][0], "IsNullable": name != "Id" or draw(st.integers(0, 3)) > 0}
            for name, kind in columns.items()
        ]
        metadata |= {"FileFormat": "CSV", "SchemaDefinition": {"Columns": declared}}
    return Folder(path, metadata, columns)


@st.composite
def contents(draw, folder, partition):
    """A change file: mostly good, sometimes refused."""
    chance = st.integers(0, 39)  # Hypothesis prefers the ends of a range: rare cases are within
    if draw(chance) == 7:
        return b""
    names = [name for name in folder.columns if name in ("Id", "Line") or draw(chance) < 30]
    if draw(chance) == 7:
        names.remove("Id")
    names = draw(st.permutations(names))
    size = draw(st.integers(0, 5))
    columns = [(name, folder.columns[name], _cells(draw, folder.columns[name], size)) for name in names]
    if partition and not folder.is_text and draw(chance) == 7:
        columns.append(("day", pa.string(), draw(st.sampled_from([["1"] * size, [partition[4:]] * size]))))
    if draw(chance) < 30:
        columns.insert(*_marker(draw, folder, size, len(columns)))
    if folder.is_text:
        return _text(draw, columns, size)
    return _parquet(draw, columns)


def _cells(draw, kind, size):
    values = st.sampled_from([*VALUES[kind][1] * 3, None])
    return draw(st.lists(values, min_size=size, max_size=size))


def _marker(draw, folder, size, width):
    good = [0, 0, 1, 2, 4] if folder.metadata["keyColumns"] else [0]
    odd = draw(st.integers(0, 29)) == 7
    values = draw(st.lists(st.sampled_from([*good, 1, 3, None] if odd else good), min_size=size, max_size=size))
    kind = draw(st.sampled_from(MARKER_KINDS if draw(st.integers(0, 7)) == 3 else MARKER_KINDS[:1]))
    if kind == pa.string():
        values = [None if value is None else str(value) for value in values]
    name = draw(st.sampled_from(["__rowMarker__"] * 4 + ["__ROWMARKER__"]))
    return draw(st.sampled_from([width, width, 0, 1])), (name, kind, values)


def _parquet(draw, columns):
    quirk = draw(st.integers(0, 39))
    if quirk == 11:
        columns = [(name, DRIFTED.get(kind, kind), values) for name, kind, values in columns]
    if quirk == 12:
        columns = [(name.upper() if name == "Note" else name, kind, values) for name, kind, values in columns]
    if quirk in {13, 17, 18, 19}:  # without types: some columns, or all of them, as of a table without rows
        bare = draw(st.sets(st.sampled_from([name for name, _, _ in columns]))) if quirk == 13 else None
        columns = [(n, k, v if quirk == 13 else []) for n, k, v in columns]
        columns = [(n, pa.null(), [None] * len(v)) if not bare or n in bare else (n, k, v) for n, k, v in columns]
    if quirk == 14 and columns:
        columns.append((columns[0][0].swapcase(), *columns[0][1:]))
    arrays = [pa.array(_naive(values) if kind == NAIVE else values, kind) for _, kind, values in columns]
    buffer = io.BytesIO()
    full = {name for name, _, values in columns if quirk == 16 and None not in values}
    fields = [pa.field(name, array.type, name not in full) for (name, _, _), array in zip(columns, arrays, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), buffer)
    return buffer.getvalue()[:-9] if quirk == 15 else buffer.getvalue()


def _naive(values):
    return [value and value.replace(tzinfo=None) for value in values]


def _text(draw, columns, size):
    quirk = draw(st.integers(0, 59))
    ends = ["\r\n"] * 4 + ["\n", "\r\n\r\n"]
    lines = [[name.upper() if quirk == 12 else name for name, _, _ in columns]]
    lines += [[_field(draw, values[row]) for _, _, values in columns] for row in range(size)]
    if quirk == 13:
        lines = [[*line, "Remark" if line is lines[0] else "x"] for line in lines]
    if quirk == 14 and size:
        lines[-1].append("")
    if quirk == 15 and size:
        lines[-1][0] = "no value of most types"
    if quirk == 16 and size:
        lines[-1][-1] = '"open'
    lines[0] = [f'"{name}"' if "," in name else name for name in lines[0]]
    text = "".join(",".join(line) + draw(st.sampled_from(ends)) for line in lines)
    return (b"\xef\xbb\xbf" if quirk == 17 else b"") + text.encode()


def _field(draw, value):
    if value is None:
        return ""
    if isinstance(value, str):
        doubled = value.replace("\\", "\\\\").replace('"', '""')
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        is_plain = value and not set(value) & set('",\r\n\\')
        return draw(st.sampled_from([f'"{doubled}"', f'"{escaped}"', *([value] if is_plain else [])]))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return "AP8=" if value else '""'
    if isinstance(value, datetime):
        return value.isoformat()
    return "NaN" if value != value else str(value)  # noqa: PLR0124 - the one test NaN fails


def shown(content):
    try:
        table = pq.read_table(io.BytesIO(content))
    except (pa.ArrowInvalid, OSError):
        return repr(content)
    return ", ".join(f"{field.name} {field.type} {table.column(i).to_pylist()}" for i, field in enumerate(table.schema))
