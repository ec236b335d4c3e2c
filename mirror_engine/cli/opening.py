"""Opens a mirror for a command; kept in one place so that `--help` loads nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.mirror import Mirror


def open_mirror(root: Path, config: Config, listeners: Sequence[Listener] = ()) -> Mirror:
    """The mirror under `root`.

    Raises:
        UsageError: `root` is no folder.
    """
    from mirror_engine.mirror import Mirror  # noqa: PLC0415 - Arrow and its like take most of a second

    return Mirror(root, config, listeners=listeners)
