"""`pull` and `compare`: a copy of a zone that is elsewhere, and its tables against a replay here."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import filesize
from rich.text import Text

from mirror_engine import display
from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.log import progress_option, shown
from mirror_engine.cli.options import COUNT, READING, FolderType, PlaceType, Value, command
from mirror_engine.config import OptionKind, cache_folder, duration
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.landing_zone.layout import MONITORING, TABLES, ZONE
from mirror_engine.monitoring.words import table_json
from mirror_engine.onelake.connection import write_private
from mirror_engine.results import Count, Result, Seconds, fields_json
from mirror_engine.storage.stores import open_storage

if TYPE_CHECKING:
    from mirror_engine.cli.options import Downloads
    from mirror_engine.config import Config
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import DeltaWriter
    from mirror_engine.tools.compare.zone import Finding, TableComparison

URL_HELP = "The mirrored database: abfss://WORKSPACE@onelake.dfs.fabric.microsoft.com/ITEM, s3://…, or a folder."
MAX_NAMED = 3  # files of one table
VERDICTS = {
    "equal": ("green", "equal"),
    "not_yet": ("yellow", "equal so far"),
    "unknown": ("yellow", "not compared"),
    "different": ("bold red", "different"),
}


def _moment(value: object) -> float:
    """Seconds since 1970 of an ISO 8601 time, UTC without an offset; or of a time so long ago."""
    try:
        return time.time() - float(duration(0).read(value))
    except ValueError:
        at = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


@command(root="own", config=(*READING, "memory_limit"), at_once=True)
@click.argument("url", metavar="URL", type=PlaceType(), help=URL_HELP)
@click.argument("tables", metavar="[TABLE]...", nargs=-1, help="Sales.Orders, Items …; default: all tables.")
@click.option("--limit", type=COUNT, default=5, help="Maximum number of keys to list of each finding.")
@click.option("--show-keys", is_flag=True, help="Show the keys' values, on a terminal only; not with --json.")
@progress_option
def compare(
    url: Place,
    tables: tuple[str, ...],
    config: Config,
    limit: int,
    downloads: Downloads,
    progress: str,
    *,
    show_keys: bool,
) -> int:
    """Compare Fabric's tables with a replay of their landing zone.

    Replays the change files here, also those that were moved after they were applied, and holds each table against
    Fabric's own: equal; equal so far, where only newer files are missing that Fabric has not applied; or different,
    with the change file that is the cause, and the rule of the protocol that the table contradicts. Only reads; needs
    no Java. The report, JSON too, has no row's values: keys are digests with a secret of this machine.

    Example: mirror-engine compare abfss://WORKSPACE@onelake.dfs.fabric.microsoft.com/ITEM

    Exit codes: 0 equal, or equal so far · 2 usage error: no zone, no such table · 3 different · 4 temporary:
    storage; retry
    """
    import tempfile

    from mirror_engine.tables.merge.arrow import ArrowWriter
    from mirror_engine.tools.compare.zone import compare_zone

    if show_keys and (out.wants_json() or not out.stdout().is_terminal):
        raise UsageError("--show-keys shows values of rows: on a terminal only, and not with --json", "omit it")
    digest = KeyDigest()
    with tempfile.TemporaryDirectory(prefix="mirror-engine-") as folder, shown(progress) as listen:
        work = Path(folder)
        source, zone = open_storage(url), downloads.open(url, ZONE)
        fabric = ArrowWriter(url / TABLES, work / "read")
        _check_fabric(url, source, fabric)
        options: dict[str, Any] = {"tables": tables, "limit": limit, "listen": listen, "zone": zone}
        options["allow"] = partial(downloads.add_table, url)
        found = list(compare_zone(source, fabric, config, work, **options))
    if not found:
        raise UsageError(f"{url}: there are no tables", f"Give the URL of a mirrored database; it holds {ZONE}.")
    is_equal = all(each.verdict in {"equal", "not_yet"} for each in found)
    documents = [_comparison_json(each, config.delta_default_schema, digest) for each in found]
    out.report(
        {"url": str(url), "equal": is_equal, "tables": documents}, _compare_text(found, None if show_keys else digest)
    )
    return exits.SUCCESS if is_equal else exits.NEEDS_ATTENTION


def _check_fabric(url: Place, source: Storage, fabric: DeltaWriter) -> None:
    """Refuse a folder that Fabric does not mirror, as a pulled copy: each table would be one not yet applied."""
    from mirror_engine.tools.pull import pulled_from

    origin = pulled_from(url) if isinstance(url, Path) else None
    is_fabrics = origin is None and (source.stat(TABLES) or source.stat(MONITORING))
    if not is_fabrics and not fabric.tables():
        help = f"Compare the URL it was pulled from: {origin}." if origin else "Give the URL of the mirrored database."
        raise UsageError(f"{url} has no tables of Fabric", help)


class KeyDigest:
    """Digests of values, with a secret of this machine: reports can be compared, and no value be found by trying."""

    def __init__(self) -> None:
        path = cache_folder() / "report-secret"
        self._secret = secrets.token_bytes(32)
        try:
            self._secret = path.read_bytes()
        except OSError:
            with suppress(OSError):  # another report then has other digests
                path.parent.mkdir(parents=True, exist_ok=True)
                write_private(path, self._secret)

    def __call__(self, *values: Any) -> str:
        """Twelve digits for values."""
        text = json.dumps([display.plain(value) for value in values]).encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[:12]

    def path(self, path: str | None) -> str | None:
        """A change file's path, with digests of partition values."""
        parts = (part.partition("=") for part in path.split("/")) if path else ()
        return path and "/".join(f"{name}={self(value)}" if equals else name for name, equals, value in parts)


