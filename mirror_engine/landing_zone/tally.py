"""Counts diagnostics, so that ten thousand alike stay readable and stay counted."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror_engine.landing_zone.diagnostics import Diagnostic

KEPT_APART = 100  # diagnostics of one code; what comes after is counted onto the last of them


def tally(counts: Mapping[Diagnostic, int], said: Iterable[Diagnostic]) -> dict[Diagnostic, int]:
    """The counts with `said` added: equal ones together, and of one code no more than `KEPT_APART` apart."""
    total = dict(counts)
    kinds = Counter(found.code for found in total)
    last = {found.code: found for found in total}
    for found in said:
        if found not in total and kinds[found.code] >= KEPT_APART:
            total[last[found.code]] += 1
            continue
        if found not in total:
            kinds[found.code] += 1
            last[found.code] = found
        total[found] = total.get(found, 0) + 1
    return total
