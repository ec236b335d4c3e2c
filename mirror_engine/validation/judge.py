"""Judges a landing zone: the engine itself replays it, and keeps keys alone."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror_engine.delta.key_writer import KeyReading, KeyWriter
from mirror_engine.delta.reading_ahead import helpers_for
from mirror_engine.landing_zone.change_file import number_of
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.sightings import partition_of
from mirror_engine.landing_zone.states import Latched
from mirror_engine.monitoring.fabric_errors import WORDED, fabric_message
from mirror_engine.monitoring.state_words import in_words, word
from mirror_engine.poller import Poller
from mirror_engine.rehearsal import Rehearsal
from mirror_engine.validation.verdicts import TableVerdict, Verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirror_engine.landing_zone.sightings import TableSighting, ZoneSighting
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.validation.place import Place

_NO_ID = "-"
NEVER_CAME = frozenset({"ME077", "ME078"})  # changes to keys that were never inserted


def judge(place: Place, shuffles: int = 0, whole_file_bytes: float = math.inf, *, is_alone: bool = False) -> Verdicts:
    """Say what the service would make of a place.

    Args:
        place: what is to be judged.
        whole_file_bytes: of larger files only the columns are read that `KeyReading` says.
        shuffles: in how many other orders files of one time are tried (ME079).
        is_alone: whether the process does nothing else, so that it may be forked.

    Raises:
        TransientError: something could not be read for a while.
    """
    zone = Poller(place.storage, place.config).look()
    place = _begun(place, zone)
    sizes = [file.size for table in zone.tables for file in table.files]
    writer = KeyWriter()
    reading, helpers = KeyReading(sizes, whole_file_bytes), helpers_for(sizes) if is_alone else 0
    with Rehearsal(place.storage, place.config, writer, reading, helpers=helpers) as rehearsal:
        status = rehearsal.play()
    return verdicts_of(place, zone, status, writer, _tied(place, zone, shuffles) if shuffles else {})


def _tied(place: Place, zone: ZoneSighting, shuffles: int) -> Mapping[str, Sequence[Diagnostic]]:
    from mirror_engine.validation.ties import order_matters  # noqa: PLC0415 - nobody else waits for a writer of rows

    return order_matters(place, zone, shuffles)


def _begun(place: Place, zone: ZoneSighting) -> Place:
    """The same; tables begin at the lowest number there is if all first files not there were processed (LZ-8.3)."""
    late = [
        f"{zone.folder}/{table.name.folder}/{partition}".rstrip("/")
        for table in zone.tables
        if _is_numbered(table)
        for partition, number in _first_numbers(file.path for file in table.files).items()
        if number > 1
    ]
    if late and all(place.storage.has_archive(folder) for folder in late):
        return replace(place, config=replace(place.config, start_index="lowest"))
    return place


def _is_numbered(table: TableSighting) -> bool:
    return table.usable is not None and table.usable.strategy is Strategy.SEQUENTIAL


def verdicts_of(
    place: Place,
    zone: ZoneSighting,
    status: MirrorStatus,
    writer: KeyWriter,
    more: Mapping[str, Sequence[Diagnostic]],
) -> Verdicts:
    """Put together what a rehearsal came to, and what else was found, by table folder (`""` for the zone)."""
    texts = {table.name for table in zone.tables if table.usable and table.usable.is_text}
    tables = (
        _verdict(
            table,
            [*_met(table, writer), *_replaced(place, zone, table), *more.get(table.name.folder, ())],
            is_text=table.name in texts,
            default_schema=place.config.default_schema,
        )
        for table in status.tables
    )
    diagnostics = Counter(status.diagnostics) | Counter(more.get("", ()))
    return Verdicts(tuple(tables), tuple(diagnostics.items()), place.zone.as_posix())


def _verdict(table: TableStatus, more: Iterable[Diagnostic], *, is_text: bool, default_schema: str) -> TableVerdict:
    """A table's status after the rehearsal, and what else was found."""
    folder = table.name.folder
    applied = [file for file in table.files if file.state == "applied"]
    return TableVerdict(
        name=folder,
        state=word(table.state),
        files=tuple(f"{folder}/{file.path}" for file in applied),
        rows=sum(file.rows or 0 for file in applied),
        diagnostics=tuple((Counter(dict(table.diagnostics)) | Counter(more)).items()),
        is_text=is_text,
        state_text=in_words(table.state),
        waiting=tuple((f"{folder}/{file.path}", file.why) for file in table.waiting),
        fabric=_in_fabrics_words(table, default_schema),
    )


def _in_fabrics_words(table: TableStatus, default_schema: str) -> str:
    if not (isinstance(table.state, Latched) and table.state.diagnostic.code in WORDED):
        return ""
    _, message = fabric_message(table.state.diagnostic, table.name, _NO_ID, default_schema=default_schema)
    return message.removesuffix(f" ArtifactId: {_NO_ID}")


def _met(table: TableStatus, writer: KeyWriter) -> Iterator[Diagnostic]:
    """Changes to keys that were never inserted, where all history is there (LZ-4.7)."""
    effects = writer.effects.get(table.delta_folder, {})
    if any(number > 1 for number in _first_numbers(effects).values()):  # what the files before held is not known
        return
    for path, effect in effects.items():
        place = f"{table.name.folder}/{path}"
        if effect.absent_updates:
            yield diagnose("ME077", place, row=effect.first_absent_update, count=effect.absent_updates)
        if effect.absent_deletes:
            yield diagnose("ME078", place, row=effect.first_absent_delete, count=effect.absent_deletes)


def _replaced(place: Place, zone: ZoneSighting, table: TableStatus) -> Iterator[Diagnostic]:
    """Files whose names were used before: what was processed under them lies where processed files go (LZ-3.13)."""
    folder = table.name.folder
    for path in place.storage.replaced(f"{zone.folder}/{folder}", (file.path for file in table.files)):
        yield diagnose("ME026", f"{folder}/{path}", strict=place.config.strict)


def _first_numbers(paths: Iterable[str]) -> Mapping[str, int]:
    """The number of the first file there is, by partition; 0 for one without a number."""
    first: dict[str, int] = {}
    for path in paths:
        first.setdefault(partition_of(path), number_of(path))
    return first
