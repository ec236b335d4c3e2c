"""Findings as a person reads them: one for each cause, and a cause before its effects.

The engine raises every diagnostic on its own. In a list, a misspelled `keyColumns` comes before the row marker that
needs a key, and what a finding tells already is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from mirror_engine.landing_zone.diagnostics import SEVERITY_ORDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mirror_engine.landing_zone.diagnostics import Diagnostic

_T = TypeVar("_T")
_SPLITS_TEXT = frozenset({"ColumnSeparator", "RowSeparator", "QuoteCharacter", "EscapeCharacter", "Encoding"})
# what a reader finds that splits or decodes text in another way than the publisher wrote it
_BADLY_SPLIT = frozenset({"ME018", "ME046", "ME048", "ME057", "ME060", "ME061", "ME062", "ME094"})


class _Link(NamedTuple):
    """How a diagnostic of one code follows from one of another."""

    cause: str
    effects: frozenset[str]
    holds: Callable[[Diagnostic, Diagnostic], bool]  # whether the second follows from the first
    tells: bool = False  # whether the first tells all of the second, which is no finding of its own then


def _meant(found: Diagnostic) -> str:
    return dict(found.details).get("meant", "")


def _same_column(cause: Diagnostic, effect: Diagnostic) -> bool:
    return cause.column is not None and cause.column == effect.column


def _same_path(cause: Diagnostic, effect: Diagnostic) -> bool:
    return cause.path == effect.path


def _same_row(cause: Diagnostic, effect: Diagnostic) -> bool:
    return (cause.path, cause.row) == (effect.path, effect.row)


def _of_no_files(cause: Diagnostic, effect: Diagnostic) -> bool:
    return cause.path.startswith(f"{effect.path}/") and dict(effect.details).get("count") == "0"


def _is_meant_file(cause: Diagnostic, effect: Diagnostic) -> bool:
    return effect.path == f"{cause.path}/{dict(cause.details).get('misspelled')}"


_LINKS = (
    _Link("ME012", frozenset({"ME038"}), lambda cause, _: _meant(cause) == "keyColumns"),
    _Link("ME012", frozenset({"ME056"}), lambda cause, effect: _meant(cause) == dict(effect.details).get("option")),
    _Link("ME012", frozenset({"ME062"}), lambda cause, _: _meant(cause) == "RowSeparator", tells=True),
    _Link("ME012", _BADLY_SPLIT, lambda cause, _: _meant(cause) in _SPLITS_TEXT),
    _Link("ME012", frozenset({"ME048", "ME060"}), lambda cause, _: _meant(cause) == "NullValue"),
    _Link("ME031", frozenset({"ME018"}), lambda cause, effect: f"/{effect.column}=" in f"/{cause.path}"),
    _Link("ME038", frozenset({"ME016"}), lambda *_: True, tells=True),
    _Link("ME045", frozenset({"ME044"}), _same_column),
    _Link("ME048", frozenset({"ME059"}), _same_column, tells=True),
    _Link("ME057", frozenset({"ME018", "ME046"}), _same_path),
    _Link("ME099", frozenset({"ME037", "ME060"}), _same_row),
    _Link("ME064", frozenset({"ME039"}), _same_path, tells=True),
    _Link("ME003", frozenset({"ME008"}), _of_no_files, tells=True),
    _Link("ME008", frozenset({"ME082"}), _is_meant_file, tells=True),
    *(_Link(code, frozenset({"ME085"}), lambda *_: True) for code in ("ME002", "ME005")),
)


def findings(found: Iterable[_T], diagnostic_of: Callable[[_T], Diagnostic]) -> tuple[_T, ...]:
    """Findings in display order: the most serious first, causes before their effects, each reported once."""
    entries = [(diagnostic_of(entry), entry) for entry in found]
    entries.sort(key=lambda pair: -SEVERITY_ORDER.index(pair[0].severity))
    present = {diagnostic.code for diagnostic, _ in entries}
    links = [link for link in _LINKS if link.cause in present and not present.isdisjoint(link.effects)]
    if not links:
        return tuple(entry for _, entry in entries)
    told = {effect for effect, _ in entries if _causes(effect, entries, [link for link in links if link.tells])}
    ordered: dict[Diagnostic, _T] = {}

    def add(diagnostic: Diagnostic, entry: _T) -> None:
        for cause, first in _causes(diagnostic, entries, links):
            if cause not in ordered and cause not in told:
                ordered[cause] = first
        ordered.setdefault(diagnostic, entry)

    for diagnostic, entry in entries:
        if diagnostic not in told:
            add(diagnostic, entry)
    return tuple(ordered.values())


def _causes(
    effect: Diagnostic, entries: Sequence[tuple[Diagnostic, _T]], links: Sequence[_Link]
) -> list[tuple[Diagnostic, _T]]:
    """Entries that an entry of the list follows from."""
    fitting = [link for link in links if effect.code in link.effects]
    return [
        (cause, entry)
        for cause, entry in (entries if fitting else ())
        if any(link.cause == cause.code and link.holds(cause, effect) for link in fitting)
    ]
