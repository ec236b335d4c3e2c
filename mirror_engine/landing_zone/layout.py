"""Paths under ROOT (LZ-1.1, LZ-1.2)."""

from __future__ import annotations

ZONE = "Files/LandingZone"
OLDER_ZONE = "LandingZone"
TABLES = "Tables"
MONITORING = "Files/Monitoring"
ENGINE = ".mirror-engine"  # the engine's own: ledger, lock, logs, scratch
LEDGER = f"{ENGINE}/ledger.sqlite"
OPTIONS = f"{ENGINE}/options.json"  # effective options of the engine that runs, or ran last
LOCK = f"{ENGINE}/lock"
LOGS = f"{ENGINE}/logs"
SCRATCH = f"{ENGINE}/scratch"
STORE_ITEMS = f"{ENGINE}/items.json"  # makes a folder a STORE of the emulator: GUIDs and definitions of its items
