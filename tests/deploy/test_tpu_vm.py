"""Files of deploy/tpu-vm: the systemd unit, the start-up script and its arithmetic."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.deploy.commands import parsed
from tests.harness.process import ROOT
from tests.harness.waiting import TIMEOUT_SECONDS

FOLDER = ROOT / "deploy/tpu-vm"
SCRIPT = FOLDER / "startup.sh"
UNIT = FOLDER / "infeed-server.service"

V5E = {"HOST_CORES": "112", "HOST_KIB": str(192 * 10**9 // 1024)}
"""A TPU VM with four v5e chips: 112 vCPUs, 192 GB."""


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def program(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed; Debian's package is {package}")
    return path


def unit_lines() -> list[tuple[str, str]]:
    """Returns the keys and values of the unit, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", UNIT.read_text())
    pairs = [line.partition("=") for line in text.splitlines() if re.match(r"\w+=", line)]
    return [(key, value) for key, _, value in pairs]


def command() -> list[str]:
    """Returns the words of the unit's container."""
    return shlex.split(dict(unit_lines())["ExecStart"])


# --- the script ---


def test_the_script_is_clean() -> None:
    result = run(program("shellcheck", "shellcheck"), SCRIPT)
    assert result.returncode == 0, result.stdout


def test_the_settings_of_a_host_with_four_chips() -> None:
    result = run(SCRIPT, "--print", **V5E)
    assert result.returncode == 0, result.stderr
    settings = dict(line.split("=", 1) for line in result.stdout.splitlines())
    # 192 GB are 183,105 MiB; less 4,096 pre-mapped and 64 + 8 GiB.
    assert settings["INFEED_MEMORY"] == "105281m"
    assert settings["INFEED_CPUS"] == str(112 - 24)
    assert settings["INFEED_USER"] == "0:0"
    assert set(settings) == set(re.findall(r"\$\{(\w+)\}", UNIT.read_text()))
    result = run(SCRIPT, "--print", **V5E, TPU_PREMAPPED_BUFFER_SIZE=str(16 << 30))
    assert f"INFEED_MEMORY={105281 - 12 * 1024}m" in result.stdout.splitlines()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"HOST_CORES": "24"}, "no core is left"),
        ({"HOST_KIB": str(77 << 20)}, "1024 MiB are left, a server needs 2048"),
        ({"TRAINER": "no-such-user"}, "no user no-such-user"),
    ],
)
def test_a_host_that_is_too_small_is_an_error(variables: dict[str, str], message: str) -> None:
    result = run(SCRIPT, "--print", **{**V5E, **variables})
    assert result.returncode != 0
    assert re.search(message, result.stderr)
    assert result.stdout == ""


# --- the unit ---


def verify(text: str, folder: Path) -> str:
    """Returns what systemd-analyze says of a unit."""
    # The container engine need not be installed where the unit is checked.
    text = text.replace("/usr/bin/docker ", f"{shutil.which('true')} ")
    text = text.replace("Requires=docker.service\n", "")
    file = folder / UNIT.name
    file.write_text(text)
    result = run(program("systemd-analyze", "systemd"), "verify", file)
    return result.stdout + result.stderr


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    assert verify(UNIT.read_text(), tmp_path) == ""


def test_the_cli_accepts_the_arguments_of_the_container() -> None:
    words = command()
    _, options = parsed(words[words.index("infeed") :])
    # Nothing listens beyond this machine, so `--insecure` is not needed.
    assert options["listen"] == "unix:/run/infeed/server.sock"
    assert options["http"] == "127.0.0.1:7471"
    assert not options["insecure"]
    timeouts = {key: int(value) for key, value in unit_lines() if re.fullmatch(r"\d+", value)}
    stop = next(value for key, value in unit_lines() if key == "ExecStop")
    seconds = int(re.search(r"--time (\d+)", stop)[1])
    assert options["grace"] + 7 < seconds < timeouts["TimeoutStopSec"]


def test_the_container_is_restricted() -> None:
    words = command()
    assert "--read-only" in words
    for option, value in (("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges")):
        assert words[words.index(option) + 1] == value
    volumes = [words[index + 1] for index, item in enumerate(words) if item == "--volume"]
    writable = [volume for volume in volumes if not volume.endswith(":ro")]
    assert writable == ["/run/infeed:/run/infeed"]
