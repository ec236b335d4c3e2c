"""A Delta table's log as it lies on disk, replayed by Action Reconciliation; the engine's own reading is not used."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Json = dict[str, Any]
COMMIT = re.compile(r"(\d{20})\.json")


class LogUnreadable(Exception):
    """A commit is no list of actions, or the log has no commits."""


@dataclass(frozen=True)
class Commit:
    """The actions of one version, each with its kind, in the order in which they stand."""

    version: int
    actions: tuple[tuple[str, Json], ...]

    def of(self, kind):
        return [content for each, content in self.actions if each == kind]

    @property
    def information(self):
        return next(iter(self.of("commitInfo")), {})

    @property
    def record(self):
        """What the engine says about its batch; None in a commit that holds none, or says one again."""
        try:
            said = json.loads(self.information.get("userMetadata") or "null")
        except ValueError:
            return None
        return said if isinstance(said, dict) and "mirror_engine" in said and "version" not in said else None

    @property
    def changes_data(self):
        return any(action.get("dataChange") for action in [*self.of("add"), *self.of("remove")])


@dataclass(frozen=True)
class State:
    """A version of the table. `files` go by the path as the log has it."""

    version: int = -1
    protocol: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    transactions: Mapping[str, Json] = field(default_factory=dict)
    files: Mapping[str, Json] = field(default_factory=dict)

    @cached_property
    def fields(self):
        """The columns as the schema has them."""
        found = json.loads(self.metadata["schemaString"])["fields"] if self.metadata else []
        return list(found)

    @property
    def configuration(self):
        return dict(self.metadata.get("configuration", {}))

    @property
    def is_mapped(self):
        return self.configuration.get("delta.columnMapping.mode", "none") != "none"

    def physical(self, column):
        """A column's name in data files, statistics and partition values."""
        return str(column["metadata"]["delta.columnMapping.physicalName"] if self.is_mapped else column["name"])

    @property
    def data_columns(self):
        """Columns that lie in the data files, by physical name."""
        inside = [each for each in self.fields if each["name"] not in self.metadata["partitionColumns"]]
        return {self.physical(each): each for each in inside}

    @property
    def partition_columns(self):
        """Columns that lie in the log alone, by physical name."""
        names = self.metadata["partitionColumns"]
        return {self.physical(each): each for each in self.fields if each["name"] in names}

    def after(self, commit):
        """The next version: of each thing the newest that was said."""
        added = {action["path"]: action for action in commit.of("add")}
        removed = {action["path"] for action in commit.of("remove")} - added.keys()
        return State(
            commit.version,
            next(iter(commit.of("protocol")), self.protocol),
            next(iter(commit.of("metaData")), self.metadata),
            {**self.transactions, **{action["appId"]: action for action in commit.of("txn")}},
            {path: file for path, file in {**self.files, **added}.items() if path not in removed},
        )


@dataclass(frozen=True)
class History:
    """A table: its commits, and the state after each."""

    folder: Path
    commits: tuple[Commit, ...]
    states: tuple[State, ...]

    @property
    def log(self):
        return self.folder / "_delta_log"

    @property
    def steps(self):
        """Each commit between the state before it and the state after it."""
        return zip((State(), *self.states), self.commits, self.states, strict=False)

    def path(self, action):
        """Where a data file lies: the log has it as a URI from the table's folder."""
        return self.folder / unquote(action["path"], errors="strict")


def read_history(folder):
    """Every version of a table whose log was never cleaned up.

    Raises:
        LogUnreadable: a line is no action.
    """
    files = sorted(path for path in (folder / "_delta_log").glob("*") if COMMIT.fullmatch(path.name))
    if not files:
        raise LogUnreadable("there are no commits")
    commits = tuple(Commit(int(path.stem), tuple(map(_action, _lines(path)))) for path in files)
    state, states = State(), []
    try:
        for commit in commits:
            state = state.after(commit)
            states.append(state)
            _ = state.fields  # the schema is read here, so that no rule meets one that is none
    except (KeyError, TypeError, ValueError) as error:
        raise LogUnreadable(f"version {commit.version}: {type(error).__name__}: {error}") from error
    return History(folder, commits, tuple(states))


def _lines(path):
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise LogUnreadable(f"{path.name}: no UTF-8") from error
    return text.removesuffix("\n").split("\n")


def _action(line):
    try:
        value = json.loads(line)
    except ValueError as error:
        raise LogUnreadable("a line is no JSON document") from error
    if not isinstance(value, dict) or len(value) != 1 or not isinstance(next(iter(value.values())), dict):
        raise LogUnreadable("a line is no action")
    [(kind, content)] = value.items()
    return kind, {
        name: part for name, part in content.items() if part is not None
    }  # as deltalake writes what is absent
