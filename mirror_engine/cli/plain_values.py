"""Takes plain arguments as they stand: to look at them typer imports pydantic, a fifth of a second at every start."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping


_DEMANDS = ("exists", "writable", "resolve_path", "allow_dash", "path_type", "parser", "click_type", "callback")
_ALLOWANCES = ("file_okay", "dir_okay")


def take_plain_values(command: Any, settings: Mapping[str, Any]) -> None:  # noqa: ANN401 - typer names no public class
    """Let a command's parameters leave to typer only what may be wrong, or must be understood first.

    Args:
        command: group or command.
        settings: of its context.
    """
    for parameter in command.get_params(typer.Context(command, **settings)):
        described = getattr(parameter, "type_descriptor", None)
        if described is not None and not _is_demanding(described.parameter_info):
            vars(parameter)["_runtime_param"] = _PlainValues(described.annotation)


def _is_demanding(info: Any) -> bool:  # noqa: ANN401 - typer's
    demands = any(getattr(info, name, None) for name in _DEMANDS)
    return demands or not all(getattr(info, name, True) for name in _ALLOWANCES)


class _PlainValues:
    """What typer asks to turn words into an annotation's values."""

    def __init__(self, annotation: Any) -> None:  # noqa: ANN401 - any type
        self._annotation = annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - typer's
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        try:
            return _plain(value, self._annotation)
        except ValueError:
            vars(param)["_runtime_param"] = None
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _plain(value: Any, annotation: Any) -> Any:  # noqa: ANN401 - any value and type
    """The value of a type that needs no look.

    Raises:
        ValueError: it needs one.
    """
    if get_origin(annotation) is list and isinstance(value, list | tuple):
        (inner,) = get_args(annotation)
        return [_plain(each, inner) for each in value]
    if isinstance(annotation, type) and isinstance(value, annotation):
        return value
    if isinstance(value, str) and annotation is Path and (os.access(value, os.R_OK) or not os.path.lexists(value)):
        return Path(value)
    if isinstance(value, str) and isinstance(annotation, type) and issubclass(annotation, Enum):
        return annotation(value)
    raise ValueError(annotation)