def _comparison_json(found: TableComparison, default_schema: str, digest: KeyDigest) -> dict[str, Any]:
    return {
        **table_json(found.name, found.name.delta_folder(default_schema)),
        **fields_json(found, "verdict", "state", "key", "is_partial", "files", "counts", "not_traced"),
        "diagnostic": found.diagnostic and found.diagnostic.code,
        "not_yet": [digest.path(path) for path in found.not_yet],
        "late": [digest.path(path) for path in found.late],
        "findings": [
            {
                **fields_json(each, "kind", "rule", "message", "help", "column", "count"),
                "file": digest.path(each.file),
                "other_file": digest.path(each.other_file),
                "keys": [
                    {"digest": digest(*key.values.values()), "file": digest.path(key.file), "row": key.row}
                    for key in each.keys
                ],
            }
            for each in found.findings
        ],
    }


def _compare_text(compared: Sequence[TableComparison], digest: KeyDigest | None) -> display.Lines:
    """Each table in a line, findings below it, and how many tables are equal; values only without a digest."""
    for each in compared:
        style, word = VERDICTS[each.verdict]
        rows = f"{count(each.counts['equal'], 'equal row')} from {count(each.files - len(each.not_yet), 'file')}"
        others = [f"{number:,} {kind}" for kind, number in each.counts.items() if number and kind != "equal"]
        yield display.line(f"{each.name.normalized}: {', '.join([word, *others])}; {rows}", style)
        if each.is_partial:
            yield display.bullet("partial:", "change files are gone: only keys in those that are left were compared")
        if each.not_yet:
            yield display.bullet(
                "not applied yet:", f"{count(len(each.not_yet), 'newer file')}: {_named(each.not_yet, digest)}"
            )
        if each.late:
            yield display.bullet("late:", f"{_named(each.late, digest)}: applied after newer files (LZ-3.6)")
        if each.diagnostic:
            yield display.bullet("replay:", f"{each.state}: {each.diagnostic.coded_message}")
        for finding in each.findings:
            yield from map(display.indented, _finding_text(each, finding, digest))
        if each.not_traced:
            yield display.line(f"  … and {count(each.not_traced, 'more key')}, whose changes were not looked at", "dim")
    verdicts = Counter(VERDICTS[each.verdict][1] for each in compared)
    numbers = ", ".join(f"{times:,} {word}" for word, times in verdicts.items())
    yield f"Compared {count(len(compared), 'table')}: {numbers}."


def _finding_text(table: TableComparison, finding: Finding, digest: KeyDigest | None) -> display.Lines:
    what = "key" if table.key else "row"
    column = f" (column {finding.column})" if finding.column else ""
    amount = f": {count(finding.count, what)}" if finding.count else ""
    yield Text.assemble((finding.rule, "bold"), "  ", display.line(f"{finding.message}{column}{amount}"))
    files = [file for file in (finding.file, finding.other_file) if file]
    if files:
        yield display.bullet("-->", f"{table.name.folder}/{_named(files, digest)}")
    if finding.keys:
        names = (
            ", ".join(f"{name} = {display.cell(value)}" for name, value in key.values.items()) for key in finding.keys
        )
        shown_keys = names if digest is None else (digest(*key.values.values()) for key in finding.keys)
        places = (("" if key.file is None else _named([key.file], digest), f"{key.row or ''}") for key in finding.keys)
        rows = [(key, *place) for key, place in zip(shown_keys, places, strict=True)]
        yield display.indented(display.Grid([what.capitalize(), "Last changed by", ">Row"], rows))
        if finding.count > len(rows):
            yield display.indented(display.line(f"… and {finding.count - len(rows):,} more, see --limit", "dim"))
    if finding.help:
        yield display.bullet("help:", finding.help)


