"""What a test expects of tables that do not get level: which, in what state, for what reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.errors import UnknownTable
from mirror_engine.landing_zone.register import REGISTER
from mirror_engine.landing_zone.states import Blocked, Latched, Unarmed, needs_a_person
from mirror_engine.monitoring.state_words import advice, in_words
from mirror_engine.table_names import find_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.landing_zone.states import TableState
    from mirror_engine.monitoring.status import TableStatus

BLOCKED = ""  # stands where a latched table's code does


class Expectations:
    """Tables that are meant to be latched or blocked.

    Args:
        default_schema: the Delta schema of tables outside a schema folder, `""` for none.
    """

    def __init__(self, default_schema: str) -> None:
        self._default_schema = default_schema
        self._expected: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._expected)

    def expect(self, table: str, code: str = BLOCKED) -> None:
        """Expect a table to be latched with a code, or blocked.

        Raises:
            ValueError: the register has no such code.
        """
        if code and code not in REGISTER:
            raise ValueError(f"{code}: no such diagnostic; `mirror-engine explain` and docs/diagnostics.md list them")
        self._expected[table] = code

    def cover(self, table: TableStatus, tables: Sequence[TableStatus]) -> bool:
        """Whether a table is as it is meant to be."""
        return any(
            self._find(name, tables) is table and _is_so(table.state, code) for name, code in self._expected.items()
        )

    def complaints(self, tables: Sequence[TableStatus]) -> list[str]:
        """Tables stuck against expectation, and tables that are not stuck as expected, each in words."""
        stuck = [table for table in tables if needs_a_person(table.state) and not self.cover(table, tables)]
        unmet = []
        for name, code in self._expected.items():
            found = self._find(name, tables)
            if found is None or not _is_so(found.state, code):
                now = f"it is {in_words(found.state)}" if found else "there is no such table folder, or more than one"
                unmet.append(f"  {name} should be {f'latched with {code}' if code else 'blocked'}: {now}")
                stuck = [table for table in stuck if table is not found]
        return [*map(reason, stuck), *unmet]

    def _find(self, name: str, tables: Sequence[TableStatus]) -> TableStatus | None:
        folders = {table.delta_folder: table for table in tables}
        try:
            return folders[find_table(name, list(folders), self._default_schema)]
        except UnknownTable:
            return None


def reason(table: TableStatus) -> str:
    """A table's state with its facts, and what to do about it."""
    remedy = advice(table.state, engine_running=True)
    return f"  {table.name.normalized} is {in_words(table.state)}" + (f"\n    -> {remedy}" if remedy else "")


def _is_so(state: TableState, code: str) -> bool:
    match state:
        case Latched(diagnostic) | Unarmed(diagnostic):
            return code == diagnostic.code
        case Blocked():
            return code == BLOCKED
        case _:
            return False
