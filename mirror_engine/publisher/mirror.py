"""`mirror_engine.Mirror`: the mirror with the tools for publishers, as programs and notebooks have it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.diagnostics import count
from mirror_engine.mirror import Mirror as EngineMirror

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from mirror_engine.publisher.diff import Difference
    from mirror_engine.publisher.trace.row import RowHistory
    from mirror_engine.publisher.validate import ValidationReport


class Mirror(EngineMirror):  # noqa: D101 - see below
    __doc__ = EngineMirror.__doc__  # the arguments

    def validate(self) -> ValidationReport:
        """Check the landing zone as Fabric would take it: a dry run from its first file. Reads only, starts no JVM.

        Raises:
            TransientError: the landing zone cannot be read.
        """
        from mirror_engine.publisher.validate import check_landing_zone, find_target  # noqa: PLC0415 - a sync needs none of these tools

        return check_landing_zone(find_target(self.root, self.config))

    def trace(self, table: str, key: object) -> RowHistory:
        """Every change to the row of a key, in order. Reads only, starts no JVM.

        Args:
            table: by name, in any case.
            key: the value of the key column; of several columns, a value for each by name, or a tuple in their order.

        Raises:
            UnknownTable: no such table.
            UsageError: the table has no key, or another one.
            TransientError: the landing zone or the table cannot be read.
        """
        from mirror_engine.publisher.trace.replay import open_trace  # noqa: PLC0415 - a sync needs none of these tools
        from mirror_engine.publisher.trace.row import trace_row  # noqa: PLC0415 - a sync needs none of these tools

        with self.snapshot() as seen:
            trace = open_trace(seen, table)
            alone = trace.key_columns[0] if len(trace.key_columns) == 1 else ""
            values = key if isinstance(key, Mapping) else {alone: key}
            if isinstance(key, tuple | list):
                if len(key) != len(trace.key_columns):
                    names = ", ".join(trace.key_columns) or "empty"
                    raise UsageError(
                        f"key: {count(len(key), 'value')}, the key is {names}", "Give a value for each column."
                    )
                values = dict(zip(trace.key_columns, key, strict=True))
            return trace_row(
                trace, [f"{name}={_text(value)}" if name else _text(value) for name, value in values.items()]
            )

    def diff(  # noqa: PLR0913 - as of the command
        self,
        table: str,
        expected: str | Path | pa.Table | Sequence[Mapping[str, Any]],
        *,
        key: Sequence[str] = (),
        version: int | None = None,
        tolerance: float = 0.0,
        limit: int | None = 20,
    ) -> Difference:
        """Compare a table with an expected one. Starts no JVM.

        Args:
            table: by name, in any case.
            expected: the path of a CSV, JSON or Parquet file; rows as dicts; an Arrow table, or what becomes one.
            key: columns by which rows are matched; the table's key by default.
            version: the newest by default.
            tolerance: floats this far apart are equal.
            limit: how many rows of each kind are returned; None for all.

        Raises:
            UnknownTable: no such table, or no such version of it.
            UsageError: what is expected cannot be read, or has other types.
        """
        from mirror_engine.publisher.diff import compare, expected_rows, read_expected  # noqa: PLC0415 - a sync needs none of these tools

        actual = self.read_table(table, version=version)
        if isinstance(expected, (str, Path)):
            wanted = read_expected(Path(expected), actual.schema)
        else:
            wanted = expected_rows(expected, actual.schema)
        return compare(actual, wanted, key or self.key_columns(table), tolerance=tolerance, limit=limit)


def _text(value: object) -> str:
    """A key's value as the command line has it."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
