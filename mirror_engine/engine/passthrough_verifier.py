"""Looks, after the commit, at the rows of files that became part of a table as they lay (LZ-4.19)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror_engine.engine.ownership import disagreement, is_as_known
from mirror_engine.errors import TableDamaged, UsageError
from mirror_engine.events import DiagnosticRaised, TableHalted
from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose, tally
from mirror_engine.landing_zone.listing import LandedFile
from mirror_engine.landing_zone.metadata import Metadata
from mirror_engine.tables.base import ChangeBatch
from mirror_engine.tables.reading.request import ReadRequest, TableContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.landing_zone.schema import TableSchema
    from mirror_engine.tables.base import FileRows, MatchCounts
    from mirror_engine.tables.passthrough import PassthroughReader

MADE_ANEW = "land good files and recreate the folder, or `mirror-engine restart` to rebuild all tables"


class PassthroughVerifier:
    """Does for staged files what is done for others before their commit: ME039, byte counts, damaged pages.

    What is owed stands in the progress, and so in the commit: a process that dies leaves it to the next.
    """

    def __init__(self, context: EngineContext, files: Callable[[], PassthroughReader]) -> None:
        self._doors = context
        self._files = files

    def inspect(self, table: TableName) -> None:
        """Look at all files of a table whose rows were not looked at; damage latches it (ME081).

        Raises:
            StorageUnavailable: one could not be read; it is still owed.
            CommitConflict: the table was removed, or made anew.
        """
        while (known := self._doors.ledger.progress(table)) and known.owed and not known.damage:
            version = min(_version(known, path) for path in known.owed)
            self._inspect(table, known, [path for path in known.owed if _version(known, path) == version], version)

    def _inspect(self, table: TableName, known: Progress, paths: Sequence[str], version: int) -> None:
        """The files of one commit."""
        folder = self._doors.delta_folder(table)
        state = self._doors.writer.state(folder)
        if state is None or not is_as_known(known, state):
            raise disagreement(table)
        read: list[FileRows] = []
        try:
            found = (self._read(table, known, path, state.schema) for path in paths)
            read.extend(rows for rows in found if rows is not None)
            met = self._met(folder, ChangeBatch(tuple(read), state.schema, known.key_columns or ()), version)
        except RejectedFile as refused:
            self._latch(table, known, f"version {version} holds {refused.diagnostic.full_message}")
            return
        except TableDamaged as damaged:
            self._latch(table, known, damaged.fault)
            return
        finally:
            for rows in read:
                rows.rows.close()
        self._record(table, replace(known, owed=_without(known.owed, paths)), read, met)

    def _read(self, table: TableName, known: Progress, path: str, schema: TableSchema) -> FileRows | None:
        """A file's keys and markers; None where it was rewritten, and so read by whoever did, and is gone."""
        facts = TableContext(schema, is_empty=False)
        sighted = LandedFile(path, 0, 0, "")
        request = ReadRequest("", table, sighted, Metadata(key_columns=known.key_columns or ()), facts)
        content = self._doors.writer.data_file(self._doors.delta_folder(table), known.owed[path])
        if content is None:
            return None
        with content:
            return self._files().inspected(content, request)

    def _met(self, folder: str, batch: ChangeBatch, version: int) -> Sequence[MatchCounts]:
        """What the rows met when they were committed; nothing where the log no longer tells."""
        with suppress(UsageError):
            return self._doors.writer.met(folder, batch, version - 1) if version >= 0 else ()
        return ()

    def _record(self, table: TableName, known: Progress, read: Sequence[FileRows], met: Sequence[MatchCounts]) -> None:
        said = [
            diagnose("ME039", f"{table.folder}/{file.path}", count=each.inserts_of_present_keys)
            for file, each in zip(read, met, strict=False)
            if each.inserts_of_present_keys
        ]
        inspected = replace(
            known,
            bytes_processed=known.bytes_processed + sum(file.byte_count for file in read),
            diagnostics=tally(known.diagnostics, said),
        )
        self._doors.ledger.record(table, inspected)
        for diagnostic in said:
            self._doors.tell(DiagnosticRaised(table, diagnostic))

    def _latch(self, table: TableName, known: Progress, damage: str) -> None:
        self._doors.ledger.record(table, replace(known, damage=damage))
        self._doors.tell(TableHalted(table, damage_of(table, damage)))


def damage_of(table: TableName, damage: str) -> Diagnostic:
    """What is said of a table that holds a damaged file."""
    return diagnose("ME081", table.folder, fault=damage, help=MADE_ANEW)


def _without(owed: Mapping[str, str], paths: Sequence[str]) -> dict[str, str]:
    return {path: name for path, name in owed.items() if path not in paths}


def _version(known: Progress, path: str) -> int:
    """Of the commit that holds a file; -1 where only older records knew."""
    return known.applied[path].version if path in known.applied else -1
