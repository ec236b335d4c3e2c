"""The page's parts, made from templates; without a web server, so that the live page is the same as the read one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mirror_engine.errors import MirrorError
from mirror_engine.landing_zone.diagnostics import count, printable
from mirror_engine.monitoring import page_words
from mirror_engine.monitoring.page_words import FirstRows, Some
from mirror_engine.monitoring.sights import MOST_COMMITS, MOST_ROWS
from mirror_engine.monitoring.state_words import advice, in_words, tone, watermark, word
from mirror_engine.monitoring.times import iso, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.delta.history import HistoryEntry
    from mirror_engine.monitoring.shown import ShownItem
    from mirror_engine.monitoring.sights import Sights
    from mirror_engine.monitoring.status import TableStatus


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

    def __init__(self, sights: Sights) -> None:
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
        loader=PackageLoader("mirror_engine.monitoring", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": "{:,}".format, "moment": moment, "span": span, "iso": iso}
    made.globals |= {"Some": Some, "count": count, "word": word, "in_words": in_words, "advice": advice}
    made.globals |= {"tone": tone, "watermark": watermark}
    made.globals |= {"words": page_words, "most_rows": MOST_ROWS, "most_commits": MOST_COMMITS}
    return made


def _safe(value: object) -> object:
    """Names may hold control characters and what no encoding knows; HTML itself is escaped behind this."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def moment(seconds: float) -> str:
    """`2026-11-02 08:15:29`, in UTC."""
    return (iso(seconds) or "")[:19].replace("T", " ")
