"""The mirror as a test sees it: run it, read its tables, say what is expected, and be told in words what is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.config import Config
from mirror_engine.errors import UnknownTable
from mirror_engine.events import DiagnosticRaised, OperationFailed, TableLatched
from mirror_engine.landing_zone.register import GRAVITY, Severity
from mirror_engine.landing_zone.states import Latched, Level, Unarmed, Waiting
from mirror_engine.mirror import Mirror
from mirror_engine.running import Verdict
from mirror_engine.table_names import find_table
from mirror_engine.testing.expectations import Expectations, reason
from mirror_engine.testing.rows import Rows
from mirror_engine.validation.judge import NEVER_CAME, judge
from mirror_engine.validation.place import place_of

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import pyarrow as pa

    from mirror_engine.delta.base import DeltaWriter
    from mirror_engine.delta.history import HistoryEntry
    from mirror_engine.events import Event
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.running import Report

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
        self._expectations = Expectations(self.config.schema_of_bare_tables)
        self._said: dict[Diagnostic, None] = {}
        self._failures: list[str] = []

    def __repr__(self) -> str:
        return f"<mirror of {self.root}>"

    def run(self) -> Report:
        """Apply all that can be applied now, whatever comes of it."""
        self.has_run = True
        self._failures.clear()
        return self._mirror.once()

    def run_until_level(self) -> Report:
        """Apply all that has landed.

        Raises:
            AssertionError: something is not in its table, and no expectation covers that: which table, why, and
                what to do about it.
        """
        __tracebackhide__ = True
        report = self.run()
        tables = self.status().tables
        stuck = [reason(table) for table in tables if not (_is_level(table) or self._expectations.cover(table, tables))]
        if report.verdict in (Verdict.FAILED, Verdict.RETRY):
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
        lowest = 0 if above is None else GRAVITY.index(Severity(above)) + 1
        said = [*self._said, *self._never_came()]
        said = [found for found in said if found.severity in GRAVITY[lowest:] and found.code not in ignore]
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
        told = [reason(table) for table in tables if not isinstance(table.state, Level)]
        known = {table.state.diagnostic for table in tables if isinstance(table.state, Latched | Unarmed)}
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
            case DiagnosticRaised(_, diagnostic) | TableLatched(_, diagnostic):
                self._said.setdefault(diagnostic)
            case OperationFailed(table, message):
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
        return Rows(mirror.rows(found).to_pylist(), mirror.key_columns(found), told)

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table, in no particular order."""
        __tracebackhide__ = True
        return self.mirror._mirror.rows(self._found())  # noqa: SLF001 - as above

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
            return find_table(self.name, self.mirror.tables(), self.mirror.config.schema_of_bare_tables)
        except UnknownTable as error:
            raise UnknownTable(f"{error.message}\n{self.mirror.story()}", error.hint) from None


def _is_level(table: TableStatus) -> bool:
    return isinstance(table.state, Level) or table.state == Waiting(expired=False)


def _in_full(found: Diagnostic) -> str:
    remedy = f"\n    -> {found.remedy}" if found.remedy else ""
    return f"  {found.severity.value}: {found.message}{remedy}"
