"""Reads JSON strictly, keeps what a plain reader loses, and says in plain words where and how a text breaks."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_TOKEN = re.compile(r'"(?:[^"\\]|\\[\s\S])*"|-?Infinity|NaN|[^\s"]')
_OPEN_BACKSLASH = re.compile(r'(?<![\\"])"\\"(?=\s*(?:[,}\]]|$))')
_WORD = re.compile(r"[^\W\d][\w.-]*")
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_SOMEHOW = "correct it there"
_DOUBLED = "write the backslash twice"
_IN_TEXT = {  # by how the parser's own message begins: the fault, and what mends it
    "Unterminated string": ("this text is never closed by a quotation mark", "close the text"),
    "Invalid control character": (
        "a line end or control character inside a text, or its closing quote is missing",
        _SOMEHOW,
    ),
    "Invalid \\": ("a backslash before this character means nothing", _DOUBLED),
}
DEEPEST = 32  # levels of objects and arrays; a `_metadata.json` has four
_SHOWN = 40  # characters of a word that a message repeats
_UTF8_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


class JsonFault(Exception):
    """A text is no JSON.

    Attributes:
        line, column: of the mistake, 1-based, in characters.
        fault: what is wrong, in plain words.
        help: what to do at that place, as far as that is known.
    """

    def __init__(self, text: str, position: int, fault: str, help: str = _SOMEHOW) -> None:
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
        """Every value given under this name, however spelled; null counts as not given."""
        return [value for value in self._by_name.get(name.casefold(), ()) if value is not None]

    @property
    def names(self) -> tuple[str, ...]:
        """The names as spelled, in order."""
        return tuple(name for name, _ in self.pairs)


def read_json(content: bytes) -> object:
    """One JSON value; objects as `JsonObject`, numbers as floats.

    Raises:
        JsonFault: it is not JSON in UTF-8 (a BOM is allowed), or nested beyond reason.
    """
    text = _decoded(content)
    try:
        value: object = json.loads(text, object_pairs_hook=_object, parse_int=float, parse_constant=_refuse_constant)
        _refuse_half_pairs(text)
        _refuse_depth(value)
    except json.JSONDecodeError as error:
        raise _explained(text, error) from None
    except _NoJsonNumber as error:
        raise JsonFault(text, _constant(text), f"{error} is no JSON number") from None
    except RecursionError:
        raise JsonFault(text, _deepest(text), "nested too deeply") from None
    return value


class _NoJsonNumber(Exception):
    pass


def _refuse_constant(name: str) -> object:
    raise _NoJsonNumber(name)


def _object(pairs: list[tuple[str, object]]) -> JsonObject:
    return JsonObject(tuple(pairs))


def _decoded(content: bytes) -> str:
    for bom, encoding in _WIDE_BOMS.items():
        if content.startswith(bom):
            raise JsonFault("", 0, f"the file is written in {encoding}, JSON needs UTF-8", "write it in UTF-8")
    content = content.removeprefix(_UTF8_BOM)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        good = content[: error.start].decode()
        raise JsonFault(good, len(good), "these bytes are not UTF-8", "write it in UTF-8") from None


def _refuse_half_pairs(text: str) -> None:
    # Half a surrogate pair is valid to the parser, but no text: nothing behind us could write such a name.
    if (half := _HALF_PAIR.search(text)) is None:
        return
    try:
        json.dumps(json.loads(text, parse_int=float), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise JsonFault(text, half.start(), "half of a surrogate pair, which is no character") from None


def _refuse_depth(value: object) -> None:
    # A parser bears more depth than what compares two values behind it.
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in _inside(one)]
    if level:
        raise RecursionError


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, JsonObject):
        return (inner for _, inner in value.pairs)
    return value if isinstance(value, list) else ()


def _explained(text: str, error: json.JSONDecodeError) -> JsonFault:
    at = error.pos
    if not text.strip():
        return JsonFault(text, 0, "the file is empty")
    line_start = text.rfind("\n", 0, at) + 1
    if (open_quote := _last(_OPEN_BACKSLASH, text, line_start, at)) is not None:
        return JsonFault(text, open_quote, 'the text "\\" is never closed', _DOUBLED)
    in_text = next((found for start, found in _IN_TEXT.items() if error.msg.startswith(start)), None)
    if in_text is not None:
        return JsonFault(text, at, *in_text)
    if (comma := _trailing_comma(text, at)) is not None:
        return JsonFault(text, comma, "a comma follows the last entry", "remove the comma")
    return JsonFault(text, at, *_unexpected(text, at, error.msg))


def _last(pattern: re.Pattern[str], text: str, start: int, at: int) -> int | None:
    end = text.find("\n", at)
    hits = [m.start() for m in pattern.finditer(text[start : len(text) if end < 0 else end]) if m.start() + start <= at]
    return hits[-1] + start if hits else None


def _trailing_comma(text: str, at: int) -> int | None:
    for closing in (at, _next_mark(text, at + 1)):
        before = text[:closing].rstrip()
        if text[closing : closing + 1] in {"}", "]"} and before.endswith(","):
            return len(before) - 1
    return None


def _next_mark(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _unexpected(text: str, at: int, message: str) -> tuple[str, str]:  # noqa: PLR0911 - one line per fault, read as a table
    at = _next_mark(text, at)
    mark = text[at : at + 1]
    if not mark:
        return "the file ends in the middle", "land the whole file"
    if text.startswith(("//", "/*", "#"), at):
        return "a comment, JSON has none", "remove the comment"
    if mark in {"'", "`", "\u201c", "\u201d", "\u2018", "\u2019"}:
        return "this quotation mark is none to JSON", 'write "'
    if message.startswith("Extra data"):
        return "more text follows the end of the object", "remove what follows"
    if (word := _WORD.match(text, at)) is not None:
        is_known = word[0].lower() in {"true", "false", "null"}
        help = f"write {word[0].lower()}" if is_known else "write the word in quotation marks"
        return f"the word {word[0][:_SHOWN]} is not in quotes", help
    if "','" in message:
        return "a comma or a closing bracket is missing before this", _SOMEHOW
    if "':'" in message:
        return "a colon is missing before this", "put a colon there"
    return f"{mark} is not expected here", _SOMEHOW


def _constant(text: str) -> int:
    return next((m.start() for m in _TOKEN.finditer(text) if m[0] in {"NaN", "Infinity", "-Infinity"}), 0)


def _deepest(text: str) -> int:
    depth, most, at = 0, 0, 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] in {"{", "["}) - (token[0] in {"}", "]"})
        if depth > most:
            most, at = depth, token.start()
    return at


Meaning = TypeVar("Meaning")
Member = TypeVar("Member", bound=Enum)
_SHOWN_property_reader = 60  # characters of a value that a message repeats


class Unreadable(Exception):
    """A value that means nothing here.

    Attributes:
        known: what would have meant something, in words.
    """

    def __init__(self, known: str) -> None:
        super().__init__(known)
        self.known = known


@dataclass
class PropertyReader:
    """Reads properties by name; a wrong one is remembered and the default goes on, so that all faults are told.

    Attributes:
        path: of the file, for messages.
        strict: whether severities are those of `strict`.
        errors: what makes the metadata unusable.
        notes: warnings and information.
    """

    path: str
    strict: bool = False
    errors: list[Diagnostic] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)

    def refuse(self, code: str, **details: object) -> None:
        """Remember an error."""
        self.errors.append(diagnose(code, self.path, row=None, strict=self.strict, **details))

    def note(self, code: str, **details: object) -> None:
        """Remember a warning or an information, once."""
        diagnostic = diagnose(code, self.path, row=None, strict=self.strict, **details)
        if diagnostic not in self.notes:
            self.notes.append(diagnostic)

    def property(
        self, given: JsonObject, name: str, meaning: Callable[[object], Meaning], default: Meaning, *, called: str = ""
    ) -> Meaning:
        """A property's meaning; ME011 where it has none, or two (LZ-2.6). `called` names it in messages."""
        return self._one("ME011", called or name, given.values(name), meaning, default)

    def option(
        self, given: Sequence[JsonObject], name: str, meaning: Callable[[object], Meaning], default: Meaning
    ) -> Meaning:
        """A text option's meaning, nested or flat; ME056 where it has none (LZ-6.2)."""
        values = [value for one in given for value in one.values(name)]
        return self._one("ME056", name, values, meaning, default)

    def _one(
        self, code: str, called: str, values: list[object], meaning: Callable[[object], Meaning], default: Meaning
    ) -> Meaning:
        meanings: list[Meaning] = []
        for value in values:
            try:
                meant = meaning(value)
            except Unreadable as error:
                self._refuse_value(code, called, shown(value), error.known)
                continue
            if isinstance(meant, bool) and isinstance(value, str):
                self.note("ME013", property=called)
            if meant not in meanings:
                meanings.append(meant)
        if len(meanings) > 1:
            self._refuse_value("ME011", called, "given twice with two values", "one value")
        return meanings[0] if meanings else default

    def _refuse_value(self, code: str, called: str, found: str, known: str) -> None:
        name = "option" if code == "ME056" else "property"
        self.refuse(code, **{name: called, "found": found, "known": known})


