"""Each sample once per epoch under the strategies of `tf.distribute`, counted by id."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.conftest import Server
from tests.harness.nursery import Nursery
from tests.harness.ports import ReservedPort
from tests.harness.process import ROOT, Process

from infeed.testing import FakeTransport

tf = pytest.importorskip("tensorflow")

COUNT, PER_REPLICA, EPOCHS = 24, 2, 2


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    ids = np.arange(COUNT)
    return serve(FakeTransport({"x": ids, "label": ids.astype(np.float32)}, batch_size=2))


@pytest.fixture
def ports() -> Iterator[list[ReservedPort]]:
    with ReservedPort() as first, ReservedPort() as second:
        yield [first, second]


@pytest.fixture
def start(server: Server, nursery: Nursery, tmp_path: Path) -> Callable[..., Process]:
    """`start(strategy)`: a trainer, forked from a process that has loaded TensorFlow."""

    def run(strategy: str, name: str = "trainer", cluster: Any = None) -> Process:
        words = (strategy, str(tmp_path), *map(str, (COUNT, PER_REPLICA, EPOCHS)))
        module = ("python", "-m", "tests.plugins.frameworks.tensorflow.strategy_trainer")
        config = {} if cluster is None else {"TF_CONFIG": json.dumps(cluster)}
        return nursery.start((*module, server.address, *words), tmp_path / name, ROOT, config)

    return run


def result_of(process: Process) -> dict[str, Any]:
    assert process.wait(200) == 0, process.stderr[-4000:]
    return dict(json.loads(process.stdout.splitlines()[-1]))


@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_devices_of_one_process_share_the_samples(start: Any, strategy: str) -> None:
    result = result_of(start(strategy))
    assert sorted(result["ids"]) == sorted([*range(COUNT)] * EPOCHS)
    assert result["ranks"][0] == [0, 1]
    assert result["counts"] == [EPOCHS] * COUNT


def test_processes_share_the_samples(start: Any, ports: list[ReservedPort]) -> None:
    cluster = {"worker": [port.address for port in ports]}
    processes = [
        start(
            "multi_worker",
            f"worker-{index}",
            {"cluster": cluster, "task": {"type": "worker", "index": index}},
        )
        for index in range(2)
    ]
    results = [result_of(process) for process in processes]
    assert [result["ranks"][0] for result in results] == [[0, 2], [1, 2]]
    ids = [result["ids"] for result in results]
    assert sorted([*ids[0], *ids[1]]) == sorted([*range(COUNT)] * EPOCHS)
    assert len(ids[0]) == len(ids[1])
    # Keras' `fit` has trained the same weights on all workers.
    assert [result["counts"] for result in results] == [[EPOCHS] * COUNT] * 2


@pytest.mark.parametrize(("count", "batch_size"), [(39, 4), (33, 16)])
def test_an_evaluation_on_two_devices_is_exact(
    nursery: Nursery, tmp_path: Path, count: int, batch_size: int
) -> None:
    module = ("python", "-m", "tests.plugins.frameworks.tensorflow.strategy_evaluation")
    process = nursery.start((*module, str(count), str(batch_size)), tmp_path / "trainer", ROOT)
    result = result_of(process)
    assert result["cut"] == result["kept"] == [count, count]
    # A last step without a batch for each device is left out, and the feed does not count it.
    whole = count // (2 * batch_size) * 2 * batch_size
    assert result["drop"] == [whole, whole]
    assert "connect with shard=infeed.tensorflow.shard_of(context)" in result["refusal"]
    x, y = np.random.default_rng(7).normal(size=(count, 3)), np.arange(count) % 3
    losses = np.log(np.exp(x).sum(-1)) - x[np.arange(count), y]
    exact = [losses.mean(), (x.argmax(-1) == y).mean()]
    assert result["keras"] == [pytest.approx(exact, rel=1e-5)] * 3
