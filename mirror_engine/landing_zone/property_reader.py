"""Reads single properties of `_metadata.json` and collects everything there is to say about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.json_faults import JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Meaning = TypeVar("Meaning")
Member = TypeVar("Member", bound=Enum)
_SHOWN = 60  # characters of a value that a message repeats


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
        return f'"{value[:_SHOWN]}{"…" if len(value) > _SHOWN else ""}"'
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
