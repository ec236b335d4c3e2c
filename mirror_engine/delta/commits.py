"""Single commits of a Delta log, as their lines say: which files they name, and whether somebody else changed rows."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirror_engine.delta.record import is_ours, said_by
from mirror_engine.delta.tables_folder import LOG_FOLDER
from mirror_engine.errors import TableDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Commit:
    """One commit.

    Attributes:
        is_ours: whether this engine made it: it carries a record of ours, or our name.
        said: what it says about itself; None for nothing.
        changes_rows: whether rows were added, changed or removed.
        describes: whether it says what the table is: columns, or properties alone.
        added: data files it adds, as the log spells them, with their sizes in bytes.
        removed: data files it removes.
        has_vectors: whether a file's deleted rows stand in a deletion vector.
    """

    is_ours: bool = False
    said: object = None
    changes_rows: bool = False
    describes: bool = False
    added: dict[str, int] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    has_vectors: bool = False

    def take(self, kind: str, action: Any) -> None:  # noqa: ANN401 - any program may have written it
        """Note one action of the log."""
        match kind:
            case "commitInfo" if isinstance(action, dict):
                self.said = said_by(action)
                self.is_ours = is_ours(action)
            case "metaData":
                self.describes = True
            case "add":
                self.added[action["path"]] = action["size"]
                self.changes_rows |= action.get("dataChange", True)
                self.has_vectors |= bool(action.get("deletionVector"))
            case "remove":
                self.removed.add(action["path"])
                self.changes_rows |= action.get("dataChange", True)
            case _:
                pass


def commit_file(folder: Path, version: int) -> Path:
    """Where a commit lies in its table's folder."""
    return folder / LOG_FOLDER / f"{version:020}.json"


def is_empty(folder: Path, version: int) -> bool:
    """Whether a commit has a name and no content, as a lost power supply may leave it."""
    try:
        return commit_file(folder, version).stat().st_size == 0
    except FileNotFoundError:  # cleaned up: a checkpoint tells the same
        return False


def read_commit(folder: Path, version: int) -> Commit:
    """A commit as its lines say.

    Raises:
        FileNotFoundError: there is none of that version.
        TableDamaged: it is no commit.
    """
    found = Commit()
    with commit_file(folder, version).open("rb") as lines:
        try:
            for line in lines:
                action = json.loads(line)
                for kind, said in action.items() if isinstance(action, dict) else ():
                    found.take(kind, said)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise _cut_off(folder, version) from None
    if is_empty(folder, version):
        raise _cut_off(folder, version)
    return found


def _cut_off(folder: Path, version: int) -> TableDamaged:
    fault = f"commit {version} of its Delta log is cut off or damaged"
    name = commit_file(folder, version).name
    if any((folder / LOG_FOLDER).glob(f"{version:020}.checkpoint*")) or commit_file(folder, version + 1).exists():
        return TableDamaged(folder, fault)
    again = "its change files are applied again, if they still lie in the zone"
    return TableDamaged(
        folder, fault, f"Restore the table's folder from a backup, or delete _delta_log/{name}: {again}."
    )


def commits_after(folder: Path, version: int) -> Iterator[tuple[int, Commit]]:
    """Every commit after a version, in order; those that log cleanup took are passed over."""
    following = version + 1
    if not commit_file(folder, following).exists():
        left = (int(name.stem) for name in (folder / LOG_FOLDER).glob("*.json") if name.stem.isdecimal())
        following = min((each for each in left if each > version), default=following)
    with suppress(FileNotFoundError):
        while True:
            yield following, read_commit(folder, following)
            following += 1
