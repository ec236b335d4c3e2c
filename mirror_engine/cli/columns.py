"""A table's columns as JSON tells them, in Delta's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def columns_of(schema: pa.Schema) -> list[dict[str, Any]]:
    """Name, type and nullability of each column, in order."""
    from mirror_engine.tables.arrow_types import delta_type  # noqa: PLC0415 - Arrow takes most of a second

    return [
        {"name": field.name, "type": delta_type(field.type) or str(field.type), "nullable": field.nullable}
        for field in schema
    ]
