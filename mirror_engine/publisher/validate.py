"""Judges a landing zone: the engine itself replays it, and keeps keys alone."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from mirror_engine.engine.poller import Poller
from mirror_engine.landing_zone.change import same_rows
from mirror_engine.landing_zone.detection import number_of
from mirror_engine.landing_zone.diagnostics import SEVERITY_ORDER, Diagnostic, Severity, diagnose
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.metadata import Strategy
from mirror_engine.landing_zone.states import Halted
from mirror_engine.monitoring.fabric_files import WORDED, fabric_message
from mirror_engine.monitoring.words import in_words, word
from mirror_engine.publisher.dry_run import DryRun
from mirror_engine.storage.zone_view import Source, ZoneView
from mirror_engine.tables.merge.keys_only import KeyWriter, keys_only
from mirror_engine.tables.merge.memory import MemoryDeltaWriter
from mirror_engine.tables.reading.spill import all_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import TableListing, ZoneListing
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.publisher.target import ValidationTarget
    from mirror_engine.storage.base import Storage

    Rows = list[dict[str, Any]]

Counted = tuple["Diagnostic", int]  # and how often it was met
GAP = "ME019"  # a warning that holds files back as an error does
STUCK = ("blocked", "halted")


def holds(diagnostic: Diagnostic) -> bool:
    """Whether it keeps files from being applied until somebody does something (LZ-3.3, LZ-4.17)."""
    return diagnostic.code == GAP or diagnostic.severity is Severity.ERROR


@dataclass(frozen=True)
class TableReport:
    """What there is to say about one table folder.

    Attributes:
        name: the table folder, from the landing zone's top.
        state: what the service would come to, in a word such as `level` or `latched`.
        files: that would be applied, from the landing zone's top, in reading order.
        rows: that these files hold.
        diagnostics: about the table, its metadata and its files, first seen first.
        is_text: whether its change files are delimited text, so that a row has a line.
        state_text: the state in a sentence.
        waiting: files that would not be applied, each with the reason.
        fabric: a refusal as the service words it, without its ids; `""` where there is none, or of words unknown.
    """

    name: str
    state: str
    files: tuple[str, ...] = ()
    rows: int = 0
    diagnostics: tuple[Counted, ...] = ()
    is_text: bool = False
    state_text: str = ""
    waiting: tuple[tuple[str, str], ...] = ()
    fabric: str = ""

    @property
    def is_stuck(self) -> bool:
        """Whether it stands still until somebody does something, and not only because of what is passed over."""
        return self.state in STUCK and any(holds(found) for found, _ in self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "table": self.name,
            "state": self.state,
            "state_text": self.state_text,
            "files": list(self.files),
            "waiting": [{"path": path, "why": why} for path, why in self.waiting],
            "rows": self.rows,
            "fabric": self.fabric,
            "diagnostics": _plain(self.diagnostics),
        }


@dataclass(frozen=True)
class ValidationReport:
    """What there is to say about a landing zone, or a part of one.

    Attributes:
        tables: in the order of the zone.
        diagnostics: about the zone itself.
        zone: the landing zone's path from the top of the repository, `/` between parts; `""` where it is that top.
        fail_on: the severity from which on a diagnostic fails a check.
        passed_over: how many diagnostics are left out because they were known.
    """

    tables: tuple[TableReport, ...] = ()
    diagnostics: tuple[Counted, ...] = ()
    zone: str = ""
    fail_on: Severity = Severity.ERROR
    passed_over: int = 0

    def all(self) -> Iterator[Counted]:
        """Every diagnostic with how often it was met: the zone's own first."""
        yield from self.diagnostics
        for table in self.tables:
            yield from table.diagnostics

    def where(self, wanted: Callable[[Diagnostic], bool]) -> ValidationReport:
        """The same with those diagnostics alone; all others are passed over."""
        tables = tuple(replace(table, diagnostics=_only(table.diagnostics, wanted)) for table in self.tables)
        unwanted = sum(not wanted(found) for found, _ in self.all())
        kept = _only(self.diagnostics, wanted)
        return replace(self, tables=tables, diagnostics=kept, passed_over=self.passed_over + unwanted)

    def path_of(self, diagnostic: Diagnostic) -> str:
        """The path from the top of the repository; `""` for the top itself."""
        return "/".join(part for part in (self.zone.rstrip("/"), diagnostic.path) if part and part != ".")

    def fails(self, diagnostic: Diagnostic) -> bool:
        """Whether it is as grave as what fails a check, or holds files back: no gap is clean, whatever `fail_on` is."""
        return holds(diagnostic) or SEVERITY_ORDER.index(diagnostic.severity) >= SEVERITY_ORDER.index(self.fail_on)

    @property
    def is_failing(self) -> bool:
        """Whether the check fails."""
        return any(self.fails(found) for found, _ in self.all())

    def count(self, severity: Severity) -> int:
        """How many different diagnostics of a severity there are."""
        return sum(found.severity is severity for found, _ in self.all())

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "zone": self.zone,
            "fails": self.is_failing,
            "counts": {severity.value: self.count(severity) for severity in reversed(SEVERITY_ORDER)},
            "passed_over": self.passed_over,
            "tables": [table.to_json() for table in self.tables],
            "diagnostics": _plain(self.diagnostics),
        }


