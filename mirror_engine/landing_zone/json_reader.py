"""Strict JSON for `_metadata.json`: names in any case, repeated names kept, errors with line, column and help."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Generic, TypeVar

from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")

MAX_DEPTH = 32  # of objects and arrays; a `_metadata.json` has four
_MAX_SHOWN = 60  # characters of a value or word in a message
_OPEN_BACKSLASH = re.compile(r'(?<![\\"])"\\"(?=\s*(?:[,}\]]|$))')
_TRAILING_COMMA = re.compile(r",\s*[}\]]")
_WORD = re.compile(r"\s*([^\W\d][\w.-]*)")
_FOREIGN = re.compile(r"\s*('|//|/\*|#)")
_COMMENT = ("JSON has no comments", "remove the comment")
_FOREIGN_FAULTS = {**dict.fromkeys(("//", "/*", "#"), _COMMENT), "'": ("text in single quotes", "use double quotes")}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TWICE = "write the backslash twice"
_HELP = {"Extra data": "remove what follows", "Unterminated string": "close the text", "Invalid \\": _TWICE}
_NO_WORDS: dict[str, str] = {}
_UTF8_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


class JsonFault(Exception):
    """A text is not JSON.

    Attributes:
        line, column: of the fault, 1-based, in characters.
    """

    def __init__(self, text: str, position: int, fault: str, help: str = "correct it there") -> None:
        super().__init__(fault)
        self.line = text.count("\n", 0, position) + 1
        self.column = position - text.rfind("\n", 0, position)
        self.fault = fault
        self.help = help


@dataclass(frozen=True)
class JsonObject:
    """A JSON object whose names are found in any case, repeated names included (LZ-2.2, LZ-2.6)."""

    pairs: tuple[tuple[str, object], ...] = ()
    _by_name: dict[str, list[object]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.pairs:
            self._by_name.setdefault(name.casefold(), []).append(value)

    def values(self, name: str) -> list[object]:
        """Every value of this name in any spelling; null counts as absent."""
        return [value for value in self._by_name.get(name.casefold(), ()) if value is not None]

    @property
    def names(self) -> tuple[str, ...]:
        """The names as spelled, in order."""
        return tuple(name for name, _ in self.pairs)


def read_json(content: bytes) -> object:
    """One JSON value; objects as `JsonObject`, numbers as floats.

    Raises:
        JsonFault: it is not JSON in UTF-8 (a BOM is allowed), or nested too deeply.
    """
    text = _decoded(content)

    def reject_constant(name: str) -> object:  # NaN or an infinity, which Python reads and JSON does not have
        raise JsonFault(text, text.find(name), f"{name} is not a JSON number")

    try:
        value: object = json.loads(
            text,
            object_pairs_hook=lambda pairs: JsonObject(tuple(pairs)),
            parse_int=float,
            parse_constant=reject_constant,
        )
        _check_depth(value)
    except json.JSONDecodeError as error:
        raise _explained(text, error) from None
    except RecursionError:
        raise JsonFault(text, 0, "nested too deeply") from None
    if (surrogate := _SURROGATE.search(text)) is not None:
        try:
            json.dumps(json.loads(text, parse_int=float), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise JsonFault(text, surrogate.start(), "half of a surrogate pair is not a character") from None
    return value


def _decoded(content: bytes) -> str:
    if content.startswith(_WIDE_BOMS):
        raise JsonFault("", 0, "the file is written in UTF-16 or UTF-32, expected UTF-8", "write it in UTF-8")
    content = content.removeprefix(_UTF8_BOM)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        valid = content[: error.start].decode()
        raise JsonFault(valid, len(valid), "these bytes are not UTF-8", "write it in UTF-8") from None


def _check_depth(value: object, depth: int = 0) -> None:
    if depth == MAX_DEPTH:
        raise RecursionError
    members = [member for _, member in value.pairs] if isinstance(value, JsonObject) else value
    for member in members if isinstance(members, list) else ():
        _check_depth(member, depth + 1)


def _explained(text: str, error: json.JSONDecodeError) -> JsonFault:  # noqa: PLR0911 - one for each fault
    """The fault with help; the three faults of Microsoft's own examples are named (LZ-2.6)."""
    at = error.pos
    if not text.strip():
        return JsonFault(text, 0, "the file is empty", "write one JSON object")
    if text.lstrip()[:1] == "<":
        return JsonFault(text, at, "this is HTML or XML", "land the JSON itself")
    if not text[at:].strip():
        return JsonFault(text, at, "the file ends in the middle", "land the whole file")
    line = text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0]
    starts = [match.start() + at - error.colno + 1 for match in _OPEN_BACKSLASH.finditer(line)]
    if starts := [start for start in starts if start <= at]:
        return JsonFault(text, starts[-1], 'the text "\\" is never closed', _TWICE)
    comma = len(text[: at + 1].rstrip().rstrip("}]").rstrip()) - 1
    if _TRAILING_COMMA.match(text, comma):
        return JsonFault(text, comma, "a comma follows the last entry", "remove the comma")
    if error.msg.startswith("Expecting") and (mark := _FOREIGN.match(text, at)) is not None:
        return JsonFault(text, mark.start(1), *_FOREIGN_FAULTS[mark[1]])
    if error.msg.startswith("Expecting") and (word := _WORD.match(text, at)) is not None:
        is_known = word[1].lower() in {"true", "false", "null"}
        help = f"write {word[1].lower()}" if is_known else "write the word in quotation marks"
        return JsonFault(text, word.start(1), f"the word {word[1][:_MAX_SHOWN]} is not in quotes", help)
    help = next((words for start, words in _HELP.items() if error.msg.startswith(start)), "correct it there")
    return JsonFault(text, at, f"{error.msg[:1].lower()}{error.msg[1:]}", help)


