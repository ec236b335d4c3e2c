"""Commands, their shared options, and those of `Config` as flags; help grouped by topic."""

from __future__ import annotations

import inspect
import os
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from mirror_engine.config import Config, Kind, duration, flag_of, load, options, read_effective, whole
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.layout import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ALL = tuple(field.name for field in fields(Config))
READING = tuple(name for name, option in options().items() if option.topic == "Landing zone")
ROOT_VARIABLE = "MIRROR_ENGINE_ROOT"
DAY = 86_400  # seconds
WIDTH = 100  # of help, at most
_GLOBAL = "Global options"
_VERBATIM = "\b"  # click keeps the lines of a paragraph that begins with it
_SEPARATOR = " · "
_FIELD = "config__"  # before a field's name among a command's values


class Option(click.Option):
    """Option below a heading of its own in help; its help text ends with its default."""

    def __init__(self, *names: str, topic: str = "Options", default_text: str = "", **settings: Any) -> None:
        super().__init__(list(names), **settings)
        self.topic = topic
        self.default_text = default_text

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Flags with their placeholder, and the help."""
        if self.hidden:
            return None
        names = "/".join([", ".join(self.opts), *self.secondary_opts])
        if not self.is_flag and self.metavar:
            names += f" {self.metavar}"
        return names, f"{self.help}{f'  [default: {self.default_text}]' if self.default_text else ''}"


class Command(click.Command):
    """Command whose help groups its options by topic."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each topic, the global options last."""
        topics: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record:
                topic = getattr(parameter, "topic", _GLOBAL if isinstance(parameter, click.Option) else "Arguments")
                topics.setdefault(topic, []).append(record)
        write_sections(formatter, sorted(topics.items(), key=lambda topic: topic[0] == _GLOBAL))


def write_sections(formatter: click.HelpFormatter, sections: Sequence[tuple[str, list[tuple[str, str]]]]) -> None:
    """Write sections of help as lists in two columns."""
    for heading, records in sections:
        with formatter.section(heading):
            formatter.write_dl(records)


class Argument(click.Argument):
    """Argument with a help text."""

    def __init__(self, name: str, *, about: str, **settings: Any) -> None:
        super().__init__([name], **settings)
        self.about = about

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Placeholder and help."""
        return self.make_metavar(ctx), self.about

    def make_metavar(self, ctx: click.Context) -> str:
        """`ROOT`, in brackets if it may be left out, with dots if it may be repeated."""
        name = f"{self.metavar or str(self.name).upper()}{'...' if self.nargs != 1 else ''}"
        return name if self.required else f"[{name}]"


class Value(click.ParamType[Any]):
    """Values of a kind that `mirror_engine.config` knows, such as durations."""

    def __init__(self, kind: Kind) -> None:
        self.name = kind.metavar
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value as Python has it."""
        try:
            return self._kind.read(value)
        except (ValueError, OverflowError):
            return self.fail(f"{value!r}, allowed: {self._kind.allowed}", param, ctx)


def parameter(made: click.Parameter) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that adds a parameter to a command, in the order of the lines."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        vars(function).setdefault("parameters", []).insert(0, made)
        return function

    return decorate


