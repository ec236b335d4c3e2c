"""Arguments and flags that commands share; those of `Config` come from its own fields."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from mirror_engine.config import Config, flag_of, load, options

Command = Callable[..., None]

Root = Annotated[Path, typer.Argument(metavar="ROOT", help="The mirrored database's folder.", show_default=False)]
Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="Sales.Orders, Sales.schema/Orders or Items, in any case.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout; errors become JSON on stderr.")]

ALL = tuple(field.name for field in fields(Config))
WORKING = ALL
READING = tuple(name for name in ALL if options()[name].topic == "Landing zone")


def configured(*names: str) -> Callable[[Command], Command]:
    """Give a command `--config` and a flag for each named option; it is called with `config: Config` in their place.

    The command must take `root: Path`, or `paths`, and `config: Config`, and is called with keywords.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_flags(*, config_file: Path | None = None, **arguments: Any) -> None:  # noqa: ANN401 - any command's own
            flags = {name: arguments.pop(name) for name in names}
            given = {name: value for name, value in flags.items() if value is not None}
            config = load(_place(arguments), given, os.environ, config_file)
            if config.memory_limit != "none":
                from mirror_engine.tables.reading.limits import limit_memory  # noqa: PLC0415 - imports Arrow

                limit_memory(config.memory_limit)
            command(**arguments, config=config)

        own = inspect.signature(command, eval_str=True)
        kept = [parameter for parameter in own.parameters.values() if parameter.name != "config"]
        added = [_config_file(), *(_flag(name) for name in names)]
        keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*kept, *added)]
        with_flags.__signature__ = own.replace(parameters=keyword)  # type: ignore[attr-defined]  # what typer reads
        with_flags.__annotations__ = {parameter.name: parameter.annotation for parameter in keyword}
        return with_flags

    return decorate


def _place(arguments: Mapping[str, Any]) -> Path:
    """Where `mirror-engine.toml` is looked for: ROOT, or the first of several paths."""
    paths = arguments.get("paths") or [arguments.get("root") or Path()]
    first = Path(paths[0])
    return first.parent if first.is_file() else first


def _config_file() -> inspect.Parameter:
    about = typer.Option(
        "--config", metavar="FILE", help="Options file.  [default: ROOT/mirror-engine.toml]", show_default=False
    )
    return _parameter("config_file", Annotated[Path | None, about])


def _flag(name: str) -> inspect.Parameter:
    option, flag = options()[name], flag_of(name)
    default = getattr(Config, name)
    is_switch = isinstance(default, bool)
    about = typer.Option(
        f"{flag}/--no-{flag.removeprefix('--')}" if is_switch else flag,
        metavar=None if is_switch else option.kind.metavar,
        help=f"{option.about}{_shown(name, default)}",
        show_default=False,
    )
    return _parameter(name, Annotated[bool | None, about] if is_switch else Annotated[str | None, about])


def _parameter(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _shown(name: str, default: object) -> str:
    """The default as one would write it."""
    text = default_text(name, default)
    return f"  [default: {text}]" if text else ""


def default_text(name: str, default: object) -> str:
    """An option's default as one would write it in a flag; `""` for an empty one."""
    if name.endswith("_size") and isinstance(default, int):
        return f"{default // 2**20}MiB"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)
