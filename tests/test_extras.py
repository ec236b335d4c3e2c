"""How an extra is installed, whatever the package was installed from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

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
