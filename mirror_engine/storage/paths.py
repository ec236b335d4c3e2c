"""Paths below ROOT as parts: the one place that knows which paths leave it."""

from __future__ import annotations


def parts_of(path: str) -> tuple[str, ...] | None:
    """The parts of a path from ROOT; `()` for ROOT itself, None for a path that is none or would leave ROOT.

    None for `..`, `.`, an empty part (so an absolute path, too), NUL, and text that is no UTF-8.
    """
    if not path:
        return ()
    parts = tuple(path.split("/"))
    odd = "\0" in path or any(part in {"", ".", ".."} for part in parts) or not is_text(path)
    return None if odd else parts


def is_text(name: str) -> bool:
    """Whether a name can be written as UTF-8; a local disk may hold others."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
