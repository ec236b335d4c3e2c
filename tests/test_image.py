"""Dockerfile and compose.yaml agree with each other and with the program; `make image-check` builds and runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

import image_check
from mirror_engine.cli.main import program

HOME = Path(__file__).parents[1]
IS_BUILT = "MIRROR_TEST_IMAGE"  # variable that asks for it
DOCKERFILE = (HOME / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
COMPOSE = yaml.safe_load((HOME / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]


def instructions():
    """Each stage's instructions as pairs."""
    stages = {}
    for line in DOCKERFILE.splitlines():
        if line and not line.startswith(("#", "ARG")):
            word, _, rest = line.partition(" ")
            if word == "FROM":
                above, _, name = rest.partition(" AS ")
                stages[name] = [*stages.get(above, ())]
            else:
                stages[name].append((word, rest))
    return stages


def last(stage, word):
    return [rest for found, rest in instructions()[stage] if found == word][-1]


def test_the_image_without_java_is_the_default():
    assert list(instructions())[-1] == "default"
    assert {"default", "spark"} <= instructions().keys()
    assert "openjdk" not in str(instructions()["default"])
    assert SERVICES["emulator"]["build"]["target"] == "default"


@pytest.mark.parametrize("target", ["default", "spark"])
def test_images_run_as_nobody_in_particular_with_a_volume_and_a_health_check(target):
    user, group = last(target, "USER").split(":")
    assert int(user) >= 1000 <= int(group)
    assert last(target, "VOLUME") == "/store"
    assert "readyz" in last(target, "HEALTHCHECK")
    assert SERVICES["publisher"]["user"] == user


def test_the_command_is_one_of_the_program_and_listens_where_it_says():
    assert json.loads(last("default", "ENTRYPOINT")) == ["mirror-engine"]
    words = json.loads(last("default", "CMD"))
    command = program().get_command(click.Context(program()), words[0]).get_command(None, words[1])
    options = command.make_context(words[1], words[2:]).params
    assert str(options["store"]) == last("default", "VOLUME")
    assert (options["is_single_port"], options["allow_remote"], options["quiet"]) == (True, True, 1)
    port = last("default", "EXPOSE")
    assert options["port"] == int(port)
    assert SERVICES["emulator"]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_everything_that_is_copied_is_there_and_not_ignored():
    copied = {
        name
        for stage in instructions().values()
        for word, rest in stage
        if word == "COPY" and "--from" not in rest
        for name in shlex.split(rest)[:-1]
    }
    ignored = (HOME / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert [name for name in copied if not (HOME / name).exists()] == []


def test_versions_are_those_that_are_tested():
    variables = "".join(rest for word, rest in instructions()["build-spark"] if word == "ENV")
    assert "PIP_CONSTRAINT=/source/constraints.txt" in variables


def test_compose_has_no_token_of_its_own_and_drops_what_is_not_needed():
    emulator = SERVICES["emulator"]
    assert re.match(r"\$\{MIRROR_ENGINE_TOKEN:\?", emulator["environment"]["MIRROR_ENGINE_TOKEN"])
    assert (emulator["read_only"], emulator["cap_drop"]) == (True, ["ALL"])
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_the_publisher_is_the_example():
    source, place, _ = SERVICES["publisher"]["volumes"][1].split(":")
    program_inside = Path(SERVICES["publisher"]["command"][1])
    assert (HOME / source / program_inside.relative_to(place)).is_file()
    assert SERVICES["publisher"]["depends_on"]["emulator"] == {"condition": "service_healthy"}


def test_prometheus_is_optional_and_asks_the_emulator_with_its_token():
    service = SERVICES["prometheus"]
    assert service["profiles"] == ["monitoring"]
    job = yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])["scrape_configs"][0]
    assert job["static_configs"] == [{"targets": [f"emulator:{last('default', 'EXPOSE')}"]}]
    assert job["authorization"] == {"credentials_file": f"/run/secrets/{service['secrets'][0]}"}
    assert COMPOSE["secrets"]["token"] == {"environment": "MIRROR_ENGINE_TOKEN"}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not os.environ.get(IS_BUILT), reason=f"builds an image, in minutes: set {IS_BUILT}=1")
def test_the_default_image_is_built_and_does_what_it_promises(capsys):
    if reason := image_check.missing():
        pytest.skip(reason)
    code = image_check.main(["default"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert [
        what for what in ("built", "healthy", "published", "replicated", "stopped") if what not in printed.out
    ] == []
