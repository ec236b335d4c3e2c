"""Tries other orders of files that landed at one time: does the table depend on them? (LZ-3.5)."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.delta.memory import MemoryDeltaWriter
from mirror_engine.delta.reading import EveryRow
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.rehearsal import Rehearsal
from mirror_engine.storage.shuffled import ShuffledStorage

if TYPE_CHECKING:
    from mirror_engine.storage.base import Storage
    from mirror_engine.validation.places import Place

TIED = "ME028"


def order_matters(place: Place, shuffles: int) -> dict[str, list[Diagnostic]]:
    """ME079 for every table that another order of its tied files makes another one, by table folder.

    Args:
        place: what is to be judged.
        shuffles: how many other orders are tried; each replays every row.
    """
    before, tied = _replayed(place.storage, place)
    found: dict[str, list[Diagnostic]] = {}
    for seed in range(shuffles if tied else 0):
        after, _ = _replayed(ShuffledStorage(place.storage, seed), place)
        for folder, ties in tied.items():
            if folder not in found and after.get(folder) != before.get(folder):
                found[folder] = [diagnose("ME079", tie.path, count=dict(tie.details)["count"]) for tie in ties]
    return found


def _replayed(storage: Storage, place: Place) -> tuple[dict[str, Counter[str]], dict[str, list[Diagnostic]]]:
    """Every table's rows, and where files of one time lie, by table folder."""
    writer = MemoryDeltaWriter()
    with (
        tempfile.TemporaryDirectory(prefix="mirror-engine-") as scratch,
        Rehearsal(storage, place.config, writer, EveryRow(Path(scratch))) as rehearsal,
    ):
        status = rehearsal.play()
    rows: dict[str, Counter[str]] = {}
    tied: dict[str, list[Diagnostic]] = {}
    for table in status.tables:
        found = writer.rows(table.delta_folder)
        rows[table.name.folder] = Counter() if found is None else Counter(map(_told, found.to_pylist()))
        if ties := [said for said, _ in table.diagnostics if said.code == TIED]:
            tied[table.name.folder] = ties
    return rows, tied


def _told(row: dict[str, object]) -> str:
    """A row as text that equal rows share, whatever the order of their columns (LZ-4.9)."""
    plain = {name: value + 0.0 if isinstance(value, float) else value for name, value in row.items()}
    return json.dumps(plain, default=repr, sort_keys=True)
