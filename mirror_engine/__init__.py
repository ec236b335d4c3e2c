"""The open mirroring engine: a Fabric Open Mirroring landing zone becomes Delta tables.

The public names are loaded when first used, so that the protocol's library can be had without the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from mirror_engine._version import __version__

if TYPE_CHECKING:
    from mirror_engine.clock import Clock
    from mirror_engine.config import Config
    from mirror_engine.engine.cycle import RunResult
    from mirror_engine.engine.rebuild import TableRebuild
    from mirror_engine.errors import MirrorError, TransientError
    from mirror_engine.events import Listener
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.mirror import Mirror
    from mirror_engine.monitoring.history import TableHistory
    from mirror_engine.monitoring.maintenance_results import MaintainedTable, MaintenanceReport, RebuildReport
    from mirror_engine.monitoring.rows import SortedRows
    from mirror_engine.monitoring.status_results import Status
    from mirror_engine.monitoring.sync_results import SyncReport
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import DeltaWriter, HistoryEntry
    from mirror_engine.tools.compare.results import Comparison
    from mirror_engine.tools.difference import TableDifference
    from mirror_engine.tools.trace.results import RowTrace
    from mirror_engine.tools.validation import Validation

__all__ = [
    "Clock",
    "Comparison",
    "Config",
    "DeltaWriter",
    "HistoryEntry",
    "Listener",
    "MaintainedTable",
    "MaintenanceReport",
    "Mirror",
    "MirrorError",
    "Place",
    "RebuildReport",
    "RowTrace",
    "RunResult",
    "SortedRows",
    "Status",
    "Storage",
    "SyncReport",
    "TableDifference",
    "TableHistory",
    "TableName",
    "TableRebuild",
    "TransientError",
    "Validation",
    "__version__",
]

_HOMES = {
    "Clock": "clock",
    "Comparison": "tools.compare.results",
    "Config": "config",
    "DeltaWriter": "tables.base",
    "HistoryEntry": "tables.base",
    "Listener": "events",
    "MaintainedTable": "monitoring.maintenance_results",
    "MaintenanceReport": "monitoring.maintenance_results",
    "Mirror": "mirror",
    "MirrorError": "errors",
    "Place": "storage.store_url",
    "RebuildReport": "monitoring.maintenance_results",
    "RowTrace": "tools.trace.results",
    "RunResult": "engine.cycle",
    "SortedRows": "monitoring.rows",
    "Status": "monitoring.status_results",
    "Storage": "storage.base",
    "SyncReport": "monitoring.sync_results",
    "TableDifference": "tools.difference",
    "TableHistory": "monitoring.history",
    "TableName": "landing_zone.names",
    "TableRebuild": "engine.rebuild",
    "TransientError": "errors",
    "Validation": "tools.validation",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
