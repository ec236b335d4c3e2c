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
LEASE_ID = f"{ENGINE}/lease"  # of the lease that was last taken from this machine
HISTORY = f"{ENGINE}/history.jsonl"  # what happened to tables, besides their commits
LOGS = f"{ENGINE}/logs"
SCRATCH = f"{ENGINE}/scratch"
LEASE = "Files/_mirror-engine/lease.json"  # of a ROOT in a store; OneLake takes files below Files only
SHARED_SCRATCH = "Files/_mirror-engine/scratch"  # of a ROOT in a store, where machines of a cluster share rows
STORE_ITEMS = f"{ENGINE}/items.json"  # makes a folder a STORE of the emulator: GUIDs and definitions of its items
