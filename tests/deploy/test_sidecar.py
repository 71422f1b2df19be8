"""A server and a trainer that share a Unix socket as in deploy/kubernetes/sidecar.

Two processes stand for the two containers. Each has its own mount namespace, in which everything is
read-only but what its container may write to, and the user and group of the images.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.deploy.manifests import pods, render
from tests.harness.process import ROOT
from tests.harness.spawned import SpawnedProcess
from tests.harness.waiting import TIMEOUT_SECONDS, wait_until

USER = 10001

SAMPLES = 500


def closed_parent(path: Path) -> Path | None:
    """Returns the first directory on the way to a path that other users cannot enter."""
    for item in [*reversed(path.parents), path]:
        if not item.stat().st_mode & stat.S_IXOTH:
            return item
    return None


class Containers:
    """Starts processes as containers of one pod."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "run"
        for name in ("run", "server", "trainer"):
            (folder / name).mkdir()
            os.chown(folder / name, USER, USER)

    def command(self, *program: str, writable: list[Path], user: int = USER) -> list[str]:
        """Returns the command line of a program to which only `writable` is not read-only."""
        folders = " ".join(shlex.quote(str(item)) for item in writable)
        script = (
            f"{self._opened()}"
            f"for path in {folders}; do mount --bind $path $path; done\n"
            "mount -o remount,bind,ro /\n"
            f"exec setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs "
            f"--bounding-set=-all --inh-caps=-all {shlex.join(program)}\n"
        )
        return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]

    def _opened(self) -> str:
        """Returns commands after which the user can read Python and the code.

        They may be in the home directory of root, which other users cannot enter: a directory that
        has only them takes its place.
        """
        needed = dict.fromkeys(map(Path, (sys.base_prefix, sys.prefix, ROOT)))
        closed = {item: top for item in needed if (top := closed_parent(item))}
        lines = []
        for number, path in enumerate(closed):
            kept = self.folder / f"kept-{number}"
            kept.mkdir(exist_ok=True)
            lines.append(shlex.join(["mount", "--bind", str(path), str(kept)]))
        empty = "mount -t tmpfs -o mode=755 none"
        lines += [f"{empty} {shlex.quote(str(top))}" for top in set(closed.values())]
        for number, path in enumerate(closed):
            kept = self.folder / f"kept-{number}"
            lines.append(shlex.join(["mkdir", "-p", str(path)]))
            lines.append(shlex.join(["mount", "--bind", str(kept), str(path)]))
        return "".join(f"{line}\n" for line in lines)

    def run(self, *program: str, writable: list[Path], user: int = USER) -> str:
        """Runs a program to its end; returns its output, with a line `status N`."""
        result = subprocess.run(
            self.command(*program, writable=writable, user=user),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return f"{result.stdout}{result.stderr}status {result.returncode}"


@pytest.fixture
def containers() -> Iterator[Containers]:
    if os.geteuid() != 0:
        pytest.skip("only root can give processes their own mounts and another user")
    if not (shutil.which("unshare") and shutil.which("setpriv")):
        pytest.skip("util-linux is not installed: it has unshare and setpriv")
    # A short path, which a socket can have.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        result = Containers(folder)
        trial = result.run(sys.executable, "-c", "print('works')", writable=[result.socket])
        if not trial.startswith("works"):
            pytest.skip(f"no mount namespace, or no Python for user {USER}: {trial}")
        yield result


def environment(**more: str) -> dict[str, str]:
    """Returns the variables of a container: the code of this worktree, and its own."""
    path = os.pathsep.join(str(ROOT / item) for item in ("client", "server"))
    return {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent", **more}


def server_options(socket: Path, config: Path) -> list[str]:
    """Returns the sidecar's arguments from its manifest, with this test's paths and port."""
    (pod,) = pods(render("sidecar"))
    (sidecar,) = pod.spec["initContainers"]
    assert sidecar["command"] == ["infeed", "serve"]
    replaced = {"/config": str(config), "/run/infeed": str(socket), ":7471": ":0"}
    arguments = []
    for argument in sidecar["args"]:
        for old, new in replaced.items():
            argument = argument.replace(old, new)  # noqa: PLW2901
        arguments.append(argument)
    return arguments


def probe(address: str, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=TIMEOUT_SECONDS) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def ids(process: SpawnedProcess) -> set[str]:
    """Returns the user, group and effective capabilities of a process."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    return {*fields["Uid"], *fields["Gid"], *fields["CapEff"]}


@pytest.mark.slow
def test_a_sidecar_feeds_a_trainer_and_ends_after_it(containers: Containers) -> None:
    folder, socket = containers.folder, containers.socket
    np.savez(folder / "n.npz", image=np.arange(SAMPLES))
    definition = (
        f"pipelines: {{images: {{source: {{arrays: {folder}/n.npz}}, batch: {{size: 8}}}}}}"
    )
    (folder / "pipelines.yaml").write_text(definition)
    infeed = (sys.executable, "-m", "infeed", "serve", *server_options(socket, folder))
    command = containers.command(*infeed, writable=[socket, folder / "server"])
    variables = environment(
        TMPDIR=str(folder / "server"), INFEED_CACHE_DIR=str(folder / "server/cache")
    )
    log = folder / "server.log"
    with SpawnedProcess(command, log, environment=variables, cwd=folder / "server") as server:
        # The kubelet's start-up probe, which keeps the trainer back.
        line = server.read_line(500)
        address = line.partition("(http ")[2].rstrip(")\n")
        assert line.startswith(f"serving on unix:{socket}/server.sock"), line
        wait_until(lambda: probe(address, "/readyz") == 200, "the pipelines are ready")
        assert ids(server) == {str(USER), "0000000000000000"}

        trainer_command = containers.command(
            sys.executable, str(ROOT / "deploy/trainer.py"), writable=[folder / "trainer"]
        )
        target = f"unix:{socket}/server.sock"
        variables = environment(
            TMPDIR=str(folder / "trainer"), TARGET=target, PIPELINE="images", EPOCHS="2"
        )
        with SpawnedProcess(
            trainer_command, folder / "trainer.log", environment=variables
        ) as trainer:
            assert trainer.wait() == 0, trainer.stdout + trainer.stderr
            assert "exact" in trainer.stdout.splitlines()
            assert "no shared memory" not in trainer.stdout

        # The trainer's mount of the socket is read-only.
        touched = containers.run("touch", str(socket / "x"), writable=[folder / "trainer"])
        assert "Read-only file system" in touched
        # Another user than the sidecar's cannot connect.
        connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        other = (sys.executable, "-c", connect, str(socket / "server.sock"))
        writable = [folder / "trainer"]
        assert containers.run(*other, writable=writable) == "status 0"
        assert "PermissionError" in containers.run(*other, writable=writable, user=USER + 1)

        # After the last container has ended, the kubelet stops the sidecars.
        server.signal(15)
        assert server.wait() == 0
    assert not (socket / "server.sock").exists()
