"""A mirrored database that Fabric mirrors: its progress by what it leaves, judged by the engine's own."""

from __future__ import annotations

import json
import re
import shutil
from types import SimpleNamespace

import pyarrow as pa
import pytest
from golden import land
from shop import Shop, row
from store_servers import WORKSPACE
from test_fixtures import NAMES

from mirror_engine.cli.main import main
from mirror_engine.config import Config
from mirror_engine.landing_zone.detection import number_of
from mirror_engine.landing_zone.layout import ENGINE, SCRATCH, TABLES
from mirror_engine.landing_zone.listing import Entry, MetadataUsable, TableListing
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.schema import TableSchema
from mirror_engine.mirror import Mirror
from mirror_engine.monitoring.fabric_mirror import progress_of
from mirror_engine.monitoring.status_results import FabricReport
from mirror_engine.onelake import storage_api
from mirror_engine.onelake.options import FaultRule
from mirror_engine.storage.azure_stores import DatalakeUrl
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.base import TableSnapshot
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.testing.cases import load
from mirror_engine.tools.trace.rejections import with_rejections

# What no file in ROOT tells, so that Fabric's own words must: fixtures by reason
UNKNOWN = {
    "the metadata of the files before": (
        "ME017",
        "ME063",
        "changed-keys-restored-go-on",
        "csv-declaration-changed-halts",
        "csv-declaration-restored-goes-on",
        "removed-keys-halt",
        "strategy-may-change-and-change-back",
    ),
    "the rejected content of a file that is good by now": (
        "ME027",
        "rejection-outlives-a-metadata-error",
    ),
    "the content of a path that was applied": (
        "applied-names-are-never-read-again",
        "ME026",
    ),
    "files below the first one that was read": (
        "ME022",
        "number-below-the-watermark-is-never-read",
    ),
    "files that left nothing in a table": (
        "untyped-columns-wait-for-the-file-with-types",
        "untyped-columns-without-rows-make-no-table",
    ),
    "what was applied where nothing is cleaned up, as Fabric does": ("applied-files-may-stay",),
    "the number of a file that was deleted": ("ME073",),
    "which of two folders came first": ("ME004", "folder-without-its-place-takes-no-table-when-it-goes"),
}


def copied_as_fabric_s(root, copy):
    """Copy a ROOT without anything that says that this engine made it: Fabric's commits name no change files."""
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns(ENGINE))
    for commit in copy.glob(f"{TABLES}/**/_delta_log/*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            for name in ("userMetadata", "engineInfo"):
                action.get("commitInfo", {}).pop(name, None)
        kept = [action for action in actions if "txn" not in action]
        commit.write_text("".join(f"{json.dumps(action)}\n" for action in kept))


def seen(root, **options):
    """By table: why it is halted or would be, watermarks, applied files, and the files that are pending."""
    writer = ArrowWriter(root / TABLES, root / SCRATCH)
    with Mirror(root, Config(**options), writer=writer) as mirror, mirror._snapshot() as snapshot:
        ledger, status = snapshot.context.ledger, mirror._status()
        files = {table: sorted(ledger.applied(table)) for table in ledger.tables()}
        if status.fabric:
            status = with_rejections(snapshot, status)
    return {table.name.folder: described(table, files.get(table.name, [])) for table in status.tables}


def described(table, applied):
    halted_by = table.state.diagnostic or table.would_reject
    state = halted_by.full_message if halted_by else table.state.code
    pending = sorted(file.path for file in table.pending_files)
    return state, table.watermarks, applied, pending


KNOWN = sorted({*NAMES} - {name for names in UNKNOWN.values() for name in names})


def by_day(number, name):
    """Zones that change while they are mirrored, and a quarter of the others, which are alike to Fabric's progress."""
    return len(load(name).stages) > 1 or number % 4 == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if by_day(number, name) else pytest.mark.nightly)
        for number, name in enumerate(KNOWN)
    ],
)
def test_inferred_progress_is_the_engine_s_own(name, tmp_path):
    case, root = load(name), tmp_path / "root"
    root.mkdir()
    for number, stage in enumerate(case.stages):
        land(stage, root)
        Mirror(root, Config(**case.options), writer=ArrowWriter(root / TABLES, root / SCRATCH)).sync()
        copy = tmp_path / f"copy{number}"
        copied_as_fabric_s(root, copy)
        assert seen(copy, **case.options) == seen(root, **case.options)


NOW = 1_800_000_000.0
ORDERS = TableName("Sales", "Orders")
SEQUENTIAL, BY_TIME = Strategy.SEQUENTIAL, Strategy.LAST_UPDATE_TIME


def landed(number, age_seconds=10.0, partition=""):
    path = f"{partition}/{number:020}.parquet".lstrip("/")
    return Entry(path, 10, int((NOW - age_seconds) * 1e9), path)


