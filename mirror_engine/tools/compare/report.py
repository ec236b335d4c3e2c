"""Compare Fabric's tables as a report that shows no value of a row, unless asked."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.display import cell
from mirror_engine.errors import UsageError
from mirror_engine.events import ignore
from mirror_engine.landing_zone.layout import MONITORING, TABLES, ZONE
from mirror_engine.results import TableReference
from mirror_engine.storage.stores import open_storage
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tools.compare.fabric_tables import ApiTables, StorageTables
from mirror_engine.tools.compare.key_digest import KeyDigest
from mirror_engine.tools.compare.results import ComparedDifference, ComparedKey, ComparedTable, Comparison, SqlRows
from mirror_engine.tools.compare.zone import compare_zone
from mirror_engine.tools.difference import RowCounts
from mirror_engine.tools.pull import pulled_from

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tools.compare.fabric_tables import FabricTables
    from mirror_engine.tools.compare.results import Through
    from mirror_engine.tools.compare.zone import Finding, TableComparison


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
    digest = None if show_keys else KeyDigest()
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
        }
        found = list(compare_zone(source, fabric, config, work, **options))
    if not found:
        raise UsageError(f"{url}: there are no tables", f"Give the URL of a mirrored database; it holds {ZONE}.")
    is_equal = all(each.verdict in {"equal", "not_yet"} and not each.differs_in for each in found)
    return Comparison(
        str(url), is_equal, through, [_table(each, config.delta_default_schema, digest) for each in found]
    )


def _check_fabric(url: Place, source: Storage, fabric: FabricTables) -> None:
    """Refuse a folder that Fabric does not mirror, as a pulled copy: each table would be one not yet applied."""
    origin = pulled_from(url) if isinstance(url, Path) else None
    is_fabrics = origin is None and (source.stat(TABLES) or source.stat(MONITORING))
    if not is_fabrics and not fabric.tables():
        help = f"Compare the URL it was pulled from: {origin}." if origin else "Give the URL of the mirrored database."
        raise UsageError(f"{url} has no tables of Fabric", help)


def _table(found: TableComparison, default_schema: str, digest: KeyDigest | None) -> ComparedTable:
    """A comparison without values of rows, unless there is no digest."""
    paths, halt = digest.path if digest else str, found.diagnostic
    return ComparedTable.taken_from(
        found,
        **TableReference.of(found.name, found.name.delta_folder(default_schema)).to_json(),
        diagnostic=halt and halt.code,
        halted_because=halt and halt.coded_message,
        not_yet=[*map(paths, found.not_yet)],
        late=[*map(paths, found.late)],
        counts=RowCounts(**found.counts),
        findings=[_difference(each, digest) for each in found.findings],
        sql=found.sql and SqlRows(found.sql.equal, found.sql.counts, found.sql.columns),
    )


def _difference(found: Finding, digest: KeyDigest | None) -> ComparedDifference:
    def shown(path: str | None) -> str | None:
        return path if path is None or digest is None else digest.path(path)

    def key(values: Mapping[str, Any]) -> str:
        if digest is None:
            return ", ".join(f"{name} = {cell(value)}" for name, value in values.items())
        return digest(*values.values())

    keys = [ComparedKey(key(each.values), shown(each.file), each.row) for each in found.keys]
    files = {"file": shown(found.file), "other_file": shown(found.other_file)}
    return ComparedDifference.taken_from(found, help=found.help or None, keys=keys, **files)
