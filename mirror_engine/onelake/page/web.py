"""Read-only HTTP: the page, `/metrics`, and the `/healthz` and `/readyz` probes for orchestrators."""

from __future__ import annotations

import asyncio
import re
import shlex
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, get_args
from urllib.parse import quote, urlencode

import prometheus_client
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from mirror_engine.errors import MirrorError
from mirror_engine.explain.pages import explanation
from mirror_engine.landing_zone.diagnostics import CATALOG, Severity, Trait, count, printable
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.names import shown_names
from mirror_engine.landing_zone.states import Blocked, Deleted, Halted, TableState, Unconfigured, Unlisted
from mirror_engine.monitoring.words import URGENCY, cell, iso, span
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.engine_pool import DatabaseStatus
from mirror_engine.onelake.hosts import DFS
from mirror_engine.onelake.items import SUFFIXES
from mirror_engine.onelake.middleware import observed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from prometheus_client.metrics_core import Metric
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.mirror import Mirror
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.onelake.connection import ConnectionInfo
    from mirror_engine.onelake.engine_pool import ShownItem
    from mirror_engine.tables.base import HistoryEntry

FRESH_SECONDS = 1.0
PATIENCE_SECONDS = 0.15  # that a page waits for a scan, before it shows what was known before
WORKERS = 4  # scans at once
IDLE_FACTOR = 4  # minimum refresh interval as a multiple of the last refresh's duration: at most 20 % of the time
MAX_ROWS = 20
MAX_SORTED = 20_000  # rows of a table that is read whole, once a version, to show those with the lowest keys


@dataclass(frozen=True)
class CachedStatus:
    """A mirrored database's status; None, and an error message, where it cannot be read, or without one is not yet."""

    item: ShownItem
    status: MirrorStatus | None
    error: str = ""


class FirstRows(NamedTuple):
    """Rows of a table, and whether they are those with the lowest keys, in order."""

    rows: pa.Table
    is_sorted: bool


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    found: tuple[MirrorStatus | None, str] = (None, "")
    scan: Future[None] | None = None
    fresh_until: float = 0.0


class StatusCache:
    """Statuses of all items that are at most a second old, or as old as scanning takes; the clock is monotonic."""

    def __init__(self, items: Callable[[], Sequence[ShownItem]], clock: Callable[[], float] = time.monotonic) -> None:
        self._items = items
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._scans = ThreadPoolExecutor(WORKERS, thread_name_prefix="status")
        self._rows: dict[tuple[str, str], tuple[HistoryEntry, FirstRows]] = {}

    def all(self, patience: float | None = None, only: str | None = None) -> Sequence[CachedStatus]:
        """Every mirrored database, or the one of a GUID.

        After so many seconds as it was before, or without a status; None: wait.
        """
        found = [(item, self._begin(item)) for item in self._items() if only in {None, item.id}]
        wait([entry.scan for _, entry in found if entry.scan], patience)
        for _, entry in found:
            if entry.scan and entry.scan.done():
                entry.scan.result()  # raises what was not foreseen
        return [CachedStatus(item, *entry.found) for item, entry in found]

    def close(self) -> None:
        self._scans.shutdown()

    def rows(self, item: ShownItem, table: TableStatus, newest: HistoryEntry) -> FirstRows:
        """Some rows of a table at its newest commit, read once a version; MirrorError."""
        commit, rows = self._rows.get((item.id, table.delta_folder), (None, None))
        if rows is None or commit != newest:
            rows = _first_rows(item.view(), table, newest.version)
            self._rows[item.id, table.delta_folder] = newest, rows
        return rows

    def _begin(self, item: ShownItem) -> _Entry:
        entry = self._entries.setdefault(item.id, _Entry())
        with entry.lock:
            is_over = entry.scan is None or entry.scan.done()
            if is_over and self._clock() >= entry.fresh_until:
                entry.scan = self._scans.submit(self._scan, entry, item)
        return entry

    def _scan(self, entry: _Entry, item: ShownItem) -> None:
        started = self._clock()
        try:
            entry.found = item.view().status(MAX_FILES), ""
        except MirrorError as error:
            entry.found = None, str(error)
        ended = self._clock()
        entry.fresh_until = ended + max(FRESH_SECONDS, IDLE_FACTOR * (ended - started))


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
        chosen = {name: text for name, text in asdict(replace(self, **changes)).items() if text}
        return f"/?{urlencode(chosen)}" if chosen else "/"

    def sorted_by(self, column: str) -> str:
        """The address with the tables sorted by a column; where they are, the other way round."""
        first = f"-{column}" if column in _FROM_LARGEST else column
        other = column if column in _FROM_LARGEST else f"-{column}"
        return self.url(sort=other if self.sort == first else first)

    def tables(self, found: Sequence[TableStatus]) -> Sequence[TableStatus]:
        words = self.q.casefold().split()
        chosen = [
            table
            for table in found
            if self.state in {"", table.state.code, table.urgency}
            and all(word in f"{table.name.normalized} {table.name.folder}".casefold() for word in words)
        ]
        if self.sort:
            chosen.sort(key=SORTS[self.sort.removeprefix("-")], reverse=self.sort.startswith("-"))
        return chosen


