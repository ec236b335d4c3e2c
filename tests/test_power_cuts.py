"""Each state of the disk that a power cut may leave is opened: nothing is lost or twice, each table is readable.

`make power-cuts` opens all of all scenarios, `make test` some of some.
"""

from __future__ import annotations

import os
import random

import pytest
from power_cuts.cut import ROOT, faults, play
from power_cuts.disk import Disk
from power_cuts.recorder import COMPILER, Kind, Operation, build
from power_cuts.scenarios import PLANTED, SCENARIOS, shop_of, small
from seed import SEED

STATES = int(os.environ.get("MIRROR_TEST_POWER_CUTS", "4"))  # of a scenario; 0 for all
IN_TEST = ["append", "vectors", "drop"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COMPILER, reason="there is no C compiler: what a program writes cannot be recorded"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("library"))


@pytest.fixture
def recorded(library, tmp_path):
    def recorded(name, planted=""):
        home = tmp_path / "home"
        home.mkdir()
        recording, place = play(name, library, home, planted)
        return recording, place, shop_of(SCENARIOS[name], home / ROOT)

    return recorded


def opened(recording, place, shop, states):
    """What is wrong with states, in words."""
    wrong = []
    for state in states:
        place.show(state.files)
        with small():
            wrong += [f"{state}: {each}" for each in faults(recording, shop)]
    return wrong


@pytest.mark.parametrize("name", IN_TEST if STATES else SCENARIOS)
def test_power_cut_at_any_moment_loses_nothing(recorded, name):
    recording, place, shop = recorded(name)
    states = list(recording.states())
    assert len(states) > 100
    print(f"MIRROR_TEST_SEED={SEED}")
    chosen = random.Random(SEED).sample(states, STATES) if STATES else states
    assert opened(recording, place, shop, chosen) == []


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("planted", PLANTED)
def test_power_cut_finds_a_planted_bug(recorded, planted):
    # a file that was applied last stays where it landed: only one before it can be lost with its commit
    recording, place, shop = recorded("file by file" if planted == "commits are not fsynced" else "append", planted)
    assert any(opened(recording, place, shop, [state]) for state in recording.states())


def operations(*said):
    """Operations, each in words: `new a`, `write a text`, `sync a`, `sync folder`, `rename a b`."""
    inodes = {}
    for words in said:
        kind, path, *rest = words.split()
        inode = inodes.setdefault(path, len(inodes) + 1)
        if kind == "new":
            yield Operation(Kind.OPENED, inode, 1, path, b"")
        elif kind == "write":
            yield Operation(Kind.WROTE, inode, 0, "", rest[0].encode())
        elif kind == "sync":
            yield Operation(Kind.SYNCED, inode, 0, path, b"")
        elif kind == "sync-folder":
            yield Operation(Kind.SYNCED_FOLDER, 0, 0, "" if path == "." else path, b"")
        elif kind == "folder":
            yield Operation(Kind.MADE_FOLDER, 0, 0, path, b"")
        elif kind == "remove":
            yield Operation(Kind.REMOVED, 0, 0, path, b"")
        else:
            yield Operation(Kind.RENAMED, 0, 0, path, rest[0].encode())


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (["new a", "write a 1234"], [{}, {"a": ""}, {"a": "12"}, {"a": "1234"}, {"a": "\0\0\0\0"}]),
        (["new a", "write a 12", "sync a"], [{}, {"a": "12"}]),
        (["new a", "write a 12", "sync a", "sync-folder ."], [{"a": "12"}]),
        (["new a", "sync a", "sync-folder .", "rename a b"], [{"a": ""}, {"b": ""}]),
        (["new a", "sync a", "sync-folder .", "rename a b", "sync-folder ."], [{"b": ""}]),
        (["new a", "sync a", "sync-folder .", "remove a"], [{"a": ""}, {}]),
        (
            ["folder f", "new a", "sync a", "sync-folder .", "rename a f/a", "sync-folder f"],
            [{"f": None, "a": "", "f/a": ""}, {"f": None, "f/a": ""}],
        ),
        (["folder f", "new f/a", "sync-folder f"], [{}, {"f": None, "f/a": ""}]),
    ],
)
def test_disk_is_found_in_every_state_that_it_may_have(tmp_path, said, found):
    disk = Disk(tmp_path)
    for operation in operations(*said):
        disk.do(operation)
    states = []
    for _, files in disk.states():
        content = {path: None if bytes_ is None else bytes_.decode() for path, (_, bytes_) in files.items()}
        if content not in states:
            states.append(content)
    assert sorted(states, key=repr) == sorted(found, key=repr)
