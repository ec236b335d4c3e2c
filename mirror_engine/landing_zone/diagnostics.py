"""Diagnostics: numbered findings about a landing zone, defined by the front matter of `explain/MEnnn.md`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.errors import MirrorError
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.text import count, front_matter, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PAGES = Path(__file__).parents[1] / "explain"  # importlib.resources would cost every start 8 ms
_CODE = re.compile(r"ME\d{3}")


class Severity(StrEnum):
    """How serious a diagnostic is; the values are what people and programs read."""

    ERROR = "error"  # halts the table; a new folder stays unconfigured
    WARNING = "warning"
    INFO = "info"


SEVERITY_ORDER = (Severity.INFO, Severity.WARNING, Severity.ERROR)  # the most serious last


class Trait(StrEnum):
    """A property of all diagnostics of a code."""

    BLOCKS = "blocks"  # its table waits, as an error would halt it
    DELTA = "delta"  # about a Delta table, not about the landing zone
    IGNORED = "ignored"  # about a path that is not read
    REBUILD = "rebuild"  # its help is to rebuild the table: archived files do not expire before
    STICKY = "sticky"  # reported once, and true for good
    TRANSIENT = "transient"  # true for a while: the last check decides
    VALIDATE = "validate"  # reported by `validate` alone


@dataclass(frozen=True)
class DiagnosticDefinition:
    """What a code means, as the front matter of its page says."""

    code: str  # `MEnnn`, never reused
    name: str  # its name in kebab case
    severity: Severity
    severity_strict: Severity
    rules: tuple[str, ...]
    message: str  # what was found, with the names of its details in braces; `{count:file}` reads `1 file`, `2 files`
    help: str = ""  # what to do, in the same form; empty if nothing is to be done
    related: tuple[str, ...] = ()  # codes of diagnostics with a similar cause
    traits: frozenset[Trait] = frozenset()
    fabric: str = ""  # the shape of Fabric's own message (chapter 10); `""` if none was observed
    fabric_parquet: str = ""  # of a Parquet file, if it is another one

    @property
    def template(self) -> str:
        """The message before it is filled in: `{count} files`."""
        return re.sub(r"\{(\w+):([^}]+)\}", r"{\1} \2s", self.message)


class Page(NamedTuple):
    """The page of a code."""

    definition: DiagnosticDefinition
    fields: Mapping[str, str]  # of its front matter, those of the case that it shows (fixtures/README.md)
    body: str


def read_page(text: str) -> Page:
    """Read the page of a code.

    Raises:
        KeyError: the front matter lacks a field.
        ValueError: there is no front matter, or one of its values is unknown.
    """
    fields, body = front_matter(text)
    severity = Severity(fields.pop("severity"))
    definition = DiagnosticDefinition(
        code=fields.pop("code"),
        name=fields.pop("name"),
        severity=severity,
        severity_strict=Severity(fields.pop("severity_strict", severity)),
        rules=tuple(fields.pop("rules").split(", ")),
        message=fields.pop("message"),
        help=fields.pop("help", ""),
        related=tuple(fields.pop("related").split(", ")) if "related" in fields else (),
        traits=frozenset(map(Trait, fields.pop("traits").split(", "))) if "traits" in fields else frozenset(),
        fabric=fields.pop("fabric", ""),
        fabric_parquet=fields.pop("fabric_parquet", ""),
    )
    return Page(definition, fields, body)


class _Catalog(Mapping[str, DiagnosticDefinition]):
    """Every definition by its code. A page is read when its code is first looked up."""

    def __init__(self) -> None:
        self._read: dict[str, DiagnosticDefinition] = {}

    def __getitem__(self, code: str) -> DiagnosticDefinition:
        if code not in self._read:
            page = PAGES / f"{code}.md"
            if _CODE.fullmatch(code) is None or not page.exists():
                raise KeyError(code)
            self._read[code] = read_page(page.read_text(encoding="utf-8")).definition
        return self._read[code]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.stem for path in PAGES.glob("ME*.md")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


CATALOG: Mapping[str, DiagnosticDefinition] = _Catalog()


class _Detail(str):
    """A value that fills a template; in `{count:file}` it is a number with its noun."""

    __slots__ = ()

    def __format__(self, noun: str) -> str:
        if noun and self.isdecimal():
            return count(int(self), noun)
        return f"{self} {noun}s" if noun else str(self)


class _Details(dict[str, _Detail]):
    """Details by name; `?` for one that another version of the engine did not record with a diagnostic."""

    def __missing__(self, name: str) -> _Detail:
        return _Detail("?")


@dataclass(frozen=True)
class Diagnostic:
    """A finding and its location."""

    code: str  # `MEnnn`, of the catalog
    path: str  # from the landing zone's top; the folder or file it is about
    row: int | None = None  # 1-based row within the file, header not counted; None if it is about no single row
    column: str | None = None
    details: tuple[tuple[str, str], ...] = ()  # the values that fill the message and help, by name. Never a row's data
    strict: bool = False

    @property
    def definition(self) -> DiagnosticDefinition:
        """What its code means."""
        return CATALOG[self.code]

    @property
    def name(self) -> str:
        """The name of its code, such as `missing-file`."""
        return self.definition.name

    @property
    def rules(self) -> tuple[str, ...]:
        """The protocol's rules behind it."""
        return self.definition.rules

    @property
    def severity(self) -> Severity:
        """How serious it is here."""
        return self.definition.severity_strict if self.strict else self.definition.severity

    def has(self, trait: Trait) -> bool:
        """Whether its code has this trait."""
        return trait in self.definition.traits

    @property
    def message(self) -> str:
        """What was found and what was expected."""
        return self._filled(self.definition.message)

    @property
    def help(self) -> str:
        """What to do; empty if nothing is to be done."""
        return self._filled(self.definition.help)

    @property
    def location(self) -> str:
        """`<path>[, row n]`; `landing zone` for the zone itself."""
        place = printable(self.path) or "landing zone"
        return place if self.row is None else f"{place}, row {self.row}"

    @property
    def place(self) -> str:
        """Path of its subject, from ROOT; a detail `place` has precedence."""
        return dict(self.details).get("place") or f"{ZONE}/{self.path}".rstrip("/")

    @property
    def coded_message(self) -> str:
        """`<message> [MEnnn]`."""
        return f"{self.message} [{self.code}]"

    @property
    def full_message(self) -> str:
        """`<location>: <message> [MEnnn]`; about the landing zone as a whole the message alone."""
        return f"{self.location}: {self.coded_message}" if self.path else self.coded_message

    def _filled(self, template: str) -> str:
        return printable(template.format_map(_Details({name: _Detail(value) for name, value in self.details})))


