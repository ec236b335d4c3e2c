"""What the Delta protocol asks of checkpoints, of the pointer to the last one, and of version checksum files."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from delta_history import History, Json, State

_COLUMNS = ("txn", "add", "remove", "metaData", "protocol")
# said a second time in another form, or without a meaning there
_OF_CHECKPOINTS = {"stats_parsed", "partitionValues_parsed", "dataChange"}
_COUNTS = {"numRecords", "nullCount"}
_LAST = {"version": int, "size": int}
_LAST_OPTIONAL = {
    "parts": int,
    "sizeInBytes": int,
    "numOfAddFiles": int,
    "checkpointSchema": dict,
    "tags": dict,
    "checksum": str,
}


def checkpoints(history: History) -> Iterator[str]:
    """Checkpoints, V1 Spec: one action a row, together the state of their version; tombstones may have expired."""
    states = {state.version: state for state in history.states}
    for path in sorted(history.log.glob("*.checkpoint.parquet")):
        state = states.get(int(path.name[:20]))
        if state is None:
            yield f"{path.name} is of a version that is not there"
            continue
        table = pq.read_table(path)
        if lacking := set(_COLUMNS) - set(table.schema.names):
            yield f"{path.name} lacks the columns {sorted(lacking)}"
        rows = [{kind: value for kind, value in row.items() if value is not None} for row in table.to_pylist()]
        if any(len(row) != 1 for row in rows):
            yield f"{path.name} has a row that is not one action"
        found = [(kind, _plain(action)) for row in rows for kind, action in row.items()]
        yield from (f"{path.name}: {said}" for said in _unlike(found, state))


def _unlike(found: list[tuple[str, Json]], state: State) -> Iterator[str]:
    """What tells a checkpoint's actions from a version's."""
    wanted: Mapping[str, list[Json]] = {
        "protocol": [state.protocol],
        "metaData": [state.metadata],
        "txn": [*state.transactions.values()],
        "add": [*state.files.values()],
    }
    for kind, actions in wanted.items():
        there = sorted(_text(action) for each, action in found if each == kind)
        if there != sorted(_text(action) for action in actions):
            yield f"its {kind} actions are not those of version {state.version}"
    for parsed, said in (
        (action.get("stats_parsed", {}), action.get("stats")) for kind, action in found if kind == "add"
    ):
        if said and not {name: parsed[name] for name in _COUNTS & parsed.keys()}.items() <= json.loads(said).items():
            yield "its parsed statistics are others"
    strange = {kind for kind, _ in found} - {*wanted, "remove"}
    if strange:
        yield f"it has actions of the kinds {sorted(strange)}"
    removed = [action["path"] for kind, action in found if kind == "remove"]
    if set(removed) - state.tombstones.keys() or len(set(removed)) < len(removed):
        yield f"it has tombstones that version {state.version} has not"


def _plain(value: Any) -> Any:
    """Parquet's form of an action as JSON has it: maps are lists of pairs there, and what is absent is None."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if part is not None}
    if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
        return {name: _plain(part) for name, part in value}
    return value


def _text(action: Json) -> str:
    """An action in one comparable form; an empty map is none, and some parts stand in checkpoints alone."""
    kept = {
        name: value for name, value in action.items() if name not in _OF_CHECKPOINTS and value not in ({}, [], None)
    }
    for name in ("readerFeatures", "writerFeatures"):  # sets, in whatever order they are written
        if name in kept:
            kept[name] = sorted(kept[name])
    if "format" in kept:
        kept["format"] = kept["format"]["provider"]
    if "stats" in kept:
        kept["stats"] = json.loads(kept["stats"])
    return json.dumps(kept, sort_keys=True)


