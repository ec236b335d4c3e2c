"""Where a STORE keeps what is private to it; nothing of it is ever served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.layout import ENGINE

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Private:
    """The private folder of a STORE.

    Attributes:
        folder: `STORE/.mirror-engine`.
    """

    folder: Path

    @staticmethod
    def of(store: Path) -> Private:
        """The one of a STORE; nothing is made."""
        return Private(store / ENGINE)

    def make(self) -> None:
        """The folder itself, for its owner alone and outside of version control."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        (self.folder / ".gitignore").write_text("*\n", encoding="ascii")

    @property
    def tls(self) -> Path:
        """The authority's certificates and the endpoint's key."""
        return self.folder / "tls"

    @property
    def programs(self) -> Path:
        """What a publisher's PATH begins with."""
        return self.folder / "bin"

    @property
    def lock(self) -> Path:
        """Held while somebody serves the STORE."""
        return self.folder / "serve.lock"

    @property
    def card(self) -> Path:
        """Who serves the STORE, and under what environment: there while requests are answered."""
        return self.folder / "serve.json"

    @property
    def log(self) -> Path:
        """What a server in the background wrote."""
        return self.folder / "serve.log"
