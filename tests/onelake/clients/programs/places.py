"""Where a publisher is told to publish to, by its environment, and what these programs share."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from pathlib import Path
from uuid import uuid4

import pytest

MIB = 1 << 20
WORKSPACE = os.environ["FABRIC_WORKSPACE_ID"]
ITEM = os.environ["FABRIC_MIRRORED_DATABASE_ID"]
LANDING_ZONE = f"{ITEM}/Files/LandingZone"
DFS = "https://onelake.dfs.fabric.microsoft.com"
BLOB = "https://onelake.blob.fabric.microsoft.com"
TABLE = "https://onelake.table.fabric.microsoft.com"
ABFSS = f"abfss://{WORKSPACE}@onelake.dfs.fabric.microsoft.com"
KEY = "bm90IGEga2V5"  # base64, as keys are
SAS = "sv=2024-11-04&ss=b&srt=sco&sp=rwdlac&se=2030-01-01T00%3A00%3A00Z&sig=bm90IGEgc2lnbmF0dXJl"
SECRETS = {name: os.environ[f"AZURE_{name.upper()}"] for name in ("tenant_id", "client_id", "client_secret")}
SCOPE = "https://storage.azure.com/.default"

# Of the test that runs this program
FOLDER = Path(os.environ["TEST_LANDING_ZONE"])  # on disk
HTTP, HTTPS = os.environ["TEST_HTTP"], os.environ["TEST_HTTPS"]
ACCEPTS_BATCHES = os.environ["TEST_BLOB_BATCH"] == "accept"
BATCH_REFUSED = "Either WorkspaceId or ArtifactId are missing in the request"


def new_table() -> str:
    """A table folder's name that nothing else has."""
    return f"T{uuid4().hex[:12]}"


@pytest.fixture
def table() -> str:
    return new_table()


def mirroring(schema: str) -> str:
    """The `mirroring.json` of a mirrored database with that default schema."""
    target = {"type": "MountedRelationalDatabase", "typeProperties": {"format": "Delta", "defaultSchema": schema}}
    return json.dumps({"properties": {"source": {"type": "GenericMirror"}, "target": target}})


def definition(schema: str) -> dict[str, object]:
    """The same as Fabric's REST API takes it."""
    payload = base64.b64encode(mirroring(schema).encode()).decode()
    return {"parts": [{"path": "mirroring.json", "payload": payload, "payloadType": "InlineBase64"}]}


def until(holds):
    ends = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.05)


def printed_by(*words: object, **variables: str) -> str:
    """What the program `TEST_CLIENT` prints, with more variables."""
    command = [os.environ["TEST_CLIENT"], *map(str, words)]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
