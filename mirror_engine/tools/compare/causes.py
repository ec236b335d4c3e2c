"""Causes of differences from Fabric's table: what would explain a key's rows, or a column's cells."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.landing_zone.change import RowMarker, replay, same_rows
from mirror_engine.tables.arrow_types import delta_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from mirror_engine.tools.trace.row import FileChange

    Row = Mapping[str, Any]
    Flags = NDArray[np.bool_]


MAX_CHANGES = 50  # of one key that are left out, doubled or exchanged, the newest ones
QUARTER_HOUR = 15 * 60 * 1_000_000  # microseconds; offsets of time zones are multiples
MAX_SHIFT = 26 * 4 * QUARTER_HOUR  # between the first and the last time zone
SINGLE_PRECISION = 1e-6


@cache
def causes() -> Mapping[str, Mapping[str, str]]:
    """Every kind of difference, of `causes.json`.

    Each has the `rule` that Fabric's table contradicts, `text_rule` where that of delimited text is another one, a
    `message`, which is what Fabric's table shows, and `help`: what may be looked at.
    """
    found: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("causes.json").read_text(encoding="utf-8"))
    return found


_LOST = {RowMarker.DELETE: "lost_delete", RowMarker.INSERT: "lost_insert"}


class Guess(NamedTuple):
    """A possible cause of a key's rows in Fabric's table: a kind of `causes`, the file, another one, and the row."""

    kind: str
    file: str | None = None
    other: str = ""
    row: int | None = None


def _guess(kind: str, blamed: FileChange, other: str = "") -> Guess:
    return Guess(kind, blamed.file, other, blamed.row)


def final_rows(changes: Iterable[FileChange], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The rows that changes of one key leave."""
    return replay([], [each.change for each in changes], keys)[0]


def guesses(changes: Sequence[FileChange], theirs: Sequence[Row], keys: Sequence[str]) -> list[Guess]:
    """All single causes that explain a key's rows in Fabric's table, the likeliest first."""
    return [guess for guess, otherwise in _alternatives(changes) if same_rows(final_rows(otherwise, keys), theirs)]


def _alternatives(changes: Sequence[FileChange]) -> Iterator[tuple[Guess, Sequence[FileChange]]]:
    newest = range(len(changes) - 1, max(len(changes) - MAX_CHANGES, 0) - 1, -1)
    for at in newest:
        lost = _LOST.get(changes[at].change.marker, "lost_update")
        yield _guess(lost, changes[at]), [*changes[:at], *changes[at + 1 :]]
    files = [list(group) for _, group in groupby(changes, lambda each: each.file)]
    last_files = range(len(files) - 1, max(len(files) - MAX_CHANGES, 0) - 1, -1)
    for at in last_files:
        before, own, after = files[:at], files[at], files[at + 1 :]
        yield _guess("file_lost", own[-1]), _joined([*before, *after])
        yield _guess("file_twice", own[-1]), _joined([*before, own, own, *after])
        if before:
            other = before[-1]
            yield _guess("order", own[-1], other[-1].file), _joined([*before[:-1], own, other, *after])
    for at in newest:
        if changes[at].change.marker is RowMarker.INSERT:
            yield _guess("doubled_change", changes[at]), [*changes[: at + 1], *changes[at:]]
            upsert = replace(changes[at], change=replace(changes[at].change, marker=RowMarker.UPSERT))
            yield _guess("insert_replaced", changes[at]), [*changes[:at], upsert, *changes[at + 1 :]]
    for at in last_files:
        yield _guess("stale", files[at][0]), _joined(files[:at])


def _joined(files: Iterable[Sequence[FileChange]]) -> list[FileChange]:
    return list(chain.from_iterable(files))


def likely(changes: Sequence[FileChange], ours: Sequence[Row], theirs: Sequence[Row], keys: Sequence[str]) -> Guess:
    """The likeliest cause of a key's rows if no single change explains them."""
    if not changes:
        return Guess("no_file")
    last, before, kind = changes[-1], final_rows(changes[:-1], keys), "other"
    if keys and any(part is None for part in last.change.key):
        kind = "null_key"
    elif bool(theirs) is not bool(ours) and (theirs or last.change.marker is not RowMarker.DELETE):
        kind = "lost_delete" if theirs else _LOST.get(last.change.marker, "lost_update")
    elif len(before) > 1:
        kind = "copies"
    elif len(before) == len(ours) == len(theirs) == 1:
        kept = {name: before[0].get(name) if value is None else value for name, value in ours[0].items()}
        kind = "kept_values" if same_rows([kept], theirs) else "other"
    return _guess(kind, last)


def cell_cause(ours: pa.Array[Any], theirs: pa.Array[Any], kind: str = "") -> tuple[str, Flags] | None:
    """The cause that explains most of a column's differing cells, and those cells; None if there is none.

    `kind` is the only one to try, `""` for all.
    """
    found = [each for each in _cell_causes(ours, theirs) if each[0] == (kind or each[0])]
    kind, cells = max(found, key=lambda each: np.count_nonzero(each[1]))  # the first of equal ones
    return (kind, cells) if cells.any() else None


def _cell_causes(ours: pa.Array[Any], theirs: pa.Array[Any]) -> Iterator[tuple[str, Flags]]:
    kind, is_null, was_null = ours.type, _flags(theirs.is_null()), _flags(ours.is_null())
    both = ~is_null & ~was_null
    if delta_type(kind) in {"string", "binary"}:
        yield "empty_is_null", is_null & _flags(pc.equal(pc.binary_length(ours), 0))
        yield "null_is_empty", was_null & _flags(pc.equal(pc.binary_length(theirs), 0))
    elif pa.types.is_timestamp(kind):
        first, second = (side.view(pa.int64()).fill_null(0).to_numpy() for side in (ours, theirs))
        for unit in (1_000, 1_000_000, 60_000_000, 86_400_000_000):  # milliseconds, seconds, minutes, days
            yield "truncated_time", both & (second % unit == 0) & (np.abs(first - second) < unit)
        yield "shifted_time", both & ((first - second) % QUARTER_HOUR == 0) & (np.abs(first - second) <= MAX_SHIFT)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        first, second = (side.cast(pa.float64()).to_numpy(zero_copy_only=False) for side in (ours, theirs))
        is_near = np.abs(first - second) <= np.abs(first) * SINGLE_PRECISION
        is_whole = (second == np.trunc(first)) | (second == np.rint(first))
        is_wrapped = np.logical_or.reduce([np.fmod(first - second, 2.0**bits) == 0 for bits in (8, 16, 32)])
        yield "cast", both & (is_near | is_whole | (is_wrapped & pa.types.is_integer(kind)))
    yield "null_value", is_null


def _flags(mask: pa.Array[Any]) -> Flags:
    flags: Flags = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return flags
