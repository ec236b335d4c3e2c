"""The mirror as a test uses it: sync it, read its tables, and say which are expected to be halted or blocked."""

from __future__ import annotations

import math
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirror_engine.engine.cycle import RunResult
from mirror_engine.errors import UnknownTable
from mirror_engine.events import DiagnosticRaised, RetryScheduled, TableHalted
from mirror_engine.landing_zone.diagnostics import CATALOG, SEVERITY_ORDER, Severity
from mirror_engine.landing_zone.names import find_table
from mirror_engine.landing_zone.states import Blocked, CaughtUp, Empty, Halted, Unconfigured, needs_attention
from mirror_engine.mirror import Mirror, status_of
from mirror_engine.monitoring.rows import SortedRows
from mirror_engine.monitoring.state_text import describe
from mirror_engine.tools.validate import UNMATCHED_CHANGE_CODES, check_landing_zone
from mirror_engine.tools.validation_target import find_target

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from mirror_engine.clock import Clock
    from mirror_engine.config import Config
    from mirror_engine.events import Event
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.monitoring.history import TableHistory
    from mirror_engine.monitoring.status import TableStatus
    from mirror_engine.monitoring.sync_results import SyncReport
    from mirror_engine.tables.base import DeltaWriter

    Row = Mapping[str, Any]

BLOCKED = ""  # expected of a table in place of a code
MAX_DIFFERENCES = 20
MAX_DIAGNOSTICS = 10  # in a failure report


def described(table: TableStatus) -> str:
    """A table's state, and what to do about it."""
    help_text = table.help(engine_running=True)
    return f"  {table.message}" + (f"\n    help: {help_text}" if help_text else "")


