"""Rows as wide as the terminal is: side by side where they fit, else below each other, a value a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.measure import Measurement
from rich.text import Text

from mirror_engine.cli.output import grid, line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType

_ENDLESS = 1_000_000  # wider than any table, to find out how wide it would be
_APART = "  "


@dataclass(frozen=True)
class FittingRows:
    """Rows below their headings; where these do not fit, each row as lines of `heading: value`."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Called by rich."""
        table = grid(*self.headings)
        for row in self.rows:
            table.add_row(*map(line, row))
        if Measurement.get(console, options.update(max_width=_ENDLESS), table).maximum <= options.max_width:
            yield table
            return
        for number, row in enumerate(self.rows):
            if number:
                yield Text()
            for heading, value in zip(self.headings, row, strict=True):
                yield line(f"{heading}: {value}")


@dataclass(frozen=True)
class FittingLine:
    """Parts on one line; where they do not fit, each on a line of its own."""

    parts: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Called by rich."""
        joined = self._joined
        fits = joined.cell_len <= options.max_width
        yield from [joined] if fits else self.parts

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Called by rich: what it may do with, and what it would like."""
        return Measurement.get(console, options, self._joined)

    @property
    def _joined(self) -> Text:
        return Text(_APART).join(self.parts)
