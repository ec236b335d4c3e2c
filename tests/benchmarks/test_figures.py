"""What a work came to: medians, ratios, goals, and the table they go into."""

from __future__ import annotations

import pytest

from speed import page
from speed.bench import Figures
from speed.figures import Goal, Line

MACHINE = {"cores": 2, "processor": "some", "memory_gib": 24, "system": "Linux", "java": "17", "python": "3.11"}
MACHINE |= {"versions": {"pyspark": "4.2.0"}, "load": 0.1, "load_after": 0.2, "rounds": 5}


def test_a_ratio_is_taken_round_by_round_between_engines_with_equal_rounds():
    figures = Figures()
    figures.rounds |= {"mirror": [1.0, 2.0, 3.0], "notebook": [9.0, 2.0, 6.0], "other": [1.0]}
    assert (figures.ratio("notebook", "mirror"), figures.median("notebook")) == (2.0, 6.0)
    with pytest.raises(ValueError, match="shorter"):
        figures.ratio("mirror", "other")


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (Goal("≤ 0.5 x it", 0.5, at_most=0.5), "≤ 0.5 x it: 0.50 x, reached"),
        (Goal("≤ 0.5 x it", 0.51, at_most=0.5), "≤ 0.5 x it: 0.51 x, **NOT REACHED**"),
        (Goal("≥ 5 x it", 5, at_least=5), "≥ 5 x it: 5.00 x, reached"),
        (Goal("≥ 5 x it", 4.99, at_least=5), "≥ 5 x it: 4.99 x, **NOT REACHED**"),
        (Goal("p50 ≤ 3 s", 1234.5, " s", at_most=3), "p50 ≤ 3 s: 1234 s, **NOT REACHED**"),
    ],
)
def test_a_goal_says_whether_it_is_reached(goal, words):
    assert str(goal) == words


def test_a_line_tells_seconds_goals_and_notes():
    figures = Figures()
    figures.rounds |= {"mirror": [1.0], "notebook": [4.0]}
    line = Line(figures, (Goal("≤ 0.5 x", 0.25, at_most=0.5), Goal("b", 1)), "scaled", {"peak": "1 MiB"})
    assert line.as_cells() == (
        "mirror 1.00, notebook 4.00; peak 1 MiB; scaled",
        "≤ 0.5 x: 0.25 x, reached<br>b: 1.00 x, reached",
    )
    told = line.as_json()
    assert told["rounds"] == {"mirror": [1.0], "notebook": [4.0]}
    assert told["goals"][0] == {"goal": "≤ 0.5 x", "found": 0.25, "reached": True}


def test_a_work_that_was_not_measured_keeps_its_line_one_that_is_no_more_loses_it(tmp_path):
    there = tmp_path / "page.md"
    there.write_text("# Speed\n<!-- bench -->\n| old | 1 s | reached |\n<!-- /bench -->\nmore\n", encoding="utf-8")
    titles = ["load, 5M", "merge", "tiny"]
    page.write(there, {"tiny": ("1 s", "reached"), "merge": ("9 s", "no")}, MACHINE, titles)
    page.write(there, {"load, 5M": ("2 s", "reached"), "merge": ("3 s", "reached")}, MACHINE, titles)
    text = there.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("|")][2:] == [
        "| load, 5M | 2 s | reached |",
        "| merge | 3 s | reached |",
        "| tiny | 1 s | reached |",
    ]
    assert text.startswith("# Speed\n<!-- bench -->\nLast run: 2 cores (some), 24 GiB, Linux; Java 17")
    assert text.endswith("<!-- /bench -->\nmore\n")
    there.write_text("# Speed\n<!-- bench -->\n", encoding="utf-8")
    with pytest.raises(ValueError, match="markers"):
        page.write(there, {"new": ("1 s", "reached")}, MACHINE, ["new"])


def test_a_table_of_its_own_replaces_the_one_before(tmp_path):
    there = tmp_path / "page.md"
    there.write_text("<!-- bench -->\n<!-- /bench -->\n<!-- age -->\nold\n<!-- /age -->\nmore\n", encoding="utf-8")
    page.replace(there, "age", "| new |")
    text = there.read_text(encoding="utf-8")
    assert text == "<!-- bench -->\n<!-- /bench -->\n<!-- age -->\n| new |\n<!-- /age -->\nmore\n"


def test_line_with_a_table_of_its_own_has_notes_and_goals():
    figures = Figures()
    figures.rounds |= {"mirror": [1.0]}
    assert Line(figures, (), "see below", table="| 1.00 |").as_cells() == ("see below", "")
