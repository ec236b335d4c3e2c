"""How an extra is installed, whatever the package was installed from."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mirror_engine import extras

HOME = Path(__file__).parents[1]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Installed:
    """A distribution with an origin."""

    requires = ("pyarrow>=21", 'starlette>=0.40; extra == "emulator"', "pandas<3; extra == 'spark'")

    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": HOME.as_uri(), "dir_info": {"editable": True}}, f"pip install -e '{HOME}[emulator]'"),
        ({"url": HOME.as_uri(), "dir_info": {}}, f"pip install '{HOME}[emulator]'"),
        ({"url": "file:///gone", "dir_info": {}}, "pip install 'starlette>=0.40'"),
        ({"url": "file:///gone.whl", "archive_info": {}}, "pip install 'starlette>=0.40'"),
        ({"url": Path(__file__).as_uri(), "archive_info": {}}, f"pip install 'mirror-engine[emulator] @ file://{__file__}'"),
        (
            {"url": "https://git.example/m.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"pip install 'mirror-engine[emulator] @ git+https://git.example/m.git@{COMMIT}'",
        ),
        (None, "pip install 'starlette>=0.40'"),
    ],
)  # fmt: skip
def test_an_extra_is_installed_from_where_the_package_is_from(monkeypatch, origin, command):
    monkeypatch.setattr(extras, "_installed", lambda: Installed(origin))
    assert extras.install_command("emulator") == command


def test_no_hint_asks_an_index_for_the_package():
    hint = re.compile(r"pip install ['\"]?mirror-engine\[")
    found = [path for path in (HOME / "mirror_engine").rglob("*.py") if hint.search(path.read_text(encoding="utf-8"))]
    assert found == []


COLLECT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
absent = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Absent())
import pytest
plugins = ["-p", "xdist", "-p", "pytest_timeout", "-p", "mirror_engine.testing.plugin"]
sys.exit(pytest.main(["-qqq", "--collect-only", "-m", "not spark and not slow", *plugins]))
"""


def needed(name, wanted, found):
    """Add the distributions that one with these extras needs."""
    try:
        requires = distribution(name).requires or ()
    except PackageNotFoundError:  # another system's
        return
    for each in map(Requirement, requires):
        is_asked = not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in ("", *wanted))
        key = re.sub("[-_.]+", "-", each.name).lower(), frozenset(each.extras)
        if is_asked and key not in found:
            found.add(key)
            needed(*key, found)


@pytest.mark.slow
def test_quick_look_needs_the_extra_test_alone():
    """`make check` installs no more: a test module that imports more must be slow, or import it where it is used."""
    found = set()
    needed("mirror-engine", {"test"}, found)
    here = {name for name, _ in found} | {"mirror-engine", "pip"}
    others = [
        module
        for module, owners in packages_distributions().items()
        if here.isdisjoint(re.sub("[-_.]+", "-", owner).lower() for owner in owners)
    ]
    assert "pandas" in others
    assert "pyarrow" not in others
    command = [sys.executable, "-c", COLLECT, ",".join(others)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    result = subprocess.run(command, cwd=HOME, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-2000:]
