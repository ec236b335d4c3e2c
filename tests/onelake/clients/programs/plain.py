"""requests and httpx without any SDK, as older publishers speak."""

from __future__ import annotations

from functools import cache
from typing import Any

import httpx
import requests
from azure.identity import DefaultAzureCredential
from places import DFS, ITEM, LANDING_ZONE, WORKSPACE

SCOPE = "https://storage.azure.com/.default"


@cache
def clients() -> dict[str, Any]:
    """Both, with a token."""
    headers = {"Authorization": f"Bearer {DefaultAzureCredential().get_token(SCOPE).token}"}
    session = requests.Session()
    session.headers.update(headers)
    return {"requests": session, "httpx": httpx.Client(headers=headers)}


def ask(client: str, method: str, path: str, headers: dict[str, str] | None = None, body: str = "") -> dict[str, Any]:
    """One request below the workspace; `{…}` in a path or header are filled in."""
    said = {name: _filled(value) for name, value in (headers or {}).items()}
    url = f"{DFS}/{WORKSPACE}/{_filled(path)}"
    content = {"data" if client == "requests" else "content": body}
    answer = clients()[client].request(method, url, headers=said, **content)
    found = {"status": answer.status_code, "headers": {name.lower(): value for name, value in answer.headers.items()}}
    return found | {"text": answer.text}


def _filled(text: str) -> str:
    return text.format(dfs=DFS, workspace=WORKSPACE, item=ITEM, landing_zone=LANDING_ZONE)
