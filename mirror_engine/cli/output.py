"""Output for people and programs: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirror_engine.landing_zone.diagnostics import Severity, printable
from mirror_engine.landing_zone.layout import TABLES, ZONE
from mirror_engine.landing_zone.names import TableName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    from mirror_engine.landing_zone.diagnostics import Diagnostic

SCHEMA_VERSION = 1  # of every JSON document
TENTHS_BELOW = 10  # seconds
PIPE_WIDTH = 10_000  # every row stays on one line, for grep and its like
STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_UNBOUNDED = 1_000_000  # columns, to measure how wide a table is
_GAP = "  "


def stdout() -> Console:
    """Console for results; colour only on a terminal, and never with NO_COLOR."""
    return _console(is_error=False)


def stderr() -> Console:
    """Console for progress and errors."""
    return _console(is_error=True)


def _console(*, is_error: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if is_error else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=not stream.isatty())


def envelope(command: str | None, document: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON document with its schema version and command."""
    return {"schema_version": SCHEMA_VERSION, "command": command, **document}


def print_json(command: str, document: Mapping[str, Any]) -> None:
    """Print one JSON document on one line of stdout: UTF-8, no NaN."""
    sys.stdout.write(json.dumps(envelope(command, document), ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def table_json(name: TableName, default_schema: str) -> dict[str, Any]:
    """Reference to a table: its name, landing folder and Delta path."""
    from mirror_engine.monitoring.status import table_reference  # imports the engine

    return dict(table_reference(name, name.delta_folder(default_schema)))


def delta_table_json(root: Path, delta_folder: str, default_schema: str) -> dict[str, Any]:
    """The same of a Delta folder such as `dbo/Items`; the landing folder is null if it is gone."""
    name, folder = name_of(root, delta_folder, default_schema)
    return {"table": name.normalized, "landing_folder": folder, "delta_path": f"{TABLES}/{delta_folder}"}


def name_of(root: Path, delta_folder: str, default_schema: str) -> tuple[TableName, str | None]:
    """Name of a Delta folder's table, and its landing folder; None if that is gone."""
    schema, _, table = delta_folder.rpartition("/")
    names = [TableName(schema, table), *([TableName("", table)] if schema == default_schema else ())]
    present = next((name for name in names if (root / ZONE / name.folder).is_dir()), None)
    return present or names[-1], present.folder if present else None


def columns_json(schema: pa.Schema) -> list[dict[str, Any]]:
    """Name, Delta type and nullability of each column, in order."""
    from mirror_engine.tables.arrow_types import delta_type

    return [
        {"name": field.name, "type": delta_type(field.type) or str(field.type), "nullable": field.nullable}
        for field in schema
    ]


def grid(*headings: str) -> Table:
    """Table of plain text; headings that begin with `>` are of numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        justify = "right" if heading.startswith(">") else "left"
        table.add_column(heading.removeprefix(">"), justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


def line(text: str, style: str = "") -> Text:
    """Text that is shown as it is: no markup, no control characters."""
    from rich.text import Text

    return Text(printable(text), style=style)


def bullet(mark: str, text: str, style: str = "", mark_style: str | None = None) -> Table:
    """Indented text behind a mark; what does not fit on the line continues below its beginning."""
    from rich.table import Table

    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(line(f"  {mark}", style if mark_style is None else mark_style), line(text, style))
    return table


def diagnostic_lines(diagnostic: Diagnostic, count: int = 1, path: str | None = None) -> Iterator[RenderableType]:
    """`error[ME037]: message`, `--> location` and `help: …`.

    Args:
        diagnostic: what was found.
        count: how often.
        path: where it is, for the reader; by default below the landing zone.
    """
    from rich.text import Text

    style = STYLES[diagnostic.severity]
    times = f" ({count:,} times)" if count > 1 else ""
    label = Text(f"{diagnostic.severity.value}[{diagnostic.code}]", style)
    yield Text.assemble(label, ": ", line(f"{diagnostic.message}{times}"))
    location = f"{ZONE}/{diagnostic.path}".rstrip("/") if path is None else path
    row = "" if diagnostic.row is None else f", row {diagnostic.row}"
    yield bullet("-->", f"{location}{row}")
    if diagnostic.help:
        yield bullet("help:", diagnostic.help)


def moment(text: str | None) -> str:
    """`2026-11-02 08:15:29` of a time as JSON has it; `-` for none."""
    return text[:19].replace("T", " ") if text else "-"


def short_span(seconds: float) -> str:
    """`5.9s`, `42s`, `4m`, `3h`, `12d`."""
    from mirror_engine.monitoring.words import span  # help does without

    return f"{seconds:.1f}s" if seconds < TENTHS_BELOW else span(seconds)


@dataclass(frozen=True)
class AdaptiveRows:
    """Rows below their headings; where these do not fit, each row as lines of `heading: value`."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Called by rich."""
        from rich.measure import Measurement

        table = grid(*self.headings)
        for row in self.rows:
            table.add_row(*map(line, row))
        if Measurement.get(console, options.update(max_width=_UNBOUNDED), table).maximum <= options.max_width:
            yield table
            return
        for number, row in enumerate(self.rows):
            if number:
                yield ""
            for heading, value in zip(self.headings, row, strict=True):
                yield line(f"{heading}: {value}")


@dataclass(frozen=True)
class AdaptiveLine:
    """Parts on one line; where they do not fit, each on a line of its own."""

    parts: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Called by rich."""
        joined = line(_GAP).join(self.parts)
        yield from [joined] if joined.cell_len <= options.max_width else self.parts

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Called by rich."""
        from rich.measure import Measurement

        return Measurement.get(console, options, line(_GAP).join(self.parts))
