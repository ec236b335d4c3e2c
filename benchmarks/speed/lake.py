"""The OneLake emulator as a store for ROOTs, and its count of requests."""

from __future__ import annotations

import re
import urllib.request
from typing import TYPE_CHECKING

from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.serving import Server

if TYPE_CHECKING:
    from pathlib import Path

WORKSPACE = "Workspace"
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # everybody's
_TIMEOUT_SECONDS = 60.0
_REQUESTS = re.compile(r"^mirror_engine_emulator_requests_total\{.*\} (\d+)", re.MULTILINE)


class Lake:
    """The engine `lake`: the emulator, without engines of its own."""

    def serve(self, store: Path) -> str:
        """Serve a folder until this process ends; returns the address."""
        self._server = Server(ServerPlan(store, workspace=WORKSPACE, has_engines=False), on_error=print)
        return self._server.__enter__().connection.http

    def end(self) -> None:
        self._server.__exit__()


def url_of(item: str) -> str:
    """The URL of a ROOT in the emulator; its folder is `WORKSPACE/item` in the served one."""
    return f"abfss://{WORKSPACE}@{_ACCOUNT}.dfs.core.windows.net/{item}.MountedRelationalDatabase"


def clients_of(address: str, state: Path) -> dict[str, str]:
    """The environment of a client of the emulator that keeps its ledgers in `state`."""
    return {
        "AZURE_STORAGE_ACCOUNT": _ACCOUNT,
        "AZURE_STORAGE_KEY": _ACCOUNT_KEY,
        "AZURE_STORAGE_ENDPOINT": address,
        "MIRROR_ENGINE_STATE": str(state),
    }


def requests_to(address: str) -> int:
    """Every request that the emulator has answered so far."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - http, our own
        return sum(map(int, _REQUESTS.findall(answer.read().decode())))
