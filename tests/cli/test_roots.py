"""What is no ROOT is not made one: neither a landing zone given in its place, nor any other folder."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from mirror_engine.landing_zone.layout import ENGINE, ZONE
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("command", ["once", "run"])
@pytest.mark.parametrize(
    ("inside", "what"),
    [
        (ZONE, "a landing zone"),
        (f"{ZONE}/Sales.schema", "a part of a landing zone"),
        (f"{ZONE}/Items", "a part of a landing zone"),
    ],
)
def test_a_landing_zone_is_not_its_root(shop, say, command, inside, what) -> None:
    before = written(shop.root)
    said = say(command, shop.root / inside)
    assert (said.code, said.out) == (2, "")
    assert f": this is {what}, not the ROOT of one; nothing was written\n  -> Its ROOT is {shop.root}\n" in said.err
    assert written(shop.root) == before


def test_a_root_may_lie_below_a_folder_of_any_name(say, tmp_path) -> None:
    root = tmp_path / "LandingZone/shop"
    (root / "Files").mkdir(parents=True)
    assert say("once", root).code == 0


@pytest.mark.parametrize(("inside", "root"), [(ZONE, "../.."), (f"{ZONE}/Items", "../../..")])
def test_the_root_is_named_from_here(shop, say, monkeypatch, inside, root) -> None:
    monkeypatch.chdir(shop.root / inside)
    assert f"Its ROOT is {root}\n" in say("once", ".").err


@pytest.mark.parametrize("command", ["once", "run"])
@pytest.mark.parametrize("inside", ["", "Sales.schema", "Items"])
def test_a_zone_of_any_name_is_known_by_what_it_holds(tmp_path, say, command, inside) -> None:
    publisher = LandingZoneWriter(tmp_path, zone="out")
    publisher.table("Sales.Orders", keys=["Id"])
    publisher.table("Items", keys=["Id"])
    (tmp_path / "out" / ENGINE).mkdir()  # of an engine that made a ROOT of it before
    said = say(command, tmp_path / "out" / inside)
    assert (said.code, "mirror-engine init" in said.err) == (2, True)


def test_any_other_folder_is_refused_and_nothing_is_written(tmp_path, say) -> None:
    said = say("once", tmp_path)
    assert (said.code, "holds no landing zone; nothing was written" in said.err) == (2, True)
    (tmp_path / "letter.txt").touch()
    assert [say(command, tmp_path).code for command in ("once", "run")] == [2, 2]
    assert written(tmp_path) == [tmp_path / "letter.txt"]


@pytest.mark.parametrize("mark", [ENGINE, "Files", "mirror-engine.toml"])
def test_a_root_whose_zone_is_still_to_come_is_told_so(say, tmp_path, mark) -> None:
    (tmp_path / mark).touch() if mark.endswith("toml") else (tmp_path / mark).mkdir()
    said = say("once", tmp_path)
    assert said.code == 0
    assert "no landing zone yet" in said.err


def test_run_waits_in_an_empty_folder_for_a_zone_to_come(say, tmp_path) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    assert say("run", tmp_path, "--poll-interval", "0.05").code == 0
