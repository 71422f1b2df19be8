"""Fixtures: a data service in this process, and infeed servers that register arrays with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from tensorflow.python.data.experimental.ops import data_service_ops
from tests.client.waiting import HANG_SECONDS, until
from tests.plugins.service.trainer.service import SERVICE, FakeServer, address_of, new_worker

from infeed_service.rpc import STATIC_SHARDING, DispatcherClient, register_mark


@pytest.fixture(scope="module", autouse=True)
def short_refresh_interval() -> Iterator[None]:
    """Makes iterators ask the dispatcher for the end of a job every 20 ms, not every second."""
    with pytest.MonkeyPatch.context() as patch:
        from_dataset_id = data_service_ops._from_dataset_id
        patched = partial(from_dataset_id, task_refresh_interval_hint_ms=20)
        patch.setattr(data_service_ops, "_from_dataset_id", patched)
        yield


@pytest.fixture(scope="module")
def dispatcher() -> Iterator[str]:
    """The address of a dispatcher with two workers, which are also its fixed list of workers."""
    server = SERVICE.DispatchServer(
        SERVICE.DispatcherConfig(worker_addresses=["127.0.0.1:%port%"] * 2)
    )
    address = address_of(server)
    register_mark(address, STATIC_SHARDING)
    workers = [new_worker(address), new_worker(address)]
    until(lambda: len(DispatcherClient(address, HANG_SECONDS).get_workers()) == 2)
    yield address
    for worker in workers:
        worker._stop()
    server._stop()


@pytest.fixture
def rows() -> dict[str, Any]:
    """50 samples; the image of sample i is filled with i, and its label is i."""
    number = np.arange(50)
    image = np.broadcast_to(number[:, None, None], (50, 3, 4)).astype(np.uint8)
    return {"image": image, "label": number}


@pytest.fixture
def server(dispatcher: str, rows: dict[str, Any]) -> FakeServer:
    return FakeServer(dispatcher, rows, batch_size=5)


@pytest.fixture
def make_server(dispatcher: str) -> Callable[..., FakeServer]:
    """`make_server(arrays, **options)` returns a `FakeServer`; the arrays have a row a sample."""
    return partial(FakeServer, dispatcher)


@pytest.fixture
def start_worker() -> Iterator[Callable[..., Any]]:
    """`start_worker(dispatcher, advertised)` starts a worker in this process, and waits until it is
    registered. The dispatcher must have no other workers."""
    running = []

    def start(dispatcher: Any, *advertised: str) -> Any:
        address = address_of(dispatcher)
        running.append(new_worker(address, *advertised))
        until(lambda: len(DispatcherClient(address, HANG_SECONDS).get_workers()) == len(running))
        return running[-1]

    yield start
    for worker in running:
        worker._stop()
