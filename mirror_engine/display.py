"""What results look like: lines, bullets, grids and values for a terminal, a pipe or a notebook."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.landing_zone.text import count, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    from mirror_engine.landing_zone.diagnostics import Diagnostic

    Lines: TypeAlias = Iterator[RenderableType]  # of a report

TENTHS_BELOW = 10  # seconds
_HOUR = 60  # minutes
PIPE_WIDTH = 10_000  # every row stays on one line, for grep and its like
STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
MAX_LINES = 8  # of one kind
MAX_CELL = 1000  # characters of a value that people look at


def diagnostic_lines(diagnostic: Diagnostic, subject: Text | str = "") -> Lines:
    """`error[ME037]: message` behind what it is about, `--> location` and `help: …`."""
    from rich.text import Text

    label = Text(f"{diagnostic.severity.value}[{diagnostic.code}]", STYLES[diagnostic.severity])
    yield Text.assemble(subject, label, ": ", line(diagnostic.message))
    row = "" if diagnostic.row is None else f", row {diagnostic.row}"
    yield place("-->", diagnostic.place + row)
    if diagnostic.help:
        yield bullet("help:", diagnostic.help)


def halted(table: str) -> Text:
    """`Sales.Orders is halted: `, before the reason."""
    from rich.text import Text

    return Text.assemble(line(table, "bold"), " is ", ("halted", "bold red"), ": ")


def line(text: str, style: str = "") -> Text:
    """Literal text: no markup, no control characters."""
    from rich.text import Text

    return Text(printable(text), style=style)


def print_to(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print the parts of a text; plain strings are shown as they are."""
    from rich.text import Text

    for part in parts:
        if isinstance(part, Grid) and not console.is_terminal and (plain := part.plain()):
            console.file.write(plain)
        else:
            shown = line(part) if isinstance(part, str) else part
            console.print(Trimmed(shown) if isinstance(shown, Text) else shown, crop=False)


def console_of(stream: Any) -> Console:  # noqa: ANN401 - any stream
    """Return a console; colour only on a terminal, and never with NO_COLOR."""
    from rich.console import Console

    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=not stream.isatty())


class Verbatim:
    """A line that stays one, however narrow the terminal is: it is to be clicked, copied and pasted.

    No `Text`: a console joins these into new ones, which it wraps.
    """

    def __init__(self, text: str) -> None:
        self._text = line(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self._text, options.update(no_wrap=True, overflow="ignore"))


def place(mark: str, path: str) -> Verbatim:
    """An indented path behind a mark."""
    return Verbatim(f"  {mark} {path}")


def with_help(text: str, help: str | None, style: str = "") -> Lines:
    """A line, and below it what to do, if anything."""
    yield line(text, style)
    if help:
        yield bullet("help:", help)


def bullet(mark: str, text: str, style: str = "", mark_style: str | None = None) -> Trimmed:
    """Indented text behind a mark; what does not fit on the line continues below its beginning."""
    from rich.table import Table

    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(line(f"  {mark}", style if mark_style is None else mark_style), line(text, style))
    return Trimmed(table)


def indented(part: RenderableType) -> RenderableType:
    """Part of a text, two columns further right."""
    from rich.padding import Padding

    return Trimmed(Padding(line(part) if isinstance(part, str) else part, (0, 0, 0, 2), expand=False))


def bullets(marked: Sequence[tuple[str, str]]) -> Lines:
    """Texts behind their marks, the first `MAX_LINES`; a mark that begins with a severity has its style."""
    for mark, text in marked[:MAX_LINES]:
        style = next((style for severity, style in STYLES.items() if mark.startswith(severity.value)), "")
        yield bullet(mark, text, mark_style=style)
    if len(marked) > MAX_LINES:
        yield line(f"  … and {len(marked) - MAX_LINES:,} more", "dim")


