"""What `compare` shows: Fabric's tables compared with a replay of their landing zone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from mirror_engine.display import Grid, bullet, indented, line
from mirror_engine.landing_zone.text import count
from mirror_engine.results import Count, Part, Place, Result, State, TableReference
from mirror_engine.tools.difference import OtherColumns, RowCounts

if TYPE_CHECKING:
    from mirror_engine.display import Lines

Through: TypeAlias = Literal["storage", "table-api"]  # ways to read Fabric's tables
MAX_NAMED = 3  # files of one table
VERDICTS = {
    "equal": ("green", "equal"),
    "not_yet": ("yellow", "equal so far"),
    "unknown": ("yellow", "not compared"),
    "different": ("bold red", "different"),
}


class ComparedKey(Part, frozen=True):
    """A key that differs, or a row of a keyless table.

    Attributes:
        digest: of the key's values, with a secret; the values themselves if you asked for them
        file: that changed it last
        row: of the file, counted from 1
    """

    digest: str
    file: str | None
    row: Place | None


class ComparedDifference(Part, frozen=True):
    """Differences with one cause.

    Attributes:
        rule: that Fabric's table contradicts: `LZ-4.1`
        help: what to do
        column: null where whole rows differ
        count: keys, or rows of a keyless table
        file: the change file that is the cause
        other_file: of two files in another order
        keys: the first ones
    """

    kind: str
    rule: str
    message: str
    help: str | None
    column: str | None = None
    count: Count = 0
    file: str | None = None
    other_file: str | None = None
    keys: Sequence[ComparedKey] = ()


class SqlRows(Part, frozen=True):
    """What SQL shows of a table, against Fabric's Delta table; it holds no row's value.

    Attributes:
        equal: whether SQL shows the rows of Delta
        counts: of rows; missing and unexpected ones in SQL
        columns: that only one of them has; missing ones in SQL
    """

    equal: bool
    counts: RowCounts
    columns: OtherColumns


class ComparedTable(TableReference, frozen=True):
    """One table of Fabric, and the replay of its change files.

    Attributes:
        verdict: `not_yet`: equal, up to newer files; `unknown`: nothing can be replayed
        state: after the replay; null without a folder
        diagnostic: code of what the replay halts at
        halted_because: message of that diagnostic
        key: columns
        is_partial: change files are gone: only keys in the others count
        files: replayed
        not_yet: files Fabric has not applied
        late: files applied after newer ones
        counts: of rows; missing and unexpected ones in Fabric's table
        not_traced: more keys that differ
        differs_in: where a difference is: in Delta, so that SQL shows it, too; or only in what SQL shows
        sql: null if you gave no rows of SQL
    """

    verdict: Literal["equal", "not_yet", "different", "unknown"]
    state: State | None = None
    diagnostic: str | None = None
    halted_because: str | None = None
    key: Sequence[str] = ()
    is_partial: bool = False
    files: Count = 0
    not_yet: Sequence[str] = ()
    late: Sequence[str] = ()
    counts: RowCounts = RowCounts(0, 0, 0, 0)
    findings: Sequence[ComparedDifference] = ()
    not_traced: Count = 0
    differs_in: Literal["delta", "sql", "both"] | None = None
    sql: SqlRows | None = None

    def lines(self) -> Lines:
        """The verdict with its numbers, and findings below it."""
        style, word = VERDICTS[self.verdict]
        counts = self.counts.to_json()
        rows = f"{count(counts.pop('equal'), 'equal row')} from {count(self.files - len(self.not_yet), 'file')}"
        others = [f"{number:,} {kind}" for kind, number in counts.items() if number]
        yield line(f"{self.table}: {', '.join([word, *others])}; {rows}", style)
        if self.is_partial:
            yield bullet("partial:", "change files were deleted: only keys in the remaining ones were compared")
        if self.not_yet:
            yield bullet("not applied yet:", f"{count(len(self.not_yet), 'newer file')}: {_named(self.not_yet)}")
        if self.late:
            yield bullet("late:", f"{_named(self.late)}: applied after newer files (LZ-3.6)")
        if self.halted_because:
            yield bullet("replay:", f"{self.state}: {self.halted_because}")
        for each in self.findings:
            yield from map(indented, self._difference(each))
        if self.not_traced:
            yield line(f"  … and {count(self.not_traced, 'more key')}, whose changes were not checked", "dim")
        if self.sql:
            yield from self._sql_lines(self.sql)

    def _sql_lines(self, sql: SqlRows) -> Lines:
        if sql.equal:
            in_delta = ": the difference is in Delta" if self.differs_in == "delta" else ""
            yield bullet("SQL:", f"shows the rows of Delta{in_delta}")
            return
        numbers = (
            f"{sql.counts.missing:,} missing, {sql.counts.unexpected:,} unexpected, {sql.counts.different:,} different"
        )
        alone = "alone differs, Delta does not" if self.differs_in == "sql" else "differs from Delta, too"
        yield bullet("SQL:", f"{alone}: {numbers}; {count(sql.counts.equal, 'equal row')}")
        for words, names in (("lacks", sql.columns.missing), ("alone has", sql.columns.unexpected)):
            if names:
                yield bullet("SQL:", f"{words} the columns {', '.join(names)}")
        yield bullet("help:", "refresh the metadata of the SQL endpoint, then query it again")

    def _difference(self, found: ComparedDifference) -> Lines:
        from rich.text import Text  # noqa: PLC0415 - where something is shown

        what = "key" if self.key else "row"
        column = f" (column {found.column})" if found.column else ""
        amount = f": {count(found.count, what)}" if found.count else ""
        yield Text.assemble((found.rule, "bold"), "  ", line(f"{found.message}{column}{amount}"))
        if files := [file for file in (found.file, found.other_file) if file]:
            yield bullet("-->", f"{self.landing_folder}/{_named(files)}")
        if found.keys:
            rows = [(key.digest, key.file or "", f"{key.row or ''}") for key in found.keys]
            yield indented(Grid([what.capitalize(), "Last changed by", ">Row"], rows))
            if found.count > len(rows):
                yield indented(line(f"… and {found.count - len(rows):,} more, see --limit", "dim"))
        if found.help:
            yield bullet("help:", found.help)


class Comparison(Result, frozen=True):
    """Fabric's tables compared with a replay of their landing zone; it holds no row's value.

    Attributes:
        equal: whether no table is different or unknown, in Delta or in SQL
        through: how Fabric's tables were read
    """

    url: str
    equal: bool
    through: Through
    tables: Sequence[ComparedTable]

    def text(self) -> Lines:
        """Each table in a line, findings below it, and how many tables are equal."""
        for table in self.tables:
            yield from table.lines()
        verdicts = Counter(VERDICTS[each.verdict][1] for each in self.tables)
        numbers = ", ".join(f"{times:,} {word}" for word, times in verdicts.items())
        yield f"Compared {count(len(self.tables), 'table')}: {numbers}."
        if self.through == "table-api" and not any(table.sql for table in self.tables):
            yield "These are the rows of Delta. If SQL shows others, refresh its endpoint, or compare them: --sql-rows."


def _named(files: Sequence[str]) -> str:
    return ", ".join(files) if len(files) <= MAX_NAMED else f"{files[0]} … {files[-1]}"