@dataclass(frozen=True)
class Meaning(Generic[T]):
    """What a value may mean."""

    expected: str
    of: Callable[[object], T | None]  # gives the meaning of a value; None where it has none
    names: tuple[str, ...] = ()  # all texts that have a meaning, where there are few
    words: Mapping[str, str] = field(default_factory=dict)  # what others call these, in lower case
    help: str = "use one of the expected values"

    def help_for(self, value: object) -> str:
        """What to do about a value that has no meaning."""
        text = value.casefold().partition("(")[0].strip() if isinstance(value, str) else ""  # varchar(20)
        by_name = {name.casefold(): name for name in self.names}
        begun = [name for folded, name in by_name.items() if text and folded.startswith(text)]
        near = [by_name[name] for name in get_close_matches(text, by_name, n=1)]
        meant = [self.words[text]] if text in self.words else begun or near
        return f"did you mean {meant[0]}?" if meant else self.help


@dataclass
class PropertyReader:
    """Reader of properties by name; a wrong one becomes a diagnostic and its default, so that all are reported."""

    path: str
    strict: bool = False
    errors: list[Diagnostic] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)

    def reject(self, code: str, **details: object) -> None:
        """Record an error."""
        self.errors.append(diagnose(code, self.path, row=None, strict=self.strict, **details))

    def note(self, code: str, **details: object) -> None:
        """Record a warning or an information, once."""
        diagnostic = diagnose(code, self.path, row=None, strict=self.strict, **details)
        if diagnostic not in self.notes:
            self.notes.append(diagnostic)

    def note_unknown(
        self,
        properties: JsonObject,
        known: Iterable[str],
        place: str = "",
        words: Mapping[str, str] = _NO_WORDS,
        above: Iterable[str] = (),
    ) -> None:
        """Warn of properties that are not among the known ones (LZ-2.8).

        Args:
            properties: an object of the file.
            known: the names that it may have.
            place: the names that lead to it, with dots.
            words: what others call the known ones, in lower case and without separators.
            above: the names that the file's top may have.
        """
        by_name, at_top = ({one.casefold(): one for one in names} for names in (known, above))
        for spelled, value in properties.pairs:
            name = spelled.casefold()
            if name in by_name:
                continue
            inside = value.names if isinstance(value, JsonObject) else ()
            within = next((by_name[each.casefold()] for each in inside if each.casefold() in by_name), "")
            called = words.get(re.sub(r"[\W_]", "", name), "")
            near = get_close_matches(name, by_name, n=1)
            meant = within or at_top.get(name) or (called if called.casefold() in by_name else "")
            meant = meant or (by_name[near[0]] if near else "")
            help = f"did you mean `{meant}`?" if meant else "remove it, or check the spelling"
            if within:
                help = f"`{within}` is read outside of it: move it up"
            elif name in at_top:
                help = f"move `{meant}` to the top of the file"
            self.note("ME012", property=f"{place}{spelled}", meant=meant, help=help)

    def read(
        self, name: str, meaning: Meaning[T], default: T, *objects: JsonObject, called: str = "", code: str = "ME011"
    ) -> T:
        """A property's meaning in one of the objects; `code` if it has none, ME011 if it has two (LZ-2.6, LZ-6.2).

        `called` names it in messages.
        """
        called = called or name
        meanings: list[T] = []
        for value in (value for properties in objects for value in properties.values(name)):
            meant = meaning.of(value)
            if meant is None:
                named = {"option" if code == "ME056" else "property": called}
                self.reject(code, **named, found=shown(value), known=meaning.expected, help=meaning.help_for(value))
            elif meant not in meanings:
                meanings.append(meant)
            if isinstance(meant, bool) and isinstance(value, str):
                self.note("ME013", property=called)
        if len(meanings) > 1:
            help = "keep one of them"
            self.reject("ME011", property=called, found="given twice with two values", known="one value", help=help)
        return meanings[0] if meanings else default


def shown(value: object) -> str:
    """A JSON value as a message shows it: short values as written, others by kind."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value[:_MAX_SHOWN]}{"…" if len(value) > _MAX_SHOWN else ""}"'
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, JsonObject):
        return "an object"
    if not isinstance(value, list):
        return "null"
    entries = ", ".join(map(shown, value[:_MAX_SHOWN]))
    return f"[{entries}]" if len(entries) <= _MAX_SHOWN else "an array"


def either(known: Iterable[str]) -> str:
    """`a, b or c`."""
    *others, last = known
    return f"{', '.join(others)} or {last}" if others else last


def one_of(known: Mapping[str, T], expected: str = "", words: Mapping[str, str] = _NO_WORDS) -> Meaning[T]:
    """The meaning of a text, in any case (LZ-2.2); `words`: what others call these texts, in lower case."""
    folded = {name.casefold(): meaning for name, meaning in known.items()}
    return Meaning(
        expected or either(known),
        lambda value: folded.get(value.casefold()) if isinstance(value, str) else None,
        () if expected else tuple(known),
        words,
    )


def _of_kind(kind: type[T], expected: str) -> Meaning[T]:
    return Meaning(expected, lambda value: value if isinstance(value, kind) else None)


def _boolean(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.casefold())
    return value if isinstance(value, bool) else None


TEXT = _of_kind(str, "text")
OBJECT = Meaning("an object", _of_kind(JsonObject, "").of, help="write an object in braces")
NAME = Meaning("a name", lambda value: value if isinstance(value, str) and value else None)
BOOLEAN = Meaning("true or false", _boolean)  # or either as text (LZ-2.8)
