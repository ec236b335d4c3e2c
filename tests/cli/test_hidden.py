"""What people and programs are told where the folder of a known table may only be hidden (LZ-7.2)."""

from __future__ import annotations

import json
import time

import pytest
from scripted_faults import Failing, faulty

from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.mirror import Mirror
from mirror_engine.monitoring.monitoring_files import heartbeat
from mirror_engine.storage.local import LocalStorage

pytestmark = [pytest.mark.usefixtures("one_attempt"), pytest.mark.slow]


def link(shop):
    folder = shop.root / ZONE / "Items"
    folder.rename(shop.root.with_name("away"))
    folder.symlink_to(shop.root.with_name("away"))


def rename_zone(shop):
    (shop.root / ZONE).rename(shop.root / "Files/Landingzone")


def rename_files(shop):
    (shop.root / "Files").rename(shop.root / "files")


def empty_zone(shop):
    (shop.root / ZONE).rename(shop.root.with_name("away"))
    (shop.root / ZONE).mkdir()


# what is done, and what is said; of a zone no table has caught up
CASES = {
    "link": (link, "Items: is a symbolic link", "put the folder itself in its place", 1),
    "renamed zone": (rename_zone, "is missing, but `Files/Landingzone` is there", "rename `Files/Landingzone`", 0),
    "renamed Files": (rename_files, "`Files` is missing, but `files` is there", "rename `files` to `Files`", 0),
    "empty zone": (empty_zone, "is another folder than before, and empty", "mount or restore the former folder", 0),
}


def test_nothing_is_made_where_files_was_renamed(synced, cli, monkeypatch):
    """A new `Files` would hide that the old one was renamed, and be in its way."""
    monkeypatch.setattr("mirror_engine.monitoring.monitoring_files.HEARTBEAT_SECONDS", 0.01)
    (synced.root / "Files").rename(synced.root / "Files.old")
    with Mirror(synced.root) as mirror, mirror._snapshot() as seen, heartbeat(seen.context):
        time.sleep(0.1)
    for words in ("sync", "status --check", "plan", "validate", "maintain -q", "sync"):
        cli(*words.split(), synced.root)
    assert not (synced.root / "Files").exists()
    (synced.root / "Files.old").rename(synced.root / "Files")
    assert cli("sync", synced.root).code == 0


@pytest.mark.parametrize("case", list(CASES))
def test_sync_status_wait_and_plan_say_once_what_is_there(synced, cli, case):
    act, said, help, caught_up = CASES[case]
    act(synced)
    waited = cli("wait", synced.root, "--timeout", "0")
    bare = said.removeprefix("Items: ")
    assert (waited.code, bare in waited.err) == (4, True)
    assert bare in cli("plan", synced.root).out
    printed = cli("sync", synced.root)
    assert (printed.code, printed.out.count(said), printed.out.count(f"help: {help}")) == (4, 1, 1)
    assert "no table is dropped" in printed.out
    assert ("2 tables: 2 need attention.", "2 tables: 1 caught up, 1 needs attention.")[caught_up] in printed.out
    document = json.loads(cli("sync", synced.root, "--json").out)
    failure = said in document["last_failure"]["message"]
    assert (document["result"], document["exit_code"], failure) == ("retry", 4, True)
    assert sum(table["state"] == "unlisted" for table in document["tables"]) == 2 - caught_up
    printed = cli("status", synced.root, "--check")
    assert (printed.code, printed.out.count(bare), printed.out.count(help)) == (4, 1, 1)
    assert printed.out.count("symbolic link") == (case == "link")
    document = json.loads(cli("status", synced.root, "--json").out)
    assert {table["state"] for table in document["tables"]} == {"unlisted", *["caught_up"] * caught_up}
    assert [each["code"] for each in document["diagnostics"]].count("ME070") == 1


@pytest.fixture
def fail(synced, monkeypatch):
    """Let the calls of a storage that a pattern matches fail, for each command."""

    def of(calls):
        storage = faulty(LocalStorage(synced.root), Failing(calls))
        monkeypatch.setattr(
            "mirror_engine.mirror.Mirror",
            lambda root, config, **_: Mirror(root, config, writer=synced.writer, storage=storage),
        )

    return of


def test_unreadable_folder_and_all_tables_are_not_in_one_output(synced, cli, fail):
    fail(f"list {ZONE}/Items$")
    printed = cli("sync", synced.root)
    assert (printed.code, "2 tables: 1 caught up, 1 needs attention." in printed.out) == (4, True)
    assert "Items" in cli("status", synced.root).out.split("Table", 1)[1]


def test_unreadable_folder_that_is_new_leaves_all_other_tables(synced, cli, fail):
    (synced.root / ZONE / "New").mkdir()
    fail(f"list {ZONE}/New$")
    printed = cli("sync", synced.root)
    assert (printed.code, "All other tables have caught up." in printed.out) == (4, True)


def test_zone_that_cannot_be_listed_is_no_zone_without_tables(synced, cli, fail):
    fail(f"list {ZONE}$")
    printed = cli("sync", synced.root)
    assert (printed.code, "No table could be listed." in printed.out) == (4, True)


def test_new_root_with_a_misspelled_zone_gets_a_hint(tmp_path, cli):
    (tmp_path / "Files/Landingzone/Items").mkdir(parents=True)
    printed = cli("sync", tmp_path)
    assert "did you mean Files/Landingzone? Rename it" in printed.err
