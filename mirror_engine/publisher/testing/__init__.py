"""Test a publisher: `check_publisher` with its parts, `onelake` with its parts, and the pytest plugin.

The parts are loaded when first used: the plugin must cost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from mirror_engine.errors import UsageError
from mirror_engine.extras import install_command

if TYPE_CHECKING:
    from mirror_engine.publisher.scenarios import (
        ConformanceReport,
        ScenarioOutcome,
        ScenarioResult,
        SimulatedCrash,
        Source,
        SourceChange,
        ZoneFiles,
        check_publisher,
    )
    from mirror_engine.publisher.testing.emulator import OneLakeInTest, Snapshot, onelake

__all__ = [
    "ConformanceReport",
    "OneLakeInTest",
    "ScenarioOutcome",
    "ScenarioResult",
    "SimulatedCrash",
    "Snapshot",
    "Source",
    "SourceChange",
    "ZoneFiles",
    "check_publisher",
    "onelake",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    is_emulated = name in {"OneLakeInTest", "Snapshot", "onelake"}
    try:
        return getattr(import_module(".emulator" if is_emulated else "..scenarios", __name__), name)
    except ModuleNotFoundError as error:
        help_text = f"Install the extra: {install_command('emulator')}" if is_emulated else ""
        raise UsageError(f"{name} needs {error.name}", help_text) from None
