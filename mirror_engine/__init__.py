"""The open mirroring engine: a Fabric Open Mirroring landing zone becomes Delta tables.

The public names are loaded when first used, so that the protocol's library can be had without the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from mirror_engine._version import __version__

if TYPE_CHECKING:
    from mirror_engine.config import Config
    from mirror_engine.engine.cycle import RunResult, SyncReport
    from mirror_engine.errors import MirrorError
    from mirror_engine.mirror import Mirror

__all__ = ["Config", "Mirror", "MirrorError", "RunResult", "SyncReport", "__version__"]

_HOMES = {
    "Config": "config",
    "Mirror": "mirror",
    "MirrorError": "errors",
    "RunResult": "engine.cycle",
    "SyncReport": "engine.cycle",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
