"""Cases: Markdown files with what lands in a landing zone, stage by stage, and the result; form: fixtures/README.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mirror_engine.config import options
from mirror_engine.explain.examples import CASES
from mirror_engine.landing_zone.layout import OLDER_ZONE, ZONE
from mirror_engine.landing_zone.schema import Column
from mirror_engine.testing.case_contents import CONTENTS, typed_rows
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.landing_zone.diagnostics import Diagnostic

_FRONT = re.compile(r"---\n((?:\w+: .+\n)+)---\n")
_PART = re.compile(r"^(#{1,2}) (.+)$|^(?P<fence>```|~~~)(\S.*)\n([\s\S]*?)^(?P=fence)$", re.MULTILINE)
_OPTION = r"at=\S+|compression=\S+|encoding=\S+|ends=lf|times=int96|write=in-place|zone=older"
_INFO = re.compile(rf"(\w+)((?: (?:{_OPTION}))*) (?!\w+=\S+ )(.+)")
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
    rules: tuple[str, ...]  # of the protocol, as `LZ-4.12`, and others, as `E5`
    codes: tuple[str, ...]  # the diagnostics that it is the example of
    runs_on: tuple[str, ...]  # besides memory and arrow: `spark`, `stores`
    features: tuple[str, ...]  # table features that its tables need
    is_comparable: bool  # whether the landing zone in the end still has all that decided the result
    options: Mapping[str, Any]  # of `Config` that differ from the defaults
    title: str = ""
    stages: list[Stage] = field(default_factory=list)  # the engine runs after each
    result: str = ""  # `caught_up` or `needs_attention`
    tables: dict[str, ExpectedTable] = field(default_factory=dict)  # in the end, by folder from `ROOT/Tables`
    diagnostics: tuple[ExpectedDiagnostic, ...] = ()  # all of them in the end
    earlier: tuple[ExpectedDiagnostic, ...] = ()  # raised after any stage
    validate: tuple[ExpectedDiagnostic, ...] = ()  # in the end, besides, by `validate` alone
    undecided: tuple[str, ...] = ()  # codes that may be there besides
    zone: list[str] | None = None  # every file in the landing zone in the end; None: not compared

    def file(self, path: str) -> bytes:
        """The content that the first stage lands under a path."""
        return next(file.content for file in self.stages[0].files if file.path == path)


def names() -> list[str]:
    """All cases, in the order of their names."""
    return sorted(path.stem for path in CASES.glob("*.md") if path.stem != "README")


@cache
def load(name: str) -> Case:
    """A case by its name.

    Raises:
        FileNotFoundError: there is none.
        ValueError: its file is not in the form that fixtures/README.md describes.
    """
    return parse(name, (CASES / f"{name}.md").read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Case:
    """A case from the Markdown of its file; raises `ValueError` with the line at fault."""
    match = _FRONT.match(text)
    if match is None:
        raise ValueError(f"{name}.md does not begin with front matter: lines of `field: value` between two of `---`")
    fields, body = dict(line.split(": ", 1) for line in match[1].splitlines()), text[match.end() :]
    rules, codes, runs_on, features, given = (
        tuple(filter(None, fields.pop(each, "").split(", ")))
        for each in ("rules", "codes", "on", "features", "options")
    )
    case = Case(name, rules, codes, runs_on, features, fields.pop("compare", "yes") == "yes", _options(given))
    if fields:
        raise ValueError(f"{name}.md: unknown fields in the front matter: {', '.join(fields)}")
    offset, line = len(text) - len(body), 0
    try:
        for part in _PART.finditer(body):
            line = text.count("\n", 0, offset + part.start()) + 1
            _add(case, *part.group(1, 2, 4, 5))
    except (ArithmeticError, LookupError, ValueError, pa.ArrowException) as error:
        raise ValueError(f"{name}.md:{line}: {error}") from error
    if unread := re.search("^(?:```|~~~).*", _PART.sub("", body), re.MULTILINE):
        raise ValueError(f"{name}.md: no end of {unread[0]}")
    if not (case.title and case.stages and case.result):
        raise ValueError(f"{name}.md lacks a title, `## Lands` or `## Result: …`")
    return case


def _options(pairs: Sequence[str]) -> dict[str, Any]:
    words = dict(pair.split("=", 1) for pair in pairs)
    if unknown := words.keys() - options().keys():
        raise ValueError(f"unknown options: {', '.join(unknown)}")
    return {name: options()[name].kind.read(word) for name, word in words.items()}


def _add(case: Case, level: str | None, heading: str, info: str, text: str) -> None:
    """Add a heading, or a fenced block, to a case."""
    word, _, rest = (heading or info).partition(" ")
    text = text.removesuffix("\n") if text else ""
    match level, word:
        case "#", _:
            case.title = heading
        case "##", "Lands" | "Then":
            case.stages.append(Stage(rest))
        case "##", "Result:":
            case.result = rest
        case "##", _:
            raise ValueError(f'"{heading}" is not `Lands`, `Then …` or `Result: …`')
        case _ if case.result:
            _expect(case, word, rest, text)
        case _:
            case.stages[-1] = _with_block(case.stages[-1], info, text)


def _expect(case: Case, kind: str, path: str, text: str) -> None:
    lines = text.split("\n") if text else []
    match kind:
        case "table":
            columns, rows = typed_rows(text)
            names = [name for name, *_ in columns]
            case.tables[path] = ExpectedTable(
                tuple(Column(*column) for column in columns), tuple(dict(zip(names, row, strict=True)) for row in rows)
            )
        case "diagnostics":
            case.diagnostics = tuple(map(_diagnostic, lines))
        case "earlier":
            case.earlier = tuple(map(_diagnostic, lines))
        case "validate":
            case.validate = tuple(map(_diagnostic, lines))
        case "undecided":
            case.undecided = tuple(lines)
        case "zone":
            case.zone = sorted(lines)
        case _:
            raise ValueError(f'"{kind}" is not table, diagnostics, earlier, validate, undecided or zone')


def _diagnostic(line: str) -> ExpectedDiagnostic:
    match = _DIAGNOSTIC.fullmatch(line)
    if match is None:
        raise ValueError(f'"{line}" is not `MEnnn PATH` or `MEnnn PATH, row N`')
    return ExpectedDiagnostic(match[1], match[2] or "", int(match[3]) if match[3] else None)


def _with_block(stage: Stage, info: str, text: str) -> Stage:
    if info == "removed":
        return replace(stage, removed=(*stage.removed, *text.split("\n")))
    match = _INFO.fullmatch(info)
    if match is None or match[1] not in CONTENTS:
        raise ValueError(f'"{info}" is not `removed`, or {", ".join(CONTENTS)} with options and a path')
    options = dict(option.split("=", 1) for option in match[2].split())
    file = LandedFile(
        match[3],
        CONTENTS[match[1]](text, options),
        OLDER_ZONE if "zone" in options else ZONE,
        int(np.datetime64(options["at"].removesuffix("Z"), "ns").astype(np.int64)) if "at" in options else None,
        "write" in options,
    )
    return replace(stage, files=(*stage.files, file))