def applied(present, archived=(), *, synced=None, strategy=SEQUENTIAL, **metadata):
    """Numbers that count as applied, where the last sync was `synced` seconds ago."""
    usable = MetadataUsable("", Metadata(strategy=strategy, **metadata))
    listing = TableListing(ORDERS, "folder", usable, tuple(present))
    synced_at = 0.0 if synced is None else NOW - synced
    files = [*present, *archived]
    _, known = progress_of(listing, files, TableSnapshot(7, TableSchema(()), None, -1), {}, synced_at)
    watermarks = {place: mark.watermark for place, mark in known.marks.items() if mark.watermark}
    return sorted(map(number_of, known.files)), watermarks


def test_first_file_after_the_archive_counts_as_applied():
    archived = [landed(1), landed(2)]
    assert applied([landed(3), landed(4)], archived) == ([1, 2, 3], {"": 3})
    assert applied([landed(4), landed(5)], archived) == ([1, 2], {"": 2})  # it was deleted, or never came
    assert applied([landed(4, 60), landed(5)], archived, synced=30) == ([1, 2, 4], {"": 4})
    assert applied([], archived) == ([1, 2], {"": 2})


def test_without_an_archive_the_last_sync_decides():
    assert applied([landed(1, 60), landed(2, 60)], synced=30) == ([1], {"": 1})
    assert applied([landed(1, 60)], synced=90) == ([], {})
    assert applied([landed(40, 60), landed(41, 60)], synced=30) == ([40], {"": 40})  # the archive was emptied
    assert applied([landed(1, 60)]) == ([], {})


def test_files_that_time_orders_have_no_watermark():
    in_place = [landed(9, 50), landed(3, 40)]
    assert applied(in_place, [landed(7, 60)], synced=45, strategy=BY_TIME) == ([7, 9], {})
    assert applied(in_place, [landed(7, 60)], synced=55, strategy=BY_TIME) == ([7], {})


def test_each_partition_has_its_own_newest_file_and_ignored_files_are_none():
    present = [landed(2, partition="k=a"), landed(1, 60, "k=b"), landed(2, 5, "k=b"), landed(1)]
    archived = [landed(1, partition="k=a")]
    assert applied(present, archived, synced=30, partitioned=True) == ([1, 1, 2], {"k=a": 2, "k=b": 1})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"tables": 3}',
        b'{"tables": [1, {"metrics": 5}]}',
        b'{"tables": [{"metrics": {"lastSyncTimeUtc": 7}}]}',
    ],
)
def test_odd_monitoring_files_are_read_as_no_entries(tmp_path, content):
    storage, shop = LocalStorage(tmp_path), Shop(tmp_path)
    shop.orders().insert(row(1))
    storage.write("Files/Monitoring/tables.json", content)
    for replicator in (b"[]", b"{", b"", b"\xff"):
        storage.write("Files/Monitoring/replicator.json", replicator)
        with shop.mirror() as mirror:
            assert mirror._status().fabric is None
    storage.write("Files/Monitoring/replicator.json", b'{"status": "Paused", "errorMessage": null}')
    with shop.mirror() as mirror:
        status = mirror._status()
    assert (status.fabric, status.tables[0].fabric_status) == (FabricReport("Paused", None), None)


def test_a_root_with_a_record_or_ledger_of_this_engine_is_not_fabric_s(tmp_path):
    shop = Shop(tmp_path)
    shop.orders().insert(row(1))
    shop.sync()
    with shop.mirror() as mirror:
        assert mirror._status().fabric is None
    shutil.rmtree(tmp_path / ENGINE)
    with shop.mirror() as mirror:
        assert mirror._status().fabric is None


@pytest.fixture
def fabric_s(tmp_path):
    """A ROOT that Fabric mirrors: tables that have caught up, are blocked, and have a file that it would reject."""
    root, copy = tmp_path / "engine", tmp_path / "fabric"
    root.mkdir()
    shop = Shop(root, ArrowWriter(root / TABLES, root / SCRATCH))
    orders, items, stock = (shop.orders(name) for name in ("Sales.Orders", "Sales.Items", "Stock"))
    for table in (orders, items, stock):
        for number in range(3):
            table.insert(row(number))
    shop.sync()
    items.skip_numbers()
    items.insert(row(5))
    stock.insert(row(6))
    stock.land_parquet(pa.table({"id": ["seven"], "city": ["Linz"]}))
    stock.insert(row(8))
    copied_as_fabric_s(root, copy)
    files = copy / "Files/Monitoring/tables.json"
    entries = json.loads(files.read_text())["tables"]
    for entry in entries:
        if entry["sourceTableName"] == "Stock":
            entry |= {"errorCode": "SchemaMergeFailure", "errorMessage": "Failed to write table 'dbo\\Stock'."}
    files.write_text(json.dumps({"tables": entries}))
    return copy


