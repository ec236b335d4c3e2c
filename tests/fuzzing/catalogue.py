"""Everything that parses bytes from outside."""

from __future__ import annotations

from fuzzing.targets import (
    baseline,
    broken,
    delimited_text,
    delta_log,
    expected_table,
    ledger,
    metadata,
    names,
    options,
    parquet,
    partner_events,
    zone,
)

_MODULES = (
    *(metadata, partner_events, names, delimited_text, parquet, zone, ledger, delta_log),
    *(options, baseline, expected_table),
)
TARGETS = {module.TARGET.name: module.TARGET for module in _MODULES}
KNOWN = TARGETS | broken.TARGETS  # these are fuzzed only to see that fuzzing works
