"""The mirror as a test sees it: run it, read its tables, say what is expected, and be told in words what is not."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirror_engine.config import Config
from mirror_engine.engine_run import RunResult
from mirror_engine.errors import UnknownTable
from mirror_engine.events import DiagnosticRaised, RetryScheduled, TableHalted
from mirror_engine.landing_zone.change import comparable
from mirror_engine.landing_zone.diagnostics import CATALOG, SEVERITY_ORDER, Severity
from mirror_engine.landing_zone.names import find_table
from mirror_engine.landing_zone.states import Blocked, CaughtUp, Empty, Halted, Unconfigured, needs_a_person
from mirror_engine.mirror import Mirror
from mirror_engine.monitoring.words import advice, in_words
from mirror_engine.publisher.target import place_of
from mirror_engine.publisher.validate import NEVER_CAME, judge

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from mirror_engine.engine_run import SyncReport
    from mirror_engine.events import Event
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.tables.base import DeltaWriter, HistoryEntry

    Row = Mapping[str, Any]

BLOCKED = ""  # stands where a latched table's code does


class Expectations:
    """Tables that are meant to be latched or blocked.

    Args:
        default_schema: the Delta schema of tables outside a schema folder, `""` for none.
    """

    def __init__(self, default_schema: str) -> None:
        self._default_schema = default_schema
        self._expected: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._expected)

    def expect(self, table: str, code: str = BLOCKED) -> None:
        """Expect a table to be latched with a code, or blocked.

        Raises:
            ValueError: the register has no such code.
        """
        if code and code not in CATALOG:
            raise ValueError(f"{code}: no such diagnostic; `mirror-engine explain` and docs/diagnostics.md list them")
        self._expected[table] = code

    def cover(self, table: TableStatus, tables: Sequence[TableStatus]) -> bool:
        """Whether a table is as it is meant to be."""
        return any(
            self._find(name, tables) is table and _is_so(table.state, code) for name, code in self._expected.items()
        )

    def complaints(self, tables: Sequence[TableStatus]) -> list[str]:
        """Tables stuck against expectation, and tables that are not stuck as expected, each in words."""
        stuck = [table for table in tables if needs_a_person(table.state) and not self.cover(table, tables)]
        unmet = []
        for name, code in self._expected.items():
            found = self._find(name, tables)
            if found is None or not _is_so(found.state, code):
                now = f"it is {in_words(found.state)}" if found else "there is no such table folder, or more than one"
                unmet.append(f"  {name} should be {f'latched with {code}' if code else 'blocked'}: {now}")
                stuck = [table for table in stuck if table is not found]
        return [*map(reason, stuck), *unmet]

    def _find(self, name: str, tables: Sequence[TableStatus]) -> TableStatus | None:
        folders = {table.delta_folder: table for table in tables}
        try:
            return folders[find_table(name, list(folders), self._default_schema)]
        except UnknownTable:
            return None


def reason(table: TableStatus) -> str:
    """A table's state with its facts, and what to do about it."""
    remedy = advice(table.state, engine_running=True)
    return f"  {table.name.normalized} is {in_words(table.state)}" + (f"\n    -> {remedy}" if remedy else "")


def _is_so(state: TableState, code: str) -> bool:
    match state:
        case Halted(diagnostic) | Unconfigured(diagnostic):
            return code == diagnostic.code
        case Blocked():
            return code == BLOCKED
        case _:
            return False


SHOWN = 20


class Rows(list[dict[str, Any]]):
    """Rows as dicts, sorted; equal to a plain list of the same dicts, where NaN equals NaN (LZ-4.9).

    Sorted by the key columns in the order of `keyColumns`, then by all other columns in the table's order; NULL comes
    first, NaN last.

    Attributes:
        keys: the key columns; empty for a keyless table.
        state: what keeps the table from being level, in words; `""` where nothing does.
    """

    def __init__(self, rows: Iterable[dict[str, Any]], keys: Sequence[str] = (), state: str = "") -> None:
        super().__init__(rows)
        self.keys = tuple(keys)
        self.state = state
        self.sort(key=lambda row: [_place(row[name]) for name in (*self.keys, *row)])

    __hash__ = list.__hash__  # none

    def __eq__(self, other: object) -> bool:
        """Whether the other list has the same rows in the same order."""
        if not isinstance(other, list):
            return NotImplemented
        return len(self) == len(other) and all(map(_same_row, self, other))

    def __ne__(self, other: object) -> bool:
        """See `__eq__`; a list brings its own otherwise."""
        return not self == other

    def differences(self, expected: Iterable[Row]) -> list[str]:
        """What tells these rows from the expected ones: missing, unexpected and different, by key, cell by cell.

        Raises:
            TypeError: an expected row holds a value that no table does, such as a list.
        """
        there, wanted = self._by_key(self), self._by_key(expected)
        said = [line for key in {**wanted, **there} for line in _of_key(there[key], wanted[key], self.keys)]
        if not said:
            said = ["the same rows in another order; rows() sorts by key, then by all columns, NULL first"]
        hidden = [f"… and {len(said) - SHOWN} more"] if len(said) > SHOWN else []
        return [*said[:SHOWN], *hidden, *self.state.splitlines()]

    def _by_key(self, rows: Iterable[Row]) -> defaultdict[Hashable, list[Row]]:
        found: defaultdict[Hashable, list[Row]] = defaultdict(list)
        for row in rows:
            found[tuple(comparable(row.get(name)) for name in (self.keys or row))].append(row)
        return found


