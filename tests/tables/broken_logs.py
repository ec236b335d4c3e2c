"""Ways to break a Delta table's log, each a function of its folder."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from delta_history import read_history

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Break = Callable[[Path], object]


def log_file(folder: Path, name: str) -> Path:
    return folder / "_delta_log" / name


def commit(folder: Path, version: int) -> Path:
    return log_file(folder, f"{version:020}.json")


def rewrite(version: int, change: Callable[[list[dict[str, Any]]], object], folder: Path) -> None:
    """Change the actions of a commit."""
    actions = [json.loads(line) for line in commit(folder, version).read_text("utf-8").splitlines()]
    change(actions)
    commit(folder, version).write_text("".join(json.dumps(action) + "\n" for action in actions), "utf-8")


def saying(version: int, kind: str, /, **parts: Any) -> Break:
    """Say something else in an action, or leave it out."""

    def change(actions: list[dict[str, Any]]) -> None:
        (action,) = [action[kind] for action in actions if kind in action]
        updated = {name: value for name, value in {**action, **parts}.items() if value is not None}
        action.clear()
        action.update(updated)

    return partial(rewrite, version, change)


def nested(version: int, kind: str, part: str, /, **parts: Any) -> Break:
    """Say something else in a part of an action, be it an object or the text of one."""

    def change(actions: list[dict[str, Any]]) -> None:
        (action,) = [action[kind] for action in actions if kind in action]
        value = json.loads(action[part]) if isinstance(action[part], str) else action[part]
        value = {name: each for name, each in {**value, **parts}.items() if each is not None}
        action[part] = json.dumps(value) if isinstance(action[part], str) else value

    return partial(rewrite, version, change)


def column(version: int, place: int, /, **parts: Any) -> Break:
    """Say something else of a column."""

    def change(actions: list[dict[str, Any]]) -> None:
        (metadata,) = [action["metaData"] for action in actions if "metaData" in action]
        schema = json.loads(metadata["schemaString"])
        schema["fields"][place].update(parts)
        metadata["schemaString"] = json.dumps(schema)

    return partial(rewrite, version, change)


def columns(version: int, change: Callable[[list[Any]], object]) -> Break:
    """Put the columns otherwise."""

    def change_schema(actions: list[dict[str, Any]]) -> None:
        (metadata,) = [action["metaData"] for action in actions if "metaData" in action]
        schema = json.loads(metadata["schemaString"])
        change(schema["fields"])
        metadata["schemaString"] = json.dumps(schema)

    return partial(rewrite, version, change_schema)


def with_action(version: int, kind: str, content: dict[str, Any]) -> Break:
    return partial(rewrite, version, lambda actions: actions.append({kind: content}))


def without(version: int, kind: str) -> Break:
    return partial(rewrite, version, lambda actions: actions.remove(next(each for each in actions if kind in each)))


def twice(version: int, kind: str) -> Break:
    return partial(rewrite, version, lambda actions: actions.append(next(each for each in actions if kind in each)))


def backwards(version: int) -> Break:
    return partial(rewrite, version, lambda actions: actions.reverse())


def written(name: str, content: bytes) -> Break:
    return lambda folder: log_file(folder, name).write_bytes(content)


def renamed(name: str, target: str) -> Break:
    return lambda folder: log_file(folder, name).rename(log_file(folder, target))


def live_file(folder: Path) -> Path:
    history = read_history(folder)
    (action,) = history.states[-1].files.values()
    return history.path(action)


def stored(change: Callable[[pa.Table], pa.Table]) -> Break:
    """Write the live data file otherwise, and its size into the log."""

    def changed(folder: Path) -> None:
        path = live_file(folder)
        pq.write_table(change(pq.ParquetFile(path).read()), path)
        saying(4, "add", size=path.stat().st_size)(folder)

    return changed


def first_statistic(kind: str, value: object) -> Break:
    """Say another lowest, highest or NULL count of the text column."""

    def change(folder: Path) -> None:
        said = json.loads(read_history(folder).commits[1].of("add")[0]["stats"])
        nested(1, "add", "stats", **{kind: {**said[kind], "City": value}})(folder)

    return change


def all_of(*breaks: Break) -> Break:
    def change(folder: Path) -> None:
        for each in breaks:
            each(folder)

    return change


def of_batch(version: int, batch: int) -> Break:
    """Let a commit's record be another batch's."""

    def change(folder: Path) -> None:
        record = read_history(folder).commits[version].record
        assert record is not None
        nested(version, "commitInfo", "userMetadata", progress={**record["progress"], "batch": batch})(folder)

    return change


def adds(folder: Path, version: int) -> dict[str, Any]:
    return read_history(folder).commits[version].of("add")[0]


def removes(folder: Path, version: int) -> dict[str, Any]:
    return read_history(folder).commits[version].of("remove")[0]


def rename_in_files(folder: Path) -> None:
    metadata = read_history(folder).states[2].fields[1]["metadata"]
    column(2, 1, metadata={**metadata, "delta.columnMapping.physicalName": "col-1"})(folder)


def retyped(place: int, kind: pa.DataType, table: pa.Table) -> pa.Table:
    return table.set_column(place, table.field(place).with_type(kind), table[place].cast(kind))


def with_values(place: int, values: list[Any], table: pa.Table) -> pa.Table:
    return table.set_column(place, table.field(place), pa.array(values, table.field(place).type))


def bare(table: pa.Table) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in table.schema])


def nan_as(folder: Path, value: float) -> None:
    name = read_history(folder).states[-1].physical(read_history(folder).states[-1].fields[-1])
    nested(4, "add", "stats", maxValues={name: value})(folder)
