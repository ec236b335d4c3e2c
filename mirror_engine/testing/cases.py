"""Cases: Markdown files with what lands in a landing zone, stage by stage, and the result; form: fixtures/README.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mirror_engine.config import options
from mirror_engine.explain.markdown import parts
from mirror_engine.landing_zone.diagnostics import CATALOG, PAGES, read_page
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.schema import Column
from mirror_engine.landing_zone.text import front_matter
from mirror_engine.testing.case_contents import CONTENTS, typed_rows
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.explain.markdown import Block, Part
    from mirror_engine.landing_zone.diagnostics import Diagnostic

# In a checkout. The cases of the codes are their pages, `explain/MEnnn.md`
FIXTURES = Path(__file__).parents[2] / "fixtures"
_FIELDS = ("shows", "on", "features", "options")
_DIAGNOSTIC = re.compile(r"(ME\d{3}(?:\|ME\d{3})*)(?: (.*?))?(?:, row (\d+))?")


@dataclass(frozen=True)
class LandedFile:
    """One file of a stage."""

    path: str  # from the landing zone's top
    content: bytes
    zone: str = ZONE
    modified_ns: int | None = None  # LastModified in nanoseconds since 1970; None: when it lands
    is_in_place: bool = False  # written over an existing file, not renamed into place (LZ-3.10)


@dataclass(frozen=True)
class Stage:
    """What a publisher does between two runs of the engine: it removes files and folders, then lands files."""

    title: str  # of the later ones: what happens
    removed: tuple[str, ...] = ()
    files: tuple[LandedFile, ...] = ()

    def land(self, root: Any, writer: Callable[..., LandingZoneWriter] = LandingZoneWriter) -> None:  # noqa: ANN401 - a folder, or what another writer takes
        """Remove and land the files below a ROOT."""
        for zone in dict.fromkeys([*([ZONE] if self.removed else ()), *(file.zone for file in self.files)]):
            publisher = writer(root, zone=zone)
            for path in self.removed:
                publisher.remove(path)
            for file in self.files:
                if file.zone == zone and file.is_in_place:
                    publisher.write_in_place(file.path, file.content)
                elif file.zone == zone:
                    publisher.put(file.path, file.content, modified_ns=file.modified_ns)


@dataclass(frozen=True)
class ExpectedTable:
    """What one Delta table must hold: columns in order, rows in any order, values as JSON has them."""

    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class ExpectedDiagnostic:
    """One diagnostic; without a row, of any row of the file."""

    code: str  # alternatives are separated by `|`
    path: str
    row: int | None = None

    def matches(self, diagnostic: Diagnostic) -> bool:
        """Whether a diagnostic is this one."""
        is_code = diagnostic.code in self.code.split("|")
        return is_code and diagnostic.path == self.path and self.row in {None, diagnostic.row}


@dataclass
class Case:
    """One case."""

    name: str  # of its file
    code: str  # the diagnostic that it is the page of; `""` for none
    rules: tuple[str, ...]  # of the protocol, as `LZ-4.12`, and others, as `E5`
    runs_on: tuple[str, ...]  # besides memory and arrow: `spark`, `stores`
    features: tuple[str, ...]  # table features that its tables need
    options: Mapping[str, Any]  # of `Config` that differ from the defaults
    is_comparable: bool  # whether the landing zone in the end still has all that decided the result
    shown_by: str  # of a code that no files and no session can show: the test that raises it
    because: str  # why none can
    title: str = ""
    stages: list[Stage] = field(default_factory=list)  # the engine runs after each
    result: str = ""  # `caught_up` or `needs_attention`
    tables: dict[str, ExpectedTable] = field(default_factory=dict)  # in the end, by folder from `ROOT/Tables`
    diagnostics: tuple[ExpectedDiagnostic, ...] = ()  # all of them in the end
    earlier: tuple[ExpectedDiagnostic, ...] = ()  # raised after any stage
    validate: tuple[ExpectedDiagnostic, ...] = ()  # in the end, besides, by `validate` alone
    undecided: tuple[str, ...] = ()  # codes that may be there besides
    zone: list[str] | None = None  # every file in the landing zone in the end; None: not compared
    fixed: Stage | None = None  # what lands instead, without the fault; its removed files land nowhere
    has_session: bool = False  # of console commands, instead of stages

    def file(self, path: str) -> bytes:
        """The content that the first stage lands under a path."""
        return next(file.content for file in self.stages[0].files if file.path == path)

    def fixed_stages(self) -> list[Stage]:
        """The stages in the fixed form; empty if the case has none.

        A path of the fixed form lands once, in the first stage that names it. A new one lands in the last stage.
        """
        if self.fixed is None:
            return []
        fixed = {file.path: file for file in self.fixed.files}
        there = {*fixed, *self.fixed.removed}
        found = []
        for stage in self.stages:
            files = [fixed.pop(file.path, None) if file.path in there else file for file in stage.files]
            removed = tuple(path for path in stage.removed if path not in there)
            found.append(Stage(stage.title, removed, tuple(file for file in files if file is not None)))
        return [*found[:-1], replace(found[-1], files=(*found[-1].files, *fixed.values()))]


def names() -> list[str]:
    """All cases with files that land: the fixtures in the order of their names, then the codes."""
    codes = (code for code in CATALOG if "\n## Lands\n" in text_of(code))
    return [*sorted(path.stem for path in FIXTURES.glob("*.md") if path.stem != "README"), *codes]


def text_of(name: str) -> str:
    """A case as Markdown, by the name of its file or its code; raises `FileNotFoundError` if there is none."""
    return ((PAGES if name in CATALOG else FIXTURES) / f"{name}.md").read_text(encoding="utf-8")


@cache
def load(name: str) -> Case:
    """A case by the name of its file or its code.

    Raises:
        FileNotFoundError: there is none.
        ValueError: its file is not in the form that fixtures/README.md describes.
    """
    return parse(name, text_of(name))


def parse(name: str, text: str) -> Case:
    """A case from the Markdown of its file; raises `ValueError` with the line at fault."""
    try:
        if name in CATALOG:
            definition, given, body = read_page(text)
            code, rules = definition.code, definition.rules
        else:
            given, body = front_matter(text)
            code, rules = "", tuple(given.pop("rules", "").split(", "))
    except ValueError as error:
        raise ValueError(f"{name}.md: {error}") from error
    fields = dict(given)
    shows, runs_on, features, pairs = (tuple(filter(None, fields.pop(each, "").split(", "))) for each in _FIELDS)
    is_comparable = fields.pop("compare", "yes") == "yes"
    shown_by, because = fields.pop("shown_by", ""), fields.pop("because", "")
    if fields:
        raise ValueError(f"{name}.md: unknown fields in the front matter: {', '.join(fields)}")
    case = Case(name, code, (*rules, *shows), runs_on, features, _options(pairs), is_comparable, shown_by, because)
    line, offset = 1, text.count("\n", 0, len(text) - len(body))
    try:
        for part in parts(body):
            line = part.line + offset
            _add(case, part)
    except (ArithmeticError, LookupError, ValueError, pa.ArrowException) as error:
        raise ValueError(f"{name}.md:{line}: {error}") from error
    is_whole = (case.stages and case.result) or case.has_session or (case.shown_by and case.because)
    if not (case.title and is_whole):
        raise ValueError(f"{name}.md lacks a title, or `## Lands` and `## Result: …`")
    return case


def _options(pairs: Sequence[str]) -> dict[str, Any]:
    words = dict(pair.split("=", 1) for pair in pairs)
    if unknown := words.keys() - options().keys():
        raise ValueError(f"unknown options: {', '.join(unknown)}")
    return {name: options()[name].kind.read(word) for name, word in words.items()}


def _add(case: Case, part: Part) -> None:
    """Add a heading or a fenced block to a case; text between them is for readers."""
    if part.level == "#":
        case.title = part.words.removeprefix(f"{case.code} ")
    elif part.level == "##":
        _begin(case, part.words)
    elif part.level and case.has_session:
        if part.words != "console":
            raise ValueError(f'"{part.words}" is not console')
    elif part.level and case.fixed is not None:
        case.fixed = _with_block(case.fixed, part.block, "without")
    elif part.level and case.result:
        _expect(case, part.block)
    elif part.level:
        case.stages[-1] = _with_block(case.stages[-1], part.block, "removed")


def _begin(case: Case, heading: str) -> None:
    """Begin a section; `What to do`, `Fixed` and `Session` are on the page of a code alone."""
    word, _, rest = heading.partition(" ")
    if word in {"Lands", "Then"}:
        case.stages.append(Stage(rest))
    elif word == "Result:":
        case.result = rest
    elif heading == "Fixed" and case.code and case.result:
        case.fixed = Stage("")
    elif heading == "Session" and case.code:
        case.has_session = True
    elif not (heading == "What to do" and case.code):
        raise ValueError(f'"{heading}" is not `Lands`, `Then …` or `Result: …`')


def _expect(case: Case, block: Block) -> None:
    lines = block.text.split("\n") if block.text else []
    match block.kind:
        case "table":
            columns, rows = typed_rows(block.text)
            names = [name for name, *_ in columns]
            case.tables[block.path] = ExpectedTable(
                tuple(Column(*column) for column in columns), tuple(dict(zip(names, row, strict=True)) for row in rows)
            )
        case "diagnostics" | "earlier" | "validate" as field:
            setattr(case, field, tuple(map(_diagnostic, lines)))
        case "undecided":
            case.undecided = tuple(lines)
        case "zone":
            case.zone = sorted(lines)
        case _:
            raise ValueError(f'"{block.kind}" is not table, diagnostics, earlier, validate, undecided or zone')


def _diagnostic(line: str) -> ExpectedDiagnostic:
    match = _DIAGNOSTIC.fullmatch(line)
    if match is None:
        raise ValueError(f'"{line}" is not `MEnnn PATH` or `MEnnn PATH, row N`')
    return ExpectedDiagnostic(match[1], match[2] or "", int(match[3]) if match[3] else None)


def _with_block(stage: Stage, block: Block, removing: str) -> Stage:
    """A stage with one more file, or with the paths in a block of the kind that removes files."""
    if block.kind == removing and not block.path:
        return replace(stage, removed=(*stage.removed, *block.text.split("\n")))
    if block.kind not in CONTENTS or not block.path:
        shown = " ".join(filter(None, (block.kind, block.path)))
        raise ValueError(f'"{shown}" is not `{removing}`, or {", ".join(CONTENTS)} with options and a path')
    options = block.options
    file = LandedFile(
        block.path,
        CONTENTS[block.kind](block.text, options),
        OLDER_ZONE if "zone" in options else ZONE,
        int(np.datetime64(options["at"].removesuffix("Z"), "ns").astype(np.int64)) if "at" in options else None,
        "write" in options,
    )
    return replace(stage, files=(*stage.files, file))
