"""The numbered register of everything `validate`, `status` and the engine can say (protocol chapter 11)."""

from __future__ import annotations

from mirror_engine.landing_zone import register_files, register_rows, register_tables
from mirror_engine.landing_zone.register_line import GRAVITY, RegisterLine, Severity

__all__ = ["GRAVITY", "REGISTER", "RegisterLine", "Severity"]

REGISTER: dict[str, RegisterLine] = {
    line.code: line for lines in (register_files, register_rows, register_tables) for line in lines.ENTRIES
}
