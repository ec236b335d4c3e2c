"""What `trace` found, as plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mirror_engine.cli.differences import difference_json
from mirror_engine.monitoring.words import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror_engine.publisher.trace.file import FileReport
    from mirror_engine.publisher.trace.plan_report import PlannedStep, PlanReport
    from mirror_engine.publisher.trace.replay import ReplayStart
    from mirror_engine.publisher.trace.row import RowHistory, TracedChange, Unread
    from mirror_engine.publisher.trace.what_if import WhatIf

_FILE = "00000000000000000002.parquet"
_BEGINNING: dict[str, Any] = {"gone": 3, "not_replayed": [_FILE], "version": 7}
_STEP: dict[str, Any] = {"step": "apply_batch", "text": "apply 1 file in 1 commit: …", "files": [_FILE], "commits": 1}
_DIAGNOSTIC: dict[str, Any] = {
    "code": "ME039",
    "name": "duplicate-key-insert",
    "severity": "warning",
    "message": "1 insert of an existing key; both rows are kept",
    "help": "send upserts (4), or delete the key first",
    "location": {"path": f"Items/{_FILE}", "row": None, "column": None},
    "rules": ["LZ-4.1"],
    "details": {"count": "1"},
}
JSON: dict[str, Any] = {
    "table": "Items",
    "key": {
        "key": {"Sku": "A1"},
        "beginning": _BEGINNING,
        "first": [{"Sku": "A1", "Name": "Bolt"}],
        "changes": [
            {
                "file": _FILE,
                "row": 1,
                "marker": 1,
                "marker_name": "update",
                "met": 1,
                "did": "updated",
                "why": "",
                "before": [{"Sku": "A1", "Name": "Bolt"}],
                "after": [{"Sku": "A1", "Name": "Screw"}],
                "changed": ["Name"],
                "version": 8,
                "batch": [_FILE],
                "waits": "",
            }
        ],
        "unread": [
            {
                "path": "…",
                "state": "pending",
                "why": "… is missing",
                "rows": [{"row": 3, "marker": 2, "marker_name": "delete"}],
            }
        ],
        "overwritten": [],
        "end": [{"Sku": "A1", "Name": "Screw"}],
        "applied": [{"Sku": "A1", "Name": "Screw"}],
        "delta": [{"Sku": "A1", "Name": "Screw"}],
        "agrees": True,
    },
    "file": {
        "path": _FILE,
        "state": "applied",
        "why": "",
        "has_marker": True,
        "markers": {"0": 2, "1": 1},
        "rows": 3,
        "effects": {
            "inserted": 2,
            "updated": 1,
            "deleted": 0,
            "inserts_of_present_keys": 1,
            "updates_of_absent_keys": 0,
            "deletes_of_absent_keys": 0,
            "changes_of_several_copies": 0,
        },
        "version": 8,
        "batch": [_FILE],
        "step": _STEP,
        "diagnostics": [_DIAGNOSTIC],
    },
    "plan": {
        "state": "blocked",
        "state_text": "Items is blocked: …",
        "advice": "land …",
        "steps": [_STEP],
        "left": [
            {
                "path": "…",
                "state": "pending",
                "reason": "… is missing",
                "delta_version": None,
                "rows": None,
                "applied_by": None,
                "passthrough_skipped_because": None,
            }
        ],
        "ignored": [_DIAGNOSTIC],
        "next_expected": {"": "00000000000000000003.parquet"},
    },
    "what_if": {
        "supposed": [f"without {_FILE}"],
        "beginning": _BEGINNING,
        "state": "level: everything landed is in the table",
        "state_otherwise": "level: everything landed is in the table",
        "key": ["Sku"],
        "equal": False,
        "counts": {"equal": 117, "missing": 1, "unexpected": 0, "different": 1},
        "columns": {"missing": [], "unexpected": []},
        "different_cells": {"Name": 1},
        "missing": [{"Sku": "A2", "Name": "Nut"}],
        "unexpected": [{"Sku": "A3", "Name": "Pin"}],
        "different": [
            {"key": {"Sku": "A1"}, "cells": [{"column": "Name", "expected": "Screw", "found": "Bolt"}]},
        ],
    },
}


def key_json(story: RowHistory) -> dict[str, Any]:
    """`--key`."""
    return {
        "key": dict(story.key),
        "beginning": _beginning(story.beginning),
        "first": _rows(story.first),
        "changes": [_change(change) for change in story.changes],
        "unread": [_unread(file) for file in story.unread],
        "overwritten": list(story.overwritten),
        "end": _rows(story.end),
        "applied": _rows(story.applied),
        "delta": None if story.real is None else _rows(story.real),
        "agrees": story.agrees,
    }


def file_json(story: FileReport) -> dict[str, Any]:
    """`--file`."""
    return {
        "path": story.path,
        "state": story.state,
        "why": story.why,
        "has_marker": story.has_marker,
        "markers": {str(marker): rows for marker, rows in story.markers.items()},
        "rows": story.rows,
        "effects": story.effects
        and {
            "inserted": story.effects.inserted,
            "updated": story.effects.updated,
            "deleted": story.effects.deleted,
            "inserts_of_present_keys": story.effects.repeated,
            "updates_of_absent_keys": story.effects.absent_updates,
            "deletes_of_absent_keys": story.effects.absent_deletes,
            "changes_of_several_copies": story.effects.spread,
        },
        "version": story.version,
        "batch": list(story.batch),
        "step": story.step and _step(story.step),
        "diagnostics": [found.to_json() for found in story.diagnostics],
    }


def plan_json(story: PlanReport) -> dict[str, Any]:
    """`--plan`."""
    return {
        "state": story.state,
        "state_text": story.state_text,
        "advice": story.advice,
        "steps": [_step(step) for step in story.steps],
        "left": [file.to_json() for file in story.left],
        "ignored": [found.to_json() for found in story.ignored],
        "next_expected": dict(story.next_expected),
    }


def what_if_json(story: WhatIf) -> dict[str, Any]:
    """`--what-if`: expected is the table as its files make it, found the other one."""
    return {
        "supposed": list(story.supposed),
        "beginning": _beginning(story.beginning),
        "state": story.state,
        "state_otherwise": story.state_otherwise,
        **difference_json(story.difference),
    }


def _change(traced: TracedChange) -> dict[str, Any]:
    change = traced.change
    return {
        "file": change.file,
        "row": change.row,
        "marker": change.marker.value,
        "marker_name": change.marker.name.lower(),
        "met": len(change.before) if traced.is_known else None,
        "did": traced.did,
        "why": traced.why,
        "before": _rows(change.before) if traced.is_known else None,
        "after": _rows(change.after),
        "changed": list(traced.columns),
        "version": traced.version,
        "batch": list(traced.batch),
        "waits": traced.waits,
    }


def _unread(file: Unread) -> dict[str, Any]:
    named = [
        {"row": row, "marker": marker.value, "marker_name": marker.name.lower()} for row, marker in file.rows or ()
    ]
    return {"path": file.path, "state": file.state, "why": file.why, "rows": None if file.rows is None else named}


def _beginning(found: ReplayStart | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"gone": found.gone, "not_replayed": list(found.earlier), "version": found.version}


def _step(step: PlannedStep) -> dict[str, Any]:
    return asdict(step) | {"files": list(step.files)}


def _rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.items()} for row in rows]
