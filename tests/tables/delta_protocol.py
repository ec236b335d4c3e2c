"""Holds a Delta table on disk against the Delta protocol (PROTOCOL.md of delta-io/delta), rule by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_file_rules import FILE_RULES
from delta_history import LogUnreadable, read_history
from delta_log_rules import LOG_RULES
from delta_schema_rules import SCHEMA_RULES

if TYPE_CHECKING:
    from pathlib import Path

    from delta_history import History

RULES = {**LOG_RULES, **SCHEMA_RULES, **FILE_RULES}
_SHAPES = ("names", "actions", "first_version", "schema")  # what all other rules build on


def protocol_faults(folder: Path) -> list[str]:
    """What is wrong with a table, each with the name of the rule it breaks; empty for a table that conforms."""
    try:
        history = read_history(folder)
    except LogUnreadable as error:
        return [f"readable: {error}"]
    return _found(history, _SHAPES) or _found(history, tuple(RULES))


def _found(history: History, names: tuple[str, ...]) -> list[str]:
    return [f"{name}: {said}" for name in names for said in RULES[name](history)]