def _of_key(there: list[Row], wanted: list[Row], keys: Sequence[str]) -> list[str]:
    """What is wrong with the rows of one key."""
    missing = _without(wanted, there)
    unexpected = _without(there, wanted)
    if keys and len(missing) == len(unexpected) == 1:
        return [f"different: {_named(missing[0], keys)}: {_cells(unexpected[0], missing[0])}"]
    return [*(f"missing: {dict(row)!r}" for row in missing), *(f"unexpected: {dict(row)!r}" for row in unexpected)]


def _without(rows: list[Row], others: list[Row]) -> list[Row]:
    left, lone = list(others), []
    for row in rows:
        at = next((at for at, other in enumerate(left) if _same_row(row, other)), None)
        if at is None:
            lone.append(row)
        else:
            del left[at]
    return lone


def _same_row(one: Row, other: Row) -> bool:
    if one == other:
        return True
    return isinstance(other, dict) and one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)


def _same(one: object, other: object) -> bool:
    return one == other or comparable(one) == comparable(other)


def _cells(there: Row, wanted: Row) -> str:
    said = [
        f"{name} is {_cell(there, name)}, expected {_cell(wanted, name)}"
        for name in {**wanted, **there}
        if not (name in there and name in wanted and _same(there[name], wanted[name]))
    ]
    return "; ".join(said)


def _cell(row: Row, name: str) -> str:
    return repr(row[name]) if name in row else "not a column"


def _named(row: Row, keys: Sequence[str]) -> str:
    return ", ".join(f"{name}={row.get(name)!r}" for name in keys)


def _place(value: Any) -> tuple[int, Any]:  # noqa: ANN401 - a cell of any type
    """Where a cell sorts among others of its column."""
    if value is None:
        return (0, 0)
    return (2, 0) if value != value else (1, value)  # noqa: PLR0124 - the one test NaN fails


LISTED = 10  # more would hide the first


@dataclass(frozen=True)
class LandingZone:
    """An empty landing zone of a test's own; goes wherever a path does.

    Attributes:
        root: the mirrored database's folder, ROOT.
        path: the zone, `ROOT/Files/LandingZone`: table folders go here.
    """

    root: Path
    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name


