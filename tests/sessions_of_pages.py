"""Pages that are sessions: their files are written, their commands run in one shell, and what they show is compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
PROGRESS = re.compile(r"^\[\d+[smh]\] ")
VARYING = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?|\d+(\.\d+)?(ms|s|m)\b|127\.0\.0\.1:\d+|-{3,}|={3,}|\s+"
)
END = "\x1e"


class Step(NamedTuple):
    """A file to write, if it has a name; else a command and what it prints."""

    file: str
    text: str
    shown: str


def steps(page):
    """The steps of a page, in order; blocks of other languages than `console`, without a title, are not run."""
    found = []
    for language, title, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if title:
            found.append(Step(title, text, ""))
        elif language == "console":
            commands = (part.partition("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:])
            found += [Step("", command, shown) for command, _, shown in commands]
    return found


# for a program that merges without Spark: the profile that tests have would be without effect
WITHOUT_SPARK = {"MIRROR_ENGINE_MERGE_ENGINE": "arrow", "MIRROR_ENGINE_SPARK_PROFILE": "local"}


def differences(page, folder, replaced=(), **environment):
    """Run a page in an empty folder; the steps whose output is another, each with what was printed.

    Args:
        page: of Markdown.
        folder: where it is run.
        replaced: pairs of texts in its commands, such as a port, and what is run instead.
        environment: more variables.
    """
    home = Path(sys.executable).parent
    run = Run(
        folder, {**os.environ, "PATH": f"{home}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100", **environment}
    )
    found = []
    try:
        for step in steps(page):
            if step.file:
                path = folder / step.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.text, encoding="utf-8")
                continue
            command = step.text
            for old, new in replaced:
                command = command.replace(old, new)
            if not matches(step.shown, printed := run.command(command)):
                found.append(f"$ {command}\n{printed}")
    finally:
        run.close()
    return found


class Run:
    """One shell."""

    def __init__(self, folder, environment):
        self._folder = folder
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def command(self, text):
        """What a command prints, on stdout and stderr, and its exit code if that is not 0."""
        self._shell.stdin.write(f"{text}\nprintf '%s\\n' \"{END}$?\"\n")
        self._shell.stdin.flush()
        lines = []
        while not (line := self._shell.stdout.readline()).startswith(END):
            assert line, f"the shell has ended in {text}"
            before, _, code = line.partition(END)
            lines.append(before)
            if code:
                break
        return "".join(lines).replace(str(self._folder), "~")

    def close(self):
        self._shell.stdin.close()
        self._shell.wait(60)
        self._shell.stdout.close()


def matches(shown, printed):
    """Whether a page shows what was printed: times and spaces may differ, and a line `…` stands for any lines."""
    first, *others = (
        [bare(line) for line in part.splitlines()] for part in re.split(r"^…\n", shown, flags=re.MULTILINE)
    )
    lines = [bare(line) for line in printed.splitlines() if not PROGRESS.match(line)]
    if lines[: len(first)] != first:
        return False
    rest = lines[len(first) :]
    for part in others[:-1]:
        at = next((at for at in range(len(rest)) if rest[at : at + len(part)] == part), None)
        if at is None:
            return False
        rest = rest[at + len(part) :]
    return rest[len(rest) - len(others[-1]) :] == others[-1] if others else not rest


def bare(line):
    return VARYING.sub(" ", line).strip()
