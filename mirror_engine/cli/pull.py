"""`pull`: a copy of a landing zone that is elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich import filesize

from mirror_engine import display
from mirror_engine.cli import output as out
from mirror_engine.cli.options import URL_HELP, Value, command, to_place, with_config, with_downloads
from mirror_engine.cli.progress import progress_option, shown
from mirror_engine.config import OptionKind, duration
from mirror_engine.landing_zone.text import count
from mirror_engine.results import Count, Result, Seconds
from mirror_engine.storage.store_url import local_folder
from mirror_engine.storage.stores import open_storage

if TYPE_CHECKING:
    from mirror_engine.cli.downloads import Downloads
    from mirror_engine.config import Config
    from mirror_engine.storage.store_url import Place


def _moment(value: object) -> float:
    """Parse an ISO 8601 time (UTC without an offset), or a duration before now, to seconds since 1970."""
    try:
        return time.time() - float(duration(0).read(value))
    except ValueError:
        at = datetime.fromisoformat(str(value))
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


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


@command(root="own", config=("default_schema",), copies=True, result=Pulled)
@click.argument("url", metavar="URL", type=to_place, help=URL_HELP)
@click.argument(
    "target", metavar="ROOT", type=local_folder, help="A new or empty folder, or one pulled from URL before."
)
@click.option("tables", "--table", metavar="TABLE", multiple=True, help="Only this table (repeatable).")
@click.option(
    "--since",
    type=Value(OptionKind("a duration such as 2d, or a time such as 2026-11-20T08:00Z", "TIME", _moment)),
    help="Only change files that landed since then: 2026-11-20T08:00Z, or 2d ago.",
)
@progress_option
@with_config
@with_downloads
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

    The copy keeps names, order, times and metadata, so validate, trace and sync work on it. Archived files are put back
    at their old paths. Writes nothing at the source. If it is interrupted, run it again: it does not download complete
    files twice.

    Example: mirror-engine pull abfss://WORKSPACE@onelake.dfs.fabric.microsoft.com/ITEM ./copy

    Exit codes: 0 copied · 1 no access to a store · 2 usage error: no zone, ROOT is another folder, too much to download
    · 4 temporary: storage, or a file keeps changing; retry · 130 interrupted
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
