"""The Python API's page: public names with their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import textwrap
from importlib import import_module
from typing import Any

from reference import fenced

import mirror_engine
from mirror_engine.cli.options import WIDTH
from mirror_engine.results import Result

TYPES = "Types"  # of arguments and results, whose methods are not listed
_MIRROR, _ERRORS, _ELSEWHERE = ["Mirror", "RunResult"], ["MirrorError", "TransientError"], ["Config", "__version__"]
_RESULTS = [
    name
    for name in mirror_engine.__all__
    if inspect.isclass(found := getattr(mirror_engine, name)) and issubclass(found, Result)
]
_TYPES = [name for name in mirror_engine.__all__ if name not in [*_MIRROR, *_RESULTS, *_ERRORS, *_ELSEWHERE]]
# By heading: a module, and those of its names that are public; all of its `__all__` where there are none
NAMES: dict[str, tuple[str, list[str]]] = {
    "A mirror": ("mirror_engine", _MIRROR),
    "Results": ("mirror_engine", _RESULTS),
    TYPES: ("mirror_engine", _TYPES),
    "Publishing": ("mirror_engine.publish", []),
    "OneLake in a test": ("mirror_engine.testing.onelake", []),
    "Failure scenarios": ("mirror_engine.testing.scenarios", []),
    "Writing a landing zone in a test": (
        "mirror_engine.testing.landing_zone_writer",
        ["LandingZoneWriter", "TableFolder"],
    ),
    "Errors": ("mirror_engine", _ERRORS),
}
ALIASES = {
    "Listener": "A function that is called with each event.",
    "Place": "A folder of this machine, or a URL in a store.",
}
_HEADING = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
_ITEM = re.compile(r"^    (\S.*?): (.*)$")


def api() -> str:
    """Every public name."""
    parts = []
    for heading, (module, names) in NAMES.items():
        loaded = import_module(module)
        parts.append(f"## {heading}\n\nfrom `{module}`")
        show = _type if heading == TYPES else _section
        parts += [show(name, getattr(loaded, name)) for name in names or loaded.__all__]
    return "\n\n".join(parts)


def error_tree() -> str:
    """The drawing of all errors."""
    return fenced("text", (import_module("mirror_engine.errors").__doc__ or "").split("```")[1].strip())


def _type(name: str, thing: Any) -> str:  # noqa: ANN401 - a class or an alias
    about = ALIASES.get(name) or inspect.getdoc(thing) or ""
    return f"### {name} {{#{name}}}\n\n{described(about)}"


def _section(name: str, thing: Any) -> str:  # noqa: ANN401 - a class or function
    parts = [
        f"### {name} {{#{name}}}",
        fenced("python", _signature(name, thing)),
        described(inspect.getdoc(thing) or ""),
    ]
    for member, value in _members(thing):
        kind = value.fget if isinstance(value, property) else value
        shown = f"{member}" if isinstance(value, property) else _signature(member, kind)
        parts += [
            f"#### {name}.{member} {{#{name}.{member}}}",
            fenced("python", shown),
            described(inspect.getdoc(kind) or ""),
        ]
    return "\n\n".join(part for part in parts if part)


def _members(thing: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - a class or function
    """Public methods and properties of a class and of its parents in this package, in the order of their definition."""
    if not inspect.isclass(thing):
        return []
    found: dict[str, Any] = {}
    for parent in reversed([each for each in thing.__mro__ if each.__module__.startswith("mirror_engine")]):
        own = {name: value for name, value in vars(parent).items() if not name.startswith("_")}
        found |= {
            name: value for name, value in own.items() if inspect.isfunction(value) or isinstance(value, property)
        }
    return [(name, value) for name, value in found.items() if inspect.getdoc(value)]


def _signature(name: str, thing: Any) -> str:  # noqa: ANN401 - a class or function
    """As it is written, on one line where that is short enough."""
    try:
        signature = inspect.signature(thing)
    except ValueError:  # of an exception without a constructor of its own
        return name
    own = [each for each in signature.parameters.values() if each.name != "self"]
    answer = inspect.Signature.empty if inspect.isclass(thing) else signature.return_annotation
    shown = signature.replace(parameters=own, return_annotation=answer)
    line = f"{name}{shown}"
    if len(line) > WIDTH:
        named = [each.kind is each.KEYWORD_ONLY for each in own]
        words = list(map(str, own))
        if any(named):
            words.insert(named.index(True), "*")
        line = f"{name}(\n" + "".join(f"    {each},\n" for each in words) + f"){str(shown).rpartition(')')[2]}"
    return line.replace("'", "")


def described(docstring: str) -> str:
    """A docstring in Google's form as Markdown: sections become lists."""
    parts: list[str] = []
    for block in docstring.split("\n\n"):
        first, *rest = block.splitlines() or [""]
        if (heading := _HEADING.match(first)) is None:
            parts.append(block)
            continue
        items: list[str] = []
        for line in rest:
            if item := _ITEM.match(line):
                items.append(f"- `{item[1]}`: {item[2]}")
            else:
                items.append(f"  {line.strip()}" if items else textwrap.dedent(line))
        parts += [f"{heading[1]}:", "\n".join(items)]
    return "\n\n".join(parts)
