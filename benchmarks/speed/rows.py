"""The data: ten columns of mixed types as a publisher would export them, written with pyarrow's defaults."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirror_engine.landing_zone.change import MARKER_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

KEY = "Id"
SCHEMA = pa.schema(
    [
        (KEY, pa.int64()),
        ("Number", pa.int32()),
        ("Amount", pa.decimal128(12, 2)),
        ("Price", pa.float64()),
        ("Weight", pa.float64()),
        ("City", pa.string()),
        ("Note", pa.string()),
        ("Day", pa.date32()),
        ("ChangedAt", pa.timestamp("us", "UTC")),
        ("IsOpen", pa.bool_()),
    ]
)
CENT = Decimal("0.01")
INSERT, UPDATE, DELETE = 0, 1, 2
# A key's life, over and over: so "the last row per key" is right, and simpler engines can be compared
LIFE = np.array([INSERT, UPDATE, UPDATE, UPDATE, DELETE], dtype=np.int32)
_CITIES = pa.array([f"{name}{at}" for name in ("Linz", "Wels", "Graz", "Steyr", "Bregenz") for at in range(200)])
_WORDS = pa.array(
    [f"{word} {at:03}" for word in ("deliver to the back door", "gift", "call before") for at in range(300)]
)
_YEAR_2026_US = 1_767_225_600_000_000


def rows(ids: Integers, draw: np.random.Generator) -> pa.Table:
    """Make a row for each key. Every other column is random; one weight in a hundred is NULL."""
    count = len(ids)
    weights = draw.random(count) * 100
    words = [pc.cast(pa.array(ids), pa.string()), _WORDS.take(pa.array(draw.integers(0, len(_WORDS), count)))]
    columns = [
        pa.array(ids),
        pa.array(draw.integers(0, 1_000_000, count, dtype=np.int32)),
        pc.multiply(pa.array(draw.integers(-(10**9), 10**9, count)), CENT).cast(SCHEMA.field("Amount").type),
        pa.array(draw.random(count) * 1000),
        pa.array(weights, mask=weights < 1),
        _CITIES.take(pa.array(draw.integers(0, len(_CITIES), count))),
        pc.binary_join_element_wise("order", *words, " "),
        pa.array(draw.integers(18_000, 21_000, count, dtype=np.int32)).cast(pa.date32()),
        pa.array(_YEAR_2026_US + draw.integers(0, 10**13, count)).cast(SCHEMA.field("ChangedAt").type),
        pa.array(draw.random(count) < 0.5),  # noqa: PLR2004 - a coin
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def initial_load(folder: Path, count: int, files: int) -> list[Path]:
    """Files without row markers, with the keys from 1 in order. Files made before are used again."""
    draw = np.random.default_rng(1)
    shares = np.array_split(np.arange(1, count + 1), files)
    return _kept(folder, ((number, rows, share, draw) for number, share in enumerate(shares, 1)), files)


def net_changes(folder: Path, number: int, newest: Integers, count: int) -> Path:
    """One file of `count` changes, one per key: 80 % updates and 10 % deletes of random keys, 10 % inserts.

    Args:
        folder: where the file is written.
        number: of the change file.
        newest: the keys to choose from; inserted ones follow the last.
        count: how many changes.
    """
    draw = np.random.default_rng(number)
    inserts = max(count // 10, 1)
    met = draw.choice(newest, count - inserts, replace=False)
    ids = np.concatenate([met, newest[-1] + 1 + np.arange(inserts)])
    markers = np.full(count, UPDATE, dtype=np.int32)
    markers[: max(count // 10, 1)] = DELETE
    markers[count - inserts :] = INSERT
    order = draw.permutation(count)
    return _kept(folder, [(number, _changes, ids[order], markers[order], draw)], 1)[0]


def histories(  # noqa: PLR0913 - a shape has six sides
    folder: Path, first: int, files: int, rows_a_file: int, *, keys: int, present: int = 0
) -> list[Path]:
    """Files of changes to random keys from 1 to `keys`; the changes of each key never contradict each other.

    Args:
        folder: where the files are written.
        first: number of the first change file.
        files: how many.
        rows_a_file: changes in each.
        keys: the highest key.
        present: keys up to this one are in the table already.
    """
    draw = np.random.default_rng(files)
    ids = draw.integers(1, keys + 1, files * rows_a_file)
    markers = LIFE[(_occurrences(ids) + (ids <= present)) % len(LIFE)]
    parts = zip(np.split(ids, files), np.split(markers, files), strict=True)
    return _kept(folder, ((first + at, _changes, *part, draw) for at, part in enumerate(parts)), files)


def _occurrences(ids: Integers) -> Integers:
    """Count how often each value occurs before its place."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    places = np.arange(len(ids))
    begins = np.where(np.concatenate([[True], ordered[1:] != ordered[:-1]]), places, 0)
    found = np.empty(len(ids), dtype=np.int64)
    found[order] = places - np.maximum.accumulate(begins)
    return found


def _changes(ids: Integers, markers: NDArray[np.int32], draw: np.random.Generator) -> pa.Table:
    return rows(ids, draw).append_column(MARKER_COLUMN, pa.array(markers))


def _kept(folder: Path, wanted: Iterable[tuple[Any, ...]], files: int) -> list[Path]:
    """Write change files by number: all of them or none."""
    if not folder.is_dir():
        making = folder.with_name(folder.name + ".making")
        making.mkdir(parents=True, exist_ok=True)
        for number, make, *given in wanted:
            pq.write_table(make(*given), making / f"{number:020}.parquet")
        making.rename(folder)
    found = sorted(folder.iterdir())
    assert len(found) == files, f"{folder}: made with other sizes"
    return found
