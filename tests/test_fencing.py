"""Two real engines on one ROOT: one that is stopped past its lease, and continued, has lost it and changes nothing.

`make torture` plays two hundred rounds on a disk and in each of two stores.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from fenced_engine import EXPIRE_SECONDS
from killed_publisher import KilledPublisher
from oracle_comparison import compare_caught_up
from seed import SEED
from store_publisher import everything

from mirror_engine import Config, Mirror
from mirror_engine.engine.lock import is_locked
from mirror_engine.landing_zone.layout import LOCK, SCRATCH, TABLES, ZONE
from mirror_engine.storage.lease import holder_of, lease_file
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = pytest.mark.slow
ROUNDS = int(os.environ.get("MIRROR_TEST_FENCED", "1"))
COMMAND = [sys.executable, str(Path(__file__).with_name("fenced_engine.py"))]
OPTIONS = ["--merge-engine", "arrow", "--poll-interval", "0.2", "--max-batch-files", "2"]
WAIT_SECONDS = 120.0
COMMIT = re.compile(r"/_delta_log/[0-9]{20}\.json$")


class Rounds:
    """Engines of two machines on one ROOT, and a publisher."""

    def __init__(self, home, root):
        print(f"MIRROR_TEST_SEED={SEED}")
        self.home, self.root, self.chance = home, root, random.Random(SEED)
        self._copy = home / "copy"
        self.publisher = KilledPublisher(root, self._copy, self.chance)

    def land(self):
        for _ in range(self.chance.randrange(1, 5)):
            self.publisher.act()

    @contextmanager
    def engine(self, command, machine="one"):
        """A process of an engine; killed when left, if it is still there."""
        log = (self.home / f"{machine}.log").open("wb")
        environment = {**os.environ, "MIRROR_ENGINE_STATE": str(self.home / machine)}
        options = OPTIONS if command == "run" else OPTIONS[:2]
        process = subprocess.Popen(
            [*COMMAND, command, str(self.root), *options], stdout=log, stderr=log, env=environment
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            log.close()

    def holder(self):
        """The process that holds the lease; None for nobody."""
        found = holder_of(lease_file(self.root).read())
        return None if found is None or found.is_over else found.process

    def said(self, machine="one"):
        return (self.home / f"{machine}.log").read_text(errors="replace")

    def take_over(self, first):
        """Another engine takes over from a stopped one, which goes on when the other is done, or meanwhile."""
        if self.chance.random() < 0.5:
            self._sync("two")
            before, drops, rows = files_of(self.root), drops_of(self.root), self._rows()
            first.send_signal(signal.SIGCONT)
            first.wait(WAIT_SECONDS)
            after = files_of(self.root)
            changed = {path for path in after.keys() | before.keys() if after.get(path) != before.get(path)}
            changed = {path for path in changed if path.rpartition("/")[0] not in drops}
            assert {path for path in changed if not changes_no_row(self.root, path)} == set()
            assert self._rows() == rows
            return
        time.sleep(EXPIRE_SECONDS)
        with self.engine("run", "two") as second:
            wait_for(second, lambda: self.holder() == second.pid)
            time.sleep(self.chance.random())
            first.send_signal(signal.SIGCONT)
            first.wait(WAIT_SECONDS)
            assert second.poll() is None
            second.send_signal(signal.SIGTERM)
            second.wait(WAIT_SECONDS)

    def _sync(self, machine):
        """Once the lease has expired."""
        ends = time.monotonic() + WAIT_SECONDS
        while True:
            with self.engine("sync", machine) as process:
                process.wait(WAIT_SECONDS)
            if "another engine is running here" not in self.said(machine):
                return
            assert time.monotonic() < ends, self.said(machine)

    def _rows(self):
        """The rows of all tables, in any order."""
        writer = self._reader()
        return {table: sorted(map(str, writer.rows(table).to_pylist())) for table in writer.tables()}

    def _reader(self):
        return ArrowWriter(self.root / TABLES, self.home / "reader" / SCRATCH)

    def check(self):
        """All rows are there once, as the oracle has them, after an engine caught up."""
        writer = self._reader()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MIRROR_ENGINE_STATE", str(self.home / "two"))
            with Mirror(self.root, Config(), writer=writer) as mirror:
                compare_caught_up(self._copy / ZONE, mirror.sync().result, writer)


def files_of(root):
    """What a loser may not touch: logs and the zone; of a data file that no log names nobody reads.

    The list in an archive may be under way, and is written anew with the next file.
    """
    files = {
        path: found for path, found in everything(root).items() if not path.endswith("/_FilesReadyToDeleteInfo.json")
    }
    return {path: found for path, found in files.items() if "/_delta_log/" in path or path.startswith(ZONE)}


def changes_no_row(root, path):
    """Whether a file is a checkpoint, or a commit that put small files together: either was under way."""
    if path.endswith((".checkpoint.parquet", "/_last_checkpoint")):
        return True
    return path in everything(root) and b'"operation":"OPTIMIZE"' in content_of(root, path)


def drops_of(root):
    """The logs of tables whose drop was under way: its loser takes its commit back, and the next engine ends it."""
    newest = {path.rpartition("/")[0]: path for path in sorted(everything(root)) if COMMIT.search(path)}
    return {log for log, path in newest.items() if b'"operation": "DROP"' in content_of(root, path)}


def content_of(root, path):
    return root.object_store().get(path).bytes().to_bytes()


def stop(process):
    """Stop a process; returns once no thread of it is in a call any more."""
    process.send_signal(signal.SIGSTOP)
    threads = Path(f"/proc/{process.pid}/task")

    def states():
        return {(each / "stat").read_text().rpartition(")")[2].split()[0] for each in threads.iterdir()}

    wait_for(process, lambda: states() == {"T"})


def wait_for(process, is_reached):
    ends = time.monotonic() + WAIT_SECONDS
    while not is_reached():
        assert process.poll() is None
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.nightly
@pytest.mark.timeout(max(300, 60 * ROUNDS))
@pytest.mark.parametrize("server", ["s3_server", "adls_server"])
def test_engine_stopped_past_its_lease_changes_nothing_more(tmp_path, request, server):
    with request.getfixturevalue(server).in_use() as store:
        rounds = Rounds(tmp_path, store.new_root())
        for _ in range(ROUNDS):
            rounds.land()
            with rounds.engine("run") as first:
                wait_for(first, lambda: rounds.holder() == first.pid)
                rounds.land()
                time.sleep(rounds.chance.random() * 1.5)
                stop(first)
                rounds.land()
                rounds.take_over(first)
            assert "the lease was lost to another engine" in rounds.said()
        rounds.check()


def tree(root):
    """What is below a folder: every file with its time, but for the lock."""
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file() and path != root / LOCK}


@pytest.mark.timeout(max(300, 60 * ROUNDS))
def test_engine_that_waits_on_a_disk_changes_nothing_and_may_be_killed(tmp_path):
    rounds = Rounds(tmp_path, tmp_path / "shop")
    for _ in range(ROUNDS):
        rounds.land()
        with rounds.engine("run") as first:
            wait_for(first, lambda: is_locked(rounds.root))
            rounds.land()
            time.sleep(rounds.chance.random() * 1.5)
            stop(first)
            rounds.land()
            before = tree(rounds.root)
            with rounds.engine("sync", "two") as second:
                if rounds.chance.random() < 0.5:
                    time.sleep(rounds.chance.random())
                    second.kill()
                else:
                    second.wait(WAIT_SECONDS)
                    assert "another engine is running here" in rounds.said("two")
            assert tree(rounds.root) == before
            first.send_signal(signal.SIGCONT)
            time.sleep(rounds.chance.random())
            first.send_signal(rounds.chance.choice([signal.SIGTERM, signal.SIGKILL]))
            first.wait(WAIT_SECONDS)
    rounds.check()