def _only(diagnostics: tuple[Counted, ...], wanted: Callable[[Diagnostic], bool]) -> tuple[Counted, ...]:
    return tuple((found, count) for found, count in diagnostics if wanted(found))


def _plain(diagnostics: tuple[Counted, ...]) -> list[dict[str, Any]]:
    return [found.to_json() | {"count": count} for found, count in diagnostics]


_NO_ID = "-"
NEVER_CAME = frozenset({"ME077", "ME078"})  # changes to keys that were never inserted


def judge(place: ValidationTarget, shuffles: int = 0, whole_file_bytes: float = math.inf) -> ValidationReport:
    """Say what the service would make of a place.

    Args:
        place: what is to be judged.
        whole_file_bytes: of larger files only the columns are read that `keys_only` says.
        shuffles: in how many other orders files of one time are tried (ME079).

    Raises:
        TransientError: something could not be read for a while.
    """
    zone = Poller(place.storage, place.config).look()
    place = _begun(place, zone)
    sizes = [file.size for table in zone.tables for file in table.files]
    writer = KeyWriter()
    with DryRun(place.storage, place.config, writer, keys_only(sizes, whole_file_bytes)) as rehearsal:
        status = rehearsal.play()
    return verdicts_of(place, zone, status, writer, _tied(place, zone, shuffles) if shuffles else {})


def _tied(place: ValidationTarget, zone: ZoneListing, shuffles: int) -> Mapping[str, Sequence[Diagnostic]]:

    return order_matters(place, zone, shuffles)


def _begun(place: ValidationTarget, zone: ZoneListing) -> ValidationTarget:
    """The same; tables begin at the lowest number there is if all first files not there were processed (LZ-8.3)."""
    late = [
        f"{zone.folder}/{table.name.folder}/{partition}".rstrip("/")
        for table in zone.tables
        if _is_numbered(table)
        for partition, number in _first_numbers(file.path for file in table.files).items()
        if number > 1
    ]
    if late and all(place.storage.has_archive(folder) for folder in late):
        return replace(place, config=replace(place.config, first_file="lowest"))
    return place


def _is_numbered(table: TableListing) -> bool:
    return table.usable is not None and table.usable.strategy is Strategy.SEQUENTIAL


def verdicts_of(
    place: ValidationTarget,
    zone: ZoneListing,
    status: MirrorStatus,
    writer: KeyWriter,
    more: Mapping[str, Sequence[Diagnostic]],
) -> ValidationReport:
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
    return ValidationReport(tuple(tables), tuple(diagnostics.items()), place.zone.as_posix())


def _verdict(table: TableStatus, more: Iterable[Diagnostic], *, is_text: bool, default_schema: str) -> TableReport:
    """A table's status after the rehearsal, and what else was found."""
    folder = table.name.folder
    applied = [file for file in table.files if file.state == "applied"]
    return TableReport(
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
    if not (isinstance(table.state, Halted) and table.state.diagnostic.code in WORDED):
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


def _replaced(place: ValidationTarget, zone: ZoneListing, table: TableStatus) -> Iterator[Diagnostic]:
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


TIED = "ME028"


def order_matters(place: ValidationTarget, zone: ZoneListing, shuffles: int) -> dict[str, list[Diagnostic]]:
    """ME079 for every table that another order of its tied files makes another one, by table folder.

    Args:
        place: what is to be judged.
        zone: what lies there.
        shuffles: how many other orders are tried; each replays every row.
    """
    before, tied = _replayed(place.storage, place)
    found: dict[str, list[Diagnostic]] = {}
    for seed in range(shuffles if tied else 0):
        after, _ = _replayed(ZoneView(place.storage, _drawn(zone, seed)), place)
        for folder, ties in tied.items():
            if folder not in found and not same_rows(after.get(folder, ()), before.get(folder, ())):
                found[folder] = [diagnose("ME079", tie.path, count=dict(tie.details)["count"]) for tie in ties]
    return found


def _drawn(zone: ZoneListing, seed: int) -> dict[str, Source]:
    """Files of one time, nanoseconds apart in an order drawn by lot."""
    lot = Random(seed)  # noqa: S311 - nothing secret
    slots: dict[str, Source] = {}
    place_and_time = attrgetter("partition", "modified_ns")
    for table in zone.tables:
        folder = f"{zone.folder}/{table.name.folder}"
        for (_, modified_ns), files in groupby(sorted(table.files, key=place_and_time), key=place_and_time):
            paths = [f"{folder}/{file.path}" for file in files]
            drawn = lot.sample(paths, len(paths))
            slots |= {path: Source(path, modified_ns + shift) for shift, path in enumerate(drawn)}
    return slots


def _replayed(storage: Storage, place: ValidationTarget) -> tuple[dict[str, Rows], dict[str, list[Diagnostic]]]:
    """Every table's rows, and where files of one time lie, by table folder."""
    writer = MemoryDeltaWriter()
    with (
        tempfile.TemporaryDirectory(prefix="mirror-engine-") as scratch,
        DryRun(storage, place.config, writer, all_rows(Path(scratch))) as rehearsal,
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
