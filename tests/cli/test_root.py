"""An engine rejects folders that are no ROOT: a landing zone in its place, and any other folder."""

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


@pytest.mark.parametrize("command", ["sync", "run"])
@pytest.mark.parametrize(
    ("inside", "what"),
    [
        (ZONE, "a landing zone"),
        (f"{ZONE}/Sales.schema", "a part of a landing zone"),
        (f"{ZONE}/Items", "a part of a landing zone"),
    ],
)
def test_a_landing_zone_is_not_its_root(shop, cli, command, inside, what) -> None:
    before = written(shop.root)
    printed = cli(command, shop.root / inside)
    assert (printed.code, printed.out) == (2, "")
    assert f" is {what}, not a ROOT\n  help: use its ROOT: {shop.root}\n" in printed.err
    assert written(shop.root) == before


def test_a_root_may_be_below_a_folder_of_any_name(cli, tmp_path) -> None:
    root = tmp_path / "LandingZone/shop"
    (root / "Files").mkdir(parents=True)
    assert cli("sync", root).code == 0


@pytest.mark.parametrize(("inside", "root"), [(ZONE, "../.."), (f"{ZONE}/Items", "../../..")])
def test_the_root_is_named_from_here(shop, cli, monkeypatch, inside, root) -> None:
    monkeypatch.chdir(shop.root / inside)
    assert f"use its ROOT: {root}\n" in cli("sync", ".").err


@pytest.mark.parametrize("command", ["sync", "run"])
@pytest.mark.parametrize("inside", ["", "Sales.schema", "Items"])
def test_a_zone_of_any_name_is_recognised_by_its_content(tmp_path, cli, command, inside) -> None:
    publisher = LandingZoneWriter(tmp_path, zone="out")
    publisher.table("Sales.Orders", keys=["Id"])
    publisher.table("Items", keys=["Id"])
    (tmp_path / "out" / ENGINE).mkdir()  # of an engine that made a ROOT of it before
    printed = cli(command, tmp_path / "out" / inside)
    assert (printed.code, "mirror-engine init" in printed.err) == (2, True)


def test_any_other_folder_is_refused_and_nothing_is_written(tmp_path, cli) -> None:
    printed = cli("sync", tmp_path)
    assert (printed.code, "contains no landing zone (Files/LandingZone)" in printed.err) == (2, True)
    (tmp_path / "letter.txt").touch()
    assert [cli(command, tmp_path).code for command in ("sync", "run")] == [2, 2]
    assert written(tmp_path) == [tmp_path / "letter.txt"]


@pytest.mark.parametrize("mark", [ENGINE, "Files", "mirror-engine.toml"])
def test_a_root_without_a_zone_yet_is_noted(cli, tmp_path, mark) -> None:
    (tmp_path / mark).touch() if mark.endswith("toml") else (tmp_path / mark).mkdir()
    printed = cli("sync", tmp_path)
    assert printed.code == 0
    assert "no landing zone yet" in printed.err


def test_run_waits_in_an_empty_folder_for_a_zone_to_come(cli, tmp_path) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    assert cli("run", tmp_path, "--poll-interval", "50ms").code == 0
