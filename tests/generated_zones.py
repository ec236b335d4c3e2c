"""Generates what publishers do: whole small landing zones, good and bad, with runs of the engine at any moment."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from generated_tables import BY_TIME, NOON, contents, folders, shown
from hypothesis import strategies as st

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
