"""The page's parts, made from templates; without a web server, so that the live page is the same as the read one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mirror_engine.errors import MirrorError
from mirror_engine.landing_zone.diagnostics import Severity, count, printable
from mirror_engine.landing_zone.states import Halted, Unconfigured
from mirror_engine.monitoring.words import cell, describe, help_for, iso, span, urgency
from mirror_engine.onelake.page.status_cache import MAX_COMMITS, MAX_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.monitoring.status import FileStatus, TableStatus
    from mirror_engine.onelake.page.status_cache import ShownItem, StatusCache
    from mirror_engine.tables.base import HistoryEntry

MAX_CHARACTERS = 200  # of one cell
MAX_COLUMNS = 50
MAX_FILES = 100  # of one kind
MAX_NAMED = 4  # change files of one commit
SEVERITIES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


@dataclass(frozen=True)
class Some:
    """The first of many things.

    Attributes:
        listed: those that are shown.
        more: how many there are besides.
    """

    listed: Sequence[Any]
    more: int

    @staticmethod
    def of(things: Sequence[Any], most: int = MAX_FILES) -> Some:
        """As many as fit."""
        return Some(things[:most], max(0, len(things) - most))


@dataclass(frozen=True)
class FirstRows:
    """A table's first rows as text.

    Attributes:
        columns: their names.
        more_columns: how many are left out.
        rows: cells; None for NULL.
    """

    columns: Sequence[str]
    more_columns: int
    rows: Sequence[Sequence[str | None]]

    @staticmethod
    def of(table: pa.Table) -> FirstRows:
        """Cut to what a page can hold."""
        columns = [_texts(column) for column in table.columns[:MAX_COLUMNS]]
        rows = list(zip(*columns, strict=True))
        return FirstRows(table.column_names[:MAX_COLUMNS], max(0, table.num_columns - MAX_COLUMNS), rows)


def last_diagnostic(table: TableStatus) -> Diagnostic | None:
    """What a table stands still for; else what was last said of it."""
    if isinstance(table.state, (Halted, Unconfigured)):
        return table.state.diagnostic
    return table.diagnostics[-1][0] if table.diagnostics else None


def applied(table: TableStatus) -> Sequence[FileStatus]:
    """The files that are in the table, those that came last first."""
    return [file for file in reversed(table.files) if file.state == "applied"]


def named(files: Sequence[str]) -> str:
    """A commit's change files; of many, the first and the last and how many there are."""
    if len(files) <= MAX_NAMED:
        return ", ".join(files) or "-"
    return f"{files[0]} … {files[-1]} ({len(files):,} files)"


def address(item: ShownItem, table: TableStatus) -> str:
    """The path of a table's page."""
    return f"/tables/{item.id}/{quote(table.name.folder, errors='replace')}"


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # times beyond the years that Python knows
        values = column.cast("string").to_pylist()
    return [None if value is None else _cut(value) for value in values]


def _cut(value: object) -> str:
    """A value as text, of which no more is made than is shown."""
    text = cell(value[: MAX_CHARACTERS + 1] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


@dataclass(frozen=True)
class Page:
    """What is shown at one address.

    Attributes:
        title: of the window.
        main: the part that changes, as HTML.
        is_found: whether there is such a thing.
    """

    title: str
    main: str
    is_found: bool = True


class Pages:
    """Makes pages; every method may take as long as a look at a landing zone.

    Args:
        sights: what is shown.
    """

    def __init__(self, sights: StatusCache) -> None:
        self._sights = sights
        self._templates = _environment()

    def overview(self) -> Page:
        """All mirrored databases with their tables."""
        return Page("mirror-engine", self._main("overview", sights=self._sights.all()))

    def table(self, item_id: str, folder: str) -> Page:
        """One table.

        Args:
            item_id: the mirrored database's GUID.
            folder: the table folder's name.
        """
        sight = self._sights.one(item_id)
        tables = sight.status.tables if sight and sight.status else ()
        table = next((table for table in tables if table.name.folder == folder), None)
        if sight is None or sight.status is None or table is None:
            return Page("not there", self._main("absent", trouble=sight.trouble if sight else ""), is_found=False)
        main = self._main("table", sight=sight, table=table, **self._contents(sight.item, table))
        return Page(table.name.folder, main)

    def whole(self, page: Page) -> str:
        """A page as a document."""
        shown = self._templates.get_template("document.html")
        return shown.render(title=page.title, main=Markup(page.main))  # noqa: S704 - made by a template

    def _main(self, name: str, **values: Any) -> str:  # noqa: ANN401 - what the template asks for
        return self._templates.get_template(f"{name}.html").render(values)

    def _contents(self, item: ShownItem, table: TableStatus) -> dict[str, Any]:
        """A table's commits and first rows, or why they cannot be shown."""
        commits: Sequence[HistoryEntry] = ()
        rows, trouble = None, ""
        if table.delta_version is not None:
            try:
                commits = self._sights.history(item, table.delta_folder)
                rows = FirstRows.of(self._sights.rows(item, table.delta_folder, commits[0])) if commits else None
            except MirrorError as error:
                trouble = str(error)
        return {"commits": commits, "rows": rows, "trouble": trouble}


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("mirror_engine.onelake.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": "{:,}".format, "moment": moment, "span": span, "iso": iso}
    made.globals |= {"Some": Some, "count": count, "describe": describe, "help_for": help_for}
    made.globals |= {"urgency": urgency}
    made.globals |= {"words": sys.modules[__name__], "most_rows": MAX_ROWS, "most_commits": MAX_COMMITS}
    return made


def _safe(value: object) -> object:
    """Names may hold control characters and what no encoding knows; HTML itself is escaped behind this."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def moment(seconds: float) -> str:
    """`2026-11-02 08:15:29`, in UTC."""
    return (iso(seconds) or "")[:19].replace("T", " ")
