"""Which display names an item may have: those that every disk and every path can carry."""

from __future__ import annotations

import re

from mirror_engine.endpoint.item_book import GUID

SUFFIXES = (".MountedRelationalDatabase", ".MirroredDatabase")  # clients may add one to an item's name
PREFIX = "onelake"  # `/onelake/{workspace}/{item}` is `/{workspace}/{item}`
NAME_BYTES = 255 - max(len(suffix) for suffix in SUFFIXES)
# Control characters, what some disks forbid, what ends or begins badly, and what no UTF-8 can spell
ODD = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*\ud800-\udfff]|^[. ]|[. ]$')


class NameInUse(Exception):
    """Another item of the workspace has that name, or one that differs in case only."""


class NameUnusable(Exception):
    """No folder can be called so everywhere, or paths would become ambiguous."""


def check_name(name: str) -> None:
    """Whether a workspace or item may be called so.

    Raises:
        NameUnusable: it says why.
    """
    if not name or ODD.search(name):
        raise NameUnusable('A name is not empty, has none of <>:"/\\|?*, and neither begins nor ends with . or space.')
    if len(name.encode()) > NAME_BYTES:
        raise NameUnusable(f"A name has at most {NAME_BYTES} bytes.")
    if GUID.fullmatch(name) or name.endswith(SUFFIXES) or name == PREFIX:
        raise NameUnusable("A name is no GUID, is not 'onelake', and does not end with an item type's suffix.")


def is_shown(name: str) -> bool:
    """Whether a folder of that name is a workspace or item at all; the store's own are none."""
    return bool(name) and "/" not in name and not name.startswith(".")
