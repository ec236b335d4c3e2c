"""Every option, its default, and where its value comes from: flags, `MIRROR_ENGINE_*`, `mirror-engine.toml`."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from mirror_engine.errors import ConfigError, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_UNITS |= {f"{letter}{tail}": 1024**power for power, letter in enumerate("kmgt", 1) for tail in ("", "ib")}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([a-z]*)", re.IGNORECASE)
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class _Refused(ValueError):
    """A value outside what is allowed; raised and caught in this module only."""


@dataclass(frozen=True)
class Option:
    """What one option is.

    Attributes:
        about: what it does, for help and reference.
        allowed: the values it takes, in words.
        read: from a flag's, a variable's or TOML's value; raises ValueError outside the allowed.
        unit: how its value is called in help.
        topic: the heading it stands under in help.
    """

    about: str
    allowed: str
    read: Callable[[Any], Any]
    unit: str
    topic: str


def choice(topic: str, about: str, *words: str) -> Option:
    """One of a few words."""

    def read(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise _Refused

    return Option(about, " or ".join(words), read, "|".join(words), topic)


def switch(topic: str, about: str) -> Option:
    """True or false, also as yes/no, on/off, 1/0."""

    def read(value: object) -> bool:
        word = _WORDS.get(value.lower()) if isinstance(value, str) else value
        if isinstance(word, bool):
            return word
        raise _Refused

    return Option(about, "true or false", read, "true|false", topic)


def number(topic: str, about: str, unit: str, low: float, high: float = math.inf) -> Option:
    """A number within a range, both ends included."""

    def read(value: object) -> float:
        number = _float(value)
        if not low <= number <= high or math.isinf(number):  # NaN is in no range
            raise _Refused
        return number

    return Option(about, f"a number {_range(low, high)}", read, unit, topic)


def whole(topic: str, about: str, unit: str, low: int, high: float = math.inf) -> Option:
    """A whole number within a range, both ends included."""

    def read(value: object) -> int:
        if isinstance(value, float):
            raise _Refused
        number = value if isinstance(value, int) and not isinstance(value, bool) else _digits(value)
        if not low <= number <= high:
            raise _Refused
        return number

    return Option(about, f"a whole number {_range(low, high)}", read, unit, topic)


def whole_or(topic: str, about: str, unit: str, low: int, words: Sequence[str]) -> Option:
    """A whole number from `low` on, or one of some words."""
    known = whole(topic, about, unit, low)

    def read(value: object) -> int | str:
        return value if isinstance(value, str) and value in words else int(known.read(value))

    return Option(about, f"{', '.join(words)}, or {known.allowed}", read, f"{'|'.join(words)}|{unit}", topic)


def size(topic: str, about: str) -> Option:
    """Bytes, also as `256MB` (decimal) or `1GiB` (binary; so is a single letter)."""

    def read(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            size = value
        else:
            found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
            if not found or found[2].lower() not in _UNITS:
                raise _Refused
            size = round(float(found[1]) * _UNITS[found[2].lower()])
        if size < 1:
            raise _Refused
        return size

    return Option(about, "a size such as 1048576, 256MB or 1GiB", read, "SIZE", topic)


def size_or(topic: str, about: str, word: str) -> Option:
    """Bytes, or one word that stands for what the engine chooses."""
    known = size(topic, about)

    def read(value: object) -> int | str:
        return word if value == word else known.read(value)

    return Option(about, f"{known.allowed}, or {word}", read, known.unit, topic)


def text(topic: str, about: str, allowed: str, unit: str, pattern: str) -> Option:
    """Text that a pattern matches in full."""

    def read(value: object) -> str:
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        raise _Refused

    return Option(about, allowed, read, unit, topic)


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _Refused
    return float(value)


def _digits(value: object) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        return int(value)
    raise _Refused


def _range(low: float, high: float) -> str:
    return f"of {low:g} or more" if math.isinf(high) else f"from {low:g} to {high:g}"


if sys.version_info >= (3, 11):
    import tomllib
else:  # Python 3.10 has no TOML reader of its own
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]


CONFIG_FILE = "mirror-engine.toml"
ENVIRONMENT_PREFIX = "MIRROR_ENGINE_"
ENVIRONMENT_ELSEWHERE = frozenset(
    {"MIRROR_ENGINE_CACHE", "MIRROR_ENGINE_TOKEN", "MIRROR_ENGINE_CONTROL", "MIRROR_ENGINE_CONTROL_TOKEN"}
)  # of this machine, not of a mirror

_FOLDER_NAME = r"(?![._ ])[^\x00-\x1f\x7f-\x9f/\\:*?\"<>|]{1,100}(?<![. ])"
_ZONE, _BATCH, _CLEAN, _MACHINE = "How the zone is read", "How it is applied", "What is cleaned up", "This machine"


@dataclass(frozen=True)
class Config:
    """All options of one mirror; each says beside its type what it does and takes.

    Raises:
        ConfigError: one or more values are outside what is allowed; the message lists all of them.
    """

    default_schema: Annotated[
        str,
        text(
            _ZONE,
            "Delta schema of tables outside a schema folder; `none` for flat (LZ-1.4).",
            "a plain folder name, or none",
            "NAME",
            _FOLDER_NAME,
        ),
    ] = "dbo"
    metadata: Annotated[
        Literal["required", "optional"],
        choice(
            _ZONE,
            "`optional` mirrors Parquet folders without `_metadata.json`, insert-only (LZ-2.3).",
            "required",
            "optional",
        ),
    ] = "required"
    start_index: Annotated[
        Literal["first", "lowest"],
        choice(_ZONE, "`lowest` begins at the lowest number present instead of 1 (LZ-3.2).", "first", "lowest"),
    ] = "first"
    null_type: Annotated[
        Literal["integer", "untyped"],
        choice(_ZONE, "`untyped` lets an all-NULL column make no claim (LZ-5.9).", "integer", "untyped"),
    ] = "integer"
    naive_timestamps: Annotated[
        Literal["utc", "ntz"],
        choice(_ZONE, "`ntz` keeps timestamps without a zone so (LZ-5.8).", "utc", "ntz"),
    ] = "utc"
    strict: Annotated[bool, switch(_ZONE, "Make errors of the warnings that the service may refuse (chapter 11).")] = (
        False
    )
    cleanup: Annotated[
        Literal["ready", "processed", "off"],
        choice(
            _CLEAN,
            "Where applied files go: `_FilesReadyToDelete`, `_ProcessedFiles`, nowhere (LZ-8.2).",
            "ready",
            "processed",
            "off",
        ),
    ] = "ready"
    cleanup_days: Annotated[float, number(_CLEAN, "Days after which moved files are deleted (LZ-8.3).", "DAYS", 0)] = (
        7.0
    )
    retention_days: Annotated[int, whole(_CLEAN, "Delta retention for VACUUM (LZ-8.6).", "DAYS", 1, 30)] = 7
    optimize: Annotated[
        int | str,
        whole_or(
            _CLEAN,
            "When `run` compacts and vacuums a table with nothing waiting: after so many new data files, once all "
            "tables have been idle for a minute, or never.",
            "FILES",
            1,
            ("off", "idle"),
        ),
    ] = 100
    drop_delay_seconds: Annotated[
        float,
        number(_ZONE, "How long a folder must be gone before its table is dropped (LZ-7.4).", "SECONDS", 0),
    ] = 0.0
    restart: Annotated[
        Literal["rebuild", "resume"],
        choice(
            _CLEAN,
            "What stop and start does: drop and rebuild all tables, or go on (LZ-7.7).",
            "rebuild",
            "resume",
        ),
    ] = "rebuild"
    batch_files: Annotated[
        int, whole(_BATCH, "Most change files in one commit; 1 to debug order (LZ-4.16).", "FILES", 1)
    ] = 1000
    batch_bytes: Annotated[
        int, size(_BATCH, "Most bytes of change files, as landed but 32 a row at least, in one commit.")
    ] = 256 * 1024 * 1024
    driver_batch_bytes: Annotated[
        int | Literal["auto"],
        size_or(
            _BATCH,
            "Largest batch that is collapsed in the driver, counted likewise; Spark collapses others. "
            "`auto`: 512MiB, and none on a cluster.",
            "auto",
        ),
    ] = "auto"
    row_bytes: Annotated[int, size(_BATCH, "Longest row accepted.")] = 64 * 1024 * 1024
    direct_staging: Annotated[
        bool, switch(_BATCH, "Commit large insert-only Parquet files that fit the table as they lie (LZ-4.19).")
    ] = True
    workers: Annotated[int, whole(_BATCH, "Tables worked on side by side.", "TABLES", 1, 256)] = 2
    poll_interval_seconds: Annotated[
        float, number(_ZONE, "Longest time between two looks at the zone (LZ-3.1).", "SECONDS", 0.01)
    ] = 15.0
    profile: Annotated[
        Literal["local", "ci", "cluster"],
        choice(
            _MACHINE,
            "What Spark is set up for: this machine, short work that leaves nothing behind, a Spark set up elsewhere.",
            "local",
            "ci",
            "cluster",
        ),
    ] = "local"
    master: Annotated[
        str,
        text(
            _MACHINE,
            "Another Spark than our own: spark://HOST:PORT, yarn, k8s://… (docs/cluster.md); empty: this machine.",
            "a master that spark-submit knows",
            "MASTER",
            r"[^\x00-\x20]*",
        ),
    ] = ""
    driver_memory: Annotated[
        str,
        text(
            _MACHINE,
            "Heap of the Spark driver.",
            "a size as Spark writes it, such as 512m or 2g",
            "SIZE",
            r"[1-9][0-9]{0,8}[kmgtKMGT]b?",
        ),
    ] = "2g"
    jars: Annotated[
        str,
        text(
            _MACHINE,
            "Folder of Delta jars, for machines without a network; empty: fetch.",
            "a folder",
            "FOLDER",
            r"[^\x00]*",
        ),
    ] = ""

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        read, problems = _read({f"Config({name}=…)": (name, value) for name, value in given.items()})
        typed = [
            f"Config({name}=…): found {value!r}, allowed {options()[name].allowed}, as {type(read[name]).__name__}"
            for name, value in given.items()
            if name in read and read[name] != value
        ]
        _refuse([*problems, *typed])

    @property
    def delta_default_schema(self) -> str:
        """The default schema, `""` for none."""
        return "" if self.default_schema == "none" else self.default_schema


@cache
def options() -> Mapping[str, Option]:
    """Every option by its field's name, in the order of `Config`."""
    hints = get_type_hints(Config, include_extras=True)
    return {field.name: hints[field.name].__metadata__[0] for field in fields(Config)}


