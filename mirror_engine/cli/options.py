"""Commands with their shared options, and the fields of `Config` as flags; help grouped by topic."""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import dataclass, fields, replace
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from mirror_engine.cli.downloads import Downloads
from mirror_engine.cli.exits import takes_tables
from mirror_engine.config import Config, OptionKind, duration, flag_of, load, options, read_effective, size, whole
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.layout import OPTIONS, ZONE
from mirror_engine.storage.roots import check_root, is_root, pasted, root_of, state_folder
from mirror_engine.storage.store_url import local_folder
from mirror_engine.storage.stores import parse_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import UnionType

    from mirror_engine.results import Result
    from mirror_engine.storage.store_url import Place

ALL = tuple(field.name for field in fields(Config))
LISTING = ("default_schema", "missing_metadata", "first_file", "strict")  # of commands that list a landing zone
DROPPING = ("timing", "drop_delay_seconds")  # of those that see that a table folder is gone
READING = (*LISTING, "all_null_columns", "naive_timestamps")  # of those that read change files
ROOT_VARIABLE = "MIRROR_ENGINE_ROOT"
DAY = 86_400  # seconds
WIDTH = 100  # of help, at most
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH, "show_default": True}
URL_HELP = "The mirrored database: abfss://WORKSPACE@onelake.dfs.fabric.microsoft.com/ITEM, s3://…, or a folder."
TABLE_HELP = "Sales.Orders, Sales.schema/Orders or Items, in any case."
_ROOT_HELP = "The mirrored database's folder, or its URL in a store.  [default: .]"
_RULE = re.compile(r"LZ-\d+\.\d+")
_VERBATIM = "\b"  # click keeps the lines of a paragraph that begins with it


def to_place(text: str | Place) -> Place:
    """A folder of this machine, or a URL in a store."""
    return root_of(parse_place(text)) if isinstance(text, str) else text


ROOT = click.Option(
    ["root_option", "-C", "--root"], metavar="ROOT", type=to_place, help=f"{_ROOT_HELP[:-1]}; env: {ROOT_VARIABLE}]"
)
VERBOSE = click.Option(["-v", "--verbose"], count=True, show_default=False, help="Also log details.")
QUIET = click.Option(["-q", "--quiet"], count=True, show_default=False, help="No progress; log only warnings.")
_JSON = click.Option(["as_json", "--json"], is_flag=True, help="Print JSON on stdout; errors as JSON on stderr.")
_CONFIG_FILE = click.Option(
    ["config_file", "--config"],
    metavar="FILE",
    type=Path,
    help="Options file.  [default: mirror-engine.toml in ROOT; for a URL in its state folder]",
)
_GLOBAL = ("config_file", "as_json", "root_option", "verbose", "quiet", "_click_default_help")
_SHARED = {"root", "max_download", *_GLOBAL, *ALL}  # values that no command takes as they are
_TOPICS = {
    **{name: option.topic for name, option in options().items()},
    **dict.fromkeys(("log_format", "log_level"), "Log"),
    **dict.fromkeys(_GLOBAL, "Global options"),
}


class Value(click.ParamType[Any]):
    """Values of a kind that `mirror_engine.config` knows, such as durations."""

    def __init__(self, kind: OptionKind) -> None:
        self.name = kind.metavar
        self._kind = kind

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self._kind.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._kind.read(value)
        except (ValueError, OverflowError):
            return self.fail(f"{value!r}, allowed: {self._kind.allowed}", param, ctx)


