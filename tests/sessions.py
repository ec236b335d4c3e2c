"""Sessions: commands with what they print, in pages and in tests/cli/sessions, run and compared.

`$` begins a command, and in tests/cli/sessions `>` a step of the publisher in Python. Below a command is what it
prints, and its exit code in brackets if that is compared. A line `…` stands for any lines. Times and the width of gaps
may vary.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import NamedTuple

from forked_program import programs

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
PROGRESS = re.compile(r"^\[\d+[smh]\] ")
VARYING = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?|(?<=Failed on )\d{4}-\d\d-\d\d"
    r"|\b\d+(\.\d+)?(ms|s|m)\b|\b\d{5}d\b|\b\d+\.\d kB\b"  # 20000d is the age of a file of 1970
    r"|127\.0\.0\.1:\d+|-{3,}|={3,}"
)
CODE = re.compile(r"^\[(\d+)\]\n*\Z", re.MULTILINE)
END = "\x1e"
# for a program that merges without Spark: the profile that tests have would be without effect
WITHOUT_SPARK = {"MIRROR_ENGINE_MERGE_ENGINE": "arrow", "MIRROR_ENGINE_SPARK_PROFILE": "local"}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str
    text: str


class Step(NamedTuple):
    """A command (`$`) or step in Python (`>`) and what it prints; or the text of a file, by its path."""

    kind: str
    text: str
    shown: str = ""


def blocks(page, language=""):
    """The fenced blocks of a page, or those of a language."""
    found = [Block(*match) for match in BLOCK.findall(page.read_text(encoding="utf-8"))]
    return [block for block in found if language in {"", block.language}]


def steps_in(session):
    """The steps of a session's text."""
    parts = re.split(r"^([$>]) ", session, flags=re.MULTILINE)[1:]
    for kind, part in zip(parts[::2], parts[1::2], strict=True):
        text, _, shown = part.partition("\n")
        if here := re.search(r"<<'(\w+)'", text):
            lines, end, shown = shown.partition(f"{here[1]}\n")
            text = f"{text}\n{lines}{end}".rstrip("\n")
        yield Step(kind, text, shown)


def steps(page):
    """The steps of a page, in order; blocks of other languages than `console`, without a title, are not run."""
    found = []
    for block in blocks(page):
        if block.title:
            found.append(Step(block.title, block.text))
        elif block.language == "console":
            found += steps_in(block.text)
    return found


def differences(page, folder, replaced=(), **environment):
    """Run a page in an empty folder; the steps whose output is another, each with what was printed.

    Args:
        page: of Markdown.
        folder: where it is run.
        replaced: pairs of texts in its commands, such as a port, and what is run instead.
        environment: more variables.
    """
    found = []
    with Shell(folder, **environment) as shell:
        for step in steps(page):
            if step.kind != "$":
                path = folder / step.kind
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.text, encoding="utf-8")
                continue
            command = step.text
            for old, new in replaced:
                command = command.replace(old, new)
            if not matches(step.shown, printed := shell.run(command)):
                found.append(f"$ {command}\n{printed}")
    return found


def own_environment(**more):
    """The environment of commands, in which `mirror-engine` and `python` are those of this run."""
    path = f"{programs()}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "COLUMNS": "100", **more}


class Shell:
    """A shell in a folder."""

    def __init__(self, folder, **environment):
        self._folder = folder
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=own_environment(**environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._shell.stdin.close()
        self._shell.wait(60)
        self._shell.stdout.close()

    def run(self, text):
        """What a command prints, on stdout and stderr, and its exit code in brackets."""
        self._shell.stdin.write(f"{text}\nprintf '%s\\n' \"{END}$?\"\n")
        self._shell.stdin.flush()
        lines = []
        while END not in (line := self._shell.stdout.readline()):
            assert line, f"the shell has ended in {text}"
            lines.append(line)
        before, _, code = line.partition(END)
        return f"{''.join(lines)}{before}\n[{code.strip()}]".replace(str(self._folder), "~")


def matches(shown, printed):
    """Whether a page or session shows what was printed; printed ends with its exit code, shown may."""
    if not CODE.search(shown):
        printed = CODE.sub("", printed)
    first, *others = (comparable(part) for part in re.split(r"^…\n", shown, flags=re.MULTILINE))
    lines = comparable(printed)
    if lines[: len(first)] != first:
        return False
    rest = lines[len(first) :]
    for part in others[:-1]:
        at = next((at for at in range(len(rest)) if rest[at : at + len(part)] == part), None)
        if at is None:
            return False
        rest = rest[at + len(part) :]
    return rest[len(rest) - len(others[-1]) :] == others[-1] if others else not rest


def comparable(text):
    """The lines of a text that are compared: progress, empty lines and what varies are left out."""
    lines = (line for line in text.splitlines() if not PROGRESS.match(line))
    return [line for line in map(bare, lines) if line]


def bare(line):
    """A line without what varies; its indentation is kept, but not the width of gaps."""
    return re.sub(r"(?<=\S)\s+", " ", VARYING.sub("…", line)).rstrip()
