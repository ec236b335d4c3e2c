"""Compare the tables that Fabric made of a landing zone with replays of it: verdicts, and findings with their rules.

How many of the newest files Fabric has applied is decided by its rows (docs/decisions/fabric-progress.md).
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from mirror_engine.engine.poller import Poller
from mirror_engine.errors import UsageError
from mirror_engine.events import ignore
from mirror_engine.landing_zone.change import comparable, replay, same_rows
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.names import TableName, conflicts, find_table
from mirror_engine.landing_zone.schema import folded
from mirror_engine.landing_zone.states import Halted, Unconfigured
from mirror_engine.monitoring.fabric_files import read_tables
from mirror_engine.storage.zone_view import RestoredView, ZoneView
from mirror_engine.tables.arrow_types import delta_type
from mirror_engine.tools.compare.causes import causes, cell_cause, guesses, likely
from mirror_engine.tools.compare.dry_runs import FolderRuns, LastChanges, Order, row_hashes
from mirror_engine.tools.compare.key_digest import ShownKeys
from mirror_engine.tools.compare.results import ComparedDifference, ComparedKey, ComparedTable, SqlRows
from mirror_engine.tools.diff import MatchedRows, diff_tables, match, read_expected
from mirror_engine.tools.difference import RowCounts
from mirror_engine.tools.dry_run import first_numbers
from mirror_engine.tools.trace.context import listing_of
from mirror_engine.tools.trace.row import plain_rows

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.changes.key_counts import Hashes
    from mirror_engine.tools.compare.causes import Guess
    from mirror_engine.tools.compare.dry_runs import FolderRun
    from mirror_engine.tools.compare.fabric_tables import FabricTables
    from mirror_engine.tools.difference import Difference
    from mirror_engine.tools.trace.row import FileChange, Row

MAX_TRACED = 500  # keys whose changes are looked at, of those that differ
MAX_PREFIXES = 8  # of files that are replayed to find those that Fabric has applied
MOST = 0.9  # of a file's keys differ alike: the file as a whole is the cause
WHOLE_FILE = ("file_lost", "order", "file_twice")  # kinds of causes, by precedence


def compare_zone(  # noqa: PLR0913 - two sides, where to work, and what to show
    source: Storage,
    fabric: FabricTables,
    config: Config,
    work: Path,
    *,
    tables: Sequence[str] = (),
    limit: int = 20,
    listen: Listener = ignore,
    zone: Storage | None = None,
    sql_rows: Path | None = None,
    shown: ShownKeys | None = None,
) -> Iterator[ComparedTable]:
    """Compare the tables `fabric` below ROOT, `source`, with replays of the landing zone; both sides are only read.

    Replayed tables are in `work`, a folder of this machine. The replay reads `zone`, which is as at the first look, or
    else `source`. Each finding has `limit` keys, as `shown` has them; the values by default. `sql_rows` is a file with
    what SQL shows of the one table in `tables`, in a format of `diff`.

    Raises:
        UsageError: such a file for several tables, or one that `diff` would refuse.
        UnknownTable: no such table.
        TransientError: zone or table cannot be read.
    """
    schema = config.delta_default_schema
    processed = {entry.get("normalizedTableName"): entry.get("metrics") for entry in read_tables(source)}
    names = {each.name: each.name.delta_folder(schema) for each in Poller(source, config).scan().tables}
    disowned = conflicts(names, schema)
    owned = {folder: name for name, folder in names.items() if name not in disowned}
    spelled = {folder.casefold(): folder for folder in names.values()}
    present = {spelled.get(folder.casefold(), folder): folder for folder in fabric.tables()}
    folders = [*owned, *(folder for folder in present if folder.casefold() not in spelled)]
    chosen = {find_table(table, folders, schema) for table in tables} or set(folders)
    if sql_rows and len(chosen) != 1:
        raise UsageError("--sql-rows is what SQL shows of one table", "Name that table, too: Sales.Orders.")
    if sql_rows and not sql_rows.is_file():
        raise UsageError(f"--sql-rows: found no file {sql_rows}", "Export what SQL shows as CSV, JSON or Parquet.")
    if sql_rows and not chosen <= present.keys() & set(owned):
        raise UsageError(
            f"--sql-rows: Fabric and the landing zone have no table {', '.join(chosen)} both",
            "Compare it without --sql-rows first.",
        )
    # before the zone is read, in which Fabric may apply newer files meanwhile
    pinned = {folder: fabric.pin(present[folder]) for folder in sorted(chosen & present.keys())}
    zone = zone or source
    place = Poller(zone, config).scan().folder
    for number, folder in enumerate(folder for folder in folders if folder in chosen):
        if folder not in owned:
            above, _, table = folder.rpartition("/")
            unknown = ComparedTable.of(TableName(above, table), folder, "different")
            yield _judged(structs.replace(unknown, findings=(finding("table_unknown"),)))
            continue
        read, metrics = pinned.get(folder), processed.get(owned[folder].normalized)
        rows = read() if read else None
        count = metrics.get("processedRowCount") if isinstance(metrics, dict) else None
        others = dict.fromkeys(f"{place}/{name.folder}" for name in names if name != owned[folder])
        view = RestoredView(zone, archived_first=True)
        at = f"{place}/{owned[folder].folder}"
        replays = FolderRuns(view, others, config, work / str(number), at, owned[folder], listen)
        counted = count if isinstance(count, int) else None
        found, sql = _Comparison(replays, rows, counted, limit, shown or ShownKeys()).result(), None
        if sql_rows and rows is not None:
            sql = diff_tables(read_expected(sql_rows, rows.schema), rows, found.key, limit=0)
        yield _judged(found, sql)
        shutil.rmtree(replays.work, ignore_errors=True)


def _judged(found: ComparedTable, sql: Difference | None = None) -> ComparedTable:
    """The same with what SQL shows, and where a difference is."""
    in_delta, in_sql = found.verdict == "different", sql is not None and not sql.equal
    place = "both" if in_delta and in_sql else "delta" if in_delta else "sql" if in_sql else None
    return structs.replace(found, differs_in=place, sql=sql and SqlRows(sql.equal, sql.counts, sql.columns))


def finding(kind: str, metadata: Metadata | None = None, details: str = "", **attributes: Any) -> ComparedDifference:  # noqa: ANN401 - as of the class
    """A finding of a kind, with its rule for the table's kind of files."""
    cause = causes()[kind]
    rule = cause.get("text_rule", cause["rule"]) if metadata and metadata.is_text else cause["rule"]
    return ComparedDifference(kind, rule, cause["message"] + details, cause.get("help"), **attributes)