def last_checkpoint(history: History) -> Iterator[str]:
    """Last Checkpoint File: it leads to the newest checkpoint, and counts and sums it up rightly."""
    path = history.log / "_last_checkpoint"
    there = sorted(history.log.glob("*.checkpoint.parquet"))
    if not path.exists():
        if there:
            yield f"nothing leads to {there[-1].name}"
        return
    said = json.loads(path.read_text("utf-8"))
    known = {**_LAST_OPTIONAL, **_LAST}
    wrong = [name for name, value in said.items() if name in known and type(value) is not known[name]]
    if wrong or not _LAST.keys() <= said.keys():
        yield f"_last_checkpoint is {sorted(said)}, of a wrong type are {wrong}"
    target = history.log / f"{said.get('version', -1):020}.checkpoint.parquet"
    if not there or target != there[-1]:
        yield f"_last_checkpoint leads to {target.name}, the newest is {there[-1].name if there else 'none'}"
        return
    yield from _summed_up(said, target)


def _summed_up(said: Json, target: Path) -> Iterator[str]:
    rows = pq.read_table(target)
    adds = sum(action is not None for action in rows["add"].to_pylist())
    measured = {"size": rows.num_rows, "sizeInBytes": target.stat().st_size, "numOfAddFiles": adds}
    for name, value in measured.items():
        if said.get(name, value) != value:
            yield f"_last_checkpoint says {name} is {said[name]}, it is {value}"
    if said.get("checksum", checksum(said)) != checksum(said):
        yield "_last_checkpoint differs from its checksum"


def checksum(value: Json) -> str:
    """The protocol's JSON checksum: MD5 of the canonical form, without the checksum itself."""
    pairs = sorted(_pairs({name: part for name, part in value.items() if name != "checksum"}, ()))
    return hashlib.md5(",".join(f"{path.decode()}={leaf}" for path, leaf in pairs).encode()).hexdigest()  # noqa: S324 - the protocol says MD5


def _pairs(value: Any, path: tuple[str, ...]) -> Iterator[tuple[bytes, str]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _pairs(part, (*path, _encoded(name)))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _pairs(part, (*path, str(place)))
    else:
        yield "+".join(path).encode(), _encoded(value) if isinstance(value, str) else json.dumps(value)


def _encoded(text: str) -> str:
    return '"' + quote(text, safe="") + '"'


def version_checksums(history: History) -> Iterator[str]:
    """Version Checksum File: one JSON object beside its version, whose counts and actions are the state's."""
    states = {state.version: state for state in history.states}
    for path in sorted(history.log.glob("[0-9]*.crc")):
        state = states.get(int(path.stem))
        if state is None:
            yield f"{path.name} is of a version that is not there"
            continue
        said = json.loads(path.read_text("utf-8"))
        sizes = [action["size"] for action in state.files.values()]
        wanted = {"tableSizeBytes": sum(sizes), "numFiles": len(sizes), "numMetadata": 1, "numProtocol": 1}
        wanted |= {"metadata": _text(state.metadata), "protocol": _text(state.protocol)}
        found = {name: said.get(name) for name in wanted}
        found |= {name: _text(said.get(name) or {}) for name in ("metadata", "protocol")}
        if found != wanted:
            yield f"{path.name} differs in {[name for name, value in wanted.items() if found[name] != value]}"
        yield from (f"{path.name}: {text}" for text in _optional_parts(said, state, sizes))


def _optional_parts(said: Json, state: State, sizes: list[int]) -> Iterator[str]:
    for name, actions in (("setTransactions", state.transactions), ("allFiles", state.files)):
        if name in said and sorted(map(_text, said[name])) != sorted(map(_text, actions.values())):
            yield f"{name} are others"
    information = ("inCommitTimestampOpt", "numDeletedRecordsOpt", "numDeletionVectorsOpt")
    if any(said.get(name) for name in information) or said.get("domainMetadata"):
        yield "it counts what the table has not"
    if histogram := said.get("fileSizeHistogram"):
        bounds = [*histogram["sortedBinBoundaries"], float("inf")]
        bins = [[size for size in sizes if low <= size < high] for low, high in pairwise(bounds)]
        if histogram["fileCounts"] != list(map(len, bins)) or histogram["totalBytes"] != list(map(sum, bins)):
            yield "the histogram counts other files"


CHECKPOINT_RULES: Mapping[str, Any] = {
    rule.__name__: rule for rule in (checkpoints, last_checkpoint, version_checksums)
}
