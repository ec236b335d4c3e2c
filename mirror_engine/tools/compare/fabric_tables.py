"""Ways to read the tables that Fabric made: from OneLake's storage, or through its table APIs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import pyarrow as pa

from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.storage.azure_stores import DatalakeUrl
from mirror_engine.storage.remote import unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import DeltaReader

TIMEOUT_SECONDS = 60
RETRIES = 6  # of a request that is answered with 429 or 503
_NOT_FOUND = 404


class FabricTables(Protocol):
    """The tables that Fabric made, by folder: `Sales/Orders`."""

    def tables(self) -> Sequence[str]:
        """All of them, sorted; StorageUnavailable."""

    def pin(self, table: str) -> Callable[[], pa.Table | None] | None:
        """Choose a table's newest version, and return what reads its rows later; None if there is no table.

        Both raise StorageUnavailable.
        """


@dataclass(frozen=True)
class StorageTables:
    """Reads the Delta log and the data files."""

    reader: DeltaReader
    allow: Callable[[str], None] = lambda _: None  # called before a table is read; whatever it raises ends that

    def tables(self) -> Sequence[str]:
        return self.reader.tables()

    def pin(self, table: str) -> Callable[[], pa.Table | None] | None:
        self.allow(table)
        snapshot = self.reader.snapshot(table)
        return None if snapshot is None else partial(self.reader.rows, table, version=snapshot.version)


@dataclass(frozen=True)
class ApiTables:
    """Asks OneLake's table APIs (docs/emulator.md): the catalog for names, the table read API for rows.

    Raises:
        UsageError: the URL names no mirrored database in OneLake.
    """

    url: DatalakeUrl
    received: Callable[[int], None] = lambda _: None  # gets the bytes of each answer with rows
    session: Any = field(default=None, repr=False)  # sends requests instead of a `requests.Session`

    @classmethod
    def at(cls, place: Place, received: Callable[[int], None]) -> ApiTables:
        if not (isinstance(place, DatalakeUrl) and place.is_onelake and place.path and "/" not in place.path):
            help = "Give its URL: abfss://WORKSPACE@onelake.dfs.fabric.microsoft.com/ITEM."
            raise UsageError(f"{place}: --through table-api reads mirrored databases in OneLake", help)
        return cls(place, received)

    def tables(self) -> Sequence[str]:
        catalog = f"/delta/{self._item}/api/2.1/unity-catalog"
        asked = {"catalog_name": self.url.path}
        schemas = list(self._listed(f"{catalog}/schemas", "schemas", **asked))
        return sorted(
            f"{schema}/{name}"
            for schema in schemas
            for name in self._listed(f"{catalog}/tables", "tables", **asked, schema_name=schema)
        )

    def pin(self, table: str) -> Callable[[], pa.Table | None] | None:
        """Begin a read session, which ends after an hour."""
        schema, _, name = table.partition("/")
        workspace, item = quote(self.url.container), quote(self.url.path)
        path = f"/v1.0/workspaces/{workspace}/items/{item}/schemas/{quote(schema)}/tables/{quote(name)}"
        answer = self._ask("POST", f"{path}/read", table, json={"columns": ["*"]})
        if answer.status_code == _NOT_FOUND:
            return None
        try:
            streams = _stream_ids(answer.json())
        except ValueError:
            help = "Leave out --through table-api. The answer's form is not documented: report it, without its values."
            raise StorageUnavailable(f"{table}: the table read API's answer names no streams", help) from None
        return partial(self._rows, table, path, streams)

    def _rows(self, table: str, path: str, streams: Sequence[str]) -> pa.Table:
        parts = []
        for stream in streams:
            answer = self._ask("GET", f"{path}/readStream/{quote(stream, safe='')}", table)
            if answer.status_code == _NOT_FOUND:
                help = "It ends after an hour, or VACUUM removed its files. Run it again, with fewer tables at once."
                raise StorageUnavailable(f"{table}: the read session has ended", help)
            self.received(len(answer.content))
            try:
                parts.append(_plain(pa.ipc.open_stream(answer.content).read_all()))
            except (pa.ArrowException, OSError):
                raise StorageUnavailable(f"{table}: an answer with rows is not an Arrow stream, or not whole") from None
        try:
            return pa.concat_tables(parts)
        except pa.ArrowException:
            raise StorageUnavailable(f"{table}: the answers with rows have different columns") from None

    def _listed(self, path: str, kind: str, **asked: str) -> Iterator[str]:
        """The names in a list, page after page."""
        token: str | None = ""
        while token is not None:
            answer = self._ask("GET", path, "", params={**asked, **({"page_token": token} if token else {})})
            try:
                page = answer.json()
                yield from [str(entry["name"]) for entry in page[kind] or ()]
                token = page.get("next_page_token") or None
            except (ValueError, LookupError, TypeError, AttributeError):
                raise StorageUnavailable(f"{self.url}: the table API's list of {kind} is not understood") from None

    def _ask(self, method: str, path: str, table: str, **options: Any) -> Any:  # noqa: ANN401 - a response
        """An answer with status 200, or 404 for a table; else StorageUnavailable."""
        import requests  # noqa: PLC0415 - an optional library

        host = self.url.host.replace(".dfs.", ".table.", 1)
        headers = {"Authorization": f"Bearer {self.url.bearer_token()}"}
        options = {"headers": headers, "timeout": TIMEOUT_SECONDS, **options}
        try:
            answer = (self.session or self._own_session).request(method, f"https://{host}{path}", **options)
        except requests.RequestException:
            raise unavailable(self.url, table, "read", 0) from None
        if answer.status_code != 200 and not (table and answer.status_code == _NOT_FOUND):  # noqa: PLR2004 - OK
            code = "ItemNotFound" if answer.status_code == _NOT_FOUND else ""
            raise unavailable(self.url, table, "read", answer.status_code, code)
        return answer

    @cached_property
    def _own_session(self) -> Any:  # noqa: ANN401 - a `requests.Session`
        import requests  # noqa: PLC0415 - an optional library
        from requests.adapters import HTTPAdapter  # noqa: PLC0415 - as above
        from urllib3.util import Retry  # noqa: PLC0415 - as above

        session = requests.Session()
        codes = (429, 503)
        again = Retry(RETRIES, allowed_methods=None, status_forcelist=codes, backoff_factor=0.2, raise_on_status=False)
        session.mount("https://", HTTPAdapter(max_retries=again))
        return session

    @property
    def _item(self) -> str:
        return f"{quote(self.url.container)}/{quote(self.url.path)}"


def _stream_ids(answer: object) -> Sequence[str]:
    """The stream identifiers in the answer to a read; ValueError.

    Its form is not documented. They are the only list in it, of texts or of objects with one identifier each.
    """
    lists = [value for value in answer.values() if isinstance(value, list)] if isinstance(answer, dict) else []
    if len(lists) != 1 or not lists[0]:
        raise ValueError
    found = []
    for entry in lists[0]:
        named = entry.items() if isinstance(entry, dict) else ()
        ids = [entry] if isinstance(entry, str) else [text for key, text in named if key.lower() in {"streamid", "id"}]
        if len(ids) != 1 or not isinstance(ids[0], str):
            raise ValueError
        found += ids
    return found


def _plain(table: pa.Table) -> pa.Table:
    """Rows in the Arrow types that Delta's have here, where another one says the same."""
    return table.cast(pa.schema([field.with_type(_plain_type(field.type)) for field in table.schema]))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit in {"s", "ms", "us"}:
        return pa.timestamp("us", kind.tz and "UTC")
    return kind
