"""`validate`: what sessions do not show."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading

import pyarrow as pa
import pytest
from scripted_faults import Failing, faulty

from mirror_engine.engine import cycle
from mirror_engine.storage import stores
from mirror_engine.storage.local import LocalStorage
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

ROW = {"Id": 1, "Name": "one"}


def test_watch_finds_what_is_gone_afterwards(tmp_path, cli):
    """What a look afterwards no longer shows: an empty file under its final name."""
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"], types={"Id": pa.int64(), "Name": pa.string()})
    name = orders.insert(ROW)
    content = (tmp_path / "Files/LandingZone" / name).read_bytes()
    orders.writer.write_in_place("Orders/00000000000000000002.parquet", b"")
    printed = cli("validate", tmp_path, "--watch", "--duration", "1s")
    assert printed.code == 3
    assert "Watching" in printed.err
    assert "Orders/00000000000000000002.parquet: file is empty (0 bytes) [ME023]" in printed.err
    assert "ME023" in printed.out
    orders.writer.write_in_place("Orders/00000000000000000002.parquet", content)
    assert cli("validate", tmp_path).code == 0


def test_what_cannot_be_read_is_not_clean(tmp_path, cli, land_broken, monkeypatch):
    """Not even if nothing else is wrong."""

    monkeypatch.setattr(stores, "LocalStorage", lambda root: faulty(LocalStorage(root), Failing("list .*Good$")))
    monkeypatch.setattr(cycle, "MAX_SYNC_ATTEMPTS", 1)
    land_broken(tmp_path)
    printed = cli("validate", tmp_path)
    assert printed.code == 4
    assert "Good: cannot be listed or read" in printed.err


def test_watch_forgets_what_was_true_for_a_moment(tmp_path, cli):
    zone = LandingZoneWriter(tmp_path)
    zone.partner_events()
    orders = zone.table("Orders", keys=["Id"], types={"Id": pa.int64()})
    threading.Timer(0.2, orders.insert, [{"Id": 1}]).start()
    printed = cli("validate", tmp_path, "--watch", "--duration", "3s", "--fail-on", "warning")
    assert (printed.code, printed.out.endswith("No problems found (1 table, 1 file, 1 row).\n")) == (0, True)


SLOW = """import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process inherits it ignored
from mirror_engine.cli.main import main
from mirror_engine.tables.reading.reader import ChangeFileReader

read = ChangeFileReader.read

def slow(*arguments):
    print("reading", flush=True)
    time.sleep(1)
    return read(*arguments)

ChangeFileReader.read = slow
sys.exit(main(["validate", sys.argv[1]]))
"""


def test_ctrl_c_ends_validate_after_the_file_that_is_being_read(tmp_path):
    orders = LandingZoneWriter(tmp_path).table("Orders", keys=["Id"])
    for number in range(30):
        orders.insert({"Id": number})
    command = [sys.executable, "-c", SLOW, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, text = running.communicate(timeout=20)
    assert (running.returncode, text) == (130, b"error: interrupted\n")


@pytest.mark.slow
def test_of_many_tables_those_with_findings_are_listed(tmp_path, cli):
    publisher = LandingZoneWriter(tmp_path)
    publisher.partner_events()
    for at in range(30):
        publisher.table(f"T{at:02}", keys=["Id"]).insert({"Id": 1})
    publisher.table("T07", keys=["Id"]).apply_changes((3, {"Id": 2}))
    for at in range(22):
        publisher.table(f"W{at:02}", keys=["Id"], types={"Id": pa.int64()}).apply_changes((2, {"Id": 9}))
    printed = cli("validate", tmp_path).out
    assert re.findall(r"^(\w+): ", printed, re.MULTILINE) == ["T07", *(f"W{at:02}" for at in range(20)), "Failed"]
    assert "\n… and 31 more tables: 29 without findings, 2 with some; -v shows all\n" in printed
    assert len(re.findall(r"^(\w+): ", cli("validate", tmp_path, "-v").out, re.MULTILINE)) == 53