class MirrorInTest:
    """A mirror over a test's landing zone; the fixture `mirror` is one.

    Args:
        root: ROOT.
        config: all options.
        writer: door 2; None for Spark.

    Attributes:
        has_run: whether it was run at all.
    """

    def __init__(self, root: Path, config: Config | None = None, *, writer: DeltaWriter | None = None) -> None:
        self.root = root
        self.config = config or Config()
        self.has_run = False
        self._mirror = Mirror(root, self.config, writer=writer, listeners=[self._hear])
        self._expectations = Expectations(self.config.delta_default_schema)
        self._said: dict[Diagnostic, None] = {}
        self._failures: list[str] = []

    def __repr__(self) -> str:
        return f"<mirror of {self.root}>"

    def run(self) -> SyncReport:
        """Apply all that can be applied now, whatever comes of it."""
        self.has_run = True
        self._failures.clear()
        return self._mirror.sync()

    def run_until_level(self) -> SyncReport:
        """Apply all that has landed.

        Raises:
            AssertionError: something is not in its table, and no expectation covers that: which table, why, and
                what to do about it.
        """
        __tracebackhide__ = True
        report = self.run()
        tables = self.status().tables
        stuck = [reason(table) for table in tables if not (_is_level(table) or self._expectations.cover(table, tables))]
        if report.result in (RunResult.FAILED, RunResult.RETRY):
            stuck += self._failures
        if stuck:
            raise AssertionError("\n".join(["the mirror does not get level", *stuck]))
        return report

    def table(self, name: str) -> MirroredTable:
        """A mirrored table by name, in any case: `Sales.Orders`, `sales.schema/orders`, or `orders` where clear."""
        return MirroredTable(self, name)

    def tables(self) -> list[str]:
        """The mirrored tables, by folder from `ROOT/Tables`."""
        return self._mirror.tables()

    def status(self) -> MirrorStatus:
        """How every table is: a fresh look; starts no JVM."""
        return self._mirror.status()

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All that was said in this test's runs, each once, first said first."""
        return tuple(self._said)

    def assert_no_diagnostics(self, above: str | None = None, *, ignore: Collection[str] = ()) -> None:
        """Hold the runs so far to silence, and what lies there to that of `validate` on keys that never came.

        Args:
            above: `info` lets information pass, `warning` warnings too; None lets nothing pass.
            ignore: codes that may be said, such as `ME042`.

        Raises:
            AssertionError: something was said: each message with its remedy.
            ValueError: `above` is no severity.
        """
        __tracebackhide__ = True
        lowest = 0 if above is None else SEVERITY_ORDER.index(Severity(above)) + 1
        said = [*self._said, *self._never_came()]
        said = [found for found in said if found.severity in SEVERITY_ORDER[lowest:] and found.code not in ignore]
        if said:
            what = "anything" if above is None else f"anything above {above}"
            raise AssertionError("\n".join([f"the mirror should not say {what}", *map(_in_full, said)]))

    def expect_latched(self, table: str, code: str) -> None:
        """Expect a table to be latched (or a new folder to be refused) for this reason when the test ends.

        May be said before or after the run; `run_until_level` then goes without this table.

        Raises:
            ValueError: the register has no such code.
        """
        self._expectations.expect(table, code)

    def expect_blocked(self, table: str) -> None:
        """Expect a table to wait for a missing number when the test ends (LZ-3.3); otherwise as `expect_latched`."""
        self._expectations.expect(table)

    def complaint(self) -> str:
        """Tables blocked or latched against expectation, or not so as expected; `""` where all is as it should be."""
        if not (self.has_run or self._expectations):
            return ""
        complaints = self._expectations.complaints(self.status().tables)
        return "\n".join(["the test leaves tables as it should not:", *complaints]) if complaints else ""

    def story(self) -> str:
        """What may explain a failed test: tables that are not level, failures, diagnostics."""
        if not self.has_run:
            return "the mirror was not run"
        tables = self.status().tables
        told = [reason(table) for table in tables if not isinstance(table.state, CaughtUp)]
        known = {table.state.diagnostic for table in tables if isinstance(table.state, Halted | Unconfigured)}
        told += [*self._failures, *(_in_full(found) for found in self.diagnostics[:LISTED] if found not in known)]
        return "\n".join(told or [f"  {len(tables)} tables, all level; nothing was said"])

    def _never_came(self) -> list[Diagnostic]:
        """ME077 and ME078 (LZ-4.7): the engine applies such files without a word, as the service does."""
        if not self.has_run:
            return []
        verdicts = judge(place_of(self.root, self.config))
        return [found for found, _ in verdicts.all() if found.code in NEVER_CAME]

    def close(self) -> None:
        """Let go of the writer."""
        self._mirror.close()

    def _hear(self, event: Event) -> None:
        match event:
            case DiagnosticRaised(_, diagnostic) | TableHalted(_, diagnostic):
                self._said.setdefault(diagnostic)
            case RetryScheduled(table, message):
                self._failures.append(f"  {table.normalized if table else 'the mirror'}: {message}")
            case _:
                pass


@dataclass(frozen=True)
class MirroredTable:
    """One mirrored table, read when asked; every method raises `UnknownTable` where there is none, and says why."""

    mirror: MirrorInTest
    name: str

    def rows(self) -> Rows:
        """The rows as dicts, sorted by key, then by all columns; NULL first, NaN last."""
        __tracebackhide__ = True
        found, mirror = self._found(), self.mirror._mirror  # noqa: SLF001 - a table is a part of its mirror
        state = next((table for table in self.mirror.status().tables if table.delta_folder == found), None)
        told = "" if state is None or _is_level(state) else reason(state).strip()
        return Rows(mirror.read_table(found).to_pylist(), mirror.key_columns(found), told)

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table, in no particular order."""
        __tracebackhide__ = True
        return self.mirror._mirror.read_table(self._found())  # noqa: SLF001 - as above

    def history(self) -> Sequence[HistoryEntry]:
        """The commits, newest first."""
        __tracebackhide__ = True
        return self.mirror._mirror.history(self._found())  # noqa: SLF001 - as above

    def keys(self) -> tuple[str, ...]:
        """The key columns in force at the last commit; empty for a keyless table."""
        __tracebackhide__ = True
        return tuple(self.mirror._mirror.key_columns(self._found()))  # noqa: SLF001 - as above

    def _found(self) -> str:
        __tracebackhide__ = True
        try:
            return find_table(self.name, self.mirror.tables(), self.mirror.config.delta_default_schema)
        except UnknownTable as error:
            raise UnknownTable(f"{error.message}\n{self.mirror.story()}", error.help) from None


def _is_level(table: TableStatus) -> bool:
    return isinstance(table.state, CaughtUp) or table.state == Empty(expired=False)


def _in_full(found: Diagnostic) -> str:
    remedy = f"\n    -> {found.help}" if found.help else ""
    return f"  {found.severity.value}: {found.full_message}{remedy}"
