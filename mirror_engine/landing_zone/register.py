"""The numbered register of everything `validate`, `status` and the engine can say (protocol chapter 11)."""

from __future__ import annotations

from mirror_engine.landing_zone import register_files, register_rows, register_tables
from mirror_engine.landing_zone.register_line import SEVERITY_ORDER, DiagnosticDefinition, Severity

__all__ = ["CATALOG", "SEVERITY_ORDER", "DiagnosticDefinition", "Severity"]

CATALOG: dict[str, DiagnosticDefinition] = {
    line.code: line for lines in (register_files, register_rows, register_tables) for line in lines.ENTRIES
}
