"""A data service in this process, and infeed servers that register arrays with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from tensorflow.python.data.experimental.ops import data_service_ops
from tests.client.tensorflow.service import SERVICE, FakeServer, address, worker
from tests.client.waiting import HANG_SECONDS, until

from infeed.inquiry import Dispatcher


@pytest.fixture(scope="module", autouse=True)
def quick_ends() -> Iterator[None]:
    """Lets iterators ask the dispatcher every 20 ms, not every second, whether a job has ended."""
    with pytest.MonkeyPatch.context() as patch:
        read = data_service_ops._from_dataset_id
        quick = partial(read, task_refresh_interval_hint_ms=20)
        patch.setattr(data_service_ops, "_from_dataset_id", quick)
        yield


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[str]:
    """With two workers in this process, that are the fixed list of its workers too."""
    server = SERVICE.DispatchServer(
        SERVICE.DispatcherConfig(worker_addresses=["127.0.0.1:%port%"] * 2)
    )
    where = address(server)
    workers = [worker(where), worker(where)]
    until(lambda: len(Dispatcher(where, HANG_SECONDS).workers()) == 2)
    yield where
    for each in workers:
        each._stop()
    server._stop()


@pytest.fixture
def rows() -> dict[str, Any]:
    """50 samples; the image of sample i holds i everywhere, and so does its label."""
    number = np.arange(50)
    image = np.broadcast_to(number[:, None, None], (50, 3, 4)).astype(np.uint8)
    return {"image": image, "label": number}


@pytest.fixture
def server(dispatcher: str, rows: dict[str, Any]) -> FakeServer:
    return FakeServer(dispatcher, rows, batch_size=5)


@pytest.fixture
def make(dispatcher: str) -> Callable[..., FakeServer]:
    """Makes servers of arrays, one row a sample, with the options of `FakeServer`."""
    return partial(FakeServer, dispatcher)


@pytest.fixture
def start_worker() -> Iterator[Callable[..., Any]]:
    """Starts workers in this process: `start_worker(dispatcher, advertised)`; its dispatcher, which
    has no others, knows each of them then."""
    running = []

    def start(dispatcher: Any, *advertised: str) -> Any:
        where = address(dispatcher)
        running.append(worker(where, *advertised))
        until(lambda: len(Dispatcher(where, HANG_SECONDS).workers()) == len(running))
        return running[-1]

    yield start
    for each in running:
        each._stop()
