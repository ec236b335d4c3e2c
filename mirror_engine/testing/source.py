"""A small source table that a publisher under test reads: rows, and a log of changes in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Row = Mapping[str, Any]


@dataclass(frozen=True)
class SourceChange:
    """One change as a database's log tells it.

    Attributes:
        position: its place in the log, counted from 1.
        kind: what happened.
        before: the full row before; None for an insert.
        after: the full row after; None for a delete. An update may have changed the key, too.
    """

    position: int
    kind: Literal["insert", "update", "delete"]
    before: Row | None
    after: Row | None


class Source:
    """The table `Orders` with the key `id`: what a publisher copies.

    A publisher reads `name`, `keys`, `columns`, `position`, `rows()` and `changes()`; the kit does the rest.

    Attributes:
        name: the table's name.
        keys: the key columns.
        columns: the columns there are now, with the Python types of their values; every one may be None but the key.
    """

    def __init__(self) -> None:
        self.name = "Orders"
        self.keys = ("id",)
        self.columns: dict[str, type] = {"id": int, "city": str, "amount": int}
        self.meanwhile: Callable[[], None] | None = None
        self._log: list[SourceChange] = []
        self._rows: dict[int, Row] = {
            key: {"id": key, "city": city, "amount": key * 10}
            for key, city in enumerate(("Linz", "Wels", "Graz", "Enns"), 1)
        }

    @property
    def position(self) -> int:
        """The position of the newest change; 0 before the first."""
        return len(self._log)

    def rows(self) -> Iterator[Row]:
        """Every row, one by one, by a cursor without a snapshot: it may miss or meet what changes meanwhile."""
        at = -1
        while (key := min((key for key in self._rows if key > at), default=None)) is not None:
            yield self._rows[key]
            at = key
            if self.meanwhile and key > min(self._rows):
                happening, self.meanwhile = self.meanwhile, None
                happening()

    def changes(self, after: int) -> list[SourceChange]:
        """The changes behind a position, in order. The rows that were there at first are in no change."""
        return self._log[after:]

    def add_column(self, name: str, kind: type) -> None:
        """A new column; rows have None in it."""
        self.columns[name] = kind
        self._rows = {key: {**row, name: None} for key, row in self._rows.items()}

    def insert(self, key: int, **values: object) -> None:
        """A new row."""
        self._write("insert", None, {**dict.fromkeys(self.columns), "id": key, **values})

    def update(self, key: int, **values: object) -> None:
        """Other values in a row; `id` among them is a key change."""
        self._write("update", self._rows[key], {**self._rows[key], **values})

    def delete(self, key: int) -> None:
        """A row less."""
        self._write("delete", self._rows[key], None)

    def truth(self) -> dict[int, Row]:
        """The rows now, by key."""
        return dict(self._rows)

    def former(self, key: int) -> list[Row]:
        """The states a key's row had before."""
        return [change.before for change in self._log if change.before is not None and change.before["id"] == key]

    def _write(self, kind: Literal["insert", "update", "delete"], before: Row | None, after: Row | None) -> None:
        self._log.append(SourceChange(self.position + 1, kind, before, after))
        if before is not None:
            del self._rows[before["id"]]
        if after is not None:
            self._rows[after["id"]] = after
