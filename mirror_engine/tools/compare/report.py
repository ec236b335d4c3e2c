"""Compare Fabric's tables as a report that shows no value of a row, unless asked."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import UsageError
from mirror_engine.events import ignore
from mirror_engine.landing_zone.layout import MONITORING, TABLES, ZONE
from mirror_engine.storage.stores import open_storage
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tools.compare.fabric_tables import ApiTables, StorageTables
from mirror_engine.tools.compare.key_digest import KeyDigest, ShownKeys
from mirror_engine.tools.compare.results import Comparison
from mirror_engine.tools.compare.zone import compare_zone
from mirror_engine.tools.pull import pulled_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tools.compare.fabric_tables import FabricTables
    from mirror_engine.tools.compare.results import Through


def compare_tables(  # noqa: PLR0913 - what to compare, what to show, and who listens
    url: Place,
    config: Config,
    tables: Sequence[str],
    *,
    limit: int,
    show_keys: bool = False,
    listen: Listener = ignore,
    zone: Storage | None = None,
    allow: Callable[[str], None] = lambda _: None,
    through: Through = "storage",
    received: Callable[[int], None] = lambda _: None,
    sql_rows: Path | None = None,
) -> Comparison:
    """Compare Fabric's tables below a ROOT; `zone` and `sql_rows` as of `compare_zone`.

    `allow` is called before a table is read from storage, with its folder; `received` with the bytes of each part that
    came through the table API.

    Raises:
        UsageError: Fabric mirrors no database there, or it has no tables.
        UnknownTable: no such table.
        TransientError: zone or table cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="mirror-engine-") as folder:
        work = Path(folder)
        fabric: FabricTables = StorageTables(ArrowWriter(url / TABLES, work / "read"), allow)
        if through == "table-api":
            fabric = ApiTables.at(url, received)
        source = open_storage(url)
        _check_fabric(url, source, fabric)
        options: dict[str, Any] = {
            "tables": tables,
            "limit": limit,
            "listen": listen,
            "zone": zone,
            "sql_rows": sql_rows,
            "shown": ShownKeys() if show_keys else KeyDigest(),
        }
        found = list(compare_zone(source, fabric, config, work, **options))
    if not found:
        raise UsageError(f"{url}: there are no tables", f"Give the URL of a mirrored database; it holds {ZONE}.")
    is_equal = all(each.verdict in {"equal", "not_yet"} and not each.differs_in for each in found)
    return Comparison(str(url), is_equal, through, found)


def _check_fabric(url: Place, source: Storage, fabric: FabricTables) -> None:
    """Refuse a folder that Fabric does not mirror, as a pulled copy: each table would be one not yet applied."""
    origin = pulled_from(url) if isinstance(url, Path) else None
    is_fabrics = origin is None and (source.stat(TABLES) or source.stat(MONITORING))
    if not is_fabrics and not fabric.tables():
        help = f"Compare the URL it was pulled from: {origin}." if origin else "Give the URL of the mirrored database."
        raise UsageError(f"{url} has no tables of Fabric", help)