def argument(name: str, about: str, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A positional argument."""
    return parameter(Argument(name, about=about, **settings))


def option(*names: str, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option with a value."""
    return parameter(Option(*names, **settings))


def flag(*names: str, help: str, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option without a value."""
    return parameter(Option(*names, is_flag=True, help=help, **settings))


def time_option(
    *names: str,
    low: float = 0.0,
    default: float | None = None,
    **settings: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that takes a duration of `low` seconds or more; `default` is in seconds, too."""
    shown = "" if default is None else f"{default:g}s"
    return option(
        *names, type=Value(duration(low)), metavar="DURATION", default=default, default_text=shown, **settings
    )


def count_option(
    *names: str, default: int | None, **settings: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that takes a whole number from 0 on."""
    shown = "" if default is None else str(default)
    return option(*names, type=Value(whole("N", 0)), metavar="N", default=default, default_text=shown, **settings)


def choice_option(
    *names: str,
    choices: Sequence[str],
    default: str,
    **settings: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that takes one of some words."""
    metavar = settings.pop("metavar", "|".join(choices))
    return option(
        *names, type=click.Choice(choices), metavar=metavar, default=default, default_text=default, **settings
    )


def command(
    name: str = "",
    *,
    root: Literal["argument", "option", "own"] = "argument",
    config: Sequence[str] = (),
    reads_engine: bool = False,
) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function that takes keywords.

    Args:
        name: of the command; the function's by default.
        root: how ROOT is given: by `-C` or as an argument, by `-C` only; `own`: the command has a folder of its
            own, or none.
        config: fields of `Config` that become flags; the function then takes `config`.
        reads_engine: whether the running engine's options take the place of file and variables.
    """

    def decorate(function: Callable[..., Any]) -> Command:
        wanted = inspect.signature(function).parameters
        takes_all = any(entry.kind is entry.VAR_KEYWORD for entry in wanted.values())

        @wraps(function)
        def run(**values: Any) -> None:
            context = click.get_current_context()
            flags = {field: value for field in config if (value := values.pop(f"{_FIELD}{field}")) is not None}
            config_file = values.pop("config_file", None)
            chosen = values.pop("root_option", None)
            if root != "own":
                values["root"] = _root(context, values.get("root"), chosen)
            if "config" in wanted:
                place = _place(values)
                effective = _effective(place) if reads_engine else None
                values["config"] = load(place, flags, os.environ, config_file, effective=effective)
                _limit_memory(values["config"] if "memory_limit" in config else Config())
            verbosity = values.pop("verbose") - values.pop("quiet")
            vars(settings_of(context))["verbosity"] = settings_of(context).verbosity + verbosity
            function(**{name: value for name, value in values.items() if takes_all or name in wanted})

        parameters: list[click.Parameter] = []
        if root == "argument":
            parameters.append(Argument("root", metavar="ROOT", required=False, type=Path, about=_ROOT_HELP))
        parameters += vars(function).get("parameters", [])
        if "config" in wanted:
            parameters += [_config_flag(field) for field in config]
            parameters.append(_CONFIG_FILE)
        parameters += [_JSON, *([] if root == "own" else [ROOT]), VERBOSE, QUIET]
        return Command(
            name or function.__name__.replace("_", "-"),
            callback=run,
            params=parameters,
            help=help_text(function.__doc__ or ""),
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
        )

    return decorate


class Settings:
    """What the program was given before the command.

    Attributes:
        words: of the command line.
        root: of `-C`; None if it was not given.
        verbosity: 0; 1 and more with `-v`, -1 and less with `-q`.
    """

    def __init__(self, words: Sequence[str] = ()) -> None:
        self.words = tuple(words)
        self.root: Path | None = None
        self.verbosity = 0


def settings_of(context: click.Context) -> Settings:
    """Settings of the running program."""
    return context.ensure_object(Settings)


def is_quiet() -> bool:
    """Whether `-q` was given."""
    return settings_of(click.get_current_context()).verbosity < 0


def _root(context: click.Context, positional: Path | None, chosen: Path | None) -> Path:
    if positional is not None and chosen is not None:
        raise UsageError(f"ROOT is given twice: {positional} and -C {chosen}", "leave one of them out")
    above = settings_of(context).root
    return positional or chosen or above or Path(os.environ.get(ROOT_VARIABLE) or ".")


def _place(values: Mapping[str, Any]) -> Path:
    """Folder of `mirror-engine.toml`: ROOT, or the first of several paths."""
    first = Path((values.get("paths") or [values.get("root") or values.get("store") or Path()])[0])
    return first.parent if first.is_file() else first


def _effective(root: Path) -> Config | None:
    """Options of the engine that runs on ROOT; None if none runs."""
    from mirror_engine.engine.root_identity import is_locked

    return read_effective(root / OPTIONS) if root.is_dir() and is_locked(root) else None


def _limit_memory(config: Config) -> None:
    if config.memory_limit != "none":
        from mirror_engine.tables.reading.limits import limit_memory  # imports Arrow

        limit_memory(config.memory_limit)


def _config_flag(name: str) -> Option:
    entry, default = options()[name], getattr(Config, name)
    names, settings = flag_of(name), dict[str, Any](metavar=entry.kind.metavar)
    if isinstance(default, bool):
        names, settings = f"{names}/--no-{names.removeprefix('--')}", {"is_flag": True}
    settings["default"] = None
    return Option(
        f"{_FIELD}{name}", names, help=entry.about, default_text=default_text(name), topic=entry.topic, **settings
    )


def default_text(name: str) -> str:
    """An option's default as a flag takes it; `""` for an empty one."""
    default = getattr(Config, name)
    if name.endswith("_seconds"):
        return f"{default / DAY:g}d" if default >= DAY else f"{default:g}s"
    if name.endswith("_size"):
        return f"{default // 2**20}MiB"
    return str(default).lower() if isinstance(default, bool) else str(default)


def help_text(docstring: str) -> str:
    """A docstring with `Example: …` and `Exit codes: 0 … · 1 …` as blocks of lines."""
    return "\n\n".join(_laid_out(paragraph) for paragraph in inspect.cleandoc(docstring).split("\n\n"))


def listed(heading: str, lines: Sequence[str]) -> str:
    """A heading with lines below it; an exit code before each is in a column of its own."""
    return "\n".join([_VERBATIM, f"{heading}:", *(f"  {_aligned(line)}" for line in lines)])


def _laid_out(paragraph: str) -> str:
    text = " ".join(paragraph.split())
    heading, colon, rest = text.partition(": ")
    return listed(heading, rest.split(_SEPARATOR)) if colon and heading in {"Example", "Exit codes"} else text


def _aligned(line: str) -> str:
    code, _, meaning = line.partition(" ")
    return f"{code:<4} {meaning}" if code.isdigit() else line


_ROOT_HELP = "The mirrored database's folder.  [default: .]"
ROOT = Option(
    "root_option",
    "-C",
    "--root",
    metavar="ROOT",
    type=Path,
    help=f"{_ROOT_HELP[:-1]}; env: {ROOT_VARIABLE}]",
    topic=_GLOBAL,
)
_JSON = Option("as_json", "--json", is_flag=True, help="Print JSON on stdout; errors as JSON on stderr.", topic=_GLOBAL)
VERBOSE = Option("-v", "--verbose", count=True, help="Log details, too.", topic=_GLOBAL)
QUIET = Option("-q", "--quiet", count=True, help="No progress; log only warnings.", topic=_GLOBAL)
_CONFIG_FILE = Option(
    "config_file",
    "--config",
    metavar="FILE",
    type=Path,
    help="Options file.",
    default_text="ROOT/mirror-engine.toml",
    topic=_GLOBAL,
)
