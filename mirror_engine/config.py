"""Options of a mirror: defaults, allowed values and sources (flags, `MIRROR_ENGINE_*`, `mirror-engine.toml`)."""

from __future__ import annotations

import json
import math
import os
import random
import re
import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from mirror_engine.errors import ConfigError, StorageUnavailable
from mirror_engine.option_rules import idle_beside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Of `timing=fabric`, in seconds: between two scans of an idle zone, at most; until a drop is noticed, least and most
IDLE_SECONDS, NOTICE_SECONDS = 120.0, (60.0, 120.0)
POLL_SECONDS, STORE_POLL_SECONDS = 15.0, 30.0  # where nothing else is said; each scan of a store costs requests
CONFIG_FILE = "mirror-engine.toml"
SCHEMA_KEY = "$schema"  # in the file, for editors
ENVIRONMENT_PREFIX = "MIRROR_ENGINE_"
OTHER_VARIABLES = frozenset(
    f"{ENVIRONMENT_PREFIX}{name}"
    for name in ("ROOT", "CACHE", "STATE", "TOKEN", "FAULT_API", "FAULT_API_TOKEN", "JAVA_OPTIONS")
)  # of the program or this machine, not of a mirror

_SIZES = {"": 1, "b": 1}
_SIZES |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_SIZES |= {f"{letter}{tail}": 1024**power for power, letter in enumerate("kmgt", 1) for tail in ("", "ib")}
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_MEASURE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([a-z]*)", re.IGNORECASE)
_SWITCH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_FOLDER_NAME = r"(?![._ ])[^\x00-\x1f\x7f-\x9f/\\:*?\"<>|]{1,100}(?<![. ])"
_UNIT_SUFFIXES = ("_seconds", "_days")  # of a field whose option takes a duration


@dataclass(frozen=True)
class OptionKind:
    """Allowed values of an option."""

    allowed: str  # in words
    metavar: str  # placeholder in help
    read: Callable[[Any], Any]  # from a flag's, variable's or TOML's value; raises ValueError outside the allowed ones
    schema: Mapping[str, Any] = field(default_factory=dict)  # JSON schema of a TOML value


@dataclass(frozen=True)
class Option:
    """One option: what it does, the heading of its help, and its values."""

    about: str
    topic: str
    kind: OptionKind


def any_case(word: str) -> str:
    """Pattern of a word in any case."""
    return "".join(f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else re.escape(letter) for letter in word)


def _any_of(plain: Mapping[str, Any], pattern: str) -> Mapping[str, Any]:
    """JSON schema of a plain value, or of text that matches a pattern."""
    return {"anyOf": [plain, {"type": "string", "pattern": f"^(?:{pattern})$"}]}


def _measure_pattern(units: Mapping[str, float], words: Sequence[str]) -> str:
    """Pattern of texts that `_measure` reads, and of some words; units in any case."""
    cased = (any_case(unit) for unit in units if unit)
    return "|".join([rf"\s*[0-9]+(?:\.[0-9]+)? *(?:{'|'.join(cased)})?\s*", *words])


def choice(*words: str) -> OptionKind:
    """One of a few words; a number may stand for its digits."""

    def read(value: object) -> str:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(text, str) and text in words:
            return text
        raise ValueError

    numbers = [int(word) for word in words if word.isdigit()]
    return OptionKind(" or ".join(words), "|".join(words), read, {"enum": [*words, *numbers]})


def switch() -> OptionKind:
    """True or false, also as yes/no, on/off, 1/0."""

    def read(value: object) -> bool:
        word = _SWITCH.get(value.lower()) if isinstance(value, str) else value
        if isinstance(word, bool):
            return word
        raise ValueError

    words = "|".join(map(any_case, _SWITCH))
    return OptionKind("true or false", "true|false", read, _any_of({"type": "boolean"}, words))