def diagnose(code: str, path: str, *, row: int | None = None, strict: bool = False, **details: object) -> Diagnostic:
    """Make a diagnostic; a detail called `column` also becomes its location.

    Raises `KeyError` where the code is unknown, or a detail of its message or help is missing.
    """
    column = details.get("column")
    diagnostic = Diagnostic(
        code,
        path,
        row,
        None if column is None else str(column),
        tuple((name, str(value)) for name, value in details.items()),
        strict,
    )
    for template in (diagnostic.definition.message, diagnostic.definition.help):
        template.format_map({name: _Detail(value) for name, value in diagnostic.details})
    return diagnostic


class RejectedFile(MirrorError):
    """A landed file or its metadata breaks the protocol: its table is halted (LZ-4.17), all others go on; exit 3."""

    def __init__(self, diagnostic: Diagnostic, others: Sequence[Diagnostic] = ()) -> None:
        super().__init__(diagnostic.full_message, diagnostic.help)
        self.diagnostic = diagnostic
        self.others = tuple(others)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle a rejection, so that an executor can return it to the driver."""
        return type(self), (self.diagnostic, self.others)


def without_errors(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The diagnostics, if none is an error; raises `RejectedFile` with the first, and all others in its `others`."""
    findings = tuple(diagnostics)
    for index, diagnostic in enumerate(findings):
        if diagnostic.severity is Severity.ERROR:
            raise RejectedFile(diagnostic, findings[:index] + findings[index + 1 :])
    return findings


MAX_DISTINCT_PER_CODE = 100  # further diagnostics of a code are counted onto the last of them


def tally(counts: Mapping[Diagnostic, int], diagnostics: Iterable[Diagnostic]) -> dict[Diagnostic, int]:
    """Add diagnostics to the counts: equal ones together, and of one code at most `MAX_DISTINCT_PER_CODE` apart."""
    total = dict(counts)
    kinds = Counter(diagnostic.code for diagnostic in total)
    last = {diagnostic.code: diagnostic for diagnostic in total}
    for diagnostic in diagnostics:
        counted = diagnostic
        if diagnostic not in total and kinds[diagnostic.code] >= MAX_DISTINCT_PER_CODE:
            counted = last[diagnostic.code]
        elif diagnostic not in total:
            kinds[diagnostic.code] += 1
            last[diagnostic.code] = diagnostic
        total[counted] = total.get(counted, 0) + 1
    return total