@dataclass(frozen=True)
class _Sides:
    """Fabric's table against a replay: rows in the columns that both have, in the replay's types."""

    replay: FolderRun
    theirs: pa.Table
    ours: pa.Table
    keys: tuple[str, ...]  # columns that identify a row; empty: all do
    is_partial: bool  # whether only keys in the replayed files count
    order: Order = field(default_factory=Order)
    columns: tuple[tuple[str, str, str], ...] = ()  # kind of cause, column and details, where one differs as a whole

    @property
    def names(self) -> Sequence[str]:
        """The columns whose values identify a row."""
        return self.keys or self.ours.column_names

    @cached_property
    def matched(self) -> MatchedRows:
        matched = match(self.theirs, self.ours, self.keys)
        return replace(matched, unexpected=matched.unexpected[:0]) if self.is_partial and not self.keys else matched

    @cached_property
    def differing(self) -> Hashes:
        """Hashes of the keys that differ, each once."""
        matched = self.matched
        rows = ((self.theirs, matched.unexpected), (self.ours, matched.missing), (self.ours, matched.second))
        parts = [row_hashes(table.select(self.names).take(at), self.names) for table, at in rows]
        return np.unique(np.concatenate(parts))

    @property
    def counts(self) -> RowCounts:
        found = self.matched
        return RowCounts(found.equal_rows, *map(len, (found.missing, found.unexpected, found.first)))

    @classmethod
    def of(cls, replay: FolderRun, theirs: pa.Table, metadata: Metadata, order: Order, *, is_partial: bool) -> _Sides:
        """Bring both sides into the same columns and types."""
        ours = theirs.slice(0, 0) if replay.rows is None else replay.rows
        spelled = {folded(name): name for name in theirs.column_names}
        cells, wrong = {}, []
        for column in ours.schema:
            name = spelled.pop(folded(column.name), None)
            if name is None:
                wrong.append(("column_missing", column.name, ""))
                continue
            found = theirs.column(name)
            if found.type != column.type:
                words = [delta_type(kind) or str(kind) for kind in (found.type, column.type)]
                wrong.append(("column_type", column.name, f": {words[0]} instead of {words[1]}"))
                try:
                    found = found.cast(column.type, safe=False)
                except pa.ArrowException:
                    continue
            cells[column.name] = found
        wrong += [("column_unknown", name, "") for name in spelled.values()]
        known = {folded(name): name for name in cells}
        keys = tuple(known[folded(name)] for name in metadata.key_columns if folded(name) in known)
        theirs = pa.table(cells)
        if is_partial and keys:
            touched = np.concatenate([np.empty(0, np.uint64), *(file.hashes for file in replay.files)])
            theirs = theirs.filter(pa.array(np.isin(row_hashes(theirs, keys), touched)))
        return cls(replay, theirs, ours.select(list(cells)), keys, is_partial, order, tuple(wrong))


