"""What the pages show: cached statuses, the tables of a view, and templates with their functions."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from mirror_engine.errors import MirrorError
from mirror_engine.landing_zone.diagnostics import Severity, count, printable
from mirror_engine.landing_zone.states import Blocked, Halted, TableState, Unconfigured
from mirror_engine.monitoring.words import URGENCY, cell, iso, span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.onelake.engine_pool import ShownItem
    from mirror_engine.tables.base import HistoryEntry

FRESH_SECONDS = 1.0
PATIENCE_SECONDS = 0.15  # that a page waits for a scan, before it shows what was known before
WORKERS = 4  # scans at once
IDLE_FACTOR = 4  # minimum refresh interval as a multiple of the last refresh's duration: at most 20 % of the time
MAX_ROWS = 20


@dataclass(frozen=True)
class CachedStatus:
    """A mirrored database's status; None, and an error message, where it cannot be read, or without one is not yet."""

    item: ShownItem
    status: MirrorStatus | None
    error: str = ""


@dataclass
class _Entry:
    """The last scan of one item, and the one in progress."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    found: tuple[MirrorStatus | None, str] = (None, "")
    scan: Future[None] | None = None
    fresh_until: float = 0.0


class StatusCache:
    """Statuses that are at most a second old, or as old as scanning takes.

    Args:
        items: gives every mirrored database, by workspace and name; thread-safe.
        clock: monotonic seconds.
    """

    def __init__(self, items: Callable[[], Sequence[ShownItem]], clock: Callable[[], float] = time.monotonic) -> None:
        self._items = items
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._scans = ThreadPoolExecutor(WORKERS, thread_name_prefix="status")
        self._rows: dict[tuple[str, str], tuple[HistoryEntry, pa.Table]] = {}

    def all(self, patience: float | None = None, only: str | None = None) -> Sequence[CachedStatus]:
        """Every mirrored database, or the one of a GUID.

        After so many seconds as it was before, or without a status; None: wait.
        """
        found = [(item, self._begin(item)) for item in self._items() if only in {None, item.id}]
        wait([entry.scan for _, entry in found if entry.scan], patience)
        return [_cached(item, entry) for item, entry in found]

    def close(self) -> None:
        """Wait for scans in progress."""
        self._scans.shutdown()

    def rows(self, item: ShownItem, delta_folder: str, newest: HistoryEntry) -> pa.Table:
        """A table's first rows at its newest commit, read once a version; MirrorError."""
        commit, rows = self._rows.get((item.id, delta_folder), (None, None))
        if rows is None or commit != newest:
            rows = item.view().read_table(delta_folder, version=newest.version, limit=MAX_ROWS)
            self._rows[item.id, delta_folder] = newest, rows
        return rows

    def _begin(self, item: ShownItem) -> _Entry:
        """An item's last scan, and a new one where that is no longer fresh."""
        entry = self._entries.setdefault(item.id, _Entry())
        with entry.lock:
            is_over = entry.scan is None or entry.scan.done()
            if is_over and self._clock() >= entry.fresh_until:
                entry.scan = self._scans.submit(self._scan, entry, item)
        return entry

    def _scan(self, entry: _Entry, item: ShownItem) -> None:
        started = self._clock()
        try:
            entry.found = item.view().status(), ""
        except MirrorError as error:
            entry.found = None, str(error)
        ended = self._clock()
        entry.fresh_until = ended + max(FRESH_SECONDS, IDLE_FACTOR * (ended - started))


def _cached(item: ShownItem, entry: _Entry) -> CachedStatus:
    """What is known; raises what an unforeseen failure of the last scan raised."""
    if entry.scan and entry.scan.done():
        entry.scan.result()
    return CachedStatus(item, *entry.found)


MAX_CHARACTERS = 200  # of one cell
MAX_COLUMNS = 50
MAX_COMMITS = 20
MAX_FILES = 100  # of one state
MAX_NAMED = 4  # change files of one commit
MAX_TABLES = 250  # of one mirrored database, if not all are asked for
URGENCIES = ("stuck", "busy", "idle", "well")
TONES = {state.code: URGENCY[state] for state in get_args(TableState)}
STATES = tuple(sorted(TONES, key=lambda state: URGENCIES.index(TONES[state])))  # urgent ones first
STUCK = "stuck"  # any state that needs attention, as a filter
MISSING_FILE = "ME019"  # what a blocked table waits for
SORTS: Mapping[str, Callable[[TableStatus], Any]] = {  # by column; those of `_FROM_LARGEST` begin with the largest
    "table": lambda table: table.name.folder.casefold(),
    "state": lambda table: (URGENCIES.index(table.urgency), table.state.code),
    "rows": lambda table: table.row_count or 0,
    "lag": lambda table: (table.lag_seconds, len(table.pending_files)),
    "commit": lambda table: table.last_commit_at or 0.0,
}
_FROM_LARGEST = ("rows", "lag", "commit")
SEVERITIES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