class MirrorInTest(Mirror):
    """The mirror of a test's landing zone, in Spark's tables without a `writer`; the fixture `mirror` is one."""

    def __init__(
        self, root: Path, config: Config | None = None, *, writer: DeltaWriter | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(root, config, writer=writer, listeners=[self._record], clock=clock)
        self._has_synced = False
        self._expected: dict[str, str] = {}
        self._diagnostics: dict[Diagnostic, None] = {}
        self._failures: list[str] = []

    def __repr__(self) -> str:
        return f"<mirror of {self.root}>"

    def sync(self, stop: threading.Event | None = None) -> SyncReport:
        """Apply all that can be applied now, whatever the result."""
        self._has_synced = True
        self._failures.clear()
        return self._apply(stop)

    def sync_until_caught_up(self) -> SyncReport:
        """Apply everything that landed.

        Raises:
            AssertionError: a table has not caught up, and is not expected to: which, why, and what to do.
        """
        __tracebackhide__ = True
        report = self.sync()
        tables = self._status().tables
        expected = [found for found, code in self._expectations(tables).values() if _is_expected(found, code)]
        problems = [described(table) for table in tables if not (_has_caught_up(table) or table in expected)]
        if report.result in (RunResult.FAILED, RunResult.RETRY):
            problems += self._failures
        if problems:
            raise AssertionError("\n".join(["the mirror has not caught up:", *problems]))
        return report

    def table(self, name: str) -> MirroredTable:
        """A mirrored table by name, in any case: `Sales.Orders`, `sales.schema/orders`, or `orders` where clear."""
        return MirroredTable(self, name)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All diagnostics of this test, each once, in the order they were raised."""
        return tuple(self._diagnostics)

    def assert_no_diagnostics(self, min_severity: str = "info", *, ignore: Collection[str] = ()) -> None:
        """Fail if this test raised diagnostics, or `validate` finds changes to keys that were never inserted.

        Args:
            min_severity: `info`, `warning` or `error`: less severe ones pass.
            ignore: codes that pass, such as `ME042`.

        Raises:
            AssertionError: a diagnostic was raised: each message with its help.
            ValueError: `min_severity` is no severity.
        """
        __tracebackhide__ = True
        severities = SEVERITY_ORDER[SEVERITY_ORDER.index(Severity(min_severity)) :]
        raised = [*self.diagnostics]
        if self._has_synced:  # the engine applies updates of unknown keys without a diagnostic, as Fabric does (LZ-4.7)
            checked = check_landing_zone(find_target(self.root, self.config))
            raised += [found for found, _ in checked.all() if found.code in UNMATCHED_CHANGE_CODES]
        found = [each for each in raised if each.severity in severities and each.code not in ignore]
        if found:
            raise AssertionError("\n".join(["unexpected diagnostics:", *map(_in_full, found)]))

    def expect_halted(self, table: str, code: str) -> None:
        """Expect a table to be halted (or a new folder to stay unconfigured) with this code when the test ends.

        May be called before or after a sync; `sync_until_caught_up` then accepts this table.

        Raises:
            ValueError: the code is unknown.
        """
        if code not in CATALOG:
            raise ValueError(f"{code}: no such diagnostic; `mirror-engine explain` lists them")
        self._expected[table] = code

    def expect_blocked(self, table: str) -> None:
        """Expect a table to wait for a missing file when the test ends (LZ-3.3); otherwise as `expect_halted`."""
        self._expected[table] = BLOCKED

    def unmet_expectations(self) -> str:
        """Tables that are halted or blocked unexpectedly, or not as expected; `""` where there are none."""
        if not (self._has_synced or self._expected):
            return ""
        tables = self._status().tables
        expected = self._expectations(tables)
        accepted = [found for found, _ in expected.values()]
        problems = [described(table) for table in tables if needs_attention(table.state) and table not in accepted]
        for name, (table, code) in expected.items():
            if not _is_expected(table, code):
                actual = describe(table.name, table.state) if table else "there is no such table folder, or several"
                problems.append(f"  {name} should be {f'halted with {code}' if code else 'blocked'}: {actual}")
        return "\n".join(["unexpected table states at the end of the test:", *problems]) if problems else ""

    def failure_report(self) -> str:
        """What may explain a failed test: tables that have not caught up, failures, diagnostics."""
        if not self._has_synced:
            return "the mirror was not synced"
        tables = self._status().tables
        with_rows = [table for table in tables if isinstance(table.state, CaughtUp) and table.delta_version is not None]
        lines = [described(table) for table in tables if table not in with_rows]
        known = {table.state.diagnostic for table in tables if isinstance(table.state, Halted | Unconfigured)}
        first = self.diagnostics[:MAX_DIAGNOSTICS]
        lines += [*self._failures, *(_in_full(diagnostic) for diagnostic in first if diagnostic not in known)]
        return "\n".join(lines or ["  all tables have caught up; no diagnostics"])

    def _expectations(self, tables: Sequence[TableStatus]) -> dict[str, tuple[TableStatus | None, str]]:
        """The table, if there is one, and the code of each expected name."""
        folders = {table.delta_folder: table for table in tables}
        found = {}
        for name, code in self._expected.items():
            table: TableStatus | None = None
            with suppress(UnknownTable):
                table = folders[find_table(name, list(folders), self.config.delta_default_schema)]
            found[name] = table, code
        return found

    def _apply(self, stop: threading.Event | None) -> SyncReport:
        return super().sync(stop)

    def _record(self, event: Event) -> None:
        match event:
            case DiagnosticRaised(_, diagnostic) | TableHalted(_, diagnostic):
                self._diagnostics.setdefault(diagnostic)
            case RetryScheduled(table, message):
                self._failures.append(f"  {table.normalized if table else 'the mirror'}: {message}")
            case _:
                pass


def _is_expected(table: TableStatus | None, code: str) -> bool:
    match table and table.state:
        case Halted(diagnostic) | Unconfigured(diagnostic):
            return code == diagnostic.code
        case Blocked():
            return code == BLOCKED
        case _:
            return False


def _has_caught_up(table: TableStatus) -> bool:
    return isinstance(table.state, CaughtUp) or table.state == Empty(expired=False)


def _in_full(diagnostic: Diagnostic) -> str:
    help_text = f"\n    help: {diagnostic.help}" if diagnostic.help else ""
    return f"  {diagnostic.severity.value}: {diagnostic.full_message}{help_text}"


@dataclass(frozen=True)
class MirroredTable:
    """One mirrored table, read when asked; every method raises `UnknownTable` where there is none."""

    mirror: MirrorInTest
    name: str

    def rows(self) -> Rows:
        """The rows as dicts, sorted by key, then by all columns; NULL first, NaN last."""
        __tracebackhide__ = True
        folder, mirror = self._folder(), self.mirror
        status = next((table for table in status_of(mirror).tables if table.delta_folder == folder), None)
        rows = Rows(mirror.read_table(folder).to_pylist(), mirror.key_columns(folder))
        rows.state = "" if status is None or _has_caught_up(status) else described(status).strip()
        return rows

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table, in no particular order."""
        __tracebackhide__ = True
        return self.mirror.read_table(self._folder())

    def history(self) -> TableHistory:
        """The commits, newest first."""
        __tracebackhide__ = True
        return self.mirror.history(self._folder())

    def keys(self) -> tuple[str, ...]:
        """The key columns in force at the last commit; empty for a keyless table."""
        __tracebackhide__ = True
        return tuple(self.mirror.key_columns(self._folder()))

    def _folder(self) -> str:
        __tracebackhide__ = True
        try:
            return self.mirror.delta_folder(self.name)
        except UnknownTable as error:
            raise UnknownTable(f"{error.message}\n{self.mirror.failure_report()}", error.help) from None


class Rows(SortedRows):
    """Sorted rows, equal to a plain list of the same dicts, where NaN equals NaN (LZ-4.9)."""

    state = ""  # why the table has not caught up; empty where it has

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return [*map(_plain, self)] == [*map(_plain, other)] if isinstance(other, list) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other  # a list has its own

    def differences(self, expected: Iterable[Row]) -> list[str]:
        """Rows that are missing, unexpected or different, by key and cell.

        Raises:
            TypeError: an expected row holds a value that no table does, such as a list.
        """
        by_key: defaultdict[Hashable, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
        for side, rows in enumerate((expected, self)):
            for row in map(_plain, rows):
                by_key[tuple(row.get(name) for name in (self.keys or row))][side].append(row)
        lines = [line for pair in by_key.values() for line in self._of_key(*pair)]
        if not lines:
            lines = ["the same rows in another order; rows() sorts by key, then by all columns, NULL first"]
        hidden = [f"… and {len(lines) - MAX_DIFFERENCES} more"] if len(lines) > MAX_DIFFERENCES else []
        return [*lines[:MAX_DIFFERENCES], *hidden, *self.state.splitlines()]

    def _of_key(self, expected: list[Row], rows: list[Row]) -> list[str]:
        missing, unexpected = _without(expected, rows), _without(rows, expected)
        if not (self.keys and len(missing) == len(unexpected) == 1):
            return [*(f"missing: {row!r}" for row in missing), *(f"unexpected: {row!r}" for row in unexpected)]
        (row,), (wanted,) = unexpected, missing
        key = ", ".join(f"{name}={wanted.get(name)!r}" for name in self.keys)
        cells = [
            f"{name} is {_cell(row, name)}, expected {_cell(wanted, name)}"
            for name in {**wanted, **row}
            if [name in row, row.get(name)] != [name in wanted, wanted.get(name)]
        ]
        return [f"different: {key}: {'; '.join(cells)}"]


def _plain(row: Any) -> Any:  # noqa: ANN401 - whatever a test compares rows with
    """A row whose NaNs are one object, which Python takes for equal in a dict or list; anything else as it is."""
    if not isinstance(row, dict):
        return row
    return {name: math.nan if isinstance(cell, float) and math.isnan(cell) else cell for name, cell in row.items()}


def _without(rows: list[Row], others: list[Row]) -> list[Row]:
    """Rows without an equal among the others, matched one to one."""
    left, alone = [*others], []
    for row in rows:
        if row in left:
            left.remove(row)
        else:
            alone.append(row)
    return alone


def _cell(row: Row, name: str) -> str:
    return repr(row[name]) if name in row else "not a column"
