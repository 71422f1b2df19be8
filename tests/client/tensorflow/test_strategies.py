"""Each sample once per epoch under the strategies of `tf.distribute`, counted by id."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.conftest import Server
from tests.harness.ports import ReservedPort

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


def start(
    server: Server, strategy: str, folder: Path, cluster: Any = None
) -> subprocess.Popen[str]:
    numbers = map(str, (COUNT, PER_REPLICA, EPOCHS))
    module = "tests.client.tensorflow.strategy_trainer"
    config = {} if cluster is None else {"TF_CONFIG": json.dumps(cluster)}
    return subprocess.Popen(
        [sys.executable, "-m", module, server.address, strategy, str(folder), *numbers],
        env={**os.environ, **config},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(processes: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    results = []
    try:
        for process in processes:
            out, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors[-4000:]
            results.append(json.loads(out.splitlines()[-1]))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return results


@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_devices_of_one_process_share_the_samples(
    server: Server, strategy: str, tmp_path: Path
) -> None:
    (result,) = finish([start(server, strategy, tmp_path)])
    assert sorted(result["ids"]) == sorted([*range(COUNT)] * EPOCHS)
    assert result["ranks"][0] == [0, 1]
    assert result["counts"] == [EPOCHS] * COUNT


def test_processes_share_the_samples(
    server: Server, ports: list[ReservedPort], tmp_path: Path
) -> None:
    workers = [port.address for port in ports]
    processes = [
        start(
            server,
            "multi_worker",
            tmp_path,
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}},
        )
        for index in range(2)
    ]
    results = finish(processes)
    assert [result["ranks"][0] for result in results] == [[0, 2], [1, 2]]
    ids = [result["ids"] for result in results]
    assert sorted([*ids[0], *ids[1]]) == sorted([*range(COUNT)] * EPOCHS)
    assert len(ids[0]) == len(ids[1])
    # Keras' `fit` has trained the same weights on all workers.
    assert [result["counts"] for result in results] == [[EPOCHS] * COUNT] * 2
