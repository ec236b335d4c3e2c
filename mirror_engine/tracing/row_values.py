"""Rows as plain values: to be shown, and to be told apart as the protocol tells keys apart (LZ-4.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from mirror_engine.landing_zone.change import comparable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

Row: TypeAlias = dict[str, Any]


def plain_rows(rows: pa.RecordBatch) -> list[Row]:
    """Rows as dicts; a point in time beyond Python's is told as text."""
    columns = [[_plain(cell) for cell in column] for column in rows.columns]
    return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def changed_columns(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns whose values differ; one that is lacking is NULL."""
    names = dict.fromkeys((*before, *after))
    return tuple(name for name in names if comparable(before.get(name)) != comparable(after.get(name)))


def _plain(cell: pa.Scalar[Any]) -> object:
    try:
        return cell.as_py()
    except (ValueError, OverflowError):
        return str(cell.value)