def shown(value: object) -> str:
    """A JSON value as a message shows it: short values as written, others by kind."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value[:_SHOWN_property_reader]}{"…" if len(value) > _SHOWN_property_reader else ""}"'
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, JsonObject):
        return "an object"
    return "an array" if isinstance(value, list) else "null"


def either(known: Iterable[str]) -> str:
    """`a, b or c`."""
    *others, last = known
    return f"{', '.join(others)} or {last}" if others else last


def boolean(value: object) -> bool:
    """true, false, or either as text (LZ-2.8)."""
    if isinstance(value, str) and value.casefold() in {"true", "false"}:
        return value.casefold() == "true"
    if isinstance(value, bool):
        return value
    raise Unreadable("true or false")


def text(value: object) -> str:
    """Any text."""
    if isinstance(value, str):
        return value
    raise Unreadable("text")


def name(value: object) -> str:
    """Any text but the empty one."""
    if isinstance(value, str) and value:
        return value
    raise Unreadable("a name")


def json_object(value: object) -> JsonObject:
    """An object."""
    if isinstance(value, JsonObject):
        return value
    raise Unreadable("an object")


def one_of(known: type[Member]) -> Callable[[object], Member]:
    """A member of an enumeration by its value in any case (LZ-2.2)."""
    return by_name({member.value: member for member in known})


def by_name(known: Mapping[str, Meaning]) -> Callable[[object], Meaning]:
    """What a text stands for, in any case."""
    folded = {name.casefold(): meaning for name, meaning in known.items()}

    def meaning(value: object) -> Meaning:
        if isinstance(value, str) and value.casefold() in folded:
            return folded[value.casefold()]
        raise Unreadable(either(known))

    return meaning
