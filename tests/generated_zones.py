"""Generates what publishers do: whole small landing zones, good and bad, with runs of the engine at any moment."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass, field
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


LEAVES = ["day=1", "day=2%2F1", "day=null", "day=%20a%3Db%2520", "day=%5F%5FHIVE_DEFAULT_PARTITION__"]
LEAVES += ["day=__HIVE_DEFAULT_PARTITION__", "day="]


class Player:
    """Does what was generated, in a real folder, and counts creations."""

    def __init__(self, publisher):
        self.publisher = publisher
        self.births = Counter()


@dataclass(frozen=True)
class Act:
    """A file lands by rename, or a file or folder goes, where there is no content."""

    path: str
    content: bytes | None = None
    modified_ns: int | None = None

    def __call__(self, player):
        player.births[self.path] += 1
        if self.content is None:
            player.publisher.remove(self.path)
        else:
            player.publisher.put(self.path, self.content, modified_ns=self.modified_ns)

    def __repr__(self):
        if self.content is None:
            return f"remove {self.path}"
        time = "" if self.modified_ns is None else f" at {self.modified_ns}"
        return f"put {self.path}{time}: {shown(self.content)}"


@dataclass(frozen=True)
class WriteInPlace:
    """A file is written or continued under its final name: an existing one stays the same file (LZ-3.10)."""

    path: str
    content: bytes

    def __call__(self, player):
        file = player.publisher.path / self.path
        if not file.exists():
            player.births[self.path] += 1
            file.parent.mkdir(parents=True, exist_ok=True)
        player.publisher.write_in_place(self.path, self.content)

    def __repr__(self):
        return f"write in place {self.path}: {shown(self.content)}"


ONCE = "once"
LOSE_LEDGER = "lose the ledger"


@dataclass
class Landing:
    """Files landed so far in one folder's present life."""

    numbers: dict[str, int] = field(default_factory=dict)
    taken: list[tuple[str, int]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


@st.composite
def acts(  # noqa: PLR0911 - one per kind, read as a table
    draw, folder, landing
):
    """One thing that a publisher does to a folder."""
    rare = ["again", "metadata", "drop", "recreate", "unmetadata", "rekey", "half", "half", "stray", "spoil"]
    kind = draw(st.sampled_from(["land"] * 24 + rare))
    described = Act(f"{folder.path}/_metadata.json", json.dumps(folder.metadata).encode())
    match kind:
        case "metadata":
            return [described]
        case "unmetadata":
            return [Act(described.path)]
        case "rekey":
            keys = draw(st.sampled_from([["Id"], ["Line", "Id"], ["Id", "Line"]]))
            return [Act(described.path, json.dumps({**folder.metadata, "keyColumns": keys}).encode())]
        case "spoil":
            return [Act(described.path, draw(st.sampled_from([b"", b"{", b'{"keyColumns": ["Id",]}', b"[]"])))]
        case "half":
            return [*draw(halves(folder, landing))]
        case "stray":
            return [Act(f"{folder.path}/{draw(strays(folder))}", draw(contents(folder, "")))]
        case "drop" | "recreate":
            for kept in (landing.numbers, landing.taken, landing.paths):
                kept.clear()
            return [Act(folder.path), *([described] if kind == "recreate" else [])]
        case "again" if landing.paths:
            path = draw(st.sampled_from(landing.paths))
            content = draw(contents(folder, path.rpartition("/")[0]))
            return [Act(f"{folder.path}/{path}"), Act(f"{folder.path}/{path}", content)]
        case _:
            return [draw(landings(folder, landing))]


@st.composite
def halves(draw, folder, landing):
    """A file that grows under its final name, and perhaps a run of the engine that sees half of it (LZ-3.10)."""
    whole = draw(landings(folder, landing))
    half = WriteInPlace(whole.path, whole.content[: draw(st.integers(0, len(whole.content)))])
    seen = draw(st.sampled_from([[], [ONCE], [ONCE, ONCE]]))
    ends = draw(st.sampled_from([[WriteInPlace(whole.path, whole.content)], [whole], []]))
    return [half, *seen, *ends]


def strays(folder):
    """Names that are no change file's in this folder, whatever its strategy (LZ-3.2, LZ-3.9, LZ-1.6)."""
    number = f"{7:020d}.{folder.extension}"
    names = [f"_{number}", f"_{number}.uploading", f"{number}.tmp", f".{number}", f"{number}x", "_scratchPad/x.parquet"]
    in_sequence = [f"{7:019d}.{folder.extension}", f"a.{folder.extension}", f"{'²' * 20}.{folder.extension}"]
    return st.sampled_from(names if folder.metadata.get("fileDetectionStrategy") == BY_TIME else names + in_sequence)


@st.composite
def landings(draw, folder, landing):
    """A change file under a new name."""
    partition = ""
    if folder.metadata["isPartitionEnabled"]:
        partition = draw(st.sampled_from(LEAVES))
    number = landing.numbers.get(partition, 0) + draw(st.sampled_from([1] * 12 + [2]))
    gaps = sorted(set(range(1, number)) - {taken for leaf, taken in landing.taken if leaf == partition})
    if gaps and draw(st.booleans()):
        number = gaps[0]
    landing.taken.append((partition, number))
    landing.numbers[partition] = max(number, landing.numbers.get(partition, 0))
    name, modified = f"{number:020d}.{folder.extension}", None
    if folder.metadata.get("fileDetectionStrategy") == BY_TIME:
        modified = int(NOON.timestamp()) * 10**9 + draw(st.integers(0, 9))
        name = draw(st.sampled_from(["", "b-", "a-"])) + name
    path = f"{partition}/{name}" if partition else name
    landing.paths.append(path)
    content = draw(contents(folder, partition))
    return Act(f"{folder.path}/{path}", content, modified)


@st.composite
def stories(draw):
    """What happens to a zone, in order: acts of publishers, runs of the engine, losses of its ledger."""
    paths = draw(st.sampled_from([["Orders"], ["Sales.schema/Orders", "Orders"], ["Order Lines"]]))
    zone = [(draw(folders(path)), Landing()) for path in paths]
    story = []
    for folder, _ in zone:
        content = json.dumps(folder.metadata).encode()
        if draw(st.integers(0, 9)):
            story.append(Act(f"{folder.path}/_metadata.json", content))
    for _ in range(draw(st.integers(1, 16))):
        folder, landing = draw(st.sampled_from(zone))
        story += draw(acts(folder, landing))
        if draw(st.integers(0, 3)) == 0:
            story += draw(st.sampled_from([[ONCE], [ONCE], [ONCE, LOSE_LEDGER]]))
    return [*story, ONCE]
