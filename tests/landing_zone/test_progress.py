"""A partition's mark after files were applied."""

from __future__ import annotations

import pytest

from mirror_engine.landing_zone.progress import Mark

MARK = Mark(watermark=3, number=5, highest="5.csv", modified_ns=100, latest="5.csv")


@pytest.mark.parametrize(
    ("number", "modified_ns", "in_order", "after"),
    [
        (6, 101, True, Mark(6, 6, "new.csv", 101, "new.csv")),
        (6, 101, False, Mark(3, 6, "new.csv", 101, "new.csv")),  # time orders the files: no watermark
        (4, 101, False, Mark(3, 5, "5.csv", 101, "new.csv")),  # a lower number, landed later
        (6, 99, False, Mark(3, 6, "new.csv", 100, "5.csv")),  # a higher number, of an earlier time
        (0, 100, False, Mark(3, 5, "5.csv", 100, "new.csv")),  # equal times go by path
        (2, 99, True, MARK),
    ],
)
def test_mark_tells_number_and_time_apart(number, modified_ns, in_order, after):
    assert MARK.after("new.csv", number, modified_ns, in_order=in_order) == after