def _named(files: Sequence[str], digest: KeyDigest | None) -> str:
    names = [str(digest.path(file)) if digest else file for file in files]
    return ", ".join(names) if len(names) <= MAX_NAMED else f"{names[0]} … {names[-1]}"


class Pulled(Result, frozen=True):
    """What was copied to this machine.

    Attributes:
        files: downloaded
        present: that were here already
        older: than `--since`
        restored: archived files at their old paths
        recreated: tables whose folder is a new one
        bytes: downloaded
        duration_seconds: of the copy
    """

    url: str
    root: str
    files: Count
    present: Count
    older: Count
    restored: Count
    not_restored: Sequence[str]
    recreated: Sequence[str]
    bytes: Count
    duration_seconds: Seconds

    def text(self) -> display.Lines:
        """What was copied, and what the copy lacks."""
        seconds = display.elapsed(self.duration_seconds)
        copied = f"{count(self.files, 'file')} ({filesize.decimal(self.bytes)}, {seconds})"
        before = f"; {count(self.present, 'file')} present before" if self.present else ""
        yield f"Copied {copied} to {self.root}{before}."
        if self.restored:
            yield f"{count(self.restored, 'archived file')} put back at old paths."
        if self.older:
            yield display.line(
                f"{count(self.older, 'older file')} left out: validate and sync the copy with --first-file lowest.",
                "yellow",
            )
        yield from display.bullets([("recreated, copied again:", path) for path in self.recreated])
        yield from display.bullets(
            [("stays archived:", f"{path}: a new file is at its old path (LZ-3.13)") for path in self.not_restored]
        )
        if self.not_restored:
            yield display.bullet(
                "help:", "validate, trace and compare read the archived file, as applied; sync reads the new one"
            )


@command(root="own", config=("default_schema",), at_once=True, copies=True, result=Pulled)
@click.argument("url", metavar="URL", type=PlaceType(), help=URL_HELP)
@click.argument(
    "target", metavar="ROOT", type=FolderType(), help="A new or empty folder, or one pulled from URL before."
)
@click.option("tables", "--table", metavar="TABLE", multiple=True, help="Only this table (repeatable).")
@click.option(
    "--since",
    type=Value(OptionKind("a duration such as 2d, or a time such as 2026-11-20T08:00Z", "TIME", _moment)),
    help="Only change files that landed since then: 2026-11-20T08:00Z, or 2d ago.",
)
@progress_option
def pull(
    url: Place,
    target: Path,
    config: Config,
    tables: tuple[str, ...],
    since: float | None,
    downloads: Downloads,
    progress: str,
) -> None:
    """Copy a landing zone to this machine.

    Change files with names, order and times, metadata, and files that were moved after they were applied, which are put
    back at their old paths: validate, trace and sync work on the copy. Writes nothing at the source. Stopped at any
    moment, it goes on when it is run again; files that are here already are not downloaded again.

    Example: mirror-engine pull abfss://WORKSPACE@onelake.dfs.fabric.microsoft.com/ITEM ./copy

    Exit codes: 0 copied · 2 usage error: no zone, ROOT is another folder, too much to download · 4 temporary:
    storage, or a file keeps changing; retry · 130 interrupted
    """
    from mirror_engine.tools.pull import Pull

    started = time.monotonic()
    with shown(progress) as listen:
        since_ns = 0 if since is None else int(since * 1e9)
        schema = config.delta_default_schema
        origin = str(url.resolve() if isinstance(url, Path) else url)
        found = Pull(open_storage(url), origin, target, tables, since_ns, default_schema=schema, listen=listen)
        plan = found.run(lambda plan: downloads.add(plan.byte_count))
    copied = plan.present, plan.older, plan.restored, plan.not_restored, plan.recreated, plan.byte_count
    seconds = round(time.monotonic() - started, 3)
    out.report(Pulled(str(url), str(target), len(plan.files), *copied, seconds))
