"""`trace`: every change to a key, the effect of a file or of another order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mirror_engine.cli import exits
from mirror_engine.cli import output as out
from mirror_engine.cli.inspection import ROWS_HELP
from mirror_engine.cli.options import COUNT, READING, TABLE_HELP, command, with_mirror
from mirror_engine.tools.trace.results import FileTrace, RowTrace, WhatIfTrace

if TYPE_CHECKING:
    from mirror_engine.mirror import Mirror


@command(root="option", config=(*READING, "memory_limit"), reads_engine=True, result=RowTrace)
@click.argument("table", help=TABLE_HELP)
@click.argument("key", nargs=-1, required=True, help="The key's value: 42, or Order=7 for each column.")
@with_mirror(at_once=True)
def row(mirror: Mirror, table: str, key: tuple[str, ...]) -> int:
    """Show every change to one key.

    Replays the table's applied, pending and archived change files in memory. If the oldest ones were deleted, starts
    from the table's version after them. Changes nothing, and starts no Java. Shows row values, but never logs them.

    Example: mirror-engine trace row -C ./shop Sales.Orders 42

    Exit codes: 0 shown · 1 no access to a store · 2 usage error: no such table or key · 3 the Delta table differs from
    its change files · 4 temporary: storage; retry
    """
    from mirror_engine.mirror import snapshot_of
    from mirror_engine.tools.trace.context import open_trace
    from mirror_engine.tools.trace.row import trace_row

    with snapshot_of(mirror) as snapshot:
        found = trace_row(open_trace(snapshot, table), key)
    out.report(found)
    return exits.NEEDS_ATTENTION if found.matches_delta is False else exits.SUCCESS


@command(root="option", config=(*READING, "memory_limit"), reads_engine=True, result=FileTrace)
@click.argument("table", help=TABLE_HELP)
@click.argument("name", metavar="FILE", help="The change file's name, path or number.")
@with_mirror(at_once=True)
def file(mirror: Mirror, table: str, name: str) -> None:
    """Show what one change file did.

    Shows its place, content, effect and Delta version. Replays the table as trace row does.

    Example: mirror-engine trace file -C ./shop Sales.Orders 3

    Exit codes: 0 shown · 1 no access to a store · 2 usage error: no such table or file · 4 temporary: storage; retry
    """
    from mirror_engine.mirror import snapshot_of
    from mirror_engine.tools.trace.context import open_trace
    from mirror_engine.tools.trace.file import trace_file

    with snapshot_of(mirror) as snapshot:
        out.report(trace_file(open_trace(snapshot, table), name))


@command("what-if", root="option", config=(*READING, "memory_limit"), reads_engine=True, result=WhatIfTrace)
@click.argument("table", help=TABLE_HELP)
@click.option("--skip", metavar="FILE", multiple=True, help="Replay without this file (repeatable).")
@click.option("--swap", metavar="FILE,FILE", multiple=True, help="Exchange two files: 3,2 (repeatable).")
@click.option("--limit", type=COUNT, default=20, help=ROWS_HELP)
@with_mirror(at_once=True)
def what_if(mirror: Mirror, table: str, skip: tuple[str, ...], swap: tuple[str, ...], limit: int) -> None:
    """Replay without a file, or in another order.

    Compares the result with an unchanged replay. Changes nothing, and starts no Java.

    Example: mirror-engine trace what-if -C ./shop Sales.Orders --skip 3

    Exit codes: 0 shown · 1 no access to a store · 2 usage error: no such table or file · 4 temporary: storage; retry
    """
    from mirror_engine.mirror import snapshot_of
    from mirror_engine.tools.trace.context import open_trace
    from mirror_engine.tools.trace.file import trace_what_if

    if not (skip or swap):
        raise click.UsageError("nothing to change: give --skip FILE or --swap FILE,FILE", click.get_current_context())
    changes = [*(f"skip={name}" for name in skip), *(f"swap={names}" for names in swap)]
    with snapshot_of(mirror) as snapshot:
        out.report(trace_what_if(open_trace(snapshot, table), changes, limit=limit or None))
