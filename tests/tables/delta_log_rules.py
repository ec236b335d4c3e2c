"""What the Delta protocol asks of log entries, rule by rule; each gives what is wrong, in words."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from delta_history import COMMIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delta_history import Commit, History, Json

_OTHER_FILES = re.compile(r"_last_checkpoint|_last_vacuum_info|\d{20}\.(crc|checkpoint\.parquet)|\.[^/]+\.crc")
# RFC 2396's `pchar` and `/`; beyond ASCII the reference implementation writes letters as they are, as java.net.URI does
_URI_PATH = re.compile(r"(?:[A-Za-z0-9\-_.!~*'():@&=+$,;/]|%[0-9A-Fa-f]{2}|[^\x00-\x7f])+")
# what an action must have, and what it may have besides
_REQUIRED: Mapping[str, Mapping[str, type]] = {
    "commitInfo": {"timestamp": int, "operation": str},
    "protocol": {"minReaderVersion": int, "minWriterVersion": int},
    "metaData": {"id": str, "format": dict, "schemaString": str, "partitionColumns": list, "configuration": dict},
    "add": {"path": str, "partitionValues": dict, "size": int, "modificationTime": int, "dataChange": bool},
    "remove": {"path": str, "dataChange": bool},
    "txn": {"appId": str, "version": int},
}
_OPTIONAL: Mapping[str, Mapping[str, type]] = {
    "protocol": {"readerFeatures": list, "writerFeatures": list},
    "metaData": {"name": str, "description": str, "createdTime": int},
    "add": {"stats": str, "tags": dict},
    "remove": {
        "deletionTimestamp": int,
        "extendedFileMetadata": bool,
        "partitionValues": dict,
        "size": int,
        "stats": str,
        "tags": dict,
    },
    "txn": {"lastUpdated": int},
}


def names(history: History) -> Iterator[str]:
    """Delta Log Entries: twenty digits, from 0 without a gap, and nothing left lying beside them."""
    for found in history.log.iterdir():
        if not COMMIT.fullmatch(found.name) and not _OTHER_FILES.fullmatch(found.name):
            yield f"{found.name} is no file of a Delta log"
    versions = [commit.version for commit in history.commits]
    if versions != list(range(len(versions))):
        yield f"versions {versions}"


def hadoop_checksums(history: History) -> Iterator[str]:
    """Hadoop refuses a file that differs from the hidden checksum beside it: one that was left by another file."""
    for found in [*history.log.glob(".*.crc"), *history.folder.rglob(".*.parquet.crc")]:
        target = found.with_name(found.name[1:-4])
        content = target.read_bytes() if target.exists() else b""
        stored = found.read_bytes()
        size = int.from_bytes(stored[4:8], "big")
        sums = [zlib.crc32(content[at : at + size]).to_bytes(4, "big") for at in range(0, len(content), size or 1)]
        if stored[8:] != b"".join(sums):
            yield f"{found.name} is not {target.name}'s"


def commit_info(history: History) -> Iterator[str]:
    """Commit Provenance Information: one in each commit, and first, as in-commit timestamps would ask."""
    for commit in history.commits:
        if [kind for kind, _ in commit.actions].count("commitInfo") != 1 or commit.actions[0][0] != "commitInfo":
            yield f"version {commit.version} does not begin with its one commitInfo"


def actions(history: History) -> Iterator[str]:
    """Actions: only those a mirrored table needs, with what they must have, in the right types."""
    for commit in history.commits:
        for kind, action in commit.actions:
            if kind not in _REQUIRED:
                yield f"version {commit.version} has a {kind}"
                continue
            known = {**_OPTIONAL.get(kind, {}), **_REQUIRED[kind]}
            lacking = _REQUIRED[kind].keys() - action.keys()
            strange = action.keys() - known.keys() if kind != "commitInfo" else set()
            wrong = {name for name in known.keys() & action.keys() if type(action[name]) is not known[name]}
            if not _is_json(action.get("stats", "{}")):
                yield f"version {commit.version}: the statistics in {kind} are no JSON"
            if lacking or strange or wrong:
                yield f"version {commit.version}: {kind} lacks {lacking}, has {strange}, of another type {wrong}"


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def first_version(history: History) -> Iterator[str]:
    """Change Metadata: the first version holds protocol and metadata, none holds more than one of either."""
    for commit in history.commits:
        for kind in ("protocol", "metaData"):
            count = len(commit.of(kind))
            if count > 1 or (commit.version == 0 and count == 0):
                yield f"version {commit.version} has {count} {kind}"


def transactions(history: History) -> Iterator[str]:
    """Transaction Identifiers: each commit of a batch has one, its own, and they rise; nothing else changes data."""
    newest: dict[str, int] = {}
    for commit in history.commits:
        said = [(action["appId"], action["version"]) for action in commit.of("txn")]
        record = commit.record
        wanted = [] if record is None else [(_application(record), record["progress"]["batch"])]
        if said != wanted:
            yield f"version {commit.version} has the transactions {said}, its record says {wanted}"
        if commit.changes_data and not said:
            yield f"version {commit.version} changes data without a transaction"
        for application, version in said:
            if version <= newest.get(application, -1):
                yield f"version {commit.version}: transaction {version} after {newest[application]}"
            newest[application] = version


def _application(record: Json) -> str:
    return f"mirror_engine:{record['mirror']}:{record['progress']['generation']}"


def files(history: History) -> Iterator[str]:
    """Add File and Remove File: a path once of a kind, added while absent, removed while live, and as it was added."""
    for before, commit, _ in history.steps:
        live = before.files
        added = Counter(action["path"] for action in commit.of("add"))
        removed = Counter(action["path"] for action in commit.of("remove"))
        twice = [path for each in (added, removed) for path, count in each.items() if count > 1]
        wrong = [*twice, *(added.keys() & live.keys()), *(removed.keys() - live.keys()), *(added & removed)]
        if wrong:
            yield f"version {commit.version} adds or removes what it cannot: {wrong}"
        for action in commit.of("remove"):
            yield from _as_added(commit, action, live.get(action["path"], {}))


def _as_added(commit: Commit, removed: Json, added: Json) -> Iterator[str]:
    if "deletionTimestamp" not in removed:
        yield f"version {commit.version} removes a file at no time"
    if removed.get("extendedFileMetadata") and not {"partitionValues", "size"} <= removed.keys():
        yield f"version {commit.version} removes a file without its extended metadata"
    differing = [name for name in ("partitionValues", "size") if removed.get(name) != added.get(name)]
    if "stats" in removed and _records(removed) != _records(added):  # they are optional, and deltalake leaves them out
        differing.append("numRecords")
    if added and removed.get("extendedFileMetadata") and differing:
        yield f"version {commit.version} removes a file with other {differing} than it was added with"


def data_change(history: History) -> Iterator[str]:
    """Add File and Remove File: where `dataChange` is false the same records only lie elsewhere."""
    for commit in history.commits:
        moved = [action for action in [*commit.of("add"), *commit.of("remove")] if action.get("dataChange") is False]
        if moved and commit.changes_data:
            yield f"version {commit.version} both changes and rearranges data"
        signs = [(1 if action in commit.of("add") else -1, action) for action in moved]
        if sum(sign * _records(action) for sign, action in signs):
            yield f"version {commit.version} only rearranges, and holds another number of records"


def _records(action: Json) -> int:
    return int(json.loads(action.get("stats", "{}")).get("numRecords", 0))


def paths(history: History) -> Iterator[str]:
    """Add File and Remove File: a relative URI below the table's folder, percent-encoded; live ones lead to a file."""
    for commit in history.commits:
        for action in commit.of("add"):
            path = action["path"]
            if not _URI_PATH.fullmatch(path) or path.startswith("/") or ".." in path.split("/"):
                yield f"version {commit.version}: {path!r} is no relative URI"
    for action in history.states[-1].files.values():
        if not history.path(action).is_file():
            yield f"{action['path']} is not there"
        elif (size := history.path(action).stat().st_size) != action["size"]:
            yield f"{action['path']} has {size} bytes, the log says {action['size']}"


def partition_values(history: History) -> Iterator[str]:
    """Partition Value Serialization: each file has each partition column's value, as text; NULL is null, not empty."""
    for _, commit, after in history.steps:
        columns = after.partition_columns
        for action in commit.of("add"):
            values = action["partitionValues"]
            if values.keys() != columns.keys():
                yield f"version {commit.version}: values of {sorted(values)}, columns are {sorted(columns)}"
            if any(value == "" or not isinstance(value, str | None) for value in values.values()):
                yield f"version {commit.version}: a partition value is no text"


LOG_RULES: Mapping[str, Any] = {
    rule.__name__: rule
    for rule in (
        names,
        hadoop_checksums,
        commit_info,
        actions,
        first_version,
        transactions,
        files,
        data_change,
        paths,
        partition_values,
    )
}