def _first_rows(view: Mirror, table: TableStatus, version: int) -> FirstRows:
    from mirror_engine.monitoring.rows import lowest  # noqa: PLC0415 - Arrow's functions load only where rows are shown

    keys = view.key_columns(table.delta_folder)
    is_sorted = bool(keys) and table.row_count is not None and table.row_count <= MAX_SORTED
    found = view.read_table(table.delta_folder, version=version, limit=None if is_sorted else MAX_ROWS)
    present = [name for name in keys if name in found.column_names]
    return FirstRows(lowest(found, present, MAX_ROWS), is_sorted=is_sorted and bool(present))


def row_texts(table: pa.Table) -> Sequence[Sequence[str | None]]:
    """Rows as text, cut to `MAX_COLUMNS` and `MAX_CHARACTERS`; None for NULL."""
    columns = []
    for column in table.columns[:MAX_COLUMNS]:
        try:
            values = column.to_pylist()
        except (ValueError, OverflowError):  # times outside of Python's years
            values = column.cast("string").to_pylist()
        columns.append([None if value is None else _cut(value) for value in values])
    return list(zip(*columns, strict=True))


def _cut(value: object) -> str:
    text = cell(value[: MAX_CHARACTERS + 1] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def last_diagnostic(table: TableStatus) -> Diagnostic | None:
    """The diagnostic that stops a table; else the last one."""
    if isinstance(table.state, (Halted, Unconfigured, Deleted, Unlisted)):
        return table.state.diagnostic
    if isinstance(table.state, Blocked):
        return next((found for found, _ in table.diagnostics if found.has(Trait.BLOCKS)), None)
    return table.diagnostics[-1][0] if table.diagnostics else None


def prose(text: str) -> Markup:
    """Paragraphs of plain text, with code between backticks."""
    return Markup("").join(Markup("<p>{}</p>").format(_with_code(part)) for part in text.split("\n\n"))


def breakable(name: str) -> Markup:
    """A name on one line, which a browser breaks at its parts rather than within a word."""
    parts = re.split(r"(?<=[/_\-])|(?=\.)|(?<=[a-z0-9])(?=[A-Z])", printable(name))
    return Markup("<wbr>").join(part for part in parts if part)


def coded(text: str) -> Markup:
    """A line of plain text, as `_safe` makes it, with code between backticks."""
    return _with_code(printable(text))


def _with_code(text: str) -> Markup:
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(marked)  # noqa: S704 - escaped above


def table_url(item: ShownItem, table: TableStatus) -> str:
    """The path of a table's page."""
    return f"/tables/{item.id}/{quote(table.name.folder, errors='replace')}"


class _FolderConvertor(PathConvertor):
    """The rest of a path, whatever characters a name in it has (LZ-1.10)."""

    regex = "(?s:.*)"


register_url_convertor("folder", _FolderConvertor())


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
    environment.filters |= {"number": "{:,}".format, "span": span, "iso": iso, "prose": prose, "coded": coded}
    environment.filters["breakable"] = breakable
    environment.filters["moment"] = lambda seconds: (iso(seconds) or "")[:19].replace("T", " ")  # in UTC
    functions = (count, last_diagnostic, shown_names, table_url)
    environment.globals |= {function.__name__: function for function in functions}
    limits = ("MAX_COLUMNS", "MAX_COMMITS", "MAX_FILES", "MAX_NAMED", "MAX_ROWS", "MAX_TABLES")
    environment.globals |= {name: globals()[name] for name in (*limits, "SEVERITIES", "STATES", "STUCK", "TONES")}
    return environment


def _safe(value: object) -> object:
    """Replace control characters and lone surrogates in names; HTML is escaped afterwards."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_FAMILIES = {  # by name: type, meaning, labels after workspace and item
    "up": (GaugeMetricFamily, "1 where an engine runs on the mirrored database.", ()),
    "last_heartbeat_timestamp_seconds": (GaugeMetricFamily, "Time of the engine's last heartbeat.", ()),
    "landing_zone_diagnostics": (GaugeMetricFamily, "Diagnostics about the landing zone itself, by code.", ("code",)),
    "pending_files": (GaugeMetricFamily, "Change files that are not in the table.", ("table",)),
    "lag_seconds": (GaugeMetricFamily, "Age of the oldest pending file.", ("table",)),
    "table_rows": (GaugeMetricFamily, "Rows in the Delta table.", ("table",)),
    "last_commit_timestamp_seconds": (GaugeMetricFamily, "Time of the last commit.", ("table",)),
    "files_applied": (CounterMetricFamily, "Change files of this generation that are in the table.", ("table",)),
    "rows_processed": (CounterMetricFamily, "Operations of this generation.", ("table",)),
    "bytes_processed": (CounterMetricFamily, "Bytes of this generation's operations.", ("table",)),
    "table_state": (GaugeMetricFamily, "1 for the table's state.", ("table", "state")),
    "table_fabric_status": (GaugeMetricFamily, "1 for the status that Fabric would show.", ("table", "status")),
    "diagnostics": (GaugeMetricFamily, "How often each diagnostic occurs, by code.", ("table", "code")),
}


class Metrics:
    """The metrics of one emulator."""

    def __init__(self, statuses: StatusCache) -> None:
        self._statuses = statuses
        name, meaning = "mirror_engine_emulator_requests", "Requests that the emulator answered."
        self._requests = prometheus_client.Counter(name, meaning, ("method", "status"), registry=None)

    def count_request(self, method: str, status: int) -> None:
        self._requests.labels(method, status).inc()

    def text(self) -> bytes:
        return prometheus_client.generate_latest(self)  # it collects as a registry does

    def collect(self) -> Iterable[Metric]:
        metrics = {
            name: family(f"mirror_engine_{name}", meaning, labels=("workspace", "item", *labels))
            for name, (family, meaning, labels) in _FAMILIES.items()
        }
        for cached in self._statuses.all():
            for name, labels, value in _samples(cached):
                if value is not None:
                    texts = (cached.item.workspace, cached.item.name, *labels)
                    metrics[name].add_metric([printable(text) for text in texts], value)
        return [*self._requests.collect(), *metrics.values()]


def _samples(cached: CachedStatus) -> Iterator[tuple[str, tuple[str, ...], float | None]]:
    status = cached.status
    yield "up", (), float(status is not None and status.engine_running)
    if status is None:
        return
    yield "last_heartbeat_timestamp_seconds", (), status.last_heartbeat_at
    for code, often in sorted(Counter(diagnostic.code for diagnostic in status.diagnostics).items()):
        yield "landing_zone_diagnostics", (code,), often
    for table in status.tables:
        name = table.name.normalized
        numbers = {
            "pending_files": len(table.pending_files),
            "lag_seconds": table.lag_seconds,
            "table_rows": table.row_count,
            "last_commit_timestamp_seconds": table.last_commit_at,
            "files_applied": table.files_processed,
            "rows_processed": table.rows_processed,
            "bytes_processed": table.bytes_processed,
        }
        yield from ((number, (name,), value) for number, value in numbers.items())
        yield from (("table_state", (name, state), float(table.state.code == state)) for state in STATES)
        if table.fabric_status:
            yield "table_fabric_status", (name, table.fabric_status), 1.0
        codes: Counter[str] = Counter()
        for diagnostic, often in table.diagnostics:
            codes[diagnostic.code] += often
        yield from (("diagnostics", (name, code), often) for code, often in sorted(codes.items()))


MAX_STREAMS = 32
REFRESH_SECONDS = 1.0
KEEP_ALIVE_REFRESHES = 15  # without a change, after which a comment keeps the connection open
MAX_HEARTBEAT_AGE_SECONDS = 120.0  # an engine writes one every 30 s while it works, and once a cycle
_SECRETS = ("AZURE_CLIENT_SECRET", "MIRROR_ENGINE_FAULT_API_TOKEN")  # variables that a page leaves out
_STORAGE_QUERIES = frozenset({"resource", "restype", "comp"})
EVENT_STREAM = "text/event-stream"
ASSETS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
HEADERS = {  # no scripts or styles but the page's own, no framing, no embedding
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class Web:
    """Page, metrics and probes; templates render the pages.

    Args:
        items: gives every mirrored database.
        clock: seconds since 1970.
        listening: of the emulator.
        connection: gives the emulator as a publisher sees it; None where that is not known.
    """

    def __init__(
        self,
        items: Callable[[], Sequence[ShownItem]],
        clock: Callable[[], float] = time.time,
        *,
        listening: Listening | None = None,
        connection: Callable[[], ConnectionInfo | None] = lambda: None,
    ) -> None:
        self._statuses = StatusCache(items)
        self._connection = connection
        self._listening = listening or Listening()
        self._templates = templates()
        self._clock = clock
        self.metrics = Metrics(self._statuses)  # they count requests, too
        self._stream_count = 0
        self._ended = threading.Event()
        routes = [
            Route("/", self._live(self._overview)),
            Route("/tables/{item}/{folder:folder}", self._live(self._table)),
            Route("/explain/{code}", self._live(self._explain)),
            Route("/metrics", self._metrics),
            Route("/healthz", PlainTextResponse("ok\n")),
            Route("/readyz", self._readyz),
        ]
        for name, kind in ASSETS.items():
            content = (files("mirror_engine.onelake.page") / "templates" / name).read_bytes()
            routes.append(Route(f"/assets/{name}", Response(content, media_type=kind)))
        self._beginnings = {tuple(route.path.split("/")[:2]) for route in routes}
        routes.append(Route("/{anything:path}", self._live(self._unknown)))
        self.app = _with_headers(Starlette(routes=routes))  # without access control

    def answers(self, request: Request) -> bool:
        """Whether a request is the page's, by its path's first name, and none of a storage client.

        A browser's is, too, if its path is one name: nothing can be read there.
        """
        is_storage = "x-ms-version" in request.headers or not _STORAGE_QUERIES.isdisjoint(request.query_params)
        is_reading = request.method in {"GET", "HEAD"} and not is_storage
        path = request.scope["path"]
        is_astray = path.strip("/").count("/") == 0 and "text/html" in request.headers.get("accept", "")
        return is_reading and (is_astray or tuple(path.split("/")[:2]) in self._beginnings)

    def end_streams(self) -> None:
        """Let open pages get no more changes."""
        self._ended.set()

    def close(self) -> None:
        """Wait for scans in progress; nothing may be asked any more."""
        self._statuses.close()

    def _overview(self, request: Request) -> Page:
        view, address = View.of(request.query_params), str(request.base_url).rstrip("/")
        statuses = self._statuses.all(PATIENCE_SECONDS)
        found = [(cached, view.tables(cached.status.tables if cached.status else ())) for cached in statuses]
        tables = [table for cached in statuses if cached.status for table in cached.status.tables]
        counts = Counter(table.state.code for table in tables)
        main = self._render(
            "overview",
            found=found,
            view=view,
            total=len(tables),
            chosen=sum(len(shown) for _, shown in found),
            counts=[(state, counts[state]) for state in STATES if counts[state]],
            guide=lambda cached: self._guide(cached.item, address),
        )
        return Page("mirror-engine", main)

    def _unknown(self, _: Request) -> Page:
        return Page("Not found", self._render("absent", what="page", error=""), exists=False)

    def _explain(self, request: Request) -> Page:
        code = request.path_params["code"]
        if code not in CATALOG:
            return Page("Not found", self._render("absent", what="diagnostic", error=""), exists=False)
        page = explanation(code)
        return Page(f"{code}: {page.title}", self._render("explain", page=page))

    def _table(self, request: Request) -> Page:
        folder = request.path_params["folder"]
        for cached in self._statuses.all(PATIENCE_SECONDS, request.path_params["item"]):
            if not cached.status and not cached.error:
                return Page(folder, self._render("listing"))
            for table in cached.status.tables if cached.status else ():
                if table.name.folder == folder:
                    contents = self._contents(cached.item, table)
                    return Page(folder, self._render("table", cached=cached, table=table, **contents))
            return Page("Not found", self._render("absent", what="table", error=cached.error), exists=False)
        return Page("Not found", self._render("absent", what="table", error=""), exists=False)

    def _render(self, name: str, **values: Any) -> Markup:  # noqa: ANN401 - the template's values
        return Markup(self._templates.get_template(f"{name}.html").render(values))  # noqa: S704 - it escapes

    def _guide(self, item: ShownItem, address: str) -> Markup:
        """What to do next with an empty mirrored database; `address`: the URL that the reader came by."""
        connection = self._connection()
        path = quote(f"{item.workspace}/{item.name}{SUFFIXES[0]}/{ZONE}", errors="replace")
        guide = {"url": f"https://onelake.{DFS}/{path}", "environment": "", "address": ""}
        if self._listening.is_remote and self._listening.is_single_port:
            guide |= {
                "address": address,
                "zone": shlex.quote(f"{address}/{path}"),
                "token": '-H "Authorization: Bearer $MIRROR_ENGINE_TOKEN" ',
            }
        elif connection and connection.item_id == item.id:
            has_token = self._listening.token is not None
            hidden = tuple(f"export {name}=" for name in _SECRETS[not has_token :])
            guide |= {
                "shell": f'eval "$(mirror-engine emulator env {shlex.quote(connection.store)})"',
                "environment": "\n".join(line for line in connection.exports() if not line.startswith(hidden)),
                "zone": shlex.quote(f"{connection.http}/{path}"),
                "token": '-H "Authorization: Bearer $AZURE_CLIENT_SECRET" ' if has_token else "",
            }
        return self._render("guide", **guide)

    def _contents(self, item: ShownItem, table: TableStatus) -> dict[str, Any]:
        shown: dict[str, Any] = {"commits": (), "names": (), "rows": None, "error": ""}
        if table.delta_version is not None:
            try:
                shown["commits"] = item.view().history(table.delta_folder, limit=MAX_COMMITS)
                if shown["commits"]:
                    rows, is_sorted = self._statuses.rows(item, table, shown["commits"][0])
                    shown |= {"names": rows.column_names, "rows": row_texts(rows), "is_sorted": is_sorted}
            except MirrorError as problem:
                shown["error"] = str(problem)
        return shown

    def _live(self, render: Callable[[Request], Page]) -> Callable[[Request], Awaitable[Response]]:
        """Answer with a page, or for its script with a stream of changes."""

        async def answer(request: Request) -> Response:
            if EVENT_STREAM not in request.headers.get("accept", ""):
                page = await run_in_threadpool(render, request)
                html = self._render("document", title=page.title, main=page.main)
                return HTMLResponse(html, 200 if page.exists else 404, headers={"Vary": "Accept"})
            if self._stream_count >= MAX_STREAMS:
                return PlainTextResponse("Too many pages are open.\n", 503, {"Retry-After": "60"})
            return StreamingResponse(self._events(partial(render, request)), media_type=EVENT_STREAM)

        return answer

    async def _events(self, render: Callable[[], Page]) -> AsyncIterator[str]:
        """The page's HTML whenever it changes, as server-sent events."""
        self._stream_count += 1
        try:
            last, unchanged = "", 0
            while not self._ended.is_set():
                html = (await run_in_threadpool(render)).main  # has no carriage returns
                unchanged += 1
                if html != last:
                    yield "".join(f"data: {line}\n" for line in html.split("\n")) + "\n"
                    last, unchanged = html, 0
                elif unchanged >= KEEP_ALIVE_REFRESHES:
                    yield ": keep-alive\n\n"
                    unchanged = 0
                await asyncio.sleep(REFRESH_SECONDS)
        finally:
            self._stream_count -= 1

    async def _metrics(self, _: Request) -> Response:
        return Response(await run_in_threadpool(self.metrics.text), media_type=prometheus_client.CONTENT_TYPE_LATEST)

    async def _readyz(self, _: Request) -> Response:
        lines = await run_in_threadpool(lambda: unready(self._statuses.all(), self._clock()))
        return PlainTextResponse("\n".join(["not ready", *lines, ""]), 503) if lines else PlainTextResponse("ready\n")


def _with_headers(app: ASGIApp) -> ASGIApp:
    def add(start: Message) -> None:
        start["headers"] = [*start["headers"], *_HEADERS]  # its list may be of an answer to all requests

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, observed(send, add))

    return answer


def unready(statuses: Iterable[CachedStatus], now: float) -> list[str]:
    """A line for each mirrored database that should run and does not; `now` is in seconds since 1970."""
    reasons = [(cached.item, _reason(cached, now)) for cached in statuses if cached.item.should_run]
    return [printable(f"{item.workspace}/{item.name}: {reason}") for item, reason in reasons if reason]


def _reason(cached: CachedStatus, now: float) -> str:
    if cached.item.error:
        is_ended = cached.item.status is DatabaseStatus.STOPPED
        return f"its engine ended: {cached.item.error}" if is_ended else cached.item.error
    if cached.item.status is not DatabaseStatus.RUNNING:
        return str(cached.item.status.value)
    if cached.status is None:
        return cached.error
    if cached.status.last_heartbeat_at is None:
        return "Running, no heartbeat yet"
    age = now - cached.status.last_heartbeat_at
    return f"Running, last heartbeat {span(age)} ago" if age >= MAX_HEARTBEAT_AGE_SECONDS else ""
