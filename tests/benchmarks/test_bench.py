"""Rounds take turns, warm-ups do not count, and wrong rows end the run; goals compare medians and ratios."""

from __future__ import annotations

import numpy as np
import pytest
from deltalake import write_deltalake

from speed import floor, rows
from speed.bench import Bench, Figures, Goal, Line, Measured
from speed.peers import Peers
from speed.sizes import SMALL


def test_turns_alternate_and_warm_ups_do_not_count(tmp_path):
    turns = []

    def turn(name):
        def take(place):
            assert list(place.iterdir()) == []
            turns.append(name)
            return Measured({name: float(len(turns))})

        return take

    figures = Bench(tmp_path, SMALL, 2, None).compare({"a": turn("a"), "b": turn("b")}, 1)
    assert turns == ["a", "b", "a", "b", "a", "b"]
    assert figures.rounds == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_a_time_with_wrong_rows_does_not_count(tmp_path):
    def turn(place):
        write_deltalake(str(place / "t"), rows.rows(np.arange(3), np.random.default_rng(2)))
        return Measured({"a": 0.1}, place / "t", floor.Fingerprint(3, 0))

    with pytest.raises(floor.Unequal):
        Bench(tmp_path, SMALL, 2, None).compare({"a": turn}, 0)


@pytest.mark.slow
def test_error_of_a_peer_is_raised_and_the_peer_goes_on(tmp_path):
    files = rows.initial_load(tmp_path / "data", 10, 2)
    with Peers(tmp_path / "logs") as peers:
        bench = Bench(tmp_path, SMALL, 2, peers)
        with pytest.raises(FileNotFoundError):
            bench.ask("floor", "read", files=[tmp_path / "none"])
        seconds, size = bench.ask("floor", "read", files=files)
        assert seconds > 0 < size


def test_ratio_is_computed_per_round():
    figures = Figures()
    figures.rounds |= {"mirror": [1.0, 2.0, 3.0], "notebook": [9.0, 2.0, 6.0], "other": [1.0]}
    assert (figures.ratio("notebook", "mirror"), figures.median("notebook")) == (2.0, 6.0)
    with pytest.raises(ValueError, match="shorter"):
        figures.ratio("mirror", "other")


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (Goal("≤ 0.5 x it", 0.5, 0.5), "≤ 0.5 x it: 0.50 x, reached"),
        (Goal("≤ 0.5 x it", 0.51, 0.5), "≤ 0.5 x it: 0.51 x, **NOT REACHED**"),
        (Goal("≥ 5 x it", 5, 5, is_least=True), "≥ 5 x it: 5.00 x, reached"),
        (Goal("≥ 5 x it", 4.99, 5, is_least=True), "≥ 5 x it: 4.99 x, **NOT REACHED**"),
        (Goal("p50 ≤ 3 s", 1234.5, 3, " s"), "p50 ≤ 3 s: 1234 s, **NOT REACHED**"),
    ],
)
def test_a_goal_says_whether_it_is_reached(goal, words):
    assert str(goal) == words


def test_line_has_figures_notes_and_goals():
    figures = Figures()
    figures.rounds |= {"mirror": [1.0], "notebook": [4.0]}
    goals = (Goal("≤ 0.5 x", 0.25, 0.5), Goal("b", 1, 1))
    found = "mirror 1.00, notebook 4.00; scaled | ≤ 0.5 x: 0.25 x, reached<br>b: 1.00 x, reached |"
    assert str(Line(figures, goals, "scaled")) == found


def test_line_with_a_table_of_its_own_has_notes_and_goals():
    figures = Figures()
    figures.rounds |= {"mirror": [1.0]}
    assert str(Line(figures, (), "see below", table="| 1.00 |")) == "see below |  |\n| 1.00 |"
