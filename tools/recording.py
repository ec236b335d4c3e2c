"""The README's recording: a session run in a terminal, as an SVG in which its lines appear one after the other.

Run it as `make recording`; it writes docs/assets/recording.svg.
"""

from __future__ import annotations

import html
import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

TARGET = Path(__file__).parents[1] / "docs/assets/recording.svg"
COLUMNS = 88
CSV = "'Sku,Name,Weight,__rowMarker__\\r\\nC3,Cable,0.3,{}\\r\\n'"
FILE = "shop/Files/LandingZone/Items/00000000000000000003.csv"
SESSION = (
    f"printf {CSV.format(7)} \\\n    > {FILE}",
    "mirror-engine validate shop",
    f"printf {CSV.format(4)} \\\n    > {FILE}",
    "mirror-engine sync shop --progress none --merge-engine arrow",
    "mirror-engine -C shop show Items",
)
SECONDS_PER_LINE, SECONDS_PER_COMMAND = 0.04, 1.6
# rich's form without its fonts, which come from another host
FORM = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>mirror-engine rejects a file with its row and the fix, and applies the corrected one</title>
<style>
.{unique_id}-matrix {{ font: {char_height}px Menlo, Consolas, "DejaVu Sans Mono", monospace }}
{styles}
ANIMATION
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
<rect fill="#0d1117" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">
{matrix}</g></g></svg>
"""


def run(command: str, folder: Path) -> str:
    """What a terminal shows of a command, escape sequences included."""
    ours, theirs = pty.openpty()
    kept = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = kept | {"PATH": path, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, stdout=theirs, stderr=theirs, close_fds=True
    ):
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # how Linux says that the other side has ended
            pass
        finally:
            os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def session() -> list[tuple[str, str]]:
    """Each command and what it shows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run("mirror-engine init shop", folder)
        return [(command, run(command, folder)) for command in SESSION]


def svg(commands: list[tuple[str, str]]) -> str:
    """The session as an animated picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    delays, at = [], -SECONDS_PER_COMMAND  # the first command is there from the beginning
    for command, shown in commands:
        at += SECONDS_PER_COMMAND
        for text in (Text(f"$ {command}", style="bold"), Text.from_ansi(shown.rstrip("\n")), Text(" ")):
            for line in text.wrap(console, COLUMNS) if text else ():
                console.print(line, no_wrap=True)
                delays.append(at)
                at += SECONDS_PER_LINE
    picture = console.export_svg(code_format=FORM, unique_id="recording")
    rules = [
        "@media (prefers-reduced-motion: no-preference) {",
        "@keyframes appear { from { opacity: 0 } to { opacity: 1 } }",
    ]
    rules.append(".recording-matrix text { animation: appear 0.01s both }")
    rules += [
        f'.recording-matrix text[clip-path="url(#recording-line-{place})"] {{ animation-delay: {delay:.2f}s }}'
        for place, delay in enumerate(delays)
    ]
    return picture.replace("ANIMATION", "\n".join([*rules, "}"]))


def words(picture: str) -> list[str]:
    """The lines that a picture shows."""
    found: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(r'<text [^>]*?x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', picture):
        found.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    return ["".join(text for _, text in sorted(found[y])).rstrip() for y in sorted(found)]


if __name__ == "__main__":
    TARGET.write_text(svg(session()), encoding="utf-8")
    print(f"{TARGET.stat().st_size} bytes in {TARGET.name}")
