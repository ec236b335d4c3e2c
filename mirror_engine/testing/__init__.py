"""Lets a publisher's tests run against the mirror.

`check_publisher` and what it is told and reports are loaded when first used: the pytest plugin must cost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror_engine.testing.conformance import ConformanceReport, Ending, ExerciseResult, check_publisher
    from mirror_engine.testing.source import Source, SourceChange
    from mirror_engine.testing.zone_files import Crash, ZoneFiles

__all__ = [
    "ConformanceReport",
    "Crash",
    "Ending",
    "ExerciseResult",
    "Source",
    "SourceChange",
    "ZoneFiles",
    "check_publisher",
]

_HOMES = {
    "conformance": ("ConformanceReport", "ExerciseResult", "Ending", "check_publisher"),
    "source": ("Source", "SourceChange"),
    "zone_files": ("Crash", "ZoneFiles"),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
