"""The shape of what commands print as JSON, and of its documented example."""

from __future__ import annotations

import json

from reference_pages import JSON_EXAMPLES

# keyed by names of the landing zone's own, or by columns
FREE_FORM = {"watermarks", "next_files", "metrics", "details", "rows", "passthrough_skipped_because", "key", "markers"}
FREE_FORM |= {"before", "after", "result", "applied", "delta", "rows_at_start", "missing", "unexpected", "different"}
FREE_FORM |= {"different_cells", "next_expected"}


def shape(value):
    """The keys of a JSON document; a list by its first member."""
    match value:
        case dict():
            return {key: None if key in FREE_FORM else shape(inner) for key, inner in value.items()}
        case [first, *_]:
            return [shape(first)]
        case _:
            return None


def documented(name):
    """The shape of the example in docs/examples/json."""
    return shape(json.loads((JSON_EXAMPLES / f"{name}.json").read_text(encoding="utf-8")))


def mismatches(value, expected, place=""):
    """Places where a document's shape differs; an empty list or null on one side matches."""
    if isinstance(value, dict) and isinstance(expected, dict):
        wrong = [f"{place}.{key}" for key in value.keys() ^ expected.keys()]
        both = value.keys() & expected.keys()
        return wrong + [found for key in both for found in mismatches(value[key], expected[key], f"{place}.{key}")]
    if isinstance(value, list) and isinstance(expected, list):
        return mismatches(value[0], expected[0], f"{place}[]")
    return []
