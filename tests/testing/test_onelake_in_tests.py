"""OneLake in a test: unmodified clients in this process, a fresh OneLake for each test, snapshots and time."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import adlfs  # noqa: F401 - before an emulator runs, as a publisher's module does
import deltalake
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.identity import DefaultAzureCredential
from azure.storage.filedatalake import DataLakeServiceClient
from deltalake import DeltaTable
from fsspec import filesystem
from obstore.store import AzureStore

from mirror_engine.errors import RootLocked, UsageError
from mirror_engine.events import DiagnosticRaised, TableDropped
from mirror_engine.extras import install_command
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.names import TableName
from mirror_engine.testing.onelake import onelake as started

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

ACCOUNT = "https://onelake.dfs.fabric.microsoft.com"
SECOND = f"{2:020}.parquet"


def change_file(rows):
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue().to_pybytes()


def publish(rows, number=1, table="Orders"):
    """As a publisher's own code does, which knows nothing of the emulator."""
    service = DataLakeServiceClient(ACCOUNT, credential=DefaultAzureCredential())
    zone = f"{os.environ['FABRIC_MIRRORED_DATABASE_ID']}/Files/LandingZone"
    workspace = service.get_file_system_client(os.environ["FABRIC_WORKSPACE_ID"])
    folder = workspace.get_directory_client(f"{zone}/{table}")
    folder.get_file_client("_metadata.json").upload_data(b'{"keyColumns": ["id"]}', overwrite=True)
    folder.get_file_client("_new").upload_data(change_file(rows), overwrite=True)
    folder.get_file_client("_new").rename_file(f"{workspace.file_system_name}/{zone}/{table}/{number:020}.parquet")


@pytest.mark.parametrize("turn", [1, 2])
def test_clients_work_as_they_are_and_each_test_has_an_empty_onelake(onelake, turn):
    info, folder = onelake.connection, f"{onelake.url}/Files/LandingZone/Orders"
    assert onelake.mirror._status().tables == ()
    publish([{"id": turn}])
    assert onelake.mirror.sync_until_caught_up().rows_applied == 1
    assert onelake.mirror.table("orders").rows() == [{"id": turn}]
    assert DeltaTable(f"{onelake.url}/Tables/dbo/Orders").to_pyarrow_table().to_pylist() == [{"id": turn}]
    obstore.put(AzureStore.from_url(folder), SECOND, change_file([{"id": 10 + turn}]))
    files = filesystem("abfss", account_name="onelake", account_host="onelake.blob.fabric.microsoft.com", anon=False)
    listed = files.ls(f"{info.workspace_id}/{info.item_id}/Files/LandingZone/Orders", detail=False)
    assert {SECOND, "_metadata.json"} <= {name.rpartition("/")[2] for name in listed}
    onelake.mirror.sync_until_caught_up()
    deltalake.write_deltalake(
        f"{onelake.url}/Files/copy", DeltaTable(f"{onelake.url}/Tables/dbo/Orders").to_pyarrow_table()
    )
    assert DeltaTable(f"{onelake.url}/Files/copy").count() == 2
    onelake.mirror.assert_no_diagnostics()


def test_history_has_a_table_that_the_emulator_dropped(onelake):
    publish([{"id": 1}])
    onelake.mirror.sync_until_caught_up()
    service = DataLakeServiceClient(ACCOUNT, credential=DefaultAzureCredential())
    workspace = service.get_file_system_client(os.environ["FABRIC_WORKSPACE_ID"])
    workspace.delete_directory(f"{os.environ['FABRIC_MIRRORED_DATABASE_ID']}/Files/LandingZone/Orders")
    deadline = time.monotonic() + 20
    while onelake.mirror._status().tables and time.monotonic() < deadline:
        onelake.mirror.sync()
    assert [change.change for change in onelake.mirror.history().changes] == ["dropped"]


def test_sync_reports_what_the_emulator_dropped_meanwhile(onelake, monkeypatch):
    mirror, dropped = onelake.mirror, TableDropped(TableName("", "Orders"), "deleted")
    monkeypatch.setattr(mirror._server, "poll", lambda: mirror.note_event(mirror._server.item, dropped) is None)
    assert mirror.sync().dropped == ["Orders"]


def test_the_environment_is_that_of_exec_and_ends_with_it(tmp_path):
    before = dict(os.environ)
    with started() as lake:
        info = lake.connection
        assert os.environ == info.around(before)
        token = subprocess.run(["az", "account", "get-access-token"], capture_output=True, check=True)
        assert b"accessToken" in token.stdout
        store = lake.store
    assert dict(os.environ) == before
    assert not store.exists()
    with started(tmp_path / "kept", workspace="Sales", item="Shop") as lake:
        lake.landing_zone.table("Orders", keys=["id"]).initial_load({"id": 1})
        with pytest.raises(RootLocked), started(tmp_path / "kept"):
            pass
    with started(str(tmp_path / "kept")) as lake:
        assert (lake.connection.workspace, lake.connection.item) == ("Sales", "Shop")
        assert lake.mirror.sync_until_caught_up().rows_applied in {0, 1}  # its engine may have been quicker before
        assert lake.mirror.table("Orders").rows() == [{"id": 1}]
    assert dict(os.environ) == before


