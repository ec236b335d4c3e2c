"""Results: typed values from which a command's text, JSON and JSON schema are made.

A field's type stands in its class, its meaning in the class's docstring, below `Attributes:`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from msgspec import UNSET, Meta, Struct

from mirror_engine.display import console_of, plain, print_to
from mirror_engine.landing_zone.diagnostics import CATALOG, Diagnostic, Severity
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.landing_zone.states import TableState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from mirror_engine.landing_zone.names import TableName

Count = Annotated[int, Meta(ge=0)]
Place = Annotated[int, Meta(ge=1)]  # counted from 1
Seconds = Annotated[float, Meta(ge=0)]
Moment = Annotated[datetime, Meta(tz=True)]
Row = Annotated[
    Mapping[str, Any],
    Meta(
        description="cells by column: decimals are text, binary is Base64, times are ISO 8601, NaN and infinities text"
    ),
]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


State = Annotated[str, Meta(extra_json_schema={"enum": [state.code for state in get_args(TableState)]})]  # of a table


class Part(Struct, frozen=True):
    """Part of a result; a field that is `UNSET` is left out of the JSON."""

    @classmethod
    def taken_from(cls, source: object, **others: Any) -> Self:  # noqa: ANN401 - as the class has them
        """Make one with the attributes of the same names, and others."""
        same = {name: getattr(source, name) for name in cls.__struct_fields__ if name not in others}
        return cls(**same, **others)

    def to_json(self) -> dict[str, Any]:
        """Its fields as plain values; times as ISO 8601 in UTC."""
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return {
            name: iso_text(value) if isinstance(value, datetime) else as_json(value)
            for name, value in found.items()
            if value is not UNSET
        }


class Result(Part, frozen=True):
    """What a command returns."""

    def text(self) -> Iterable[RenderableType]:
        """Its lines, as the command shows them."""
        raise NotImplementedError

    def __str__(self) -> str:
        written = StringIO()
        print_to(console_of(written), self.text())
        return written.getvalue().rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class TableReference(Part, frozen=True):
    """How results refer to a table.

    Attributes:
        table: name: `Sales.Orders`
        landing_folder: folder in the landing zone: `Sales.schema/Orders`; null if it is gone
        delta_path: Delta table, from ROOT: `Tables/Sales/Orders`
    """

    table: str
    landing_folder: str | None
    delta_path: str

    @classmethod
    def of(cls, name: TableName, delta_folder: str, *fields: object, is_gone: bool = False) -> Self:
        """Make a reference, or a result that begins with one and has more fields."""
        return cls(name.normalized, None if is_gone else name.folder, f"{TABLES}/{delta_folder}", *fields)


def names_of(tables: Iterable[TableReference]) -> Sequence[str]:
    """Each table as a list shows it: `Sales.Orders`, or its folder where the list has two tables of that name."""
    found = [*tables]
    often = Counter(each.table for each in found)
    return [(each.landing_folder or each.table) if often[each.table] > 1 else each.table for each in found]


class Failure(Part, frozen=True):
    """Why something failed.

    Attributes:
        code: kind of error: `storage_unavailable`
        help: what to do
    """

    code: str
    message: str
    help: str | None


class Failed(Failure, frozen=True):
    """Why a command failed.

    Attributes:
        exit_code: of the process
    """

    exit_code: Count


class CommandError(Result, frozen=True):
    """What a command prints on stderr where it fails."""

    error: Failed


class Column(Part, frozen=True):
    """A column of a Delta table.

    Attributes:
        type: in Delta's words
    """

    name: str
    type: str
    nullable: bool


class PlannedStep(Part, frozen=True):
    """One step of the plan.

    Attributes:
        files: change files that it applies, in order, from the table folder
        commits: that it makes at most
    """

    step: Literal[
        "drop_table",
        "start_generation",
        "update_folder_identity",
        "record_folder_state",
        "mark_folder_missing",
        "apply_batch",
    ]
    message: str
    files: tuple[str, ...] = ()
    commits: Count = 0


class Check(Part, frozen=True):
    """One requirement of the engine.

    Attributes:
        ok: whether it is fulfilled
        found: what there is
        help: what to do where it is not
    """

    name: str
    ok: bool
    found: str
    help: str | None = None


class Location(Part, frozen=True):
    """Where a diagnostic was found.

    Attributes:
        path: from the landing zone; empty for the landing zone itself
        row: of the file, counted from 1
    """

    path: str
    row: Place | None
    column: str | None


class Finding(Part, frozen=True):
    """A diagnostic.

    Attributes:
        code: `mirror-engine explain CODE` has more
        name: of the code: `unknown-property`
        help: what to do
        rules: of docs/protocol.md
        details: the values that the message names
    """

    code: Annotated[str, Meta(pattern="^ME[0-9]{3}$")]
    name: str
    severity: Severity
    message: str
    help: str | None
    location: Location
    rules: Sequence[Annotated[str, Meta(pattern=r"^LZ-[0-9]+\.[0-9]+$")]]
    details: Mapping[str, str]

    @property
    def path(self) -> str:
        return self.location.path

    @property
    def row(self) -> int | None:
        return self.location.row

    @property
    def as_diagnostic(self) -> Diagnostic:
        """The diagnostic that it was made of."""
        place, is_strict = self.location, self.severity is not CATALOG[self.code].severity
        return Diagnostic(self.code, place.path, place.row, place.column, tuple(self.details.items()), is_strict)

    @classmethod
    def of(cls, found: Diagnostic, *fields: object) -> Self:
        """Convert from a diagnostic."""
        place = Location(found.path, found.row, found.column)
        facts = found.code, found.name, found.severity, found.message, found.help or None, place
        return cls(*facts, found.rules, dict(found.details), *fields)


class CountedFinding(Finding, frozen=True):
    """A diagnostic, and how often it occurred."""

    count: Count


def iso_text(moment: datetime) -> str:
    """`2026-11-02T08:15:29.500Z`."""
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def utc(seconds: float) -> datetime:
    """Return the time of seconds since 1970."""
    return _EPOCH + timedelta(seconds=seconds)


def as_json(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value of a result as plain values."""
    match value:
        case Mapping():
            return {str(name): as_json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [as_json(inner) for inner in value]
        case Part():
            return value.to_json()
        case _:
            return plain(value)
