"""Prepare a process of our own for a command, which is usually short."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast


def prepare_process() -> None:
    """Replace closed streams, keep pandas out, and collect less garbage."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # no other file may get its number
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - until we exit
    sys.meta_path.insert(0, cast("Any", SimpleNamespace(find_spec=_refuse_pandas)))
    gc.set_threshold(50_000)  # new objects: most commands end soon
    atexit.register(gc.freeze)  # skips the last collection: the exit frees everything


def _refuse_pandas(name: str, *_: object) -> None:
    """Let Arrow and PySpark work without pandas. They import it if it is installed: 0.3 s or more, never used here."""
    if name == "pandas":
        raise ModuleNotFoundError(name)
