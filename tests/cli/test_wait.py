"""`wait`: returns when it is so, and says why not when time is up."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest
from filelock import FileLock

from mirror_engine.cli.wait import JSON
from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import LOCK
from mirror_engine.mirror import Mirror

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

FIRST = f"Items/{1:020}.parquet"


def soon(do) -> threading.Timer:
    timer = threading.Timer(0.15, do)
    timer.start()
    return timer


def test_what_is_level_already_returns_at_once(shop, say) -> None:
    say("once", shop.root)
    said = say("wait", shop.root, "--until", "level", "--timeout", "0")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("reached after 0.")


def test_it_returns_once_an_engine_has_applied_what_lies_there(shop, say) -> None:
    timer = soon(lambda: Mirror(shop.root, writer=shop.writer).sync())
    said = say("wait", shop.root, "--timeout", "20", "--every", "0.05", "--json")
    timer.join()
    assert said.code == 0
    assert json.loads(said.out)["reached"] is True
    assert say("wait", shop.root, "--file", FIRST, "--timeout", "0").code == 0


def test_when_time_is_up_each_table_says_why(shop, say) -> None:
    say("once", shop.root)
    shop.items.land(b"")
    shop.orders.skip_numbers()
    shop.orders.upsert({"Id": 3, "Name": "three"})
    say("once", shop.root)
    said = say("wait", shop.root, "--timeout", "1", "--every", "0.05")  # a first look may take long
    assert said.code == 4
    assert said.err.count("no engine is running: start") == 1
    head, *lines = said.out.splitlines()
    assert head.startswith("not reached after ")
    assert head.endswith(" s; no engine is running")
    assert lines[0].startswith("  Sales.Orders is blocked: 00000000000000000002.parquet is missing")
    assert lines[2].startswith("  Items is halted: 00000000000000000002.parquet: file is empty (0 bytes) [ME023]")
    assert lines[3].strip().startswith("-> delete it, write under a temporary name")


def test_that_an_engine_at_work_needs_longer_is_told(shop, say) -> None:
    (shop.root / LOCK).parent.mkdir()
    with FileLock(shop.root / LOCK):
        said = say("wait", shop.root, "--timeout", "0")
    assert (said.code, said.err) == (4, "")
    assert said.out.endswith(
        "-> An engine is at work: give it longer (--timeout), or see how far it is: mirror-engine status.\n"
    )


def test_a_table_that_is_not_there_is_waited_for(shop, say) -> None:
    said = say("wait", shop.root, "--table", "Nowhere", "--timeout", "0.1")
    assert said.code == 4
    assert "  Nowhere: the landing zone has no such table folder yet\n" in said.out


def test_a_latched_table_ends_it_only_where_that_is_asked_for(shop, say) -> None:
    shop.items.land(b"")
    say("once", shop.root)
    assert say("wait", shop.root, "--fail-fast", "--timeout", "20").code == 3
    assert say("wait", shop.root, "--fail-fast", "--table", "Sales.Orders", "--timeout", "20").code == 0
    assert say("wait", shop.root, "--timeout", "0").code == 4


def test_programs_get_the_reason_as_json(shop, say) -> None:
    told = json.loads(say("wait", shop.root, "--timeout", "0", "--json").out)
    assert list(told) == list(JSON)
    assert list(told["not_yet"][0]) == list(JSON["not_yet"][0])
    assert (told["reached"], told["exit_code"], told["engine_running"]) == (False, 4, False)
    assert [found["table"] for found in told["not_yet"]] == ["Sales.Orders", "Items"]


def test_a_storage_that_fails_is_asked_again(shop, say, monkeypatch) -> None:
    say("once", shop.root)
    looks = iter([True, False])
    status = Mirror.status

    def failing(mirror):
        if next(looks, False):
            raise StorageUnavailable("the zone cannot be listed", "Look at the disk.")
        return status(mirror)

    monkeypatch.setattr(Mirror, "status", failing)
    assert say("wait", shop.root, "--timeout", "20", "--every", "0.05").code == 0
    looks = iter([True])
    said = say("wait", shop.root, "--timeout", "0")
    assert said.code == 4
    assert "the zone cannot be listed" in said.out


def test_ctrl_c_ends_it_with_130(shop, say) -> None:
    timer = soon(lambda: os.kill(os.getpid(), signal.SIGINT))
    assert say("wait", shop.root, "--timeout", "20").code == 130
    timer.join()


@pytest.mark.parametrize("words", [["--until", "dawn"], ["--every", "0"], ["--timeout", "-1"]])
def test_wrong_usage_ends_with_2(shop, say, words) -> None:
    assert say("wait", shop.root, *words).code == 2


def test_no_such_root_ends_with_2_at_once(shop, say) -> None:
    assert say("wait", shop.root / "nowhere", "--timeout", "20").code == 2