@dataclass
class _Sampled:
    """One key that differs: its hash, its rows on both sides, and its changes in order."""

    values: Row = field(default_factory=dict)
    number: int = 0
    ours: list[Row] = field(default_factory=list)
    theirs: list[Row] = field(default_factory=list)
    changes: list[FileChange] = field(default_factory=list)


class _Comparison:
    """Fabric's rows, None without a table, against replays; `processed` is how many rows Fabric says it has applied."""

    def __init__(
        self, replays: FolderRuns, theirs: pa.Table | None, processed: int | None, limit: int, shown: ShownKeys
    ) -> None:
        files = listing_of(ZoneView(replays.view, replays.others), replays.config, replays.name)
        self._files, self._metadata = files.files, files.usable or Metadata()
        is_numbered = self._metadata.strategy is Strategy.SEQUENTIAL
        first = first_numbers(file.path for file in self._files) if is_numbered and theirs is not None else {}
        self._is_partial = any(number > 1 for number in first.values())  # Fabric deletes files a week after applying
        first_file: Literal["1", "lowest"] = "lowest" if self._is_partial else replays.config.first_file
        self._replays = replace(replays, config=replace(replays.config, first_file=first_file))
        self._theirs, self._processed, self._limit, self._shown = theirs, processed, limit, shown

    def result(self) -> ComparedTable:
        """Compare with all files, then without the newest ones, while that explains more."""
        replay = self._replays.all_rows()
        state, paths = replay.status.state, [file.path for file in replay.files]
        diagnostic = state.diagnostic if isinstance(state, Halted | Unconfigured) else None
        name, schema = self._replays.name, self._replays.config.delta_default_schema
        halt = (diagnostic.code, diagnostic.coded_message) if diagnostic else (None, None)
        result = ComparedTable.of(name, name.delta_folder(schema), "equal", state.code, *halt, (), False, len(paths))
        if self._theirs is None or replay.rows is None:
            return self._one_side(result, replay, diagnostic)
        if not replay.status.pending_files and (self._processed or 0) > replay.status.rows_processed:
            self._is_partial = True
        sides = self._nearest(replay, self._theirs)
        findings, not_traced = self._findings(sides, self._sampled(sides, sides.order))
        return structs.replace(
            result,
            verdict="different" if findings else "not_yet" if sides.order.hidden else "equal",
            key=sides.keys,
            is_partial=self._is_partial,
            not_yet=tuple(self._shown.path(path) for path in paths if path in sides.order.hidden),
            late=tuple(self._shown.path(path) for path in paths if path in sides.order.times),
            counts=sides.counts,
            findings=tuple(sorted(findings, key=lambda found: -found.count)),
            not_traced=not_traced,
        )

    def _nearest(self, replay: FolderRun, theirs: pa.Table) -> _Sides:
        """The replay most similar to Fabric's table: with all files, some of them late, or without the newest."""

        def sides_of(replay: FolderRun, order: Order) -> _Sides:
            return _Sides.of(replay, theirs, self._metadata, order, is_partial=self._is_partial)

        base = sides_of(replay, Order())
        while late := self._late(base):
            other = sides_of(self._replays.all_rows(late), late)
            if len(other.differing) >= len(base.differing):
                break
            base = other
        nearest, applied = base, self._applied(base.replay)
        keys = self._sampled(base, base.order)
        tried = [base.order]
        for _ in range(MAX_PREFIXES if keys else 0):
            order = _pending(base, keys, applied)
            if order in tried:
                break
            tried.append(order)
            other = sides_of(self._replays.all_rows(order), order)
            if len(other.differing) < len(nearest.differing):
                nearest = other
            if not len(other.differing):
                break
            keys += self._sampled(other, base.order)  # a prefix has to explain these, too
        return nearest

    def _one_side(self, result: ComparedTable, replay: FolderRun, diagnostic: Diagnostic | None) -> ComparedTable:
        """The result where Fabric or the replay has no table."""
        if self._theirs is None and not any(self._replays.is_archived(file.path) for file in self._files):
            paths = tuple(self._shown.path(file.path) for file in replay.files)
            return structs.replace(result, verdict="not_yet" if paths else "equal", not_yet=paths)
        rows = self._theirs if replay.rows is None else replay.rows
        total = 0 if rows is None else rows.num_rows
        counts = RowCounts(0, total, 0, 0) if self._theirs is None else RowCounts(0, 0, total, 0)
        if self._theirs is not None and (not self._files or result.state == Unconfigured.code):
            return structs.replace(result, verdict="unknown", counts=counts)
        kind = "table_missing" if self._theirs is None else "no_file"
        found = self._rejected(diagnostic, total) or finding(kind, count=total)
        return structs.replace(result, verdict="different", counts=counts, findings=(found,))

    def _late(self, sides: _Sides) -> Order | None:
        """The order with one more late file; None if numbers order files, or if that explains nothing."""
        if self._metadata.strategy is Strategy.SEQUENTIAL:
            return None
        exchanged = Counter(
            (guess.other, str(guess.file))
            for key in self._sampled(sides, sides.order)
            for guess in guesses(key.changes, key.theirs, sides.keys)
            if guess.kind == "order" and guess.other not in sides.order.times
        )
        if not exchanged:
            return None
        (late, newer), _ = exchanged.most_common(1)[0]
        times = {**{file.path: file.modified_ns for file in self._files}, **sides.order.times}
        return replace(sides.order, times={**sides.order.times, late: times[newer] + 1})

    def _applied(self, replay: FolderRun) -> Mapping[str, int]:
        """By partition, how many files Fabric has certainly applied.

        The archived ones and the next: the newest applied file stays in its folder (LZ-8.1). And all whose rows are
        among those that Fabric says it has processed (LZ-9.2), where partitions do not leave their order open.
        """
        places, applied, rows = Counter[str](), Counter[str](), 0
        is_whole = (self._processed or 0) >= replay.status.rows_processed
        is_counted = not self._is_partial and (is_whole or not self._metadata.partitioned)
        for file in replay.files:
            partition = partition_of(file.path)
            places[partition] += 1
            rows += len(file.hashes)
            if self._replays.is_archived(file.path):
                applied[partition] = places[partition] + 1
            elif is_counted and rows <= (self._processed or 0):
                applied[partition] = max(applied[partition], places[partition])
        return applied

    def _sampled(self, sides: _Sides, order: Order) -> list[_Sampled]:
        """Some of the keys that differ, evenly by hash, with their rows, and their changes in an order of files."""
        last = len(sides.differing) - 1
        sample = sides.differing[np.unique(np.linspace(0, max(last, 0), MAX_TRACED).astype(np.int64))[: last + 1]]
        found: defaultdict[Hashable, _Sampled] = defaultdict(_Sampled)

        def identity(row: Row) -> Hashable:
            return tuple(comparable(row.get(name)) for name in sides.names)

        for table, is_ours in ((sides.ours, True), (sides.theirs, False)):
            hashes = row_hashes(table, sides.names)
            at = np.flatnonzero(np.isin(hashes, sample))
            for row, number in zip(plain_rows(table.take(at)), hashes[at].tolist(), strict=True):
                key = found[identity(row)]
                key.values, key.number = {name: row[name] for name in sides.names}, number
                (key.ours if is_ours else key.theirs).append(row)
        columns = sides.ours.column_names
        for each in self._replays.changes(sample, sides.names, order) if found else ():
            row = {name: each.change.row.get(name) for name in columns}
            if (place := identity(row)) in found:
                found[place].changes.append(replace(each, change=replace(each.change, row=row)))
        return [key for key in found.values() if not same_rows(key.ours, key.theirs)]

    def _findings(self, sides: _Sides, sampled: Sequence[_Sampled]) -> tuple[list[ComparedDifference], int]:
        """What explains the differences, and how many keys were not looked at."""
        found = [self._of_column(sides, *wrong) for wrong in sides.columns]
        if not sampled:
            return found, 0
        last = LastChanges(sides.replay.files)
        causes = _causes(sides, sampled, last)
        unclear = np.array([key.number for key, guess in causes if guess.kind == "other"], np.uint64)
        of_cells, theirs = self._of_cells(sides, unclear, last)
        if of_cells:  # what is left without them
            rest = replace(sides, theirs=theirs, columns=())
            more, not_traced = self._findings(rest, self._sampled(rest, rest.order))
            return [*found, *of_cells, *more], not_traced
        state = sides.replay.status.state
        rejected = self._rejected(state.diagnostic, 0) if isinstance(state, Halted) else None
        groups: defaultdict[tuple[str, str | None, str], list[ComparedKey]] = defaultdict(list)
        for key, guess in causes:
            is_behind = rejected and guess.kind in {"other", "no_file"}
            cause = ("rejected_here", None, "") if is_behind else guess[:3]
            groups[cause].append(self._key(key.values, guess.file, guess.row))
        counted = 0
        for (kind, file, other), keys in groups.items():
            whole = last.keys_of(file, other) if kind in WHOLE_FILE and file else sides.differing[:0]
            total = max(len(keys), len(np.intersect1d(whole, sides.differing)))
            counted += total
            base = rejected if kind == "rejected_here" else None
            base = base or self._finding(kind, file, other_file=self._path(other or None))
            found.append(structs.replace(base, count=total, keys=tuple(keys[: self._limit])))
        return found, max(len(sides.differing) - counted, 0)

    def _of_column(self, sides: _Sides, kind: str, column: str, details: str) -> ComparedDifference:
        """A column that Fabric's table lacks, has of another type, or has alone; its file is the first that has it."""
        rows, files = sides.replay.rows, sides.replay.files
        file = next((file.path for file in files if folded(column) in map(folded, file.columns)), None)
        cells = rows.column(column) if rows is not None and column in rows.column_names else pa.nulls(0)
        total = len(cells) - cells.null_count
        return self._finding(kind, file, details, column=column, count=total)

    def _of_cells(self, sides: _Sides, unclear: Hashes, last: LastChanges) -> tuple[list[ComparedDifference], pa.Table]:
        """Causes for differing cells that no change explains, and Fabric's table with these cells corrected."""
        first, second, theirs, found = sides.matched.first, sides.matched.second, sides.theirs, []
        pairs = row_hashes(sides.ours.select(sides.names).take(second), sides.names)
        for column, differs in sides.matched.cells.items():

            def cells(at: Any, column: str = column) -> tuple[pa.Array[Any], pa.Array[Any]]:  # noqa: ANN401 - positions
                sources = (sides.ours, second), (sides.theirs, first)
                ours, other = (table.column(column).take(rows[at]).combine_chunks() for table, rows in sources)
                return ours, other

            at = np.flatnonzero(differs & np.isin(pairs, unclear))
            cause = cell_cause(*cells(at)) if len(at) else None
            at = np.flatnonzero(differs)
            every = cell_cause(*cells(at), cause[0]) if cause else None
            if not cause or not every:
                continue
            at = at[every[1]]
            shown, places = at[: self._limit], [last.of(number) for number in pairs[at[: self._limit]].tolist()]
            rows = plain_rows(sides.ours.select(sides.names).take(second[shown]))
            keys = tuple(self._key(row, *(place or (None, None))) for row, place in zip(rows, places, strict=True))
            files = {place[0] if place else None for place in places}
            file = files.pop() if len(files) == 1 and len(keys) == len(at) else None
            found.append(self._finding(cause[0], file, column=column, count=len(at), keys=keys))
            mask = np.zeros(theirs.num_rows, np.bool_)
            mask[first[at]] = True
            mended = pc.replace_with_mask(
                theirs.column(column).combine_chunks(), pa.array(mask), cells(at[np.argsort(first[at])])[0]
            )
            theirs = theirs.set_column(theirs.column_names.index(column), column, mended)
        return found, theirs

    def _rejected(self, diagnostic: Diagnostic | None, count: int) -> ComparedDifference | None:
        """A finding if Fabric continued where the replay halts."""
        if diagnostic is None:
            return None
        file = diagnostic.path.removeprefix(f"{self._replays.name.folder}/")
        found = self._finding("rejected_here", file, f": {diagnostic.coded_message}", count=count)
        return structs.replace(found, rule=diagnostic.rules[0])

    def _finding(self, kind: str, file: str | None, details: str = "", **attributes: Any) -> ComparedDifference:  # noqa: ANN401 - as of the class
        return finding(kind, self._metadata, details, file=self._path(file), **attributes)

    def _key(self, values: Row, file: str | None, row: int | None) -> ComparedKey:
        return ComparedKey(self._shown.key(values), self._path(file), row)

    def _path(self, file: str | None) -> str | None:
        return file and self._shown.path(file)


