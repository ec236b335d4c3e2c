"""CI systems in small: the steps of a composite action and of templates, run in bash as their runners would.

Expressions may have the contexts `inputs`, `github`, `runner`, `steps`, string literals, and `==`; others are errors.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field

import yaml

EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")
ANNOTATION = re.compile(r"^::(error|warning|notice) ?(.*?)::(.*)$", re.MULTILINE)
BASH = ["bash", "--noprofile", "--norc", "-eo", "pipefail"]  # GitHub's `shell: bash`


@dataclass
class Ran:
    """What a job did."""

    code: int = 0
    printed: str = ""
    used: dict = field(default_factory=dict)  # inputs of each action that was used, by its name
    outputs: dict = field(default_factory=dict)

    @property
    def annotations(self):
        """Level, properties and message of each."""
        return [
            (level, dict(each.split("=", 1) for each in properties.split(",") if each), message)
            for level, properties, message in ANNOTATION.findall(self.printed)
        ]


class Runner:
    """GitHub's, for one job in a workspace.

    Args:
        action: the folder of `action.yml`.
        workspace: where steps run.
        temp: `runner.temp`; what is installed there stays for later jobs.
    """

    def __init__(self, action, workspace, temp):
        self.definition = yaml.safe_load((action / "action.yml").read_text(encoding="utf-8"))
        self.workspace, self.temp = workspace, temp
        self.contexts = {"github.action_path": str(action), "runner.temp": str(temp), "runner.os": "Linux"}

    def run(self, **given):
        """Run the action with inputs, whose underscores are hyphens."""
        given = {name.replace("_", "-"): text for name, text in given.items()}
        declared = self.definition["inputs"]
        assert given.keys() <= declared.keys()
        values = {name: given.get(name, entry["default"]) for name, entry in declared.items()}
        known = self.contexts | {f"inputs.{name}": text for name, text in values.items()}
        ran, paths = Ran(), []
        for step in self.definition["runs"]["steps"]:
            if "if" in step and not self.holds(step["if"], known):
                continue
            if "uses" in step:
                name = step["uses"].partition("@")[0]
                ran.used[name] = {key: self.resolved(text, known) for key, text in step["with"].items()}
                continue
            assert step["shell"] == "bash"
            assert not EXPRESSION.search(step["run"]), "an input in a script is code"
            variables = {name: self.resolved(text, known) for name, text in step.get("env", {}).items()}
            ran.code, printed, outputs = self._bash(step["run"], variables, paths)
            ran.printed += printed
            known |= {f"steps.{step.get('id')}.outputs.{name}": text for name, text in outputs.items()}
            if ran.code:
                break
        ran.outputs = {name: self.resolved(entry["value"], known) for name, entry in self.definition["outputs"].items()}
        return ran

    def _bash(self, script, variables, paths):
        files = {name: self.temp / name for name in ("GITHUB_OUTPUT", "GITHUB_PATH")}
        for path in files.values():
            path.write_text("")
        environment = {**os.environ, **variables, **{name: str(path) for name, path in files.items()}}
        environment["PATH"] = os.pathsep.join([*reversed(paths), os.environ["PATH"]])
        (self.temp / "step.sh").write_text(script)
        done = subprocess.run(
            [*BASH, self.temp / "step.sh"],
            cwd=self.workspace,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        paths += files["GITHUB_PATH"].read_text().splitlines()
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        return done.returncode, done.stdout, outputs

    @staticmethod
    def resolved(text, known):
        """A text with its expressions in place; what a step that did not run would have put out is empty."""
        return EXPRESSION.sub(lambda found: Runner.value(found[1].strip(), known), str(text))

    @staticmethod
    def value(words, known):
        if words.startswith("steps."):
            return known.get(words, "")
        return known[words]

    @staticmethod
    def holds(condition, known):
        """Whether a step runs: `NAME == 'text'`."""
        name, _, text = condition.partition(" == ")
        return Runner.value(name, known) == text.strip("'")


def shell(script, folder, **variables):
    """Run a template's script in bash; exit code and what it printed."""
    done = subprocess.run(
        [*BASH, "-c", script],
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
