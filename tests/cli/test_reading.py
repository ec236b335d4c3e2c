"""Commands that only read, in each real store: they find what they find on this machine, and write nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from store_servers import ONE_BY_DAY

from mirror_engine.cli.main import main
from mirror_engine.landing_zone.layout import ENGINE, ZONE
from mirror_engine.onelake.faults import parse_fault
from mirror_engine.storage.stores import open_storage
from mirror_engine.testing.cases import load
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

# zones of one stage, whose files have numbers: a store's times are its own
CHECKED = (
    "csv-cells-not-of-their-type-halt",
    "files-and-folders-out-of-place-are-ignored",
    "parquet-codecs",
    "partition-values-are-decoded",
)
OTHERWISE = {
    "root",
    "landing_zone",
    "target",
    "last_heartbeat_at",
    "last_commit_at",
    "lag_seconds",
    "scan_requests",
    "lease",
}


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MIRROR_ENGINE_STATE", str(tmp_path / "state"))


def upload(folder, root, prefix=""):
    storage = open_storage(root)
    for path in sorted(filter(Path.is_file, folder.rglob("*"))):
        if ENGINE not in path.parts:
            storage.write(f"{prefix}{path.relative_to(folder).as_posix()}", path.read_bytes())


def printed(capsys, *words):
    """Exit code and JSON of a command; without what depends on the place and its times."""
    code = main([*map(str, words), "--json"])
    found = capsys.readouterr()
    return code, without(json.loads(found.out or found.err))


def without(value):
    match value:
        case dict():
            return {key: without(inner) for key, inner in value.items() if key not in OTHERWISE}
        case list():
            return [without(inner) for inner in value]
        case str():
            return re.sub(r"\b(s3|az|abfss)://[^ ]+|(?<=ArtifactId: )\S+", "X", value)
        case _:
            return value


def versions(root):
    """Every file below a ROOT with its ETag."""
    return {found["path"]: found["e_tag"] for page in root.object_store().list() for found in page}


@pytest.mark.slow
@ONE_BY_DAY
@pytest.mark.parametrize("name", CHECKED)
def test_validate_finds_in_a_store_what_it_finds_in_a_folder(store, name, tmp_path, capsys):
    root = store.new_root()
    load(name).stages[0].land(tmp_path)
    upload(tmp_path / ZONE, root, f"{ZONE}/")
    before = versions(root)
    expected = printed(capsys, "validate", tmp_path / ZONE)
    assert printed(capsys, "validate", root) == expected
    assert printed(capsys, "validate", root / ZONE) == expected
    assert versions(root) == before


@pytest.fixture
def uploaded_root(tmp_path):
    """A ROOT on this machine; two tables, of which one has a rejected file."""
    root = tmp_path / "shop"
    publisher = LandingZoneWriter(root)
    orders = publisher.table("Sales.Orders", keys=["Id"], types={"Id": "int64", "Name": "string"})
    items = publisher.table("Items", keys=["Id"], types={"Id": "int64", "Name": "string"})
    for number in range(1, 5):
        orders.upsert({"Id": number, "Name": "one"}, {"Id": 1, "Name": f"{number}"})
    items.upsert({"Id": 1, "Name": "one"})
    items.land(b"")
    return root


COMMANDS = (
    ("status", "-C"),
    ("status", "--table", "Sales.Orders", "-C"),
    ("plan", "-C"),
    ("trace", "row", "Sales.Orders", "1", "-C"),
    ("trace", "file", "Sales.Orders", "3", "-C"),
    ("trace", "file", "Items", "2", "-C"),
    ("trace", "what-if", "Sales.Orders", "--skip", "2", "-C"),
    ("show", "Sales.Orders", "-C"),
)


@pytest.mark.slow
@ONE_BY_DAY
def test_commands_find_in_a_store_what_they_find_in_a_folder(store, uploaded_root, tmp_path, capsys):
    root = store.new_root()
    upload(uploaded_root / "Files", root, "Files/")
    for place in (uploaded_root, root):
        printed(capsys, "sync", "--merge-engine", "arrow", "-C", place)
    expected = tmp_path / "expected.csv"
    expected.write_text("Id,Name\n1,4\n2,one\n3,one\n4,two\n")
    before = versions(root)
    for words in (*COMMANDS, ("diff", "Sales.Orders", expected, "-C")):
        assert printed(capsys, *words, root) == printed(capsys, *words, uploaded_root), words
    assert versions(root) == before


@pytest.mark.slow
@ONE_BY_DAY
def test_a_table_folder_and_a_file_are_checked_alone(store, uploaded_root, capsys):
    root = store.new_root()
    upload(uploaded_root / "Files", root, "Files/")
    for below in ("Items", "Sales.schema", "Sales.schema/Orders", "Sales.schema/Orders/00000000000000000003.parquet"):
        found = printed(capsys, "validate", root / f"{ZONE}/{below}")
        assert found == printed(capsys, "validate", uploaded_root / f"{ZONE}/{below}"), below
    for below in ("Nothing", "Items/00000000000000000009.parquet"):
        code, document = printed(capsys, "validate", root / f"{ZONE}/{below}")
        assert (code, document["error"]["code"]) == (2, "usage_error")


@pytest.mark.slow
def test_what_was_read_is_not_read_again_and_more_than_allowed_is_refused(onelake_server, uploaded_root, capsys):
    with onelake_server.in_use():
        root = onelake_server.new_root()
        upload(uploaded_root / "Files", root, "Files/")
        code, document = printed(capsys, "validate", "--max-download", "2KiB", root)
        assert (code, document["error"]["code"]) == (2, "usage_error")
        assert "allow it with --max-download" in document["error"]["help"]
        first = printed(capsys, "validate", root)
        assert printed(capsys, "validate", "--max-download", "1KiB", root) == first


@pytest.mark.slow
def test_download_limit_counts_rows_and_status_reads_none(onelake_server, uploaded_root, tmp_path, capsys, monkeypatch):
    with onelake_server.in_use():
        root, expected = onelake_server.new_root(), tmp_path / "expected.csv"
        upload(uploaded_root / "Files", root, "Files/")
        printed(capsys, "sync", "--merge-engine", "arrow", "-C", root)
        expected.write_text("Id,Name\n1,4\n2,one\n3,one\n4,one\n")
        for limit, code in (("1B", 2), ("1MiB", 0)):
            for words in (("show", "Sales.Orders"), ("diff", "Sales.Orders", expected)):
                assert printed(capsys, *words, "-C", root, "--max-download", limit)[0] == code, words
        assert printed(capsys, "compare", root, "Sales.Orders", "--max-download", "1MiB")[0] == 0
        code, document = printed(capsys, "compare", root, "Sales.Orders", "--max-download", "100B")
        assert (code, "would be downloaded" in document["error"]["message"]) == (2, True)
        monkeypatch.setattr("mirror_engine.tables.log.data_rows.scan", None)
        assert printed(capsys, "status", "--table", "Items", "-C", root)[0] == 0


@pytest.mark.slow
def test_requests_grow_with_the_tables_and_no_faster(emulator, onelake_server, capsys):
    options, counter, numbers = emulator.plan.options, parse_fault("lost_request nth=9999999"), {}
    with onelake_server.in_use():
        for tables in (1, 4):
            root = onelake_server.new_root()
            local = onelake_server.store / root.container / root.name.partition(".")[0]
            publisher = LandingZoneWriter(local)
            for number in range(tables):
                publisher.table(f"T{number}", keys=["Id"], types={"Id": "int64"}).upsert({"Id": 1})
            printed(capsys, "sync", "--merge-engine", "arrow", "-C", local)
            for words in (("status", "-C"), ("show", "T0", "-C"), ("history", "T0", "-C")):
                options.faults, counter.matched = [counter], 0
                code, _ = printed(capsys, *words, root)
                options.faults = []
                assert code == 0
                numbers[words[0], tables] = counter.matched
    # of a table, deltalake asks 6 by itself
    for command, each in (("status", 13), ("show", 1), ("history", 1)):
        assert numbers[command, 4] - numbers[command, 1] <= 3 * each, numbers
