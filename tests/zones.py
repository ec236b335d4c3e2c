"""Generates what publishers do: whole small landing zones, good and bad, with runs of the engine at any moment."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

if TYPE_CHECKING:
    from mirror_engine.testing.publisher import Publisher

BY_TIME = "LastUpdateTimeFileDetection"
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
UTC, NAIVE = pa.timestamp("us", tz="UTC"), pa.timestamp("ms")
# few values, so that keys meet; each Arrow type with its declared text type
VALUES: dict[Any, tuple[str, list[Any]]] = {
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
    def is_text(self) -> bool:
        return self.metadata.get("FileFormat") == "CSV"

    @property
    def extension(self) -> str:
        return "csv" if self.is_text else "parquet"


class Player:
    """Does what was generated, in a real folder, and counts creations."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.births: Counter[str] = Counter()

    def put(self, path: str, content: bytes, modified_ns: int | None = None) -> None:
        self.births[path] += 1
        self.publisher.put(path, content, modified_ns=modified_ns)

    def remove(self, path: str) -> None:
        self.births[path] += 1
        self.publisher.remove(path)


@dataclass(frozen=True)
class Put:
    """A file lands, by rename."""

    path: str
    content: bytes
    modified_ns: int | None = None

    def __call__(self, player: Player) -> None:
        player.put(self.path, self.content, self.modified_ns)

    def __repr__(self) -> str:
        time = "" if self.modified_ns is None else f" at {self.modified_ns}"
        return f"put {self.path}{time}: {_shown(self.content)}"


@dataclass(frozen=True)
class Remove:
    """A file or folder goes."""

    path: str

    def __call__(self, player: Player) -> None:
        player.remove(self.path)

    def __repr__(self) -> str:
        return f"remove {self.path}"


ONCE = "once"


def _shown(content: bytes) -> str:
    try:
        table = pq.read_table(io.BytesIO(content))
    except (pa.ArrowInvalid, OSError):
        return repr(content)
    return ", ".join(f"{field.name} {field.type} {table.column(i).to_pylist()}" for i, field in enumerate(table.schema))


@dataclass
class Landing:
    """Files landed so far in one folder's present life."""

    numbers: dict[str, int] = field(default_factory=dict)
    taken: list[tuple[str, int]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def clear(self) -> None:
        self.numbers.clear()
        self.taken.clear()
        self.paths.clear()


@st.composite
def folders(draw: st.DrawFn, path: str) -> Folder:
    """A described folder."""
    is_text = draw(st.booleans())
    kinds = [kind for kind, (name, _) in VALUES.items() if name or not is_text]
    columns = {"Id": draw(st.sampled_from(kinds[:4])), "Line": draw(st.sampled_from(kinds))}
    columns |= {name: draw(st.sampled_from(kinds)) for name in ("Note", "Höhe, cm")}
    partitioned = draw(st.sampled_from([False, False, False, True]))
    keys = draw(st.sampled_from([["Id"], ["Id"], ["id"], ["Id", "Line"], [], ["Id", "day"] if partitioned else ["Id"]]))
    metadata: dict[str, Any] = {"keyColumns": keys, "isPartitionEnabled": partitioned}
    if draw(st.sampled_from([False, False, True])) and not partitioned:
        metadata["fileDetectionStrategy"] = BY_TIME
    if draw(st.sampled_from([False, False, True])):
        metadata["isUpsertDefaultRowMarker"] = True
    if is_text:
        declared = [
            {"Name": name, "DataType": VALUES[kind][0], "IsNullable": name != "Id" or draw(st.booleans())}
            for name, kind in columns.items()
        ]
        metadata |= {"FileFormat": "CSV", "SchemaDefinition": {"Columns": declared}}
    return Folder(path, metadata, columns)


@st.composite
def contents(draw: st.DrawFn, folder: Folder, partition: str) -> bytes:
    """A change file: mostly good, sometimes refused."""
    chance = st.integers(0, 19)
    if draw(chance) == 0:
        return b""
    names = [name for name in folder.columns if name in ("Id", "Line") or draw(chance) < 14]
    if draw(chance) == 0:
        names.remove("Id")
    names = draw(st.permutations(names))
    size = draw(st.integers(0, 5))
    columns = [(name, folder.columns[name], _cells(draw, folder.columns[name], size)) for name in names]
    if partition and not folder.is_text and draw(chance) == 0:
        columns.append(("day", pa.string(), draw(st.sampled_from([["1"] * size, [partition[4:]] * size]))))
    if draw(chance) < 15:
        columns.insert(*_marker(draw, folder, size, len(columns)))
    if folder.is_text:
        return _text(draw, columns, size)
    return _parquet(draw, columns)


def _cells(draw: st.DrawFn, kind: Any, size: int) -> list[Any]:
    values = st.sampled_from([*VALUES[kind][1] * 3, None])
    return draw(st.lists(values, min_size=size, max_size=size))


def _marker(draw: st.DrawFn, folder: Folder, size: int, width: int) -> tuple[int, tuple[str, Any, list[Any]]]:
    good = [0, 0, 1, 2, 4] if folder.metadata["keyColumns"] else [0]
    odd = draw(st.integers(0, 14)) == 0
    values = draw(st.lists(st.sampled_from([*good, 3, None] if odd else good), min_size=size, max_size=size))
    kind = draw(st.sampled_from(MARKER_KINDS if draw(st.integers(0, 4)) == 0 else MARKER_KINDS[:1]))
    if kind == pa.string():
        values = [None if value is None else str(value) for value in values]
    name = draw(st.sampled_from(["__rowMarker__"] * 4 + ["__ROWMARKER__"]))
    return draw(st.sampled_from([width, width, 0, 1])), (name, kind, values)


def _parquet(draw: st.DrawFn, columns: list[tuple[str, Any, list[Any]]]) -> bytes:
    quirk = draw(st.integers(0, 24))
    if quirk == 0:
        columns = [(name, DRIFTED.get(kind, kind), values) for name, kind, values in columns]
    if quirk == 1:
        columns = [(name.upper() if name == "Note" else name, kind, values) for name, kind, values in columns]
    if quirk == 2:
        columns = [(n, pa.null(), [None] * len(v)) if n == "Note" else (n, k, v) for n, k, v in columns]
    if quirk == 3 and columns:
        columns.append((columns[0][0].swapcase(), *columns[0][1:]))
    arrays = [pa.array(_naive(values) if kind == NAIVE else values, kind) for _, kind, values in columns]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=[name for name, _, _ in columns]), buffer)
    return buffer.getvalue()[:-9] if quirk == 4 else buffer.getvalue()


