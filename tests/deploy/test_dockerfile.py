"""The Dockerfile: what its images contain, run and promise, without an engine that builds them."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, NamedTuple

import pytest
import typer.main
from tests.harness.process import ROOT

from infeed.cli import new_app

IMAGES = ("server", "trainer")


class Instruction(NamedTuple):
    """One instruction, its continued lines joined."""

    name: str
    text: str


@cache
def stages() -> dict[str, list[Instruction]]:
    """Returns the instructions of each stage, after its FROM."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    result: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        name, _, rest = line.partition(" ")
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            current = result[stage] = [Instruction("FROM", base)]
        elif name:
            current.append(Instruction(name, rest))
    return result


@cache
def image(target: str) -> list[Instruction]:
    """Returns the instructions of an image: those of its stage, after those of the stages below."""
    base, *own = stages()[target]
    return [*(image(base.text) if base.text in stages() else [base]), *own]


def last(target: str, name: str) -> str:
    return [each.text for each in image(target) if each.name == name][-1]


def environment(target: str) -> dict[str, str]:
    pairs = [pair for each in image(target) if each.name == "ENV" for pair in each.text.split()]
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.mark.parametrize("target", IMAGES)
def test_an_image_runs_as_a_user_that_kubernetes_can_check(target: str) -> None:
    # By number: with a name `runAsNonRoot` refuses to start the container.
    assert last(target, "USER") == "10001:10001"
    users = [each.text for each in image(target) if each.name == "RUN"]
    assert any("--uid 10001 --gid 10001" in each and "/nologin" in each for each in users)
    # Nothing is copied or run after it, which then belonged to that user.
    names = [each.name for each in image(target)]
    assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :])


@pytest.mark.parametrize("target", IMAGES)
def test_process_1_is_the_program_itself_and_gets_the_signals(target: str) -> None:
    words = json.loads(last(target, "CMD"))
    assert words[0] in ("infeed", "python")
    # An entrypoint would precede the roles that Compose and Kubernetes give as commands, and
    # another signal than SIGTERM would not drain a server.
    assert not {"ENTRYPOINT", "STOPSIGNAL", "SHELL"} & {each.name for each in image(target)}


@pytest.mark.parametrize("target", IMAGES)
def test_an_image_has_the_environment_of_its_packages_alone(target: str) -> None:
    assert environment(target)["PATH"].startswith("/opt/venv/bin:")
    # Otherwise a line of the log can be lost when the process is killed.
    assert environment(target)["PYTHONUNBUFFERED"] == "1"
    copies = [each.text for each in image(target) if each.name == "COPY"]
    assert copies[:2] == [
        f"--from={target}-packages /opt/venv /opt/venv",
        "--from=code /opt/venv /opt/venv",
    ]
    # Last and small: a change of the code keeps the layer with TensorFlow.
    assert all(each.startswith("deploy/") for each in copies[2:])


@pytest.mark.parametrize("target", IMAGES)
def test_packages_are_those_of_the_image_in_the_versions_of_the_tests(target: str) -> None:
    runs = [each.text for each in stages()[f"{target}-packages"] if each.name == "RUN"]
    (install,) = [each for each in runs if "pip" in each]
    assert "--constraint /opt/constraints.txt" in install
    assert f"--requirement /opt/{target}.txt" in install
    copied = [each.text for each in image(f"{target}-packages") if each.name == "COPY"]
    assert "--from=build /src/requirements/dev.txt /opt/constraints.txt" in copied
    build = " ".join(each.text for each in stages()["build"])
    extra = {"server": "server", "trainer": "cli loadtest"}[target]
    assert f"tools/requirements_of.py pyproject.toml {extra} >/dist/{target}.txt" in build
    code = [each.text for each in stages()["code"] if each.name == "RUN"]
    assert all("--no-deps" in each for each in code)


@pytest.mark.parametrize("target", IMAGES)
def test_an_image_is_labelled(target: str) -> None:
    labels = " ".join(each.text for each in image(target) if each.name == "LABEL")
    found = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', labels))
    assert found["title"] == f"infeed-{target}"
    assert found["licenses"] == "Apache-2.0"
    assert found["description"]
    for name in ("version", "revision", "source"):
        assert found[name] == f"${{{name.upper()}}}"
        # Declared in the stage itself: an ARG above the first FROM is empty here.
        assert f'{name.upper()}=""' in last(target, "ARG")


def test_the_servers_command_is_one_that_the_cli_accepts_and_that_the_ports_fit() -> None:
    program, command, *rest = json.loads(last("server", "CMD"))
    assert program == "infeed"
    cli: Any = typer.main.get_command(new_app()).commands[command]
    with cli.make_context(command, rest) as context:
        options = context.params
    addresses = [options["listen"], options["http"]]
    assert [each.rpartition(":")[0] for each in addresses] == ["0.0.0.0", "0.0.0.0"]
    assert options["insecure"]
    ports = [each.rpartition(":")[2] for each in addresses]
    assert last("server", "EXPOSE").split() == ports
    assert environment("server")["INFEED_READY_URL"] == f"http://127.0.0.1:{ports[1]}/readyz"
    # Below /tmp: the only folder that is writable with a read-only root.
    assert environment("server")["INFEED_CACHE_DIR"].startswith("/tmp/")


def test_the_health_check_runs_the_copied_file_and_allows_a_slow_start() -> None:
    options, _, words = last("server", "HEALTHCHECK").partition(" CMD ")
    program, flags, file = json.loads(words)
    # Isolated: neither the user's folder nor the variables of Python change what it does.
    assert (program, flags) == ("python", "-IS")
    copied = [each.text for each in image("server") if each.name == "COPY"]
    assert f"deploy/{file.rpartition('/')[2]} {file.rpartition('/')[0]}/" in copied
    seconds = {name: int(value) for name, value in re.findall(r"--([\w-]+)=(\d+)", options)}
    assert seconds["start-period"] >= 120
    assert seconds["timeout"] > 5  # that of the request itself
    assert seconds["interval"] <= 10
    assert seconds["retries"] >= 3
    # A trainer has no control plane.
    assert "HEALTHCHECK" not in [each.name for each in image("trainer")]


def test_the_trainers_command_is_the_copied_file() -> None:
    program, file = json.loads(last("trainer", "CMD"))
    assert program == "python"
    copied = [each.text for each in image("trainer") if each.name == "COPY"]
    assert f"deploy/{file.rpartition('/')[2]} {file.rpartition('/')[0]}/" in copied


def test_only_what_tensorflow_does_not_load_is_removed_from_it() -> None:
    (install,) = [each.text for each in stages()["server-packages"] if "rm -rf" in each.text]
    removed = re.findall(r'"\$packages/([^"]+)"', install)
    assert removed == ["tensorflow/include", "clang"]
    assert "strip --strip-unneeded" in install
