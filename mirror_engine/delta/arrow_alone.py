"""Keeps Arrow from importing pandas: half a second that nothing without Spark has any use for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


class _NoPandas:
    """A finder that says there is no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002 - as finders are called
        """See `importlib.abc.MetaPathFinder`."""
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return None


def without_pandas() -> None:
    """Let Arrow ask for pandas now, once for the whole process, and not find it; others find it afterwards."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa  # noqa: PLC0415 - only where it is wanted alone

        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
