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

from mirror_engine.cli.main import main
from mirror_engine.engine.lock import lock_root
from mirror_engine.errors import ConcurrentModification, RootLocked, StorageUnavailable, UnknownTable, UsageError
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.publisher.pull import Pull
from mirror_engine.publisher.validate import check_landing_zone, find_target
from mirror_engine.storage.local import LocalStorage

URL = "abfss://Sales@onelake.dfs.fabric.microsoft.com/Orders"
SECOND = 10**9


@pytest.fixture
def shop(tmp_path):
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


def test_a_copy_has_all_names_and_times_and_archived_files_are_at_their_old_paths(shop, tmp_path):
    partitioned = shop.publisher.table("Sales.Lines", keys=["id", "day"], partitioned=True)
    partitioned.insert(row(1), partition="day=1/site=b")
    before = tree(shop.root, below=".")
    plan = pull(shop, tmp_path / "here")
    assert tree(shop.root, below=".") == before
    source = tree(shop.root)
    assert tree(tmp_path / "here") == {path.replace("_FilesReadyToDelete/", ""): file for path, file in source.items()}
    assert f"Orders/_FilesReadyToDelete/{name(1)}" in source
    assert "Sales.schema/Lines/day=1/site=b/" + name(1) in source
    assert (plan.restored, plan.present, plan.not_restored) == (2, 0, ())


def test_the_older_zone_keeps_its_place(tmp_path):
    LandingZoneWriter(tmp_path / "source", zone=OLDER_ZONE).table("T").insert(row(1))
    Pull(LocalStorage(tmp_path / "source"), URL, tmp_path / "here").run()
    assert tree(tmp_path / "here", below=OLDER_ZONE) == tree(tmp_path / "source", below=OLDER_ZONE)


def test_a_second_pull_copies_what_is_new_even_after_a_sync_here(shop, tmp_path):
    here = tmp_path / "here"
    first = pull(shop, here)
    Shop(here).sync()
    shop.sync()  # archives one more file there
    shop.publisher.folder("Orders", types=TYPES).insert(row(9))
    again = pull(shop, here)
    assert (len(again.files), again.present) == (1, len(first.files))
    assert not pull(shop, here).files


def test_an_archived_file_stays_archived_where_a_new_one_has_its_name(shop, tmp_path):
    shop.publisher.put(f"Orders/{name(1)}", b"other")
    plan = pull(shop, tmp_path / "here")
    assert plan.not_restored == (f"{ZONE}/Orders/_FilesReadyToDelete/{name(1)}",)
    codes = [
        {found.code for found, _ in check_landing_zone(find_target(root, shop.config)).all()}
        for root in (shop.root, tmp_path / "here")
    ]
    assert "ME026" in codes[0]
    assert codes[0] == codes[1]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_stopped_between_any_two_files_it_goes_on(shop, tmp_path, monkeypatch, stop):
    monkeypatch.setattr("mirror_engine.publisher.pull.WORKERS", 1)
    here, storage = tmp_path / "here", faulty(LocalStorage(shop.root), script := Script())
    opened = lambda: sum(call.startswith("open") for call in script.calls)  # noqa: E731 - of this test
    real = script.run

    def run(call, action):
        if call.startswith("open") and opened() == stop:
            raise KeyboardInterrupt
        return real(call, action)

    script.run = run
    with pytest.raises(KeyboardInterrupt):
        pull(shop, here, storage)
    assert (
        tree(here).items()
        <= {path.replace("_FilesReadyToDelete/", ""): it for path, it in tree(shop.root).items()}.items()
    )
    assert len(tree(here)) == stop
    script.run = real
    plan = pull(shop, here, storage)
    assert plan.present == stop
    assert opened() == stop + len(plan.files)
    assert len(tree(here)) == len(tree(shop.root))


