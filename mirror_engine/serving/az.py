"""A stand-in for `az`, for publishers whose token comes from `az account get-access-token`.

It is found first on the PATH that `serve` prints, and needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mirror_engine.endpoint.tokens import LIFE_SECONDS, access_token

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SUBSCRIPTION = "6d697272-6f72-4e67-a96e-737562736372"
STORAGE = "https://storage.azure.com"


def install(folder: Path) -> None:
    """Put `az` into a folder."""
    folder.mkdir(exist_ok=True)
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - text
    # isolated: neither the publisher's folder nor its PYTHONPATH takes part
    code = (
        f"import sys; sys.path.insert(0, {package!r}); "
        "from mirror_engine.serving.az import main; sys.exit(main(sys.argv[1:]))"
    )
    script = folder / "az"
    script.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -c {shlex.quote(code)} "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)


def main(words: Sequence[str]) -> int:
    """`account get-access-token`, as AzureCliCredential asks for it; anything else is refused with 2."""
    if words[:2] != ["account", "get-access-token"]:
        sys.stderr.write("ERROR: this az belongs to mirror-engine and knows `account get-access-token` only.\n")
        return 2
    said = _parser().parse_args(words[2:])
    token = _token(said.scope or said.resource or STORAGE, said.tenant or os.environ.get("AZURE_TENANT_ID", ""))
    sys.stdout.write((token["accessToken"] if said.output == "tsv" else json.dumps(token, indent=2)) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="az account get-access-token")
    parser.add_argument("--output", "-o", default="json")
    parser.add_argument("--query")
    parser.add_argument("--scope", "--scopes")
    parser.add_argument("--resource")
    parser.add_argument("--resource-type")
    parser.add_argument("--subscription", "-s", "--name", "-n")
    parser.add_argument("--tenant", "-t")
    return parser


def _token(audience: str, tenant: str) -> dict[str, Any]:
    ends = time.time() + LIFE_SECONDS
    client, secret = os.environ.get("AZURE_CLIENT_ID", ""), os.environ.get("AZURE_CLIENT_SECRET")
    return {
        "accessToken": access_token(tenant, client, audience.removesuffix("/.default"), secret),
        "expiresOn": f"{datetime.fromtimestamp(ends):%Y-%m-%d %H:%M:%S.%f}",  # noqa: DTZ006 - local time, as az has it
        "expires_on": int(ends),
        "subscription": SUBSCRIPTION,
        "tenant": tenant,
        "tokenType": "Bearer",
    }
