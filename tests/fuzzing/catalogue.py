"""Everything that parses bytes from outside, by name: a target's module is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzzing.target import Target

NAMES = (
    *("metadata", "partner_events", "names", "delimited_text", "parquet", "zone", "ledger", "delta_log"),
    *("options", "baseline", "expected_table"),
)
BROKEN = ("raises", "crashes", "hoards")  # these are fuzzed only to see that fuzzing works


def target(name: str) -> Target:
    """A target; what it imports is no more than it needs, for all of it is instrumented."""
    if name in BROKEN:
        return import_module("fuzzing.targets.broken").TARGETS[name]
    return import_module(f"fuzzing.targets.{name}").TARGET