def flag_of(name: str) -> str:
    """The command line's flag of an option; units are told in its help: `--poll-interval`."""
    return "--" + name.removesuffix("_seconds").replace("_", "-")


def load(
    root: Path, flags: Mapping[str, object], environ: Mapping[str, str], config_file: Path | None = None
) -> Config:
    """The options of one mirror: flags win over the environment, the environment over the file.

    Args:
        root: ROOT; its `mirror-engine.toml` is read where `config_file` names no other.
        flags: by option name, without those not given.
        environ: the process's environment.
        config_file: a TOML file that must be there.

    Raises:
        ConfigError: every wrong name and value of all three, each with its place, what was found and what is
            allowed.
    """
    from_file, problems = _file(config_file or root / CONFIG_FILE, required=config_file is not None)
    values: dict[str, Any] = {}
    for layer in (from_file, _variables(environ), {flag_of(name): (name, value) for name, value in flags.items()}):
        found, wrong = _read(layer)
        values |= found
        problems += wrong
    _refuse(problems)
    return Config(**values)


def write_effective(path: Path, config: Config) -> None:
    """Write an engine's effective options as JSON, in one step, for programs that show what this engine will do.

    Raises:
        StorageUnavailable: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}")
    try:
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


def _variables(environ: Mapping[str, str]) -> dict[str, tuple[str, object]]:
    ours = (name for name in environ if name.startswith(ENVIRONMENT_PREFIX) and name not in ENVIRONMENT_ELSEWHERE)
    return {name: (name.removeprefix(ENVIRONMENT_PREFIX).lower(), environ[name]) for name in sorted(ours)}


def _file(path: Path, *, required: bool) -> tuple[dict[str, tuple[str, object]], list[str]]:
    """What the file says, by place; and why it could not be read."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}, [f"--config: found no file {path}, allowed a TOML file"] if required else []
    except (OSError, ValueError, RecursionError) as error:  # wrong TOML, wrong UTF-8: both ValueErrors; too deep
        return {}, [f"{path}: cannot be read: {error}"]
    return {f"{path.name}: {name}": (name, value) for name, value in content.items()}, []


def _read(layer: Mapping[str, tuple[str, object]]) -> tuple[dict[str, Any], list[str]]:
    """The good values by option name, and a sentence for each place with a wrong name or value."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for place, (name, value) in layer.items():
        option = options().get(name)
        if option is None:
            problems.append(f"{place}: no such option{_near(name)}")
            continue
        try:
            values[name] = option.read(value)
        except (ValueError, OverflowError):
            problems.append(f"{place}: found {_shown(value)}, allowed {option.allowed}")
    return values, problems


def _shown(value: object) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # TOML's hexadecimal numbers know no end, nor do its tables
        return f"a value of type {type(value).__name__} too long to show"


def _near(name: str) -> str:
    near = get_close_matches(name.lower().replace("-", "_"), options(), n=1, cutoff=0.5)
    return f", near {near[0]}" if near else ""


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        count = "1 option is wrong" if len(problems) == 1 else f"{len(problems)} options are wrong"
        raise ConfigError(
            "\n".join([f"{count}:", *(f"  {problem}" for problem in problems)]),
            "`--help` of the command lists its options with what each takes.",
        )
