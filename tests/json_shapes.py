"""The shape of what commands print as JSON, and the one their documentation promises."""

from __future__ import annotations

import importlib
from typing import Any

FREE_FORM = {
    "watermarks",
    "next_expected",
    "next_files",
    "metrics",
    "details",
    "rows",
    "reasons",
}  # keyed by names of the zone's own


def shape(value: Any) -> Any:
    """The keys of a JSON document, level by level; a list by its first member."""
    match value:
        case dict():
            return {key: None if key in FREE_FORM else shape(inner) for key, inner in value.items()}
        case [first, *_]:
            return [shape(first)]
        case _:
            return None


def documented(command: str) -> Any:
    return shape(importlib.import_module(f"mirror_engine.cli.{command}").JSON)
