"""The page's HTML, rendered from templates; the same for a request and for the stream of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mirror_engine.errors import MirrorError
from mirror_engine.landing_zone.diagnostics import Severity, count, printable
from mirror_engine.landing_zone.states import Halted, Unconfigured
from mirror_engine.monitoring.words import cell, iso, span
from mirror_engine.onelake.page.status_cache import MAX_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.monitoring.status import TableStatus
    from mirror_engine.onelake.engine_pool import ShownItem
    from mirror_engine.onelake.page.status_cache import StatusCache

MAX_CHARACTERS = 200  # of one cell
MAX_COLUMNS = 50
MAX_COMMITS = 20
MAX_FILES = 100  # of one state
MAX_NAMED = 4  # change files of one commit
SEVERITIES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


class Page(NamedTuple):
    """A page: window title, HTML of the part that changes, whether its subject exists."""

    title: str
    main: str
    exists: bool = True


class Pages:
    """Renders pages; every method may take as long as a scan of a landing zone."""

    def __init__(self, statuses: StatusCache) -> None:
        self._statuses = statuses
        self._templates = _environment()

    def overview(self) -> Page:
        """All mirrored databases with their tables."""
        return Page("mirror-engine", self._main("overview", statuses=self._statuses.all()))

    def table(self, item_id: str, folder: str) -> Page:
        """One table, by its mirrored database's GUID and its folder's name."""
        cached = self._statuses.one(item_id)
        tables = cached.status.tables if cached and cached.status else ()
        table = next((table for table in tables if table.name.folder == folder), None)
        if cached is None or table is None:
            return Page("Not found", self._main("absent", error=cached.error if cached else ""), exists=False)
        main = self._main("table", cached=cached, table=table, **self._contents(cached.item, table))
        return Page(table.name.folder, main)

    def document(self, page: Page) -> str:
        """A page as an HTML document."""
        main = Markup(page.main)  # noqa: S704 - rendered by a template
        return self._templates.get_template("document.html").render(title=page.title, main=main)

    def _main(self, name: str, **values: Any) -> str:  # noqa: ANN401 - the template's values
        return self._templates.get_template(f"{name}.html").render(values)

    def _contents(self, item: ShownItem, table: TableStatus) -> dict[str, Any]:
        """A table's newest commits and first rows, or why they cannot be read."""
        shown: dict[str, Any] = {"commits": (), "names": (), "rows": None, "error": ""}
        if table.delta_version is not None:
            try:
                shown["commits"] = item.view().history(table.delta_folder, limit=MAX_COMMITS)
                if shown["commits"]:
                    rows = self._statuses.rows(item, table.delta_folder, shown["commits"][0])
                    shown |= {"names": rows.column_names, "rows": row_texts(rows)}
            except MirrorError as problem:
                shown["error"] = str(problem)
        return shown


def row_texts(table: pa.Table) -> Sequence[Sequence[str | None]]:
    """Rows as text, cut to `MAX_COLUMNS` and `MAX_CHARACTERS`; None for NULL."""
    return list(zip(*(_texts(column) for column in table.columns[:MAX_COLUMNS]), strict=True))


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # times outside of Python's years
        values = column.cast("string").to_pylist()
    return [None if value is None else _cut(value) for value in values]


def _cut(value: object) -> str:
    text = cell(value[: MAX_CHARACTERS + 1] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def last_diagnostic(table: TableStatus) -> Diagnostic | None:
    """The diagnostic that stops a table; else the last one."""
    if isinstance(table.state, (Halted, Unconfigured)):
        return table.state.diagnostic
    return table.diagnostics[-1][0] if table.diagnostics else None


def file_names(files: Sequence[str]) -> str:
    """A commit's change files; of many, the first, the last and their number."""
    if len(files) <= MAX_NAMED:
        return ", ".join(files) or "-"
    return f"{files[0]} … {files[-1]} ({len(files):,} files)"


def table_url(item: ShownItem, table: TableStatus) -> str:
    """The path of a table's page."""
    return f"/tables/{item.id}/{quote(table.name.folder, errors='replace')}"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mirror_engine.onelake.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": "{:,}".format, "moment": _moment, "span": span, "iso": iso}
    functions = (count, last_diagnostic, file_names, table_url)
    environment.globals |= {function.__name__: function for function in functions}
    limits = {"MAX_COLUMNS": MAX_COLUMNS, "MAX_COMMITS": MAX_COMMITS, "MAX_FILES": MAX_FILES, "MAX_ROWS": MAX_ROWS}
    environment.globals |= {"SEVERITIES": SEVERITIES, **limits}
    return environment


def _safe(value: object) -> object:
    """Replace control characters and lone surrogates in names; HTML is escaped afterwards."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _moment(seconds: float) -> str:
    """`2026-11-02 08:15:29`, in UTC."""
    return (iso(seconds) or "")[:19].replace("T", " ")
