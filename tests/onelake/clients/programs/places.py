"""Where a publisher is reported to publish to, by its environment."""

from __future__ import annotations

import os

WORKSPACE = os.environ["FABRIC_WORKSPACE_ID"]
ITEM = os.environ["FABRIC_MIRRORED_DATABASE_ID"]
LANDING_ZONE = f"{ITEM}/Files/LandingZone"
DFS = "https://onelake.dfs.fabric.microsoft.com"
BLOB = "https://onelake.blob.fabric.microsoft.com"
ABFSS = f"abfss://{WORKSPACE}@onelake.dfs.fabric.microsoft.com"
KEY = "bm90IGEga2V5"  # base64, as keys are
SAS = "sv=2024-11-04&ss=b&srt=sco&sp=rwdlac&se=2030-01-01T00%3A00%3A00Z&sig=bm90IGEgc2lnbmF0dXJl"
