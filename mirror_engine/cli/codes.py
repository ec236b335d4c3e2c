"""Diagnostics as they are named on the command line."""

from __future__ import annotations

from difflib import get_close_matches

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.diagnostics import CATALOG


def known_code(text: str) -> str:
    """The code of the register that is meant.

    Raises:
        UsageError: there is none.
    """
    code = text.strip().upper()
    if code in CATALOG:
        return code
    near = get_close_matches(code, CATALOG, n=1, cutoff=0.5)
    help = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(f"{text}: no such diagnostic", f"{help}`mirror-engine explain` lists them all.")
