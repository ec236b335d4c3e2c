"""`generate`: realistic tables and a steady load of changes, for tests and demonstrations."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import click

from mirror_engine.cli import output as out
from mirror_engine.cli.options import DURATION, Value, command, to_place
from mirror_engine.cli.setup import writing
from mirror_engine.config import OptionKind, whole
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.text import count
from mirror_engine.storage.roots import check_place
from mirror_engine.tools.generate import PARTNER, Generated, Load, zone_of
from mirror_engine.tools.generate import generate as generated

if TYPE_CHECKING:
    from mirror_engine.storage.store_url import Place

SECONDS_BETWEEN_NOTES = 10.0
_UNITS = {"s": 1, "m": 60, "h": 3600}
_USUAL = Load()


def _rate(value: object) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)/([smh])", str(value))
    if not found or not float(found[1]):
        raise ValueError(value)
    return float(found[1]) / _UNITS[found[2]]


def _mix(value: object) -> tuple[float, float, float]:
    inserts, updates, deletes = (int(part) for part in str(value).split(":"))
    if min(inserts, updates, deletes) < 0 or not inserts + updates + deletes:
        raise ValueError(value)
    return inserts, updates, deletes


@command(root="own", result=Generated)
@click.argument(
    "target", metavar="ROOT", type=to_place, help="A folder, or the URL of one in OneLake or another store."
)
@click.option("--tables", type=Value(whole("N", 1)), default=_USUAL.tables, help="How many tables.")
@click.option("--rows", type=Value(whole("N", 0)), default=_USUAL.rows, help="Rows of the initial load of each table.")
@click.option(
    "--rate",
    type=Value(OptionKind("a number a second, minute or hour, such as 50/s or 10/m", "N/s", _rate)),
    default="50/s",
    help="Changes, in all tables together.",
)
@click.option(
    "--mix",
    type=Value(OptionKind("three weights such as 7:2:1", "I:U:D", _mix)),
    default="7:2:1",
    help="Weights of inserts, updates and deletes.",
)
@click.option("seconds", "--for", type=DURATION, default="1m", help="How long changes land.")
@click.option("--every", type=DURATION, default="1s", help="Time between two change files of a table.")
@click.option("--seed", type=Value(whole("N", 0)), default=_USUAL.seed, help="The same seed generates the same rows.")
def generate(
    target: Place,
    tables: int,
    rows: int,
    rate: float,
    mix: tuple[float, float, float],
    seconds: float,
    every: float,
    seed: int,
) -> None:
    """Land tables of a shop, then changes at a steady pace.

    Writes as a publisher in production does: Parquet, numbered, each file once and whole. Tables that an earlier call
    has landed are not loaded again: their changes continue. Starts no engine: see sync and run.

    Example: mirror-engine generate ./shop --tables 10 --rate 50/s --mix 7:2:1 --for 10m

    Exit codes: 0 landed · 1 no access to a store · 2 usage error: a table has other columns, or another publisher · 4
    temporary: the disk is full, or storage failed · 130 interrupted
    """
    from mirror_engine.publish import Conflict, LandingZone, Refused

    if not every:
        raise UsageError("--every 0s: two change files of a table need time between them", "for example: --every 1s")
    check_place(target)
    zone, load = zone_of(target), Load(tables, rows, rate, mix, seconds, every, seed)
    found, told = None, time.monotonic()
    try:
        with writing():
            if not zone.files.list(""):
                LandingZone(zone.files, partner=PARTNER, source={"sourceType": "Generated"})
            for found in generated(zone, str(target), load):
                if time.monotonic() - told >= SECONDS_BETWEEN_NOTES and out.verbosity() >= 0:
                    told = time.monotonic()
                    out.note(f"[{found.duration_seconds:.0f}s] {count(found.files, 'file')} landed")
    except Refused as error:
        raise UsageError(str(error).partition("\n")[0], "choose another ROOT, or delete the table's folder") from None
    except Conflict as error:
        raise UsageError(str(error), "run one generate for each ROOT") from None
    if found:
        out.report(found)
