"""Lets a publisher's tests run against the mirror.

`check_publisher` and what it is told and reports are loaded when first used: the pytest plugin must cost nothing.
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

_HOME = "mirror_engine.publisher.scenarios"


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module(_HOME), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
