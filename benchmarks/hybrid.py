"""Local spare cores first, remote servers for the rest: `unix:/...,host:port` as one target.

The local server is pinned to one core and listens on a socket file, the remote one to another core,
behind a delaying proxy. Trainers read as fast as they can from either and from both, and at half
the local server's rate, which should leave the remote one idle.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.duel import Plan
from benchmarks.findings import Figures, Finding, Target
from benchmarks.photos import photo_folder
from benchmarks.processes import ROOT
from benchmarks.servers import delayed
from tests.harness.process import Process
from tests.harness.server import InfeedServer, Launch
from tests.harness.spawned import SpawnedProcess, python_module

import infeed

_DELAY_MS = 15.0
"""Delay in each direction: a round trip of 30 ms to the remote server."""

_PIPELINE = "photos"
_WARM_UP_BATCHES = 6
_PREFETCH_BATCHES = 12
"""The trainers' window: small, so that the uncounted three windows of batches take little time."""


@dataclass(frozen=True)
class Run:
    """The images/s that one trainer received, and the local server's share of them."""

    images_per_second: float
    local_share: float
    wait_seconds: float


def compare(plan: Plan) -> list[Finding]:
    """Returns images/s of both servers beside each alone, and the local server's share when it
    keeps up."""
    rates: dict[str, list[float]] = {"local": [], "remote": [], "both": []}
    shares: dict[str, list[float]] = {"both": [], "paced": []}
    with _servers() as (local, target):
        for _ in range(plan.pairs):
            for name, item in (("local", local.address), ("remote", target[1]), ("both", None)):
                run = _read(item or ",".join(target), local, plan.seconds)
                rates[name].append(run.images_per_second)
            shares["both"].append(run.local_share)
            pause = 2 * 64 / rates["local"][-1]
            run = _read(",".join(target), local, plan.seconds, pause)
            shares["paced"].append(run.local_share)
    both = Figures("both", rates["both"])
    part, paced = "share of the local server", Figures("at half its rate", shares["paced"])
    return [
        Finding("images/s", both, Figures("local", rates["local"]), Target(1.2)),
        Finding("images/s", both, Figures("remote", rates["remote"]), Target(1.2)),
        Finding(part, paced, Figures("as fast as possible", shares["both"])),
    ]


@contextmanager
def _servers() -> Iterator[tuple[InfeedServer, list[str]]]:
    """Runs both servers; yields the local one, and the addresses of both for a trainer."""
    text = (ROOT / "benchmarks/pipelines.yaml").read_text()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        definition = folder / "pipelines.yaml"
        definition.write_text(text.replace("PHOTOS", str(photo_folder())))
        servers = []
        for listen, core in ((f"unix:{folder}/socket", cores[0]), ("127.0.0.1:0", cores[-1])):
            server = InfeedServer(
                *(definition, folder / f"server-{core}"),
                *("--readiness", "any"),
                listen=listen,
                http="127.0.0.1:0",
                cwd=ROOT,
                launch=_pinned(core),
            )
            servers.append(stack.enter_context(server))
        local, remote = servers
        far = stack.enter_context(delayed(remote.address, _DELAY_MS))
        yield local, [local.address, far]


def _pinned(core: int) -> Launch:
    def launch(arguments: Sequence[str], log: Path, cwd: Path) -> Process:
        command = ["taskset", "-c", str(core), *python_module("infeed", *arguments)]
        return SpawnedProcess(command, log, cwd=cwd)

    return launch


def _read(target: str, local: InfeedServer, seconds: float, pause: float = 0.0) -> Run:
    """Reads for some seconds, with a pause after each batch."""
    options = {"seed": time.monotonic_ns() % 1_000_000, "prefetch_batches": _PREFETCH_BATCHES}
    with infeed.connect(target, _PIPELINE, timeout=300, **options) as feed:
        for _ in range(_WARM_UP_BATCHES):
            next(feed)
        time.sleep(pause and 2 * _PREFETCH_BATCHES * pause / 2)  # the window fills
        before, count, waited, began = _sent(local), 0, 0.0, time.monotonic()
        while time.monotonic() < began + seconds:
            asked = time.monotonic()
            next(feed)
            waited += time.monotonic() - asked
            count += 1
            time.sleep(pause)
        took = time.monotonic() - began
        return Run(64 * count / took, min(1.0, (_sent(local) - before) / count), waited / took)


def _sent(server: InfeedServer) -> float:
    """Returns the number of batches of the pipeline that the server has sent."""
    with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=60) as response:
        text = response.read().decode()
    pattern = rf'^infeed_batches_total{{pipeline="{_PIPELINE}"}} (\S+)$'
    match = re.search(pattern, text, re.MULTILINE)
    return float(match[1]) if match else 0.0
