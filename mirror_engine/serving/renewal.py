"""Keeps a running server's certificate good: a server may outlive its authority, whose life is short on purpose."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from mirror_engine.endpoint.authority import authority

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Self

LOOK_SECONDS = 3600.0


class Renewal:
    """While entered, new connections get the authority's newest certificate.

    Publishers that are started later read the new authority from the same files; one that runs for days trusts the
    old one and must be started anew.

    Args:
        folder: see `authority`.
        address: see `authority`.
        tls: what the endpoint's listener uses.
        tell: is told where it fails.
    """

    def __init__(self, folder: Path, address: str, tls: ssl.SSLContext, tell: Callable[[str], None]) -> None:
        self._folder = folder
        self._address = address
        self._tls = tls
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="renewal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._renew()

    def _renew(self) -> None:
        try:
            self._tls.load_cert_chain(authority(self._folder, self._address).leaf)
        except OSError as error:
            self._tell(f"the certificate was not renewed: {error.strerror}")
