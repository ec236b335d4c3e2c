"""Plain arguments need no look of typer's, which takes as long as a third of the start; all others get it."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import pytest
import typer

from mirror_engine.cli.plain_values import take_plain_values

LOOKED_AT = (
    "import sys; from mirror_engine.cli.main import main; main(sys.argv[1:]); sys.exit('pydantic' in sys.modules)"
)


@pytest.mark.parametrize(
    "words",
    [("explain", "ME014"), ("once", "shop"), ("validate", "shop", "--format", "json", "--ignore", "ME016"), ("-h",)],
)
def test_a_plain_command_line_is_not_looked_at_by_typer(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-c", LOOKED_AT, *words], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


class Shade(Enum):
    LIGHT = "light"
    DARK = "dark"


def called(*words: str) -> dict[str, object]:
    """What a command is called with."""
    found: dict[str, object] = {}

    def paint(  # noqa: PLR0913, PLR0917 - one of each kind
        walls: Annotated[list[Path], typer.Argument()],
        shade: Annotated[Shade, typer.Option()] = Shade.LIGHT,
        coats: Annotated[int, typer.Option(min=1)] = 2,
        seconds: Annotated[float | None, typer.Option()] = None,
        names: Annotated[list[str] | None, typer.Option("--name")] = None,
        dry: Annotated[bool, typer.Option()] = False,  # noqa: FBT002 - as typer has it
    ) -> None:
        found.update(locals())

    app = typer.Typer(add_completion=False)
    app.command()(paint)
    command = typer.main.get_command(app)
    take_plain_values(command, {})
    command(words, standalone_mode=False)
    del found["found"]
    return found


def test_values_are_what_typer_would_have_made_of_them() -> None:
    none_given = {"shade": Shade.LIGHT, "coats": 2, "seconds": None, "names": None, "dry": False}
    assert called("a", "b/c") == {"walls": [Path("a"), Path("b/c")], **none_given}
    words = ("a", "--shade", "dark", "--coats", "3", "--seconds", "1.5", "--name", "x", "--name", "y", "--dry")
    given = {"shade": Shade.DARK, "coats": 3, "seconds": 1.5, "names": ["x", "y"], "dry": True}
    assert called(*words) == {"walls": [Path("a")], **given}


@pytest.mark.parametrize(
    ("option", "value"), [("--shade", "blue"), ("--coats", "0"), ("--coats", "x"), ("--seconds", "?")]
)
def test_what_is_wrong_typer_says_so(option: str, value: str) -> None:
    with pytest.raises(typer.BadParameter):
        called("a", option, value)


def test_a_path_that_may_not_be_read_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir()
    monkeypatch.setattr("os.access", lambda path, _: "shut" not in str(path))  # root may read all
    with pytest.raises(typer.BadParameter, match="is not readable"):
        called(str(tmp_path / "shut"))
