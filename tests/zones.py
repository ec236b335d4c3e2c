"""Generates what publishers do: whole small landing zones, good and bad, with runs of the engine at any moment."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from zone_contents import BY_TIME, NOON, Folder, contents, folders, shown

if TYPE_CHECKING:
    from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter


class Player:
    """Does what was generated, in a real folder, and counts creations."""

    def __init__(self, publisher: LandingZoneWriter) -> None:
        self.publisher = publisher
        self.births: Counter[str] = Counter()

    def put(self, path: str, content: bytes, modified_ns: int | None = None) -> None:
        self.births[path] += 1
        self.publisher.put(path, content, modified_ns=modified_ns)

    def write_in_place(self, path: str, content: bytes) -> None:
        if not (self.publisher.path / path).exists():
            self.births[path] += 1
            (self.publisher.path / path).parent.mkdir(parents=True, exist_ok=True)
        self.publisher.write_in_place(path, content)

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
        return f"put {self.path}{time}: {shown(self.content)}"


@dataclass(frozen=True)
class Remove:
    """A file or folder goes."""

    path: str

    def __call__(self, player: Player) -> None:
        player.remove(self.path)

    def __repr__(self) -> str:
        return f"remove {self.path}"


@dataclass(frozen=True)
class WriteInPlace:
    """A file is written or continued under its final name: an existing one stays the same file (LZ-3.10)."""

    path: str
    content: bytes

    def __call__(self, player: Player) -> None:
        player.write_in_place(self.path, self.content)

    def __repr__(self) -> str:
        return f"write in place {self.path}: {shown(self.content)}"


ONCE = "once"
LOSE_LEDGER = "lose the ledger"


Act = Put | Remove | WriteInPlace


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
def acts(  # noqa: PLR0911 - one per kind, read as a table
    draw: st.DrawFn, folder: Folder, landing: Landing
) -> list[Act | str]:
    """One thing that a publisher does to a folder."""
    rare = ["again", "metadata", "drop", "recreate", "unmetadata", "rekey", "half", "half", "stray", "spoil"]
    kind = draw(st.sampled_from(["land"] * 24 + rare))
    described = Put(f"{folder.path}/_metadata.json", json.dumps(folder.metadata).encode())
    match kind:
        case "metadata":
            return [described]
        case "unmetadata":
            return [Remove(described.path)]
        case "rekey":
            keys = draw(st.sampled_from([["Id"], ["Line", "Id"], ["Id", "Line"]]))
            return [Put(described.path, json.dumps({**folder.metadata, "keyColumns": keys}).encode())]
        case "spoil":
            return [Put(described.path, draw(st.sampled_from([b"", b"{", b'{"keyColumns": ["Id",]}', b"[]"])))]
        case "half":
            return [*draw(halves(folder, landing))]
        case "stray":
            return [Put(f"{folder.path}/{draw(strays(folder))}", draw(contents(folder, "")))]
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
def halves(draw: st.DrawFn, folder: Folder, landing: Landing) -> list[Act | str]:
    """A file that grows under its final name, and perhaps a run of the engine that sees half of it (LZ-3.10)."""
    whole = draw(landings(folder, landing))
    half = WriteInPlace(whole.path, whole.content[: draw(st.integers(0, len(whole.content)))])
    seen = draw(st.sampled_from([[], [ONCE], [ONCE, ONCE]]))
    ends = draw(st.sampled_from([[WriteInPlace(whole.path, whole.content)], [whole], []]))
    return [half, *seen, *ends]


def strays(folder: Folder) -> st.SearchStrategy[str]:
    """Names that are no change file's in this folder, whatever its strategy (LZ-3.2, LZ-3.9, LZ-1.6)."""
    number = f"{7:020d}.{folder.extension}"
    names = [f"_{number}", f"_{number}.uploading", f"{number}.tmp", f".{number}", f"{number}x", "_scratchPad/x.parquet"]
    in_sequence = [f"{7:019d}.{folder.extension}", f"a.{folder.extension}", f"{'²' * 20}.{folder.extension}"]
    return st.sampled_from(names if folder.metadata.get("fileDetectionStrategy") == BY_TIME else names + in_sequence)


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
    """What happens to a zone, in order: acts of publishers, runs of the engine, losses of its ledger."""
    paths = draw(st.sampled_from([["Orders"], ["Sales.schema/Orders", "Orders"], ["Order Lines"]]))
    zone = [(draw(folders(path)), Landing()) for path in paths]
    story: list[Any] = []
    for folder, _ in zone:
        content = json.dumps(folder.metadata).encode()
        if draw(st.integers(0, 9)):
            story.append(Put(f"{folder.path}/_metadata.json", content))
    for _ in range(draw(st.integers(1, 16))):
        folder, landing = draw(st.sampled_from(zone))
        story += draw(acts(folder, landing))
        if draw(st.integers(0, 3)) == 0:
            story += draw(st.sampled_from([[ONCE], [ONCE], [ONCE, LOSE_LEDGER]]))
    return [*story, ONCE]