def _naive(values: list[Any]) -> list[Any]:
    return [value and value.replace(tzinfo=None) for value in values]


def _text(draw: st.DrawFn, columns: list[tuple[str, Any, list[Any]]], size: int) -> bytes:
    quirk = draw(st.integers(0, 24))
    ends = ["\r\n"] * 4 + ["\n", "\r\n\r\n"]
    lines = [[name.upper() if quirk == 1 else name for name, _, _ in columns]]
    lines += [[_field(draw, values[row]) for _, _, values in columns] for row in range(size)]
    if quirk == 2:
        lines = [[*line, "Remark" if line is lines[0] else "x"] for line in lines]
    if quirk == 3 and size:
        lines[-1].append("")
    if quirk == 4 and size:
        lines[-1][0] = "no value of most types"
    if quirk == 5 and size:
        lines[-1][-1] = '"open'
    lines[0] = [f'"{name}"' if "," in name else name for name in lines[0]]
    text = "".join(",".join(line) + draw(st.sampled_from(ends)) for line in lines)
    return (b"\xef\xbb\xbf" if quirk == 6 else b"") + text.encode()


def _field(draw: st.DrawFn, value: Any) -> str:
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


@st.composite
def acts(draw: st.DrawFn, folder: Folder, landing: Landing) -> list[Put | Remove]:
    """One thing that a publisher does to a folder."""
    kind = draw(st.sampled_from(["land"] * 16 + ["again", "metadata", "drop", "recreate", "unmetadata", "rekey"]))
    described = Put(f"{folder.path}/_metadata.json", json.dumps(folder.metadata).encode())
    match kind:
        case "metadata":
            return [described]
        case "unmetadata":
            return [Remove(described.path)]
        case "rekey":
            keys = draw(st.sampled_from([["Id"], ["Line", "Id"], ["Id", "Line"]]))
            return [Put(described.path, json.dumps({**folder.metadata, "keyColumns": keys}).encode())]
        case "drop" | "recreate":
            landing.clear()
            return [Remove(folder.path), *([described] if kind == "recreate" else [])]
        case "again" if landing.paths:
            path = draw(st.sampled_from(landing.paths))
            content = draw(contents(folder, path.rpartition("/")[0]))
            return [Remove(f"{folder.path}/{path}"), Put(f"{folder.path}/{path}", content)]
        case _:
            return [draw(landings(folder, landing))]


@st.composite
def landings(draw: st.DrawFn, folder: Folder, landing: Landing) -> Put:
    """A change file under a new name."""
    partition = ""
    if folder.metadata["isPartitionEnabled"]:
        partition = draw(st.sampled_from(["day=1", "day=2%2F1", "day=__HIVE_DEFAULT_PARTITION__"]))
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
    return Put(f"{folder.path}/{path}", content, modified)


@st.composite
def stories(draw: st.DrawFn) -> list[Any]:
    """What happens to a zone, in order: acts of publishers, and `ONCE` wherever the engine runs."""
    paths = draw(st.sampled_from([["Orders"], ["Sales.schema/Orders", "Orders"], ["Order Lines"]]))
    zone = [(draw(folders(path)), Landing()) for path in paths]
    story: list[Any] = []
    for folder, _ in zone:
        content = json.dumps(folder.metadata).encode()
        if draw(st.integers(0, 9)):
            story.append(Put(f"{folder.path}/_metadata.json", content))
    for _ in range(draw(st.integers(1, 12))):
        folder, landing = draw(st.sampled_from(zone))
        story += draw(acts(folder, landing))
        if draw(st.integers(0, 3)) == 0:
            story.append(ONCE)
    return [*story, ONCE]
