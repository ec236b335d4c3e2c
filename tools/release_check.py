"""All of a release but the upload: build twice, compare, check, install into an empty environment, try.

Run it as `make release-check`; the checked files are left in dist/.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from mirror_engine._version import __version__
from mirror_engine.cli.exits import NEEDS_ATTENTION, USAGE

HOME = Path(__file__).parents[1]
CONSTRAINTS = HOME / "constraints.txt"
RELATIVE_LINK = re.compile(r"\]\((?!https?://|#)[^)]+\)")
PLACEHOLDER = re.compile(r"https://\S+\.example\b")
NEEDED = ("py.typed", "explain/ME037.md", "explain/rules.md", "onelake/openapi.json", "onelake/page/static/page.css")
# Builds may not depend on any of these
SURROUNDINGS = (
    {"TZ": "UTC", "PYTHONHASHSEED": "1", "LC_ALL": "C.UTF-8", "umask": "022"},
    {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2", "LC_ALL": "C", "umask": "077"},
)


class NotReleasable(Exception):
    """Why this tree cannot be released."""


def source_date() -> str:
    """`SOURCE_DATE_EPOCH`: as given, else the last commit's time."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    command = ["git", "log", "-1", "--format=%ct"]
    return given or subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=True).stdout.strip()


def export(folder: Path) -> None:
    """Copy what git tracks, as it is in the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HOME, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (HOME / name).is_file() and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(HOME / name, folder / name)


def build(folder: Path, surroundings: dict[str, str], epoch: str) -> list[Path]:
    """The sdist and, from it, the wheel, built in a folder of their own."""
    source, built = folder / "source", folder / "built"
    export(source)
    names = dict(surroundings)
    mask = names.pop("umask")
    command = f'umask {mask}; exec "$0" -m build --no-isolation --outdir "$1" .'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, str(built)],
        cwd=source,
        env={**os.environ, **names, "SOURCE_DATE_EPOCH": epoch},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotReleasable(done.stdout + done.stderr)
    return sorted(built.iterdir())


def build_twice(folder: Path) -> list[Path]:
    """The files of two builds that are equal, byte by byte."""
    epoch = source_date()
    first, second = (
        build(folder / str(number), surroundings, epoch) for number, surroundings in enumerate(SURROUNDINGS)
    )
    names = [path.name for path in first]
    different = [one.name for one, other in zip(first, second, strict=True) if not filecmp.cmp(one, other, False)]
    if different or names != [path.name for path in second]:
        raise NotReleasable(f"two builds differ: {', '.join(different) or names}")
    return first


def check_contents(sdist: Path, wheel: Path) -> None:
    """The wheel is the package with its data and nothing else; the sdist can build it."""
    version = f"mirror_engine-{__version__}"
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        entries = files.read(f"{version}.dist-info/entry_points.txt").decode()
    strangers = [name for name in names if not name.startswith(("mirror_engine/", f"{version}.dist-info/"))]
    missing = [name for name in NEEDED if f"mirror_engine/{name}" not in names]
    tracked = {path.relative_to(HOME).as_posix() for path in (HOME / "mirror_engine").rglob("*.py")}
    if strangers or missing or not tracked <= set(names):
        raise NotReleasable(f"{wheel.name}: too much {strangers}, missing {missing}, {sorted(tracked - set(names))}")
    if "mirror-engine = mirror_engine.__main__:main" not in entries or "[pytest11]" not in entries:
        raise NotReleasable(f"{wheel.name}: an entry point is missing")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    expected = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md", "constraints.txt", "mirror_engine"}
    if tops - {".gitignore"} != expected | {"pyproject.toml"}:
        raise NotReleasable(f"{sdist.name} has {sorted(tops)}")


def check_version() -> None:
    """The changelog begins with the version that is built."""
    heading = re.search(r"^## (\S+)", (HOME / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if heading is None or heading[1] != __version__:
        raise NotReleasable(f"CHANGELOG.md begins with {heading and heading[1]}, the package is {__version__}")


def check_metadata(paths: list[Path]) -> None:
    """As an index reads it."""
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReleasable(done.stdout + done.stderr)


class Bare:
    """An environment with the wheel in it and nothing else, on a machine without Java."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        self.folder, self.programs = folder, folder / "venv/bin"
        self.pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--python",
            str(self.programs / "python"),
        ]
        self.pip += ["install", "--constraint", str(CONSTRAINTS)]
        (tools := folder / "tools").mkdir()
        self.environment = {"PATH": f"{self.programs}:{tools}", "HOME": str(folder)}

    def install(self, what: str | Path) -> None:
        """Install it with what it needs, in the versions everything is tested with."""
        subprocess.run([*self.pip, "--quiet", what], check=True, timeout=300)

    def run(self, program: str, *words: str | Path, exit_code: int = 0) -> str:
        """What a program prints, stderr included; NotReleasable where it ends with another code."""
        command = [self.programs / program, *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode != exit_code:
            raise NotReleasable(
                f"{shlex.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout + done.stderr


def try_wheel(wheel: Path, folder: Path) -> Bare:
    """A new user's first commands, from the wheel alone in an empty environment, which is left."""
    folder.mkdir()
    bare = Bare(folder)
    bare.install(wheel)
    for command, code, expected in (
        ("--version", 0, __version__),
        ("--help", 0, "validate"),
        ("init shop", 0, "shop"),
        ("validate shop", 0, "4 tables"),
        ("sync shop --progress none", 0, "caught up"),
        ("init broken", 0, "broken"),
        ("validate broken", NEEDS_ATTENTION, "ME037"),
        ("explain ME037", 0, "ME037"),
        ("emulator start onelake", USAGE, "pip install 'mirror-engine[emulator] @ file://"),
    ):
        printed = bare.run("mirror-engine", *command.split(), exit_code=code)
        if expected not in printed:
            raise NotReleasable(f"mirror-engine {command}: {printed}")
        if command == "init broken":
            file = folder / "broken/Files/LandingZone/Items/00000000000000000003.csv"
            file.write_bytes(b"Sku,Name,Weight,__rowMarker__\r\nC3,Cable,0.3,7\r\n")
    return bare


def main() -> int:
    """Check, and print what is left to do."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            check_version()
            sdist, wheel = sorted(build_twice(folder), key=lambda path: path.suffix)
            check_contents(sdist, wheel)
            check_metadata([sdist, wheel])
            try_wheel(wheel, folder / "tried")
        except NotReleasable as reason:
            print(f"not releasable: {reason}", file=sys.stderr)
            return 1
        shutil.rmtree(HOME / "dist", ignore_errors=True)
        (HOME / "dist").mkdir()
        for path in (sdist, wheel):
            shutil.copyfile(path, HOME / "dist" / path.name)
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  dist/{path.name}")
    print(
        f"SOURCE_DATE_EPOCH={source_date()}: two builds are equal; metadata, contents and the wheel alone are checked."
    )
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=HOME, capture_output=True, text=True, check=True)
    if changed.stdout:
        print("Left to do: commit; the working tree has changes.")
    if PLACEHOLDER.search((HOME / "pyproject.toml").read_text(encoding="utf-8")):
        print("Left to do: [project.urls] in pyproject.toml are placeholders; name the project's own.")
    if RELATIVE_LINK.search((HOME / "README.md").read_text(encoding="utf-8")):
        print(
            "Left to do: README.md's links to other files lead nowhere on an index; prefix them with the project's URL."
        )
    print("Left to do: python -m twine upload dist/*")
    return 0


if __name__ == "__main__":
    sys.exit(main())
