"""Where this user's downloads lie: one folder, by versions, safe to delete at any time."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$MIRROR_ENGINE_CACHE`, else `$XDG_CACHE_HOME/mirror_engine`, else `~/.cache/mirror_engine`; may not exist."""
    if chosen := os.environ.get("MIRROR_ENGINE_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification: a relative path there is to be ignored
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "mirror_engine"
