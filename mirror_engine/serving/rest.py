"""What tells that an item is not to be mirrored, and outlasts the server."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.endpoint.databases import DatabaseStatus
from mirror_engine.landing_zone.layout import ENGINE

if TYPE_CHECKING:
    from pathlib import Path

_NOTE = f"{ENGINE}/idle.json"


@dataclass(frozen=True)
class Rest:
    """Of an item that was stopped, or never started.

    Attributes:
        status: Stopped or Initialized.
        default_schema: where tables outside a schema folder lie; the definition may name another one meanwhile.
    """

    status: DatabaseStatus
    default_schema: str

    @staticmethod
    def of(root: Path) -> Rest | None:
        """What an item's folder says; None for an item that is to be mirrored."""
        with suppress(FileNotFoundError):
            told = json.loads((root / _NOTE).read_text(encoding="utf-8"))
            return Rest(DatabaseStatus(told["status"]), told["default_schema"])
        return None

    def note(self, root: Path) -> None:
        """Write it into the item's folder."""
        path = root / _NOTE
        path.parent.mkdir(exist_ok=True)
        told = {"status": self.status.value, "default_schema": self.default_schema}
        path.write_text(json.dumps(told), encoding="utf-8")

    @staticmethod
    def end(root: Path) -> None:
        """It is mirrored again; repeatable."""
        (root / _NOTE).unlink(missing_ok=True)
