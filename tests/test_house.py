"""Layers, diagnostics, drawings and pages agree with the code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_args

import grimp
import pyarrow as pa
import pytest
from lake import Lake

from mirror_engine import errors
from mirror_engine.landing_zone.diagnostics import CATALOG, RejectedFile
from mirror_engine.landing_zone.states import TableState
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

HOME = Path(__file__).parents[1]
PACKAGE = HOME / "mirror_engine"
MODULES = sorted(PACKAGE.rglob("*.py"))
# Where nobody but a developer's own machine has a folder
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/")
FIXTURE = re.compile(r"^ *@pytest\.fixture\b.*\n(?:(?! *def ).*\n)*? *def (\w+)", re.MULTILINE)

# Runs the program of a path with its folder among those of modules, and looks for one of its folders as a module
PROBE = """
import importlib.util, runpy, sys
sys.argv[:] = [sys.argv[1], "--help"]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as ended:
    print(ended.code, importlib.util.find_spec("landing_zone"))
"""


def name_of(path: Path) -> str:
    return path.relative_to(HOME).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def written(*folders: str, suffixes: set[str]) -> list[Path]:
    """Our own text files; what git ignores lies in none of these folders."""
    found = [path for folder in folders for path in (HOME / folder).rglob("*")]
    return sorted(path for path in found if path.is_file() and path.suffix in suffixes)


@pytest.mark.slow
def test_no_modules_import_each_other() -> None:
    """Type-only and lazy imports included; CycleError names the modules."""
    graph = grimp.build_graph("mirror_engine", cache_dir=None)
    TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules}).prepare()


# What runs on the engine's threads: a simulation gives it time and threads
SIMULATED = [*sorted((PACKAGE / "engine").glob("*.py")), PACKAGE / "storage/base.py", PACKAGE / "storage/lease.py"]
OF_THE_MACHINE = {
    *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.sleep"),
    *("threading.Thread", "threading.Timer", "threading.Event", "threading.Condition", "threading.Semaphore"),
    *("concurrent.futures.ThreadPoolExecutor", "queue.Queue", "queue.SimpleQueue", "datetime.datetime.now"),
}


def names_used(path: Path) -> set[str]:
    """Names that a module uses when it runs, as `time.monotonic`; annotations and type-only imports are left out."""
    whole = tree(path)
    is_typing = [
        node for node in ast.walk(whole) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    annotations = [
        part
        for node in ast.walk(whole)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
    ]
    left_out = {id(part) for node in [*is_typing, *annotations] for part in ast.walk(node)}
    nodes = [node for node in ast.walk(whole) if id(node) not in left_out]
    imported = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    modules = {name.asname or name.name: f"{node.module}.{name.name}" for node in imported for name in node.names}
    dotted = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    whole_names = {
        ".".join([modules.get(head, head), tail]) for head, _, tail in (name.partition(".") for name in dotted)
    }
    return {*modules.values(), *whole_names}


@pytest.mark.slow
def test_engine_takes_time_and_threads_from_no_machine() -> None:
    """Each would make a run of the simulation differ from the same run before (docs/decisions/simulation.md)."""
    assert {name_of(path): found for path in SIMULATED if (found := names_used(path) & OF_THE_MACHINE)} == {}


def test_names_of_the_machine_are_found_however_they_are_imported(tmp_path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "import time\nfrom queue import SimpleQueue\nfrom datetime import datetime\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import threading\n"
        "def wait(stop: threading.Event) -> threading.Event:\n    time.sleep(datetime.now().second)\n"
    )
    assert names_used(module) & OF_THE_MACHINE == {"time.sleep", "queue.SimpleQueue", "datetime.datetime.now"}


def drawn() -> dict[str, str]:
    """The tree drawn in errors.py: each class and its parent."""
    parents: list[str] = []
    found = {}
    for line in (errors.__doc__ or "").split("```")[1].strip().splitlines():
        bare = line.lstrip("│├└─ ")
        depth = (len(line) - len(bare)) // 4
        parents[depth:] = [bare.split()[0]]
        found[parents[-1]] = parents[-2] if depth else "Exception"
    return found


def test_the_error_tree_that_is_drawn_is_the_one_that_is_there() -> None:
    classes = [
        thing for thing in vars(errors).values() if isinstance(thing, type) and thing.__module__ == errors.__name__
    ]
    assert drawn() == {thing.__name__: thing.__bases__[0].__name__ for thing in (*classes, RejectedFile)}


def part_of_architecture(name: str) -> str:
    """What docs/architecture.md has between the comments `name` and `/name`."""
    text = (HOME / "docs/architecture.md").read_text(encoding="utf-8")
    return text.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0].strip()


def test_the_layers_of_the_architecture_page_are_those_of_the_import_contract() -> None:
    contract = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ][0]
    assert part_of_architecture("layers").strip("`").split("\n")[1:-1] == contract["layers"]


def test_the_error_tree_of_the_architecture_page_is_that_of_the_module() -> None:
    assert part_of_architecture("errors").strip("`").strip() == (errors.__doc__ or "").split("```")[1].strip()


def test_the_states_of_the_architecture_page_are_all_there_are() -> None:
    rows = [line.split("|")[1].strip().strip("`") for line in part_of_architecture("states").splitlines()[2:]]
    assert sorted(rows) == sorted(state.code for state in get_args(TableState))


def test_every_diagnostic_is_unique_and_numbered_without_a_gap() -> None:
    assert list(CATALOG) == [f"ME{number:03d}" for number in range(1, len(CATALOG) + 1)]
    assert len({definition.name for definition in CATALOG.values()}) == len(CATALOG)


def test_every_diagnostic_is_raised_somewhere() -> None:
    listing = ("fabric_errors.py", "status.py")  # these only name codes
    raising = [path.read_text(encoding="utf-8") for path in MODULES if not path.name.startswith(listing)]
    assert [code for code in CATALOG if not any(f'"{code}"' in source for source in raising)] == []


def heavy_modules_of(*words: str) -> list[str]:
    """What a command imports that takes long to import."""
    probe = (
        f"import sys\nfrom mirror_engine.cli.main import main\nsys.argv[1:] = {list(words)!r}\ncode = main()\n"
        "heavy = ('pyarrow', 'numpy', 'numpy.ma', 'pandas', 'deltalake', 'pyspark', 'py4j', 'watchdog.observers', "
        "'cryptography')\n"
        "print(code, *(name for name in heavy if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    code, *heavy = done.stderr.splitlines()[-1].split()  # before it, progress on a busy machine
    assert code == "0"
    return heavy


@pytest.mark.slow
def test_run_by_its_path_it_takes_no_folder_of_its_own_for_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, PACKAGE / "__main__.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 None"


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--help",), ("validate", "--help")], ids=" ".join)
def test_asking_for_help_loads_neither_arrow_nor_an_engine(words) -> None:
    assert heavy_modules_of(*words) == []


@pytest.mark.slow
def test_a_level_zone_is_told_without_arrow_deltalake_or_spark(tmp_path) -> None:
    lake = Lake(tmp_path / "lake", files=2)
    assert heavy_modules_of("sync", str(lake.root)) == []


@pytest.mark.slow
@pytest.mark.parametrize("markers", [{}, {"__rowMarker__": [4]}], ids=["inserts", "upserts"])
def test_a_verdict_needs_arrow_and_numpy_alone(markers, tmp_path) -> None:
    LandingZoneWriter(tmp_path).table("Orders", keys=["Id"]).land_parquet(pa.table({"Id": [1], **markers}))
    assert heavy_modules_of("validate", str(tmp_path)) == ["pyarrow", "numpy"]


@pytest.mark.slow
def test_a_command_does_not_wait_for_the_others() -> None:
    probe = (
        "import sys\nfrom mirror_engine.cli.main import main\nmain(['init', '--help'])\n"
        "print([name for name in sys.modules if name in ('mirror_engine.cli.trace', 'rich')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_fixture_name_means_one_thing_in_all_tests() -> None:
    homes: dict[str, list[str]] = {}
    for path in sorted((HOME / "tests").rglob("*.py")):
        for name in FIXTURE.findall(path.read_text(encoding="utf-8")):
            homes.setdefault(name, []).append(path.relative_to(HOME).as_posix())
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


@pytest.mark.slow
def test_nothing_tells_of_a_machine_it_was_made_on() -> None:
    ours = written(
        "mirror_engine", "tests", "docs", "fixtures", "benchmarks", suffixes={".py", ".md", ".toml", ".json", ".txt"}
    )
    top = [
        path
        for path in HOME.iterdir()
        if path.is_file() and path.name != ".git" and path.suffix in {".md", ".toml", ".txt", ""}
    ]
    telling = [
        name_of(path)
        for path in (*ours, *top)
        if path != Path(__file__) and MACHINE_PATHS.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert telling == []