def diagnostics(counted: Iterable[tuple[Diagnostic, int]], folder: str) -> Lines:
    """Findings with their codes, help and number of occurrences. Paths are relative to `folder`."""
    marked = []
    for found, times in counted:
        place, help = found.location.removeprefix(folder), f"; {found.help}" if found.help else ""
        marked.append((f"{found.severity.value}[{found.code}]:", f"{place}: {found.message}{often(times)}{help}"))
    return bullets(marked)


def often(times: int) -> str:
    """` (3 times)`; `""` for once."""
    return f" ({times:,} times)" if times > 1 else ""


def ignored_paths(ignored: Iterable[Diagnostic]) -> list[tuple[str, str]]:
    """Each ignored path with the reason."""
    return [("ignored:", f"{found.path}: {found.coded_message.removeprefix('ignored: ')}") for found in ignored]


class Trimmed:
    """Text without trailing blanks, which copying would include."""

    def __init__(self, part: RenderableType) -> None:
        self._part = part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for segments in console.render_lines(self._part, options, pad=False):
            left = [*segments]
            while left and not left[-1].text.strip():
                left.pop()
            if left:
                yield from left[:-1]
                yield Segment(left[-1].text.rstrip(), left[-1].style)
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement.get(console, options, self._part)


class Grid:
    """Rows below their headings. Columns whose heading begins with `>` hold numbers.

    Where a terminal is too narrow, columns with `expendable` headings are left out, in this order. The cells below the
    heading `wrapped` may take several lines, broken at blanks. With `or_lines`, rows that do not fit become lines of
    `heading: cell`.
    """

    def __init__(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[RenderableType]],
        expendable: Sequence[str] = (),
        wrapped: str = "",
        *,
        or_lines: bool = False,
    ) -> None:
        self._expendable = [heading.removeprefix(">") for heading in expendable]
        self._wrapped = wrapped
        self._or_lines = or_lines
        self._headings = [printable(heading.removeprefix(">")) for heading in headings]
        self._are_numbers = [heading.startswith(">") for heading in headings]
        self._rows = [[printable(part) if isinstance(part, str) else part for part in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left_out, fits = self._left_out(options.max_width)
        if self._or_lines and not fits:
            for number, row in enumerate(self._rows):
                yield from [""] if number else []
                yield from (line(f"{name}: {part}") for name, part in zip(self._headings, row, strict=True))
            return
        yield Trimmed(self._table(left_out, fits=fits))

    def shows(self, heading: str, width: int) -> bool:
        """Whether a column is shown where there is room for so many."""
        return self._headings.index(heading) not in self._left_out(width)[0]

    def _left_out(self, width: int) -> tuple[Collection[int], bool]:
        """The columns that do not fit, and whether all others do."""
        left_out: set[int] = set()
        widths = self._widths()
        for heading in self._expendable:
            if _taken(widths, left_out) <= width:
                break
            left_out.add(self._headings.index(heading))
        return left_out, _taken(widths, left_out) <= width

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement.get(console, options, self._table())

    def _widths(self) -> list[int]:
        """The width of each column on one line; of the wrapped one that of its longest word."""
        from rich.cells import cell_len

        widths = [cell_len(heading) for heading in self._headings]
        for row in self._rows:
            for at, part in enumerate(row):
                is_wrapped = self._headings[at] == self._wrapped
                pieces = str(part).split() if is_wrapped else str(part).splitlines()
                widths[at] = max([widths[at], *map(cell_len, pieces)])
        return widths

    def _table(self, left_out: Collection[int] = (), *, fits: bool = False) -> Table:
        """All columns that are not left out; where these fit, only the wrapped one may take several lines."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        shown = [at for at in range(len(self._headings)) if at not in left_out]
        for at in shown:
            no_wrap = fits and self._headings[at] != self._wrapped
            justify: JustifyMethod = "right" if self._are_numbers[at] else "left"
            table.add_column(self._headings[at], justify=justify, overflow="fold", no_wrap=no_wrap)
        for row in self._rows:
            parts = (row[at] for at in shown)
            table.add_row(*(Text(part) if isinstance(part, str) else part for part in parts))
        return table

    def plain(self) -> str:
        """Format for a pipe, where rich takes half a millisecond a row; `""` if a cell has more than one line."""
        from rich.cells import cell_len
        from rich.text import Text

        parts = [part for row in self._rows for part in row]
        if not all(isinstance(part, str | Text) and "\n" not in str(part) for part in parts):
            return ""
        cells = [self._headings, *([str(part) for part in row] for row in self._rows)]
        sizes = [[*map(cell_len, row)] for row in cells]
        widths = [max(column) for column in zip(*sizes, strict=True)]
        if sum(widths) + 2 * len(widths) > PIPE_WIDTH:
            return ""
        return "".join(map(partial(self._line, widths), cells, sizes))

    def _line(self, widths: Sequence[int], row: Sequence[str], sizes: Sequence[int]) -> str:
        blanks = (" " * (width - size) for width, size in zip(widths, sizes, strict=True))
        parts = zip(row, blanks, self._are_numbers, strict=True)
        joined = "  ".join(blank + part if is_number else part + blank for part, blank, is_number in parts)
        return f"{joined.rstrip(' ')}\n"


class WithColumn:
    """Alternative texts: one if the grid shows a column, another if there is no room for it."""

    def __init__(self, grid: Grid, heading: str, shown: RenderableType, otherwise: RenderableType) -> None:
        self._grid, self._heading, self._shown, self._otherwise = grid, heading, shown, otherwise

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Trimmed(self._shown if self._grid.shows(self._heading, options.max_width) else self._otherwise)


def _taken(widths: Sequence[int], left_out: Collection[int]) -> int:
    shown = [width for at, width in enumerate(widths) if at not in left_out]
    return sum(shown) + 2 * len(shown) - 2


def rows_text(rows: Sequence[Mapping[str, Any]], columns: Iterable[str] = ()) -> Grid:
    """Rows of a table below their columns; where these do not fit, each row as lines of `column: value`.

    Text and binary are cut to `MAX_CELL`.
    """
    return Grid(
        [*columns] or [*next(iter(rows), ())],
        [[cell(value, MAX_CELL) for value in row.values()] for row in rows],
        or_lines=True,
    )


def moment(at: datetime | None) -> str:
    """`2026-11-02 08:15:29` of a time in UTC; `-` for none."""
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else "-"


def short_span(seconds: float) -> str:
    """`5.9s`, `42s`, `4m`, `3h`, `12d`."""
    return f"{seconds:.1f}s" if seconds < TENTHS_BELOW else span(seconds)


def elapsed(seconds: float) -> str:
    """How long work took or has taken, to the second: `5.9s`, `42s`, `2m 47s`, `1h 05m`."""
    minutes, rest = divmod(int(seconds), 60)
    if minutes >= _HOUR:
        return f"{minutes // _HOUR}h {minutes % _HOUR:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else short_span(seconds)


class Fitted:
    """Parts on one line; where they do not fit, each on a line of its own."""

    def __init__(self, parts: Sequence[Text]) -> None:
        self._parts = parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        joined = Text("  ").join(self._parts)
        yield joined if joined.cell_len <= options.max_width else Text("\n").join(self._parts)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement
        from rich.text import Text

        return Measurement.get(console, options, Text("  ").join(self._parts))


def span(seconds: float) -> str:
    """A length of time: `9s`, `4m`, `3h`, `12d`; rounded down."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length or (unit != "d" and seconds >= length):
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def cell(value: object, most: int | None = None) -> str:
    """One value of a row, on one line; text or binary that is longer than `most` is cut, and its length follows."""
    if value is None:
        return "NULL"
    if most is None or not isinstance(value, str | bytes) or len(value) <= most:
        return printable(str(plain(value)))
    length = count(len(value), "byte" if isinstance(value, bytes) else "character")
    return f"{printable(plain(value[:most]))}… ({length})"


def plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value as exact JSON: decimals as text, bytes in Base64, times in ISO 8601, NaN as text."""
    match value:
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime() | date() | time():
            return value.isoformat()
        case Enum():
            return value.value
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case _:
            return value