@pytest.mark.slow
def test_status_shows_fabrics_state_next_and_rejected_file(fabric_s, capsys):
    before = {path: path.stat().st_mtime_ns for path in fabric_s.rglob("*")}
    assert main(["status", "--check", str(fabric_s)]) == 3
    out = capsys.readouterr().out
    assert ": mirrored by Fabric: Running (last seen " in out
    assert "Last sync" in out
    assert re.search(r"Sales\.Orders +caught up +Replicating +3 +- +- +3 ", out)
    assert re.search(r"Sales\.Items +blocked +Replicating +3 +1 ", out)
    assert re.search(r"Stock +behind +Replicating\* +3 +3 ", out)
    assert "Fabric would reject:\nerror[ME044]: column `" in out
    assert "--> Files/LandingZone/Stock/00000000000000000005.parquet" in out
    assert "Fabric: Failed to write table 'dbo\\Stock'." in out
    assert "start `mirror-engine run`" not in out
    assert {path: path.stat().st_mtime_ns for path in fabric_s.rglob("*")} == before


@pytest.mark.slow
def test_status_as_json_has_fabric_s_words_and_ours(fabric_s, capsys):
    main(["status", "--json", str(fabric_s)])
    found = json.loads(capsys.readouterr().out)
    stock = next(table for table in found["tables"] if table["table"] == "Stock")
    assert found["fabric"] == {"status": "Running", "error": None}
    assert (stock["fabric_status"], stock["fabric_error"]) == ("Replicating", "Failed to write table 'dbo\\Stock'.")
    assert (stock["rows_processed"], stock["row_count"], stock["state"], stock["help"]) == (3, 3, "behind", None)
    assert stock["would_reject"]["location"]["path"] == "Stock/00000000000000000005.parquet"
    states = [(file["path"][19:20], file["state"]) for file in stock["files"]]
    assert states == [("4", "pending"), ("5", "rejected"), ("6", "pending"), ("3", "applied")]


@pytest.mark.slow
def test_trace_and_plan_go_on_from_fabric_s_progress(fabric_s, capsys):
    assert main(["plan", "-C", str(fabric_s), "--table", "Stock"]) == 0
    assert "apply 3 files" in capsys.readouterr().out
    assert main(["trace", "file", "-C", str(fabric_s), "Stock", "5"]) == 0
    assert "rejected" in capsys.readouterr().out
    assert main(["trace", "row", "-C", str(fabric_s), "Stock", "1"]) == 0
    assert "Matches the Delta table" in capsys.readouterr().out


REFUSED = SimpleNamespace(status=403, message="No permission.", blob_code="AuthorizationPermissionMismatch")
REFUSED.dfs_code = REFUSED.blob_code


@pytest.fixture
def onelake_s(fabric_s, onelake_server, emulator, tmp_path, monkeypatch):
    """The same in OneLake, and a function that lets reads of the log of `Sales/Orders` fail with a status."""
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MIRROR_ENGINE_STATE", str(tmp_path / "state"))
    monkeypatch.setitem(storage_api._OF_FAULTS, "403", REFUSED)
    options_of = DatalakeUrl.deltalake_options
    asked_once = lambda url: {**options_of(url), "max_retries": "0"}  # noqa: E731 - what deltalake waits is its own
    monkeypatch.setattr(DatalakeUrl, "deltalake_options", asked_once)
    options = emulator.plan.options
    with onelake_server.in_use():
        root = onelake_server.new_root()
        shutil.copytree(fabric_s, onelake_server.store / WORKSPACE / root.name.partition(".")[0], dirs_exist_ok=True)

        def fail(status):
            rule = {"status": status, "retry-after": 1}
            path = "*/Tables/Sales/Orders/_delta_log/0*"
            options.faults = [FaultRule("throttle", path=path, count=None, options=rule)]

        yield root, fail
        options.faults = []


@pytest.mark.slow
@pytest.mark.parametrize("status", ["403", pytest.param("503", marks=pytest.mark.nightly)])  # that one is asked again
def test_a_log_that_cannot_be_read_is_named_and_no_file_is_called_missing(onelake_s, status, capsys):
    root, fail = onelake_s
    fail(status)
    main(["status", "--json", str(root)])
    tables = {table["table"]: table for table in json.loads(capsys.readouterr().out)["tables"]}
    orders = tables["Sales.Orders"]
    assert "its Delta table cannot be read" in orders["message"]
    assert "missing" not in orders["message"]
    assert "delete the folder" not in orders["help"]
    assert orders["watermarks"] == {"": 3}
    assert tables["Stock"]["state"] == "behind"
    main(["plan", "-C", str(root)])
    out = capsys.readouterr().out
    assert "its Delta table cannot be read" in out
    assert "00000000000000000001.parquet is missing" not in out
    for words in (["row", "Sales.Orders", "1"], ["file", "Sales.Orders", "1"]):
        assert main(["trace", words[0], "-C", str(root), *words[1:]]) == 0
        out = capsys.readouterr().out
        assert "without ever being" not in out
        assert "no Delta table yet" not in out
