"""The deletion vectors that a version of a table has: from its newest checkpoint and the commits after it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from mirror_engine.tables.log.record import last_checkpoint, read_commit
from mirror_engine.tables.log.table_path import LOG_FOLDER, parquet_source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mirror_engine.tables.log.table_path import TablePath
    from mirror_engine.tables.log.vectors import Descriptor

_WHOLE_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:[0-9a-f-]{36}\.)?parquet")  # in one file


class VectorsInUse:
    """The vectors of a table's data files; kept with an open log, and read on as the table moves on."""

    def __init__(self) -> None:
        self._version = -1
        self._by_path: dict[str, Descriptor] = {}

    def at(self, folder: TablePath, version: int) -> Mapping[str, Descriptor]:
        """The vectors of a version, by their data files' paths as the log spells them.

        Reads the commits after the version that was asked for before; the first time, those after a checkpoint.
        """
        if not 0 <= self._version <= version:
            self._version, self._by_path = _checkpointed(folder, version)
        for following in range(self._version + 1, version + 1):
            commit = read_commit(folder, following)
            for path in (*commit.removed, *commit.added):
                self._by_path.pop(path, None)
            self._by_path.update(commit.vectors)
            self._version = following
        return self._by_path


def _checkpointed(folder: TablePath, version: int) -> tuple[int, dict[str, Descriptor]]:
    """The newest checkpoint up to a version, and the vectors that it holds; -1 for none."""
    newest, names = last_checkpoint(folder)
    if newest > version or not names:
        there = sorted(entry.name for entry in (folder / LOG_FOLDER).iterdir())
        usable = [found for found in map(_WHOLE_CHECKPOINT.fullmatch, there) if found and int(found[1]) <= version]
        newest, names = (int(usable[-1][1]), [usable[-1][0]]) if usable else (-1, ())
    return newest, {path: vector for name in names for path, vector in _vectors_of(folder / LOG_FOLDER, name)}


def _vectors_of(log: TablePath, name: str) -> Iterator[tuple[str, Descriptor]]:
    """The vectors in one file of a checkpoint, and in the sidecars that it names."""
    for action in _actions(log, name, "add", {"path", "deletionVector"}):
        if vector := _described(action):
            yield action["path"], vector


def removed_in_checkpoint(folder: TablePath, since_ms: float) -> tuple[set[str], list[Descriptor]]:
    """Data files that the newest checkpoint says were removed since a time, and the vectors that they had."""
    paths: set[str] = set()
    vectors: list[Descriptor] = []
    for name in last_checkpoint(folder)[1]:
        for action in _actions(folder / LOG_FOLDER, name, "remove", {"path", "deletionTimestamp", "deletionVector"}):
            if (action["deletionTimestamp"] or 0) >= since_ms:
                paths.add(action["path"])
                vectors += filter(None, [_described(action)])
    return paths, vectors


def _described(action: Mapping[str, Any]) -> Descriptor | None:
    """An action's vector, as a commit has it."""
    vector = action.get("deletionVector")
    return {name: value for name, value in vector.items() if value is not None} if vector else None


def _actions(log: TablePath, name: str, kind: str, wanted: Collection[str]) -> Iterator[Mapping[str, Any]]:
    """The actions of one kind in a file of a checkpoint, and in the sidecars that it names."""
    with parquet_source(log / name) as source, pq.ParquetFile(source) as file:
        fields = {field.name: field.type for field in file.schema_arrow}
        if "sidecar" in fields:
            for sidecar in file.read(["sidecar.path"])["sidecar"].drop_null().to_pylist():
                yield from _actions(log, f"_sidecars/{sidecar['path']}", kind, wanted)
        if kind in fields:
            columns = [f"{kind}.{field.name}" for field in fields[kind] if field.name in wanted]
            for batch in file.iter_batches(columns=columns):
                yield from batch.column(kind).drop_null().to_pylist()