def test_two_at_once_are_apart_and_the_inner_one_has_the_environment():
    with started() as outer:
        publish([{"id": 1}])
        with started() as inner:
            publish([{"id": 2}])
            inner.mirror.sync_until_caught_up()
        publish([{"id": 3}], 2)
        outer.mirror.sync_until_caught_up()
        assert outer.mirror.table("Orders").rows() == [{"id": 1}, {"id": 3}]


def test_reset_returns_to_the_beginning_at_the_same_addresses(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store/notes.txt").write_text("mine")
    with started(tmp_path / "store", faults=["lost_request operation=flush nth=2"]) as lake:
        before, paths = dict(os.environ), sorted(lake.store.rglob("*"))
        for turn in range(2):
            lake.advance(days=20)
            lake.inject_fault("throttle count=all")
            with pytest.raises(Exception, match="ServerBusy"):
                AzureStore.from_url(lake.url, retry_config={"max_retries": 0}).list().collect()
            lake.clear_faults()
            publish([{"id": turn}])
            (lake.store / "Other/Item/Files/LandingZone").mkdir(parents=True)
            (lake.store / "notes.txt").unlink()
            lake.mirror.sync_until_caught_up()
            lake.landing_zone.table("Empty", keys=["id"])
            lake.reset()
            assert (dict(os.environ), sorted(lake.store.rglob("*"))) == (before, paths)
            lake.landing_zone.table("Empty", keys=["id"])
            assert [table.state.code for table in lake.mirror._status().tables] == ["empty"]
            assert abs(lake.mirror._status().last_heartbeat_at.timestamp() - time.time()) < 3600  # the 20 days are over
            assert lake.mirror.diagnostics == ()


def test_temporary_name_seen_before_its_rename_is_no_diagnostic(onelake):
    """Found by chance with `__metadata.json.uploading`: the engine scans whenever a file event comes."""
    folder = onelake.landing_zone / "Orders"
    folder.mkdir()
    for name in ("_new", "_kept"):
        (folder / name).write_bytes(b"")
        found = diagnose("ME082", f"Orders/{name}", first="_")
        onelake.mirror.note_event(onelake.mirror._server.item, DiagnosticRaised(TableName("", "Orders"), found))
    (folder / "_new").rename(folder / "1.csv")
    assert [each.path for each in onelake.mirror.diagnostics] == ["Orders/_kept"]


def test_snapshot_restores_files_tables_progress_and_time(onelake):
    publish([{"id": 1}])
    onelake.mirror.sync_until_caught_up()
    onelake.advance(days=3)
    kept = onelake.snapshot()
    for turn in (2, 3):
        publish([{"id": turn}], 2)
        assert onelake.mirror.sync_until_caught_up().files_applied == 1
        assert onelake.mirror.table("Orders").rows() == [{"id": 1}, {"id": turn}]
        onelake.advance(days=7)
        onelake.mirror.sync_until_caught_up()
        assert not list(onelake.landing_zone.path.glob("Orders/_FilesReadyToDelete/*.parquet"))
        onelake.restore(kept)
        assert onelake.mirror.table("Orders").rows() == [{"id": 1}]
        onelake.mirror.assert_no_diagnostics()
    onelake.reset()
    assert onelake.mirror.tables() == []
    onelake.restore(kept)
    assert onelake.mirror.table("Orders").rows() == [{"id": 1}]


def test_sync_does_not_wait_for_an_engine_that_is_paused(onelake):
    onelake.inject_fault("paused")
    publish([{"id": 1}])
    with pytest.raises(AssertionError, match="Orders"):
        onelake.mirror.sync_until_caught_up()
    assert onelake.mirror._status().tables[0].state.code == "loading"


@pytest.mark.mirror_config(default_schema="none", strict=True)
def test_a_marker_gives_the_engine_its_options(onelake):
    publish([{"id": 1}])
    onelake.mirror.sync_until_caught_up()
    assert (onelake.mirror.tables(), onelake.mirror.config.strict) == (["Orders"], True)


def test_an_unusable_argument_is_an_error_with_help():
    with pytest.raises(UsageError, match="none"), started(faults=["none"]):
        pass


def test_a_table_left_halted_fails_the_test_and_rejected_requests_are_reported(pytester):
    pytester.makepyfile(
        """
        import os
        import requests

        def test_halted(onelake):
            onelake.landing_zone.table("Orders", keys=["id"]).apply_changes((3, {"id": 1}))
            onelake.mirror.sync()

        def test_expected(onelake):
            onelake.landing_zone.table("Orders", keys=["id"]).apply_changes((3, {"id": 1}))
            onelake.mirror.expect_halted("Orders", "ME037")
            onelake.mirror.sync_until_caught_up()

        def test_rejected(onelake):
            onelake.mirror.sync()
            assert requests.put(onelake.connection.http + "/Workspace/None.MountedRelationalDatabase/x").ok
        """
    )
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(
        [
            "unexpected table states at the end of the test:",
            "  Orders is halted: *[[]ME037[]]*",
            "*Captured mirror call*",
            "  rejected: PUT 127.0.0.1/Workspace/None.MountedRelationalDatabase/x: 400 MissingRequiredHeader",
        ]
    )


def test_without_the_extra_it_says_what_to_install():
    program = (
        "import sys\nsys.modules['uvicorn'] = None\ntry: import mirror_engine.testing.onelake\n"
        "except Exception as e: print(type(e).__name__, e.message, e.help)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"UsageError onelake needs uvicorn Install the extra: {install_command('emulator')}\n"