def whole(metavar: str, low: int, high: float = math.inf, *, words: Sequence[str] = (), unit: str = "") -> OptionKind:
    """A whole number within a range, both ends included, with or without its unit; or one of some words."""

    def read(value: object) -> int | str:
        if isinstance(value, str) and value in words:
            return value
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value.removesuffix(unit) if unit else value):
            value = int(value.removesuffix(unit) if unit else value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError
        return value

    limits = f"of {low:g} or more" if math.isinf(high) else f"from {low:g} to {high:g}"
    number = {"type": "integer", "minimum": low} | ({} if math.isinf(high) else {"maximum": high})
    schema = _any_of(number, "|".join([f"[0-9]{{1,18}}{f'(?:{unit})?' if unit else ''}", *words]))
    return OptionKind(", ".join([*words, f"a whole number {limits}"]), "|".join([*words, metavar]), read, schema)


def _measure(value: object, units: Mapping[str, float]) -> float:
    found = _MEASURE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found and found[2].lower() in units:
        return float(found[1]) * units[found[2].lower()]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise ValueError


def duration(low: float, *, words: Sequence[str] = ()) -> OptionKind:
    """Seconds, also as `500ms`, `60s`, `5m`, `2h` or `7d`; or one of some words."""

    def read(value: object) -> float | str:
        if isinstance(value, str) and value in words:
            return value
        seconds = float(_measure(value, _SECONDS))
        if not low <= seconds < math.inf:  # NaN is in no range
            raise ValueError
        return seconds

    least = f" of {low:g}s or more" if low else ""
    allowed = f"a duration{least}, such as 60s, 5m, 2h or 7d"
    schema = _any_of({"type": "number", "minimum": low}, _measure_pattern(_SECONDS, words))
    return OptionKind(", or ".join([allowed, *words]), "|".join([*words, "DURATION"]), read, schema)


def size(*, words: Sequence[str] = ()) -> OptionKind:
    """Bytes, also as `256MB` (decimal) or `1GiB` (binary, as a single letter is); or one of some words."""

    def read(value: object) -> int | str:
        if isinstance(value, str) and value in words:
            return value
        found = _measure(value, _SIZES)
        if isinstance(value, float) or round(found) < 1:
            raise ValueError
        return round(found)

    schema = _any_of({"type": "integer", "minimum": 1}, _measure_pattern(_SIZES, words))
    return OptionKind(", or ".join(["a size such as 1048576, 256MB or 1GiB", *words]), "SIZE", read, schema)


def text(allowed: str, metavar: str, pattern: str) -> OptionKind:
    """Text that a pattern matches in full."""

    def read(value: object) -> str:
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        raise ValueError

    return OptionKind(allowed, metavar, read, {"type": "string", "pattern": f"^(?:{pattern})$"})


def _option(default: Any, topic: str, about: str, kind: OptionKind | None = None) -> Any:  # noqa: ANN401 - any option's value
    """Declare an option; if `kind` is None, the field's type determines it."""
    return field(default=default, metadata={"about": about, "topic": topic, "kind": kind})


_NOTHING: Mapping[str, Any] = MappingProxyType({})
ChangeDataFeed = Literal["keep", "on", "off"]  # whether tables have one; `keep`: as each table has it
DeletionVectors = Literal["auto", "off"]

_ZONE, _BATCH, _CLEAN, _SPARK = "Landing zone", "Batches", "Clean-up", "Spark"


@dataclass(frozen=True)
class Config:
    """All options of one mirror.

    Raises:
        ConfigError: one or more values are not allowed; the message lists all of them.
    """

    _places = _NOTHING  # where `load` found the options, by name; no annotation: this is no option

    default_schema: str = _option(
        "dbo",
        _ZONE,
        "Delta schema of tables outside a schema folder; `none` for no schema (LZ-1.4).",
        text("a plain folder name, or none", "NAME", _FOLDER_NAME),
    )
    missing_metadata: Literal["wait", "insert-only"] = _option(
        "wait",
        _ZONE,
        "Folder without `_metadata.json`: `wait` for it, or read its Parquet files as `insert-only` (LZ-2.3).",
    )
    first_file: Literal["1", "lowest"] = _option(
        "1", _ZONE, "Number of a table's first file: `1` like Fabric, or the `lowest` number present (LZ-3.2)."
    )
    all_null_columns: Literal["integer", "untyped"] = _option(
        "integer",
        _ZONE,
        "Type of columns with only NULL: `integer` like Fabric, or `untyped` to decide later (LZ-5.9, LZ-5.13).",
    )
    naive_timestamps: Literal["utc", "ntz"] = _option(
        "utc", _ZONE, "Timestamps without time zone: read as `utc`, or keep as TIMESTAMP_NTZ (`ntz`) (LZ-5.8)."
    )
    strict: bool = _option(False, _ZONE, "Treat warnings that Fabric may reject as errors.")
    timing: Literal["immediate", "fabric"] = _option(
        "immediate",
        _ZONE,
        "How soon changes are noticed: `immediate` uses file-system events; `fabric` only scans, an idle zone less "
        "and less often, at least every 2 minutes (LZ-3.1).",
    )
    drop_delay_seconds: float | Literal["auto"] = _option(
        "auto",
        _ZONE,
        "Time a table folder must be missing before its Delta table is dropped. `auto`: 0s, or 60 to 120s depending "
        "on its name with `--timing fabric` (LZ-7.4).",
        duration(0, words=("auto",)),
    )
    poll_interval_seconds: float | Literal["auto"] = _option(
        "auto",
        _ZONE,
        "Maximum time between two scans of the landing zone (LZ-3.1). `auto`: 15s, or 30s for a ROOT in a store.",
        duration(0.01, words=("auto",)),
    )
    max_batch_files: int = _option(
        1000, _BATCH, "Maximum number of change files in one commit; use 1 to debug order (LZ-4.16).", whole("N", 1)
    )
    max_batch_size: int = _option(
        256 * 1024 * 1024,
        _BATCH,
        "Maximum size of one batch. Counts file bytes, but at least 32 bytes per row.",
        size(),
    )
    driver_batch_limit: int | Literal["auto"] = _option(
        "auto",
        _BATCH,
        "Largest batch processed in the driver; larger ones go to Spark executors. `auto`: 512MiB, 0 on a cluster.",
        size(words=("auto",)),
    )
    max_row_size: int = _option(64 * 1024 * 1024, _BATCH, "Maximum row size; larger rows are rejected (ME075).", size())
    memory_limit: int | Literal["none"] = _option(
        "none",
        _BATCH,
        "Maximum memory beyond that of the start, 512MiB or more (address space, Linux); files that need more are "
        "rejected (ME075).",
        size(words=("none",)),
    )
    passthrough: bool = _option(
        True, _BATCH, "Add large insert-only Parquet files to the table without rewriting them (LZ-4.19)."
    )
    merge_engine: Literal["auto", "spark", "arrow"] = _option(
        "auto",
        _BATCH,
        "Engine that merges changes: `spark`, `arrow` (in this process, without Java), or `auto`: Spark if PySpark is "
        "installed, but for a ROOT in a store only on a cluster. May change between runs.",
    )
    deletion_vectors: DeletionVectors = _option(  # noqa: RUF009 - as every option
        "auto",
        _BATCH,
        "How changes remove rows from large data files: `auto` uses deletion vectors in tables of a million rows or "
        "more; `off` rewrites the files, for readers without deletion vectors.",
    )
    key_index_size: int | Literal["none"] = _option(
        2 * 1024**3,
        _BATCH,
        "Disk space for key indexes, which let `arrow` find a few keys in large tables without a scan.",
        size(words=("none",)),
    )
    change_data_feed: ChangeDataFeed = _option(  # noqa: RUF009 - as every option
        "keep",
        _BATCH,
        "Delta change data feed: `on`, `off`, or `keep` each table's setting. A change takes effect with a table's "
        "next change file (LZ-9.10).",
    )
    workers: int = _option(4, _BATCH, "Tables processed in parallel.", whole("N", 1, 256))
    cleanup: Literal["ready", "processed", "both", "off"] = _option(
        "ready",
        _CLEAN,
        "Move applied files to `_FilesReadyToDelete` (ready), to `_ProcessedFiles` (processed), first to "
        "`_ProcessedFiles` and later to `_FilesReadyToDelete` (both), or leave them (off).",
    )
    delete_processed_after_seconds: float = _option(
        7 * 86_400.0, _CLEAN, "Age at which moved files are deleted (LZ-8.3).", duration(0)
    )
    auto_maintain: int | str = _option(
        100,
        _CLEAN,
        "When `run` compacts and vacuums a caught-up table: after N new data files, after all tables were `idle` for a "
        "minute, or never (`off`).",
        whole("N", 1, words=("off", "idle")),
    )
    vacuum_retention_days: int = _option(
        7, _CLEAN, "How long VACUUM keeps superseded data files (LZ-8.6).", whole("DAYS", 1, 30, unit="d")
    )
    spark_profile: Literal["local", "ci", "cluster"] = _option(
        "local",
        _SPARK,
        "Spark settings: `local`, `ci` (one task per stage, for small tables; `local` uses it for a short `sync`) or "
        "`cluster` (keep Spark's own settings).",
    )
    spark_master: str = _option(
        "",
        _SPARK,
        "Spark master URL (docs/cluster.md); empty starts a local Spark.",
        text("a master that spark-submit knows", "URL", r"[^\x00-\x20]*"),
    )
    driver_memory: str = _option(
        "2g",
        _SPARK,
        "Heap size of the Spark driver.",
        text("a size as Spark writes it, such as 512m or 2g", "SIZE", r"[1-9][0-9]{0,8}[kmgtKMGT]b?"),
    )
    delta_jars_dir: str = _option(
        "",
        _SPARK,
        "Folder of Delta's jars, for machines without network access; empty: download them.",
        text("a folder", "DIR", r"[^\x00]*"),
    )

    def __post_init__(self) -> None:
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        read, problems = _read({f"Config({name}=…)": (name, value) for name, value in values.items()}, options())
        typed = [
            f"Config({name}=…): found {value!r}, allowed {options()[name].kind.allowed}, as {type(read[name]).__name__}"
            for name, value in values.items()
            if name in read and read[name] != value
        ]
        _raise_for([*problems, *typed])
        idle = idle_beside(values)
        refuse_idle({self.place(name): idle[name].reason for name in self.changed if name in idle})

    def place(self, name: str) -> str:
        """Where an option was given: a flag, a variable, a place in a file, or this class."""
        return str(self._places.get(name, f"Config({name}=…)"))

    @property
    def given(self) -> frozenset[str]:
        """The options that were given, with `load`."""
        return frozenset(self._places)

    @property
    def changed(self) -> frozenset[str]:
        """The options that differ from their defaults."""
        return frozenset(option.name for option in fields(self) if getattr(self, option.name) != option.default)

    @property
    def delta_default_schema(self) -> str:
        """The default schema; `""` for none."""
        return "" if self.default_schema == "none" else self.default_schema

    def in_store(self) -> Config:
        """Return these options for a ROOT in a store."""
        is_auto = self.poll_interval_seconds == "auto"
        return replace(self, poll_interval_seconds=STORE_POLL_SECONDS) if is_auto else self

    def scan_pause(self, idle_scans: int) -> float:
        """Seconds until the next scan, after so many scans in a row that found nothing to do (LZ-3.1)."""
        pause = POLL_SECONDS if self.poll_interval_seconds == "auto" else float(self.poll_interval_seconds)
        if self.timing == "immediate":
            return pause
        doublings = min(max(idle_scans - 1, 0), 20)
        return max(pause, min(pause * 2.0**doublings, IDLE_SECONDS))

    def drop_delay(self, folder: str) -> float:
        """Seconds that a table folder must be missing (LZ-7.4); if drawn at random, by its name."""
        delay = self.drop_delay_seconds
        if not isinstance(delay, str):
            return delay
        if self.timing == "immediate":
            return 0.0
        return random.Random(folder).uniform(*NOTICE_SECONDS)  # noqa: S311 - repeatable


@cache
def options() -> Mapping[str, Option]:
    """Every option by its field's name, in the order of `Config`."""
    types = get_type_hints(Config)
    own = {name: switch if kind is bool else partial(choice, *get_args(kind)) for name, kind in types.items()}
    kinds = {entry.name: entry.metadata["kind"] or own[entry.name]() for entry in fields(Config)}
    return {entry.name: Option(**{**entry.metadata, "kind": kinds[entry.name]}) for entry in fields(Config)}


def option_name(field_name: str) -> str:
    """Name of a field's option in `mirror-engine.toml`: `poll_interval`, of `poll_interval_seconds`."""
    suffix = next((suffix for suffix in _UNIT_SUFFIXES if field_name.endswith(suffix)), "")
    return field_name.removesuffix(suffix)


def flag_of(field_name: str) -> str:
    """The command line's flag of an option: `--poll-interval`."""
    return f"--{option_name(field_name).replace('_', '-')}"


def load(  # noqa: PLR0913 - the sources of options
    folder: Path,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    config_file: Path | None = None,
    *,
    effective: Config | None = None,
    last: Mapping[str, Any] = _NOTHING,
) -> Config:
    """Read the options of one mirror: flags win over variables, variables over the file.

    An option that has no effect beside others is refused, unless a stronger source has overruled it.

    Args:
        folder: ROOT or its state folder; its `mirror-engine.toml` is read if `config_file` is None.
        flags: by field name, without those that were not set.
        environ: of the process.
        config_file: must exist.
        effective: options of the running engine, which win over all but the flags.
        last: by field name, in place of the defaults.

    Raises:
        ConfigError: every wrong name and value of all three sources: where, what was found and what is allowed; or the
            options without effect.
    """
    from_file, problems = _file(config_file or folder / CONFIG_FILE, required=config_file is not None)
    named = {option_name(name): option for name, option in options().items()}
    variables = sorted(environ.keys() - OTHER_VARIABLES)
    from_environ = {
        name: (name.removeprefix(ENVIRONMENT_PREFIX).lower(), environ[name])
        for name in variables
        if name.startswith(ENVIRONMENT_PREFIX)
    }
    values, wrong = _read(from_file, named)
    from_variables, more_wrong = _read(from_environ, named)
    from_flags, most_wrong = _read({flag_of(name): (option_name(name), value) for name, value in flags.items()}, named)
    _raise_for([*problems, *wrong, *more_wrong, *most_wrong])
    field_names = {option_name(name): name for name in options()}
    layers = [{}, {}] if effective else [values, from_variables]
    named_by_field = [{field_names[name]: value for name, value in each.items()} for each in (*layers, from_flags)]
    places = {field_names[name]: place for source in (from_file, from_environ) for place, (name, _) in source.items()}
    places |= {name: flag_of(name) for name in named_by_field[-1]}
    return _without_idle(effective or Config(**last), named_by_field, places)


def _without_idle(base: Config, layers: Sequence[Mapping[str, Any]], places: Mapping[str, str]) -> Config:
    """Merge option layers, the strongest last, without options that a stronger layer makes ineffective.

    Of the weaker layers, defaults that are said are no options.
    """
    chosen = {name: value for layer in layers for name, value in layer.items()}
    strength = {name: number for number, layer in enumerate(layers) for name in layer}
    idle = idle_beside({**asdict(base), **chosen})
    said = {name for name, value in chosen.items() if value != getattr(Config, name)} | {*layers[-1]}
    of_base = len(layers) - 1  # a cause that no layer has
    refused = [name for name in idle if name in said and strength[name] >= strength.get(idle[name].cause, of_base)]
    refuse_idle({places[name]: idle[name].reason for name in refused})
    found = replace(base, **{**chosen, **{name: getattr(Config, name) for name in idle}})
    object.__setattr__(found, "_places", places)  # no option: it is not compared, and no copy has it
    return found


def refuse_idle(reasons: Mapping[str, str]) -> None:
    """Refuse options without effect; the message gives the reason and where each was set.

    Raises:
        ConfigError: there is one.
    """
    if reasons:
        count = "1 option has" if len(reasons) == 1 else f"{len(reasons)} options have"
        lines = [f"  {place}: {reason}" for place, reason in reasons.items()]
        raise ConfigError("\n".join([f"{count} no effect:", *lines]), "leave it out, or change what its reason names")


def write_effective(path: Path, config: Config) -> None:
    """Write an engine's effective options as JSON, in one step, for programs that show what this engine will do.

    Raises:
        StorageUnavailable: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}")
    try:
        if config != read_effective(path):
            temporary.write_text(json.dumps(asdict(config), indent=2) + "\n", encoding="utf-8")
            temporary.replace(path)
    except OSError as error:
        raise StorageUnavailable(
            f"{path}: cannot be written: {error.strerror}", "Free disk space, check rights."
        ) from error


def read_effective(path: Path) -> Config | None:
    """Return the options that `write_effective` wrote; None without such a file, or of another release."""
    try:
        return Config(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError, ConfigError):
        return None


def _file(path: Path, *, required: bool) -> tuple[dict[str, tuple[str, object]], list[str]]:
    """The file's values by place, and why it cannot be read."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}, [f"--config: found no file {path}, allowed a TOML file"] if required else []
    except (OSError, ValueError, RecursionError) as error:  # wrong TOML and wrong UTF-8 are ValueErrors
        return {}, [f"{path}: cannot be read: {error}"]
    content.pop(SCHEMA_KEY, None)
    return {f"{path.name}: {name}": (name, value) for name, value in content.items()}, []


def _read(layer: Mapping[str, tuple[str, object]], named: Mapping[str, Option]) -> tuple[dict[str, Any], list[str]]:
    """The good values by option name, and a message for each place with a wrong name or value."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for place, (name, value) in layer.items():
        if name not in named:
            near = get_close_matches(name.lower().replace("-", "_"), named, n=1, cutoff=0.5)
            meant = (
                f"{ENVIRONMENT_PREFIX}{near[0].upper()}"
                if near and place.startswith(ENVIRONMENT_PREFIX)
                else "".join(near)
            )
            problems.append(f"{place}: unknown option{f', did you mean {meant}?' if meant else ''}")
            continue
        try:
            values[name] = named[name].kind.read(value)
        except (ValueError, OverflowError):
            problems.append(f"{place}: found {_shown(value)}, allowed {named[name].kind.allowed}")
    return values, problems


def _shown(value: object) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # TOML's hexadecimal numbers and nested tables have no limit
        return f"a value of type {type(value).__name__} too long to show"


def _raise_for(problems: Sequence[str]) -> None:
    if problems:
        count = "1 invalid option" if len(problems) == 1 else f"{len(problems)} invalid options"
        raise ConfigError(
            "\n".join([f"{count}:", *(f"  {problem}" for problem in problems)]),
            "all options and their values: the command's --help, or help(mirror_engine.Config)",
        )


def cache_folder() -> Path:
    """`$MIRROR_ENGINE_CACHE`, else `mirror_engine` in the user's cache folder; may not exist, safe to delete."""
    if chosen := os.environ.get("MIRROR_ENGINE_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))  # the XDG specification ignores relative ones
    return (base if base.is_absolute() else Path.home() / ".cache") / "mirror_engine"
