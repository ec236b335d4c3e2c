"""What an emulator serves, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror_engine.config import Config
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.options import EmulatorOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror_engine.onelake.items import Item
    from mirror_engine.tables.base import DeltaWriter


@dataclass(frozen=True)
class ServerPlan:
    """What an emulator serves, and how."""

    store: Path  # the folder of workspaces and items; created where missing
    workspace: str | None = None  # the default mirrored database, created where missing; None for the first
    item: str | None = None
    has_engines: bool = True  # whether landed files are applied
    listening: Listening = field(default_factory=Listening)  # where
    options: EmulatorOptions = field(default_factory=EmulatorOptions)  # how it differs from OneLake
    config: Config = field(default_factory=Config)  # of the engines
    # the Delta writer of an item; Spark's where it gives None
    new_writer: Callable[[Item], DeltaWriter | None] = lambda _: None
    has_fault_api: bool = False  # whether faults can be switched while it runs
    resumes: bool = False  # whether a stopped item that starts again keeps its tables, which Fabric rebuilds
