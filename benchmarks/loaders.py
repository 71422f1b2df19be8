"""Case `loaders`: the same photos from infeed, tf.data service, Grain and PyTorch's DataLoader.

Photos are decoded, resized to 224 x 224 and delivered as uint8 batches of 64 to a process that
discards them. Services make the batches in a process of their own, loaders in workers on the
trainer's host, which pays for their processor time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec

from benchmarks import servers
from benchmarks.duel import Plan, Side, images_per_second
from benchmarks.findings import Figures, Finding
from benchmarks.trainers import Measured

RATE = "images/s"
TRAINER_CPU = "trainer host CPU s/1000 images"
SERVER_CPU = "server CPU s/1000 images"

OURS = Side("infeed", "infeed", servers.infeed, "resized", warm_up=3.0)
PEERS = {
    "tensorflow": Side("tf.data service", "service", servers.service, "resized", warm_up=3.0),
    "grain": Side("Grain", "grain_workers", servers.no_server, "resized", warm_up=3.0),
    "torch": Side("DataLoader", "torch_workers", servers.no_server, "resized", warm_up=3.0),
}
"""Peers by the package they need."""


def compare(plan: Plan) -> list[Finding]:
    """Runs infeed and each installed peer in turn; the first round is not counted."""
    absent = [package for package in PEERS if find_spec(package) is None]
    for package in absent:
        print(f"skipped: {package} is not installed; make test-frameworks installs it")
    sides = [OURS, *(side for package, side in PEERS.items() if package not in absent)]
    with ExitStack() as stack:
        running = [(side, stack.enter_context(side.server())) for side in sides]
        rounds = [
            {side.name: side.run(server, plan.seconds) for side, server in running}
            for _ in range(plan.pairs + 1)
        ][1:]
    return [
        _finding(measure, of, rounds, peer.name, more_is_better=measure == RATE)
        for peer in sides[1:]
        for measure, of in MEASURES.items()
        if measure != SERVER_CPU or peer.server is not servers.no_server
    ]


def _finding(
    measure: str,
    of: Callable[[Measured], float],
    rounds: list[dict[str, Measured]],
    peer: str,
    *,
    more_is_better: bool,
) -> Finding:
    ours, theirs = (
        Figures(name, [of(measured[name]) for measured in rounds]) for name in (OURS.name, peer)
    )
    return Finding(measure, ours, theirs, more_is_better=more_is_better)


def _trainer_cpu(measured: Measured) -> float:
    return 1e3 * measured.trainer_cpu_seconds / _images(measured)


def _server_cpu(measured: Measured) -> float:
    return 1e3 * measured.server_cpu_seconds / _images(measured)


def _images(measured: Measured) -> float:
    return sum(run.images for run in measured.runs)


MEASURES: dict[str, Callable[[Measured], float]] = {
    RATE: images_per_second,
    TRAINER_CPU: _trainer_cpu,
    SERVER_CPU: _server_cpu,
}
