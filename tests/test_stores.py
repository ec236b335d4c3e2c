"""A mirrored database in each real store: fixtures end to end with the deltalake engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from golden import diagnostic_differences, load, table_differences
from test_fixtures import FIXTURES, RaisedDiagnostics, standing

from mirror_engine.config import Config
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.mirror import Mirror
from mirror_engine.storage.base import Kind, joined
from mirror_engine.storage.stores import open_storage

pytestmark = pytest.mark.slow

# By what a store can change: identities of folders and files, lists, moves, names, ranges
FIXTURES_IN_STORES = {
    "a folder has an identity, or none": (
        "recreated-folder-is-rebuilt",
        "recreated-folder-ends-a-rejection",
        "recreated-folder-seen-missing-is-rebuilt",
        "folder-gone-drops-the-table",
    ),
    "numbers follow from a list": (
        "gap-filled-later-goes-on",
        "number-below-the-watermark-is-never-read",
        "rejected-file-deleted-and-landed-again-goes-on",
    ),
    "an applied file is moved: renamed, or copied and deleted": (
        "applied-files-move-away-but-the-newest",
        "applied-files-move-away-in-each-partition",
        "applied-names-are-never-read-again",
    ),
    "an overwritten file has another ETag": ("overwritten-before-it-was-read-loses-a-batch",),
    "folders are parts of keys": ("partitions-number-for-themselves", "partition-values-are-decoded"),
    "names are escaped in URLs": ("odd-column-names-are-kept", "table-names-are-kept-as-spelled"),
    "text is read as a stream": ("csv-compressions",),
    "metadata is read again when its ETag changes": (
        "metadata-may-land-last",
        "rewritten-metadata-with-equal-content-is-nothing",
        "removed-metadata-restored-goes-on",
    ),
    "a file of no bytes is no marker of a folder": ("zero-byte-parquet-halts",),
}
SELECTED = [name for names in FIXTURES_IN_STORES.values() for name in names]


def land(stage, storage):
    """Do in a store what `Stage.land` does in a folder."""
    removed = stage.folder / "remove.txt"
    for path in removed.read_text("utf-8").splitlines() if removed.exists() else ():
        storage.delete(f"{ZONE}/{path}")
    for file in sorted(stage.folder.rglob("*")):
        path = file.relative_to(stage.folder).as_posix()
        if file.is_file() and path not in {"remove.txt", "in_place.txt"}:
            storage.write(f"{ZONE}/{path}", file.read_bytes())


def files_below(storage, folder):
    for entry in storage.list(folder) or ():
        path = joined(folder, entry.name)
        if entry.kind is Kind.FOLDER:
            yield from files_below(storage, path)
        else:
            yield path


@pytest.mark.parametrize("name", SELECTED)
def test_a_fixture_ends_in_a_store_as_it_should(store, name):
    golden, root = load(FIXTURES / name), store.new_root()
    golden = replace(golden, not_compared=golden.not_compared | {"ME028"})  # a store's times have whole seconds
    config, storage = Config(**golden.config, merge_engine="deltalake"), open_storage(root)
    raised, end, result = RaisedDiagnostics(), [], ""
    for stage in golden.stages:
        for landing in stage:
            land(landing, storage)
        with Mirror(root, config, listeners=[raised]) as mirror:
            result = mirror.sync().result.value
            end = standing(mirror.status())
            raised.update(end)
    assert diagnostic_differences(golden, end, raised) == []
    assert result == golden.result
    with Mirror(root, config) as mirror:
        assert sorted(mirror.tables()) == sorted(golden.tables)
        for table, expected in golden.tables.items():
            columns = mirror._writer.snapshot(table).schema.columns
            assert table_differences(expected, columns, mirror.read_table(table).to_pylist()) == []
    if golden.files is not None:
        assert sorted(path.removeprefix(f"{ZONE}/") for path in files_below(storage, ZONE)) == sorted(golden.files)
