"""`compare`: the tables that Fabric made of a landing zone against a replay here."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from mirror_engine import display
from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.key_digest import KeyDigest
from mirror_engine.cli.options import COUNT, READING, URL_HELP, PlaceType, command, with_config, with_downloads
from mirror_engine.cli.progress import progress_option, shown
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.layout import MONITORING, TABLES, ZONE
from mirror_engine.landing_zone.text import count
from mirror_engine.results import TableReference, fields_json
from mirror_engine.storage.stores import open_storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.cli.downloads import Downloads
    from mirror_engine.config import Config
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import DeltaWriter
    from mirror_engine.tools.compare.zone import Finding, TableComparison

MAX_NAMED = 3  # files of one table
VERDICTS = {
    "equal": ("green", "equal"),
    "not_yet": ("yellow", "equal so far"),
    "unknown": ("yellow", "not compared"),
    "different": ("bold red", "different"),
}


@command(root="own", config=(*READING, "memory_limit"))
@click.argument("url", metavar="URL", type=PlaceType(), help=URL_HELP)
@click.argument("tables", metavar="[TABLE]...", nargs=-1, help="Sales.Orders, Items …; default: all tables.")
@click.option("--limit", type=COUNT, default=5, help="Maximum number of keys to list per finding.")
@click.option("--show-keys", is_flag=True, help="Show the keys' values, on a terminal only; not with --json.")
@progress_option
@with_config
@with_downloads
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

    Replays all change files on this machine, archived ones included, and compares each table with Fabric's. A table is
    equal, equal so far (Fabric has not applied the newest files yet), or different. Each difference names the change
    file that caused it and the rule of the protocol that Fabric's table breaks. Only reads; needs no Java. The report
    contains no values of rows: keys are digests with a secret of this machine.

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


def _comparison_json(found: TableComparison, default_schema: str, digest: KeyDigest) -> dict[str, Any]:
    return {
        **TableReference.of(found.name, found.name.delta_folder(default_schema)).to_json(),
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
            yield display.bullet("partial:", "change files were deleted: only keys in the remaining ones were compared")
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
            yield display.line(f"  … and {count(each.not_traced, 'more key')}, whose changes were not checked", "dim")
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