@pytest.mark.slow
def test_killed_at_any_moment_no_half_file_has_its_name(tmp_path):
    publisher = LandingZoneWriter(tmp_path / "source")
    table = publisher.table("Big", keys=["id"])
    for _ in range(30):
        table.land(os.urandom(3_000_000))
    program = (
        "import sys; from pathlib import Path; from mirror_engine.publisher.pull import Pull\n"
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


def test_a_failure_at_one_file_keeps_the_others_and_the_next_run_goes_on(shop, tmp_path):
    storage = faulty(LocalStorage(shop.root), Failing(f"open .*{name(3)}", times=1))
    with pytest.raises(StorageUnavailable):
        pull(shop, tmp_path / "here", storage)
    pull(shop, tmp_path / "here", storage)
    assert len(tree(tmp_path / "here")) == len(tree(shop.root))


def changing(root, act):
    """A storage whose publisher or janitor acts before a file is opened."""
    return faulty(LocalStorage(root), Acting(f"open .*Orders/{name(3)}", act))


def test_a_file_that_is_archived_meanwhile_is_copied(shop, tmp_path):
    plan = pull(shop, tmp_path / "here", changing(shop.root, shop.sync))
    assert len(plan.files) == len(tree(tmp_path / "here")) == len(tree(shop.root))


def test_a_file_that_is_replaced_meanwhile_is_copied_whole_with_its_time(shop, tmp_path):
    path = f"Orders/{name(3)}"
    pull(shop, tmp_path / "here", changing(shop.root, lambda: shop.publisher.put(path, b"x" * 2_000_000)))
    assert tree(tmp_path / "here")[path] == tree(shop.root)[path]
    assert not pull(shop, tmp_path / "here").files


def test_a_file_that_never_rests_or_is_gone_ends_the_pull(shop, tmp_path):
    class Growing(LocalStorage):
        def open(self, path, only=None):
            if path.endswith(name(3)):
                with (shop.root / path).open("ab") as file:
                    file.write(b"more")
            return super().open(path, only)

    with pytest.raises(ConcurrentModification, match="while it was read"):
        pull(shop, tmp_path / "here", Growing(shop.root))
    removed = changing(shop.root, (shop.publisher / "Orders" / name(3)).unlink)
    with pytest.raises(ConcurrentModification, match="was removed"):
        pull(shop, tmp_path / "other", removed)


def test_an_overwritten_file_of_equal_size_and_time_is_copied_again(shop, tmp_path):
    pull(shop, tmp_path / "here")
    path = shop.publisher / "Orders" / name(3)
    changed = bytes(reversed(path.read_bytes()))
    shop.publisher.put(f"Orders/{name(3)}", changed, modified_ns=path.stat().st_mtime_ns)
    assert [file.target for file in pull(shop, tmp_path / "here").files] == [f"{ZONE}/Orders/{name(3)}"]
    assert (tmp_path / "here" / ZONE / "Orders" / name(3)).read_bytes() == changed


def test_a_recreated_folder_is_copied_anew(shop, tmp_path):
    pull(shop, tmp_path / "here")
    shop.publisher.remove("Orders")
    shop.orders().insert(row(5))
    plan = pull(shop, tmp_path / "here")
    assert plan.recreated == (f"{ZONE}/Orders",)
    assert tree(tmp_path / "here") == tree(shop.root)
    assert pull(shop, tmp_path / "here").recreated == ()


def test_files_that_are_gone_at_the_source_stay_here(shop, tmp_path):
    pull(shop, tmp_path / "here")
    shop.lose(1)
    pull(shop, tmp_path / "here")
    assert f"Orders/{name(1)}" in tree(tmp_path / "here")


def test_tables_and_times_choose(shop, tmp_path):
    shop.orders("Sales.Orders").insert(row(1))
    shop.orders("Other").insert(row(1))
    pull(shop, tmp_path / "some", tables=["sales.orders", "dbo.other"])
    assert {path.rpartition("/")[0] for path in tree(tmp_path / "some")} == {"", "Sales.schema/Orders", "Other"}
    for listed in shop.root.rglob("_FilesReadyToDeleteInfo.json"):
        os.utime(listed, ns=(1, 1))
    plan = pull(shop, tmp_path / "late", since_ns=1_700_000_000 * SECOND + 3)
    kept = [path for path in tree(tmp_path / "late") if path.startswith("Orders/")]
    assert kept == [f"Orders/{name(3)}", f"Orders/{name(4)}", "Orders/_metadata.json"]
    assert plan.older == 2  # not the janitor's list of archived files
    with pytest.raises(UnknownTable):
        pull(shop, tmp_path / "none", tables=["Nothing"])


@pytest.mark.slow
def test_it_refuses_other_folders_and_sources(shop, tmp_path):
    here = tmp_path / "here"
    pull(shop, here)
    with pytest.raises(UsageError, match="was pulled from"):
        Pull(LocalStorage(shop.root), f"{URL}2", here).run()
    with pytest.raises(UsageError, match="not empty"):
        pull(shop, shop.root)
    with pytest.raises(UsageError, match="not a ROOT"):
        pull(shop, here / ZONE / "deeper")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no landing zone"):
        Pull(LocalStorage(tmp_path / "empty"), URL, tmp_path / "nothing").run()
    with lock_root(here), pytest.raises(RootLocked):
        pull(shop, here)


def test_a_refused_pull_leaves_nothing(shop, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None, raising=False)
    for words in (["--max-download", "1B"], ["--table", "Nothing"]):
        monkeypatch.setattr("sys.stdin", io.StringIO())
        assert main(["pull", str(shop.root), str(tmp_path / "here"), *words]) == 2
        assert not (tmp_path / "here").exists()
    capsys.readouterr()


def test_a_pulled_copy_is_not_compared(shop, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["pull", "source", "here"]) == 0
    assert main(["compare", "here"]) == 2
    expected = f"here has no tables of Fabric\n  help: Compare the URL it was pulled from: {shop.root}."
    assert expected in capsys.readouterr().err
    monkeypatch.chdir(tmp_path / "here")
    assert main(["pull", "../source", "."]) == 0
    shutil.rmtree(tmp_path / "here/.mirror-engine")
    shutil.rmtree(tmp_path / "here/Tables")
    assert main(["compare", "."]) == 2
    assert "Give the URL of the mirrored database" in capsys.readouterr().err


def test_the_staging_folder_and_links_are_left_out(shop, tmp_path):
    shop.publisher.put("Orders/_scratchPad/half.parquet", b"x")
    (shop.publisher / "Orders/link.parquet").symlink_to(shop.publisher / "Orders" / name(4))
    pull(shop, tmp_path / "here")
    assert not [path for path in tree(tmp_path / "here") if "scratch" in path or "link" in path]