class Choice(click.Choice[str]):
    """One of some words; its placeholder has no brackets."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join(self.choices)


Code = TypeVar("Code", bound=int | None)
COUNT = Value(whole("N", 0))
DURATION = Value(duration(0))
_MAX_DOWNLOAD = click.Option(
    ["--max-download"], type=Value(size()), default="1GiB", help="In a store, ask before downloading more than this."
)


class Command(click.Command):
    """Command whose help groups its options by topic."""

    result: type[Result] | UnionType | None = None  # what it prints with `--json`

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        topics: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                topics.setdefault(_TOPICS.get(parameter.name, "Options"), []).append(record)
        write_sections(formatter, topics.items())
        rule = next(filter(None, (_RULE.search(about) for records in topics.values() for _, about in records)), None)
        if rule:
            formatter.write_paragraph()
            formatter.write_text(f"{rule[0]} is a rule of the protocol: mirror-engine explain {rule[0]}")


def write_sections(formatter: click.HelpFormatter, sections: Iterable[tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """Write sections of help as lists in two columns."""
    for heading, records in sections:
        with formatter.section(heading):
            formatter.write_dl(records)


@dataclass(frozen=True)
class Call:
    """Resources of the running command (click's `obj`); `with_root` and similar decorators pass parts of it."""

    root: Place
    config: Config | None  # None for a command without fields of `Config`
    downloads: Downloads


def _passing(name: str) -> Callable[[Callable[..., Code]], Callable[..., Code]]:
    """Pass a part of the running `Call` under its name."""

    def decorate(function: Callable[..., Code]) -> Callable[..., Code]:
        @click.pass_obj
        def passed(call: Call, /, **values: Any) -> Code:
            return function(**{name: getattr(call, name)}, **values)

        return update_wrapper(passed, function)

    return decorate


with_root = _passing("root")  # as it was given
with_config = _passing("config")  # of flags, variables and file


def with_downloads(function: Callable[..., Code]) -> Callable[..., Code]:
    """Pass `downloads`, which `--max-download` limits."""
    return _with_max_download(_passing("downloads")(function))


def with_mirror(*, at_once: bool) -> Callable[[Callable[..., Code]], Callable[..., Code]]:
    """Pass `mirror`, open on ROOT.

    Args:
        at_once: whether change files are read as they are at one moment: a store is listed once.
    """

    def decorate(function: Callable[..., Code]) -> Callable[..., Code]:
        @click.pass_obj
        def passed(call: Call, /, **values: Any) -> Code:
            from mirror_engine.mirror import Mirror

            is_listed_once = at_once and not isinstance(call.root, Path) and not values.get("watch")  # that looks again
            storage = call.downloads.open(call.root, ZONE) if is_listed_once else None
            with Mirror(call.root, call.config, storage=storage) as mirror:
                return function(mirror=mirror, **values)

        wrapped = update_wrapper(passed, function)
        return _with_max_download(wrapped) if at_once else wrapped

    return decorate


def _with_max_download(function: Callable[..., Code]) -> Callable[..., Code]:
    given: list[click.Parameter] = vars(function).setdefault("__click_params__", [])
    if _MAX_DOWNLOAD not in given:
        given.append(_MAX_DOWNLOAD)
    return function


def command(
    name: str = "",
    *,
    root: Literal["argument", "option", "own"] = "argument",
    place: Literal["root", "empty", "any"] = "root",
    config: Sequence[str] = (),
    reads_engine: bool = False,
    as_last_engine: Sequence[str] = (),
    copies: bool = False,
    result: type[Result] | UnionType | None = None,
) -> Callable[[Callable[..., int | None]], Command]:
    """Make a command of a function, which returns an exit code or None for 0.

    The function takes its own parameters. `with_root`, `with_config`, `with_downloads` and `with_mirror` below this
    decorator pass the shared ones.

    Args:
        name: of the command; the function's by default.
        root: how ROOT is given: by `-C` or as an argument, by `-C` only; `own`: the command has a folder of its
            own, or none.
        place: what ROOT must be: a ROOT, or an empty folder that may become one, or any folder of this machine.
        config: fields of `Config` that become flags; without any, the command has no `config`.
        reads_engine: whether the running engine's options take the place of file and variables.
        as_last_engine: fields of `Config` that the engine which ran last on ROOT gives where nothing else does.
        copies: whether it copies files, so that `--max-download` counts those of this machine, too.
        result: what it prints with `--json`, or one of several; its JSON schema is made of it.
    """

    def decorate(function: Callable[..., int | None]) -> Command:
        def run(**values: Any) -> int | None:
            shared = {name: values.pop(name) for name in _SHARED & values.keys()}
            given = _root(shared.get("root"), shared.get("root_option"))
            _refuse_max_download(() if copies else [given] if root != "own" else _places(values), values)
            if root != "own" and place == "any":
                local_folder(str(given))
            if root != "own" and place != "any" and (not isinstance(given, Path) or given.is_dir()):
                _checked(given, values, may_be_empty=place == "empty")
            loaded = None
            if config:
                folder = given if root != "own" else _folder(values)
                flags = {field: shared[field] for field in config if shared[field] is not None}
                effective = _effective(folder) if reads_engine else None
                last = _last_options(folder, as_last_engine)
                loaded = load(
                    state_folder(folder), flags, os.environ, shared["config_file"], effective=effective, last=last
                )
                if "memory_limit" in config and loaded.memory_limit != "none":
                    from mirror_engine.tables.reading.open_file import limit_memory  # imports Arrow

                    limit_memory(loaded.memory_limit)
            click.get_current_context().obj = Call(given, loaded, Downloads(shared.get("max_download") or 0))
            return function(**values)

        parameters: list[click.Parameter] = list(reversed(vars(function).get("__click_params__", [])))
        if root == "argument":
            parameters.insert(0, click.Argument(["root"], required=False, type=to_place, help=_ROOT_HELP))
        if config:
            parameters += [*map(_config_flag, config), _CONFIG_FILE]
        parameters += [_JSON, *([] if root == "own" else [ROOT]), VERBOSE, QUIET]
        made = Command(
            name or function.__name__,
            callback=run,
            params=parameters,
            help="\n\n".join(map(_laid_out, inspect.cleandoc(function.__doc__ or "").split("\n\n"))),
            context_settings=CONTEXT,
        )
        made.result = result
        return made

    return decorate


def refuse_given(flags: Mapping[str, str], reason: str) -> None:
    """Refuse options on the command line that have no effect.

    Args:
        flags: by the names of their parameters.
        reason: why they have none.

    Raises:
        UsageError: there is one.
    """
    source_of = click.get_current_context().get_parameter_source
    if given := [flag for name, flag in flags.items() if source_of(name) is ParameterSource.COMMANDLINE]:
        raise UsageError(f"{', '.join(given)}: no effect, {reason}", "leave it out")


def _places(values: Mapping[str, Any]) -> Sequence[Place]:
    """The places that a command with its own folder reads."""
    return values.get("paths") or [values.get("url", Path())]


def _refuse_max_download(places: Sequence[Place], values: Mapping[str, Any]) -> None:
    flags = {"max_download": "--max-download"}
    if places and all(isinstance(place, Path) for place in places):
        refuse_given(flags, "a folder on this machine is not downloaded")
    if values.get("watch"):
        refuse_given(flags, "with --watch nothing is cached, and there is no limit")


def _root(positional: Place | None, chosen: Place | None) -> Place:
    context = click.get_current_context()
    chosen = chosen or context.find_root().params.get("root_option")
    tables = "; choose a table with --table" if takes_tables(context.command) else ""
    if positional is not None and chosen is not None:
        raise UsageError(f"ROOT is given twice: {positional} and -C {chosen}", f"leave one of them out{tables}")
    if tables and isinstance(positional, Path) and not positional.is_dir():
        raise UsageError(
            f"{positional}: no such folder",
            f"check the path, or create an example: mirror-engine init {pasted(positional)}{tables}",
        )
    return positional or chosen or to_place(os.environ.get(ROOT_VARIABLE) or ".")


def _checked(root: Place, values: Mapping[str, Any], *, may_be_empty: bool) -> None:
    """Check ROOT. If it is wrong and the table argument is a ROOT, suggest -C."""
    try:
        check_root(root, may_be_empty=may_be_empty)
    except UsageError as error:
        meant = next((word for word in values.values() if isinstance(word, str) and word and is_root(Path(word))), "")
        if not meant:
            raise
        command = f"{click.get_current_context().command_path} -C {pasted(meant)} …"
        raise UsageError(error.message, f"give ROOT with -C: {command}") from error


def _folder(values: Mapping[str, Any]) -> Place:
    """Folder of `mirror-engine.toml` for a command with its own folder: the first of several; for a URL, its ROOT."""
    first: Place = (values.get("paths") or [values.get("store", Path())])[0]
    if not isinstance(first, Path):
        return replace(first, path=f"/{first.path}/".partition(f"/{ZONE}/")[0].strip("/"))
    return first.parent if first.is_file() else first


def _effective(root: Place) -> Config | None:
    """Options of the engine of this machine that runs on ROOT; None if none runs."""
    from mirror_engine.engine.lock import config_of_running

    return config_of_running(root)


def _last_options(root: Place, names: Sequence[str]) -> Mapping[str, Any]:
    """Some options of the last engine that ran on ROOT from this machine; empty if unknown."""
    ran = read_effective(state_folder(root) / OPTIONS) if names else None
    return {name: getattr(ran, name) for name in names if ran}


def _config_flag(name: str) -> click.Option:
    entry, flag, default = options()[name], flag_of(name), default_text(name)
    settings: dict[str, Any] = {"metavar": entry.kind.metavar}
    if isinstance(getattr(Config, name), bool):
        flag, settings = f"{flag}/--no-{flag.removeprefix('--')}", {"is_flag": True}
    about = f"{entry.about}  [default: {default}]" if default else entry.about
    return click.Option([name, flag], default=None, help=about, **settings)


def default_text(name: str) -> str:
    """An option's default as a flag takes it; `""` for an empty one."""
    default = getattr(Config, name)
    if name.endswith("_seconds") and not isinstance(default, str):
        return f"{default / DAY:g}d" if default >= DAY else f"{default:g}s"
    if name.endswith("_size"):
        return f"{default // 2**20}MiB"
    return str(default).lower() if isinstance(default, bool) else str(default)


def listed(heading: str, lines: Iterable[str]) -> str:
    """A paragraph of help: a heading with indented lines below it; exit codes get their own column."""
    pairs = (line.partition(" ") for line in lines)
    shown = (f"{word:<4} {rest}" if word.isdigit() else f"{word} {rest}" for word, _, rest in pairs)
    return "\n".join([_VERBATIM, f"{heading}:", *(f"  {line}" for line in shown)])


def _laid_out(paragraph: str) -> str:
    """A paragraph of a docstring; `Example: …` and `Exit codes: 0 … · 1 …` as blocks of lines."""
    text = " ".join(paragraph.split())
    heading, _, rest = text.partition(": ")
    return listed(heading, rest.split(" · ")) if heading in {"Example", "Exit codes"} else text
