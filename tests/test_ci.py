"""The GitHub action and the templates for GitLab and Azure: their steps, run as their runners would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from forked_program import programs
from sessions import WITHOUT_SPARK

pytestmark = pytest.mark.slow

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
    """GitHub's, for one job in a workspace: runs the steps of a composite action in bash.

    Expressions may have the contexts `inputs`, `github`, `runner`, `steps`, string literals, and `==`.

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
        environment = {**variables, **{name: str(path) for name, path in files.items()}}
        environment["PATH"] = os.pathsep.join([*reversed(paths), os.environ["PATH"]])
        code, printed = shell(script, self.workspace, **environment)
        paths += files["GITHUB_PATH"].read_text().splitlines()
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        return code, printed, outputs

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
    """Run a script in bash; exit code and what it printed."""
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


HOME = Path(__file__).parents[1]
EXAMPLES = HOME / "docs/examples/ci"
EXAMPLE = HOME / "mirror_engine/cli/example/LandingZone"
BROKEN = "Sku,Name,Weight,__rowMarker__\r\nC3,Cable,0.3,7\r\n"


# Makes an environment whose program is ours, and notes what is installed in it; all else Python does
PYTHON = f"""#!/bin/bash
case "$1 $2 $3" in
"-m venv "*) mkdir -p "$3/bin"; ln -s "$(realpath "$0")" "$3/bin/python"
  ln -s "{programs().split(os.pathsep)[0]}/mirror-engine" "$3/bin/mirror-engine";;
"-m pip install") echo "$PIP_CONSTRAINT ${{*:4}}" > "$(dirname "$0")/installed";;
*) exec "{sys.executable}" "$@";;
esac
"""


@pytest.fixture(scope="module")
def temp(tmp_path_factory):
    """`runner.temp`, in which a first job has installed the program."""
    folder, workspace = tmp_path_factory.mktemp("runner"), tmp_path_factory.mktemp("first")
    shutil.copytree(EXAMPLE, workspace / "shop/Files/LandingZone")
    (folder / "python").write_text(PYTHON)
    (folder / "python").chmod(0o755)
    assert Runner(HOME, workspace, folder).run(paths="shop", python=str(folder / "python")).code == 0
    installed = (folder / "mirror-engine/bin/installed").read_text()
    assert installed == f"{HOME}/constraints.txt --quiet {HOME}[emulator]\n"
    return folder


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    for name, value in WITHOUT_SPARK.items():  # the extra that is installed brings none
        monkeypatch.setenv(name, value)
    shutil.copy(HOME / "docs/examples/publisher.py", tmp_path)
    return tmp_path


@pytest.fixture
def runner(workspace, temp):
    return Runner(HOME, workspace, temp)


def found(sarif):
    return [each["ruleId"] for each in json.loads(sarif.read_text(encoding="utf-8"))["runs"][0]["results"]]


@pytest.mark.nightly
def test_a_publisher_runs_unmodified_and_what_it_wrote_is_checked(runner, workspace):
    ran = runner.run(command="python3 publisher.py")
    assert (ran.code, ran.outputs["exit-code"]) == (0, "0"), ran.printed
    assert [each[1]["title"] for each in ran.annotations] == ["ME092"]
    assert set(found(workspace / "mirror-engine.sarif")) == {"ME092"}
    assert (workspace / "onelake/Workspace/Mirror/Tables/Sales/Stores/_delta_log").is_dir()
    cache = ran.used["actions/cache"]
    assert Path(cache["path"]).is_absolute()
    assert re.fullmatch(r"mirror-engine-Linux-\w+-3\.\d+\.\d+\S*-[0-9a-f]{16}", cache["key"])
    assert "github/codeql-action/upload-sarif" not in ran.used


def test_findings_are_annotations_and_sarif_and_fail_the_job_after_the_upload(runner, workspace):
    (workspace / "publisher.py").write_text(
        (workspace / "publisher.py").read_text().replace("2,Wien,1", "2,Wien,7"), encoding="utf-8"
    )
    ran = runner.run(command="python3 publisher.py", wait="60s", upload_sarif="true", cache="false")
    assert (ran.code, ran.outputs["exit-code"]) == (3, "3"), ran.printed
    level, place, message = next(each for each in ran.annotations if each[1].get("title") == "ME037")
    assert level == "error"
    assert place["file"] == "onelake/Workspace/Mirror/Files/LandingZone/Sales.schema/Stores/00000000000000000002.csv"
    assert place["line"] == "2"
    assert "row marker is 7" in message
    assert "ME037" in found(workspace / ran.used["github/codeql-action/upload-sarif"]["sarif_file"])
    assert "actions/cache" not in ran.used


