"""Test a publisher: `check_publisher` with its parts, and the pytest plugin.

The parts are loaded when first used: the plugin must cost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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

__all__ = [
    "ConformanceReport",
    "ScenarioOutcome",
    "ScenarioResult",
    "SimulatedCrash",
    "Source",
    "SourceChange",
    "ZoneFiles",
    "check_publisher",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("mirror_engine.publisher.scenarios"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
