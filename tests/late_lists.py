"""A store whose lists show new names late."""

from __future__ import annotations

import time
from contextlib import contextmanager
from fnmatch import fnmatchcase
from unittest.mock import patch

from mirror_engine.onelake.store import LocalStore


@contextmanager
def late_lists(matching):
    """Within it, the emulator's lists show no file written in it whose path in the store matches."""
    begun, list_entries = time.time_ns(), LocalStore.entries

    def entries(self, folder, is_due):
        def is_shown(entry):
            return entry.modified_ns < begun or not fnmatchcase(f"{folder}/{entry.name}", matching)

        found = list_entries(self, folder, is_due)
        return found and filter(is_shown, found)

    with patch.object(LocalStore, "entries", entries):
        yield