@pytest.mark.nightly
def test_folders_of_the_repository_are_checked_with_options(runner, workspace):
    for name in ("one", "two words"):
        shutil.copytree(EXAMPLE, workspace / name / "Files/LandingZone")
        (workspace / name / "Files/LandingZone/Items/00000000000000000002.csv").write_text(BROKEN)
    ran = runner.run(paths="one\n\ntwo words\n", options="--ignore=ME092\n", sarif_file="out.sarif")
    assert (ran.code, ran.outputs) == (3, {"exit-code": "3", "sarif-file": "out.sarif"})
    files = {each[1]["file"] for each in ran.annotations if each[1]["title"] == "ME037"}
    assert files == {f"{name}/Files/LandingZone/Items/00000000000000000002.csv" for name in ("one", "two words")}
    assert "ME092" not in found(workspace / "out.sarif")
    assert runner.run(paths="one", options="--ignore=ME092\n--ignore=ME037").code == 0


@pytest.mark.nightly
def test_a_command_s_own_exit_code_is_the_job_s(runner):
    ran = runner.run(command="echo before\nexit 7\necho after")
    assert (ran.code, ran.outputs["exit-code"]) == (7, "7")
    assert "before\n" in ran.printed
    assert "after" not in ran.printed
    assert any("exit code 7" in message for _, _, message in ran.annotations)


def test_an_input_is_never_code(runner, workspace):
    ran = runner.run(paths='$(touch stolen)\n"; touch stolen; "', options="", sarif_file="x.sarif")
    assert ran.code == 2
    assert not (workspace / "stolen").exists()


def test_what_it_cannot_run_on_is_said(runner):
    runner.contexts["runner.os"] = "Windows"
    ran = runner.run()
    assert ran.code == 1
    assert "Linux and macOS" in ran.annotations[0][2]
    runner.contexts["runner.os"] = "Linux"
    assert "3.11" in runner.run(python="false").annotations[0][2]


def test_the_workflow_uses_inputs_that_there_are():
    steps = yaml.safe_load((EXAMPLES / "github.yml").read_text(encoding="utf-8"))["jobs"]["publisher"]["steps"]
    declared = yaml.safe_load((HOME / "action.yml").read_text(encoding="utf-8"))["inputs"]
    assert steps[-1]["uses"].partition("/")[0] == "OWNER"
    assert steps[-1]["with"].keys() <= declared.keys()


def failures(report):
    return {case.get("type") for case in ET.parse(report).getroot().iter("failure")}  # noqa: S314 - our own report


@pytest.fixture(
    params=[
        pytest.param(("1", 0, set()), id="published", marks=pytest.mark.nightly),
        pytest.param(("7", 3, {"ME037"}), id="rejected"),
    ]
)
def published(request, workspace, temp):
    """A publisher that lands a row marker, next to the program as the action installed it; code and findings."""
    marker, code, failed = request.param
    publisher = workspace / "publisher.py"
    publisher.write_text(publisher.read_text().replace("2,Wien,1", f"2,Wien,{marker}"), encoding="utf-8")
    (workspace / ".mirror-engine").symlink_to(temp / "mirror-engine")
    return code, failed


def test_gitlab_s_job(workspace, published):
    template = yaml.safe_load((EXAMPLES / "gitlab.yml").read_text(encoding="utf-8"))
    job = template["publisher"]
    assert '"$MIRROR_ENGINE"' in job["before_script"][-1]
    assert re.fullmatch(r"python:3\.\d+", job["image"]), "pip needs git for git+https, which slim images lack"
    assert template["variables"]["PIP_CACHE_DIR"].rpartition("/")[2] in job["cache"]["paths"]
    code, printed = shell("\n".join(job["script"]), workspace)
    shell("\n".join(job["after_script"]), workspace)
    assert (code, failures(workspace / job["artifacts"]["reports"]["junit"])) == published, printed


def test_azure_s_job(workspace, published):
    template = yaml.safe_load((EXAMPLES / "azure.yml").read_text(encoding="utf-8"))
    install, *steps = [step for step in template["steps"] if "bash" in step]
    assert '"$(mirrorEngine)"' in install["bash"]
    codes = []
    for step in steps:
        if not any(codes) or step.get("condition") == "succeededOrFailed()":
            codes.append(shell(step["bash"], workspace)[0])
    results = next(step["inputs"] for step in template["steps"] if step.get("task") == "PublishTestResults@2")
    assert (max(codes), failures(workspace / results["testResultsFiles"])) == published
    assert set(found(workspace / "reports/mirror-engine.sarif")) == {"ME092", *published[1]}


def test_placeholders_name_no_host_that_exists():
    for name in ("gitlab.yml", "azure.yml"):
        url = re.search(
            r"mirror-engine\[emulator\] @ git\+https://([^/]+)/", (EXAMPLES / name).read_text(encoding="utf-8")
        )
        assert url[1].endswith(".example")


def test_the_page_has_every_input_and_output():
    page = (HOME / "docs/how-to/ci.md").read_text(encoding="utf-8")
    definition = yaml.safe_load((HOME / "action.yml").read_text(encoding="utf-8"))
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*?) ?\|", page, re.MULTILINE))
    assert rows.keys() == definition["inputs"].keys()
    defaults = {name: entry["default"] for name, entry in definition["inputs"].items() if entry["default"]}
    assert {name: rows[name].strip("`") for name in defaults} == defaults
    assert [name for name in definition["outputs"] if f"`{name}`" not in page] == []
