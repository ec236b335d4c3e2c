"""Rounds take turns, warm-ups do not count, and wrong rows end the run; peers answer or say why not."""

from __future__ import annotations

import numpy as np
import pytest
from deltalake import write_deltalake

from speed import equality, rows
from speed.bench import Bench, Told
from speed.peers import Here, PeerFailed, Processes
from speed.sizes import SMALL


def bench_in(folder, peers, rounds=2):
    return Bench(folder, SMALL, rounds, peers)


def test_turns_alternate_and_warm_ups_do_not_count(tmp_path):
    turns = []

    def turn(name):
        def take(place):
            assert list(place.iterdir()) == []
            turns.append(name)
            return Told({name: float(len(turns))})

        return take

    figures = bench_in(tmp_path, Here()).compare({"a": turn("a"), "b": turn("b")}, 1)
    assert turns == ["a", "b", "a", "b", "a", "b"]
    assert figures.rounds == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_a_time_with_wrong_rows_does_not_count(tmp_path):
    def turn(place):
        write_deltalake(str(place / "t"), rows.rows(np.arange(3), np.random.default_rng(2)))
        return Told({"a": 0.1}, place / "t", equality.Fingerprint(3, 0))

    with pytest.raises(equality.Unequal):
        bench_in(tmp_path, Here()).compare({"a": turn}, 0)


@pytest.mark.slow
def test_a_peer_in_a_process_of_its_own_answers_says_what_went_wrong_and_goes_on(tmp_path):
    with Processes(tmp_path / "logs") as peers:
        bench = bench_in(tmp_path, peers)
        files = rows.initial_load(tmp_path / "data", 10, 2)
        with pytest.raises(PeerFailed, match="floor, read: FileNotFoundError"):
            bench.ask("floor", "read", files=[tmp_path / "none"])
        assert bench.ask("floor", "read", files=files)["rows"] == 10
        with pytest.raises(PeerFailed, match="KeyError: 'nobody'"):  # it ended: these are its last words
            peers.ask("nobody", "read")
