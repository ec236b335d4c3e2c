"""Tries other orders of files that landed at one time: does the table depend on them? (LZ-3.5)."""

from __future__ import annotations

import tempfile
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from mirror_engine.delta.memory import MemoryDeltaWriter
from mirror_engine.delta.reading import EveryRow
from mirror_engine.landing_zone.change import same_rows
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.rehearsal import Rehearsal
from mirror_engine.storage.rearranged import RearrangedStorage, Slot

if TYPE_CHECKING:
    from mirror_engine.landing_zone.sightings import ZoneSighting
    from mirror_engine.storage.base import Storage
    from mirror_engine.validation.place import Place

    Rows = list[dict[str, Any]]

TIED = "ME028"


def order_matters(place: Place, zone: ZoneSighting, shuffles: int) -> dict[str, list[Diagnostic]]:
    """ME079 for every table that another order of its tied files makes another one, by table folder.

    Args:
        place: what is to be judged.
        zone: what lies there.
        shuffles: how many other orders are tried; each replays every row.
    """
    before, tied = _replayed(place.storage, place)
    found: dict[str, list[Diagnostic]] = {}
    for seed in range(shuffles if tied else 0):
        after, _ = _replayed(RearrangedStorage(place.storage, _drawn(zone, seed)), place)
        for folder, ties in tied.items():
            if folder not in found and not same_rows(after.get(folder, ()), before.get(folder, ())):
                found[folder] = [diagnose("ME079", tie.path, count=dict(tie.details)["count"]) for tie in ties]
    return found


def _drawn(zone: ZoneSighting, seed: int) -> dict[str, Slot]:
    """Files of one time, nanoseconds apart in an order drawn by lot."""
    lot = Random(seed)  # noqa: S311 - nothing secret
    slots: dict[str, Slot] = {}
    place_and_time = attrgetter("partition", "modified_ns")
    for table in zone.tables:
        folder = f"{zone.folder}/{table.name.folder}"
        for (_, modified_ns), files in groupby(sorted(table.files, key=place_and_time), key=place_and_time):
            paths = [f"{folder}/{file.path}" for file in files]
            drawn = lot.sample(paths, len(paths))
            slots |= {path: Slot(path, modified_ns + shift) for shift, path in enumerate(drawn)}
    return slots


def _replayed(storage: Storage, place: Place) -> tuple[dict[str, Rows], dict[str, list[Diagnostic]]]:
    """Every table's rows, and where files of one time lie, by table folder."""
    writer = MemoryDeltaWriter()
    with (
        tempfile.TemporaryDirectory(prefix="mirror-engine-") as scratch,
        Rehearsal(storage, place.config, writer, EveryRow(Path(scratch))) as rehearsal,
    ):
        status = rehearsal.play()
    rows: dict[str, Rows] = {}
    tied: dict[str, list[Diagnostic]] = {}
    for table in status.tables:
        found = writer.rows(table.delta_folder)
        rows[table.name.folder] = [] if found is None else found.to_pylist()
        if ties := [said for said, _ in table.diagnostics if said.code == TIED]:
            tied[table.name.folder] = ties
    return rows, tied