class Page(NamedTuple):
    """A page: window title, HTML of the part that changes, whether its subject exists."""

    title: str
    main: Markup
    exists: bool = True


@dataclass(frozen=True)
class View:
    """Which tables an overview shows, and in which order."""

    q: str = ""  # words that a table's folder has, in any case
    state: str = ""  # one of `STATES`, or `STUCK`; `""` for all
    sort: str = ""  # one of `SORTS`, after `-` from the largest to the smallest; `""`: as the landing zone has them
    all: str = ""  # whether more than `MAX_TABLES` are shown; not empty for yes

    @classmethod
    def of(cls, query: Mapping[str, str]) -> View:
        """The view of a request; what is unknown counts as absent."""
        view = cls(**{name: query.get(name, "").strip()[:MAX_CHARACTERS] for name in cls.__dataclass_fields__})
        is_sort, is_state = view.sort.removeprefix("-") in SORTS, view.state in {*STATES, STUCK}
        return replace(view, sort=view.sort if is_sort else "", state=view.state if is_state else "")

    def url(self, **changes: str) -> str:
        """The address of the overview with some of it changed."""
        chosen = {name: text for name, text in asdict(replace(self, **changes)).items() if text}
        return f"/?{urlencode(chosen)}" if chosen else "/"

    def sorted_by(self, column: str) -> str:
        """The address with the tables sorted by a column; where they are, the other way round."""
        first = f"-{column}" if column in _FROM_LARGEST else column
        other = column if column in _FROM_LARGEST else f"-{column}"
        return self.url(sort=other if self.sort == first else first)

    def tables(self, found: Sequence[TableStatus]) -> Sequence[TableStatus]:
        """The tables of a mirrored database that it shows, in its order."""
        words = self.q.casefold().split()
        chosen = [
            table
            for table in found
            if self.state in {"", table.state.code, table.urgency}
            and all(word in table.name.folder.casefold() for word in words)
        ]
        if self.sort:
            chosen.sort(key=SORTS[self.sort.removeprefix("-")], reverse=self.sort.startswith("-"))
        return chosen


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
    if isinstance(table.state, Blocked):
        return next((found for found, _ in table.diagnostics if found.code == MISSING_FILE), None)
    return table.diagnostics[-1][0] if table.diagnostics else None


def prose(text: str) -> Markup:
    """Paragraphs of plain text, with code between backticks."""
    return Markup("").join(Markup("<p>{}</p>").format(_with_code(part)) for part in text.split("\n\n"))


def coded(text: str) -> Markup:
    """A line of plain text, as `_safe` makes it, with code between backticks."""
    return _with_code(printable(text))


def _with_code(text: str) -> Markup:
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(marked)  # noqa: S704 - escaped above


def table_url(item: ShownItem, table: TableStatus) -> str:
    """The path of a table's page."""
    return f"/tables/{item.id}/{quote(table.name.folder, errors='replace')}"


def templates() -> Environment:
    """The templates of all pages, with their functions and limits."""
    environment = Environment(
        loader=PackageLoader("mirror_engine.onelake.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": "{:,}".format, "moment": _moment, "span": span, "iso": iso}
    environment.filters |= {"prose": prose, "coded": coded}
    functions = (count, last_diagnostic, table_url)
    environment.globals |= {function.__name__: function for function in functions}
    limits = ("MAX_COLUMNS", "MAX_COMMITS", "MAX_FILES", "MAX_NAMED", "MAX_ROWS", "MAX_TABLES")
    environment.globals |= {name: globals()[name] for name in (*limits, "SEVERITIES", "STATES", "STUCK", "TONES")}
    return environment


def _safe(value: object) -> object:
    """Replace control characters and lone surrogates in names; HTML is escaped afterwards."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _moment(seconds: float) -> str:
    """`2026-11-02 08:15:29`, in UTC."""
    return (iso(seconds) or "")[:19].replace("T", " ")
