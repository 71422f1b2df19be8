"""The Dockerfile: what its images contain, run and promise, without an engine that builds them."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import NamedTuple

import pytest
from tests.deploy.commands import parsed, port
from tests.harness.process import ROOT

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
    """Returns the instructions of an image: its stage's, after the stages' below."""
    base, *own = stages()[target]
    return [*(image(base.text) if base.text in stages() else [base]), *own]


def last(target: str, name: str) -> str:
    return [item.text for item in image(target) if item.name == name][-1]


def environment(target: str) -> dict[str, str]:
    pairs = [pair for item in image(target) if item.name == "ENV" for pair in item.text.split()]
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.mark.parametrize("target", IMAGES)
def test_an_image_runs_as_a_user_that_kubernetes_can_check(target: str) -> None:
    # By number: with a name `runAsNonRoot` refuses to start the container.
    assert last(target, "USER") == "10001:10001"
    users = [item.text for item in image(target) if item.name == "RUN"]
    assert any("--uid 10001 --gid 10001" in user and "/nologin" in user for user in users)
    # Nothing is copied or run after it, which then belonged to that user.
    names = [item.name for item in image(target)]
    assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :])


@pytest.mark.parametrize("target", IMAGES)
def test_process_1_is_the_program_itself_and_gets_the_signals(target: str) -> None:
    words = json.loads(last(target, "CMD"))
    assert words[0] in ("infeed", "python")
    # An entrypoint would precede the roles that Compose and Kubernetes give as commands, and
    # another signal than SIGTERM would not drain a server.
    assert not {"ENTRYPOINT", "STOPSIGNAL", "SHELL"} & {item.name for item in image(target)}


def test_the_cli_accepts_the_servers_command_and_ports_fit() -> None:
    _, options = parsed(json.loads(last("server", "CMD")))
    addresses = [options["listen"], options["http"]]
    assert [item.rpartition(":")[0] for item in addresses] == ["0.0.0.0", "0.0.0.0"]
    assert options["insecure"]
    ports = [port(address) for address in addresses]
    assert last("server", "EXPOSE").split() == ports
    assert environment("server")["INFEED_READY_URL"] == f"http://127.0.0.1:{ports[1]}/readyz"
    # Below /tmp: the only folder that is writable with a read-only root.
    assert environment("server")["INFEED_CACHE_DIR"].startswith("/tmp/")


def test_the_health_check_runs_its_file_and_allows_a_slow_start() -> None:
    options, _, words = last("server", "HEALTHCHECK").partition(" CMD ")
    program, flags, file = json.loads(words)
    # Isolated: neither the user's folder nor the variables of Python change what it does.
    assert (program, flags) == ("python", "-IS")
    copied = [item.text for item in image("server") if item.name == "COPY"]
    assert f"deploy/{file.rpartition('/')[2]} {file.rpartition('/')[0]}/" in copied
    seconds = {name: int(value) for name, value in re.findall(r"--([\w-]+)=(\d+)", options)}
    assert seconds["start-period"] >= 120
    assert seconds["timeout"] > 5  # the timeout of the request itself
    assert seconds["interval"] <= 10
    assert seconds["retries"] >= 3
    # A trainer has no control plane.
    assert "HEALTHCHECK" not in [item.name for item in image("trainer")]
