"""`pull`: a copy of a zone with names, times and order, whatever stops it and whatever changes at its source."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from scripted_faults import Acting, Failing, Script, faulty
from shop import TYPES, Shop, name, row

from mirror_engine.engine.lock import lock_root
from mirror_engine.errors import ConcurrentModification, RootLocked, StorageUnavailable, UnknownTable, UsageError
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.storage.local import LocalStorage
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from mirror_engine.tools.pull import Pull
from mirror_engine.tools.validate import check_landing_zone
from mirror_engine.tools.validation_target import find_target

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

URL = "abfss://Sales@onelake.dfs.fabric.microsoft.com/Orders"
SECOND = 10**9


@pytest.fixture
def origin(tmp_path):
    """A zone in which three of four files were applied, and two of them archived."""
    shop = Shop(tmp_path / "source")
    table = shop.orders()
    for number in (1, 2, 3):
        table.insert(row(number), modified_ns=1_700_000_000 * SECOND + number)
    shop.sync()
    table.upsert({"id": 1, "city": "Wels"})
    shop.publisher.partner_events(partnerName="Acme")
    return shop


def tree(root, *, below=ZONE):
    """Files below a zone with content and time."""
    paths = [path for path in sorted((root / below).rglob("*")) if path.is_file()]
    return {
        path.relative_to(root / below).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in paths
        if "FilesReadyToDeleteInfo" not in path.name
    }


def pull(shop, root, storage=None, **options):
    return Pull(storage or LocalStorage(shop.root), URL, root, **options).run()


def test_a_copy_has_all_names_and_times_and_archived_files_are_at_their_old_paths(origin, tmp_path):
    partitioned = origin.publisher.table("Sales.Lines", keys=["id", "day"], partitioned=True)
    partitioned.insert(row(1), partition="day=1/site=b")
    before = tree(origin.root, below=".")
    plan = pull(origin, tmp_path / "here")
    assert tree(origin.root, below=".") == before
    landed = tree(origin.root)
    assert tree(tmp_path / "here") == {path.replace("_FilesReadyToDelete/", ""): file for path, file in landed.items()}
    assert f"Orders/_FilesReadyToDelete/{name(1)}" in landed
    assert "Sales.schema/Lines/day=1/site=b/" + name(1) in landed
    assert (plan.restored, plan.present, plan.not_restored) == (2, 0, ())


def test_the_older_zone_keeps_its_place(tmp_path):
    LandingZoneWriter(tmp_path / "source", zone=OLDER_ZONE).table("T").insert(row(1))
    Pull(LocalStorage(tmp_path / "source"), URL, tmp_path / "here").run()
    assert tree(tmp_path / "here", below=OLDER_ZONE) == tree(tmp_path / "source", below=OLDER_ZONE)


def test_a_second_pull_copies_what_is_new_even_after_a_sync_here(origin, tmp_path):
    here = tmp_path / "here"
    first = pull(origin, here)
    Shop(here).sync()
    origin.sync()  # archives one more file there
    origin.publisher.folder("Orders", types=TYPES).insert(row(9))
    again = pull(origin, here)
    assert (len(again.files), again.present) == (1, len(first.files))
    assert not pull(origin, here).files


def test_an_archived_file_stays_archived_where_a_new_one_has_its_name(origin, tmp_path):
    origin.publisher.put(f"Orders/{name(1)}", b"other")
    plan = pull(origin, tmp_path / "here")
    assert plan.not_restored == (f"{ZONE}/Orders/_FilesReadyToDelete/{name(1)}",)
    codes = [
        {found.code for found, _ in check_landing_zone(find_target(root, origin.config)).all()}
        for root in (origin.root, tmp_path / "here")
    ]
    assert "ME026" in codes[0]
    assert codes[0] == codes[1]


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_stopped_between_any_two_files_it_goes_on(origin, tmp_path, monkeypatch, stop):
    monkeypatch.setattr("mirror_engine.tools.pull.WORKERS", 1)
    here, storage = tmp_path / "here", faulty(LocalStorage(origin.root), script := Script())
    opened = lambda: sum(call.startswith("open") for call in script.calls)  # noqa: E731 - of this test
    real = script.run

    def run(call, action):
        if call.startswith("open") and opened() == stop:
            raise KeyboardInterrupt
        return real(call, action)

    script.run = run
    with pytest.raises(KeyboardInterrupt):
        pull(origin, here, storage)
    assert (
        tree(here).items()
        <= {path.replace("_FilesReadyToDelete/", ""): it for path, it in tree(origin.root).items()}.items()
    )
    assert len(tree(here)) == stop
    script.run = real
    plan = pull(origin, here, storage)
    assert plan.present == stop
    assert opened() == stop + len(plan.files)
    assert len(tree(here)) == len(tree(origin.root))


def test_killed_at_any_moment_no_half_file_has_its_name(tmp_path):
    publisher = LandingZoneWriter(tmp_path / "source")
    table = publisher.table("Big", keys=["id"])
    for _ in range(30):
        table.land(os.urandom(3_000_000))
    program = (
        "import sys; from pathlib import Path; from mirror_engine.tools.pull import Pull\n"
        "from mirror_engine.storage.local import LocalStorage\n"
        f"Pull(LocalStorage(Path(sys.argv[1])), {URL!r}, Path(sys.argv[2])).run()"
    )
    here, source = tmp_path / "here", tree(tmp_path / "source")
    pulling, landed = here / ".mirror-engine/pull", here / "Files/LandingZone/Big"
    seen = set()
    for named in (0, 1, 5, 10, 20):
        shutil.rmtree(pulling, ignore_errors=True)
        process = subprocess.Popen([sys.executable, "-c", program, tmp_path / "source", here])
        while process.poll() is None and not (pulling.exists() and len(list(landed.glob("0*"))) >= named):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert tree(here).items() <= source.items()
        seen.add(len(tree(here)))
    assert len(seen) > 2, seen
    Pull(LocalStorage(tmp_path / "source"), URL, here).run()
    assert tree(here) == source
    assert not pulling.exists()


def test_a_failure_at_one_file_keeps_the_others_and_the_next_run_goes_on(origin, tmp_path):
    storage = faulty(LocalStorage(origin.root), Failing(f"open .*{name(3)}", times=1))
    with pytest.raises(StorageUnavailable):
        pull(origin, tmp_path / "here", storage)
    pull(origin, tmp_path / "here", storage)
    assert len(tree(tmp_path / "here")) == len(tree(origin.root))


def changing(root, act):
    """A storage whose publisher or janitor acts before a file is opened."""
    return faulty(LocalStorage(root), Acting(f"open .*Orders/{name(3)}", act))


def test_a_file_that_is_archived_meanwhile_is_copied(origin, tmp_path):
    plan = pull(origin, tmp_path / "here", changing(origin.root, origin.sync))
    assert len(plan.files) == len(tree(tmp_path / "here")) == len(tree(origin.root))


def test_a_file_that_is_replaced_meanwhile_is_copied_whole_with_its_time(origin, tmp_path):
    path = f"Orders/{name(3)}"
    pull(origin, tmp_path / "here", changing(origin.root, lambda: origin.publisher.put(path, b"x" * 2_000_000)))
    assert tree(tmp_path / "here")[path] == tree(origin.root)[path]
    assert not pull(origin, tmp_path / "here").files


def test_a_file_that_never_rests_or_is_gone_ends_the_pull(origin, tmp_path):
    class Growing(LocalStorage):
        def open(self, path, only=None):
            if path.endswith(name(3)):
                with (origin.root / path).open("ab") as file:
                    file.write(b"more")
            return super().open(path, only)

    with pytest.raises(ConcurrentModification, match="while it was read"):
        pull(origin, tmp_path / "here", Growing(origin.root))
    removed = changing(origin.root, (origin.publisher / "Orders" / name(3)).unlink)
    with pytest.raises(ConcurrentModification, match="was removed"):
        pull(origin, tmp_path / "other", removed)


def test_an_overwritten_file_of_equal_size_and_time_is_copied_again(origin, tmp_path):
    pull(origin, tmp_path / "here")
    path = origin.publisher / "Orders" / name(3)
    changed = bytes(reversed(path.read_bytes()))
    origin.publisher.put(f"Orders/{name(3)}", changed, modified_ns=path.stat().st_mtime_ns)
    assert [file.target for file in pull(origin, tmp_path / "here").files] == [f"{ZONE}/Orders/{name(3)}"]
    assert (tmp_path / "here" / ZONE / "Orders" / name(3)).read_bytes() == changed


def test_a_recreated_folder_is_copied_anew(origin, tmp_path):
    pull(origin, tmp_path / "here")
    origin.publisher.remove("Orders")
    origin.orders().insert(row(5))
    plan = pull(origin, tmp_path / "here")
    assert plan.recreated == (f"{ZONE}/Orders",)
    assert tree(tmp_path / "here") == tree(origin.root)
    assert pull(origin, tmp_path / "here").recreated == ()


def test_files_that_are_gone_at_the_source_stay_here(origin, tmp_path):
    pull(origin, tmp_path / "here")
    origin.lose(1)
    pull(origin, tmp_path / "here")
    assert f"Orders/{name(1)}" in tree(tmp_path / "here")


def test_tables_and_times_choose(origin, tmp_path):
    origin.orders("Sales.Orders").insert(row(1))
    origin.orders("Other").insert(row(1))
    pull(origin, tmp_path / "some", tables=["sales.orders", "dbo.other"])
    assert {path.rpartition("/")[0] for path in tree(tmp_path / "some")} == {"", "Sales.schema/Orders", "Other"}
    for listed in origin.root.rglob("_FilesReadyToDeleteInfo.json"):
        os.utime(listed, ns=(1, 1))
    plan = pull(origin, tmp_path / "late", since_ns=1_700_000_000 * SECOND + 3)
    kept = [path for path in tree(tmp_path / "late") if path.startswith("Orders/")]
    assert kept == [f"Orders/{name(3)}", f"Orders/{name(4)}", "Orders/_metadata.json"]
    assert plan.older == 2  # not the janitor's list of archived files
    with pytest.raises(UnknownTable):
        pull(origin, tmp_path / "none", tables=["Nothing"])


def test_it_refuses_other_folders_and_sources(origin, tmp_path):
    here = tmp_path / "here"
    pull(origin, here)
    with pytest.raises(UsageError, match="was pulled from"):
        Pull(LocalStorage(origin.root), f"{URL}2", here).run()
    with pytest.raises(UsageError, match="not empty"):
        pull(origin, origin.root)
    with pytest.raises(UsageError, match="not a ROOT"):
        pull(origin, here / ZONE / "deeper")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no landing zone"):
        Pull(LocalStorage(tmp_path / "empty"), URL, tmp_path / "nothing").run()
    with lock_root(here), pytest.raises(RootLocked):
        pull(origin, here)


def test_refused_pull_leaves_nothing(origin, tmp_path, cli, monkeypatch):
    monkeypatch.setattr("sys.stdin", None, raising=False)
    for words in (["--max-download", "1B"], ["--table", "Nothing"]):
        monkeypatch.setattr("sys.stdin", io.StringIO())
        assert cli("pull", origin.root, tmp_path / "here", *words).code == 2
        assert not (tmp_path / "here").exists()


def test_pulled_copy_is_not_compared(origin, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("pull", "source", "here").code == 0
    refused = cli("compare", "here")
    expected = f"here has no tables of Fabric\n  help: Compare the URL it was pulled from: {origin.root}."
    assert (refused.code, expected in refused.err) == (2, True)
    monkeypatch.chdir(tmp_path / "here")
    assert cli("pull", "../source", ".").code == 0
    shutil.rmtree(tmp_path / "here/.mirror-engine")
    shutil.rmtree(tmp_path / "here/Tables")
    refused = cli("compare", ".")
    assert (refused.code, "Give the URL of the mirrored database" in refused.err) == (2, True)


def test_the_staging_folder_and_links_are_left_out(origin, tmp_path):
    origin.publisher.put("Orders/_scratchPad/half.parquet", b"x")
    (origin.publisher / "Orders/link.parquet").symlink_to(origin.publisher / "Orders" / name(4))
    pull(origin, tmp_path / "here")
    assert not [path for path in tree(tmp_path / "here") if "scratch" in path or "link" in path]
