"""Pairs rows whose floats differ a little, where no key says which belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]


def near_pairs(
    mine: Integers, theirs: Integers, here: Floats, there: Floats, tolerance: float
) -> tuple[Integers, Integers]:
    """Positions of rows that belong together, of mine and of theirs.

    Every row takes the first partner left that is near in all floats, both sides in the order of one of them. Of a
    single float these are as many pairs as there can be; of several they may be fewer, where nearness overlaps.

    Args:
        mine: a number for each row; only rows of one number may meet.
        theirs: the other table's.
        here: my rows' floats, all of them finite.
        there: the other table's.
        tolerance: by how much each may differ.
    """
    widest = max(range(here.shape[1]), key=lambda at: len(np.unique(here[:, at])))
    ours, others = np.lexsort((here[:, widest], mine)), np.lexsort((there[:, widest], theirs))
    partners, groups = there[others].tolist(), theirs[others].tolist()
    after = list(range(len(partners) + 1))  # for each partner the first one left that is not before it
    pairs, low = [], 0
    for place, group, row in zip(ours.tolist(), mine[ours].tolist(), here[ours].tolist(), strict=True):
        while low < len(partners) and (
            groups[low] < group or (groups[low] == group and row[widest] - partners[low][widest] > tolerance)
        ):
            low += 1  # no later row can have it either
        at = _left(after, low)
        while at < len(partners) and groups[at] == group and partners[at][widest] - row[widest] <= tolerance:
            if all(abs(one - other) <= tolerance for one, other in zip(row, partners[at], strict=True)):
                pairs.append((place, others[at]))
                after[at] = at + 1
                break
            at = _left(after, at + 1)
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _left(after: list[int], at: int) -> int:
    while after[at] != at:
        after[at] = after[after[at]]
        at = after[at]
    return at