def _causes(sides: _Sides, sampled: Sequence[_Sampled], last: LastChanges) -> list[tuple[_Sampled, Guess]]:
    """The likeliest cause for each key; a whole file where nearly all of its keys differ alike."""
    options = [guesses(key.changes, key.theirs, sides.keys) for key in sampled]
    explained = Counter(guess[:3] for found in options for guess in found if guess.kind in WHOLE_FILE)
    numbers, whole = np.array([key.number for key in sampled], np.uint64), set()
    for cause, times in explained.items():
        keys = last.keys_of(str(cause[1]), cause[2])
        is_most = len(keys) > 1 and np.isin(keys, sides.differing).mean() >= MOST
        if is_most and times >= MOST * np.isin(numbers, keys).sum():
            whole.add(cause)

    def rank(guess: Guess) -> int:
        if guess.kind not in WHOLE_FILE:
            return len(WHOLE_FILE)
        return WHOLE_FILE.index(guess.kind) if guess[:3] in whole else len(WHOLE_FILE) + 1

    return [
        (key, min(found, key=rank) if found else likely(key.changes, key.ours, key.theirs, sides.keys))
        for key, found in zip(sampled, options, strict=True)
    ]


def _pending(sides: _Sides, keys: Sequence[_Sampled], applied: Mapping[str, int]) -> Order:
    """The order without the newest files of each partition that makes most of these keys equal.

    Files that are known to be applied are never left out.
    """
    order: defaultdict[str, list[str]] = defaultdict(list)
    for file in sides.replay.files:
        order[partition_of(file.path)].append(file.path)
    place = {path: at for paths in order.values() for at, path in enumerate(paths)}
    equal = {partition: np.zeros(len(paths) + 1, np.int64) for partition, paths in order.items()}  # by files applied
    for key in keys:
        files = list(dict.fromkeys(each.file for each in key.changes))
        for at, path in enumerate([*files, ""]):
            rows = replay([], [each.change for each in key.changes if each.file in files[:at]], sides.keys)[0]
            if same_rows(rows, key.theirs):
                first = place[files[at - 1]] + 1 if at else 0
                equal[partition_of(path or files[-1])][first : place[path] + 1 if path else None] += 1
    hidden: set[str] = set()
    for partition, counts in equal.items():
        rest = counts[min(applied.get(partition, 0), len(counts) - 1) :][::-1]
        hidden.update(order[partition][len(order[partition]) - int(np.argmax(rest)) :] if rest.any() else ())
    return replace(sides.order, hidden=frozenset(hidden))
