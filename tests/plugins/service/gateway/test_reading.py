"""Tests of the reading of a job: its elements and errors, and the watch over a lost service."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tests.harness.waiting import wait_until

from infeed.shared.errors import InfeedError, ServerUnavailableError, SourceError
from infeed_service.gateway import reading as module
from infeed_service.gateway.reading import read_job


class FakeClient:
    """A client whose dispatcher and workers a test changes."""

    address = "10.0.0.1:7472"

    def __init__(self) -> None:
        self.lost_journals = 0
        self.lost_at = math.inf
        self.error: InfeedError | None = None
        self.loses_journal = False

    def lost_for(self, seconds: float, after: float) -> tuple[str, ...]:
        assert seconds == module.LOST_TIMEOUT_SECONDS
        return ("10.0.0.2:7473",) if after <= self.lost_at else ()

    def require(self) -> None:
        if self.error:
            raise self.error

    def check_journal(self) -> None:
        self.lost_journals += self.loses_journal


@pytest.fixture
def client() -> Any:
    return FakeClient()


@pytest.fixture
def blocked() -> Iterator[Callable[[], tf.data.Dataset]]:
    """Returns a dataset whose first element does not come."""
    released = threading.Event()

    def wait() -> Any:
        released.wait(120)
        return 1

    yield lambda: tf.data.Dataset.range(1).map(lambda _: tf.py_function(wait, [], tf.int64))
    released.set()


def failing() -> tf.data.Dataset:
    return tf.data.Dataset.range(3).map(lambda i: tf.debugging.check_numerics(1 / (1 - i), "x"))


def test_elements_and_errors_are_the_datasets(client: Any) -> None:
    with closing(read_job(client, tf.data.Dataset.range(5), "n")) as elements:
        assert [int(element) for element in elements] == [0, 1, 2, 3, 4]
    with closing(read_job(client, failing(), "n")) as elements:
        assert float(next(elements)) == 1.0
        with pytest.raises(tf.errors.InvalidArgumentError):
            next(elements)


def test_error_after_a_lost_journal_is_the_job_s(client: Any) -> None:
    client.loses_journal = True
    elements = read_job(client, failing(), "photos")
    next(elements)
    with pytest.raises(SourceError, match=r"'photos' was lost: .*10\.0\.0\.1:7472 .* journal"):
        next(elements)


def test_element_after_a_lost_journal_is_not_delivered(client: Any) -> None:
    elements = read_job(client, tf.data.Dataset.range(5), "photos")
    next(elements)
    client.lost_journals = 1
    with pytest.raises(SourceError, match="'photos' was lost") as caught:
        next(elements)
    assert caught.value.metadata == {"pipeline": "photos"}


def test_lost_service_ends_the_wait(client: Any, blocked: Any) -> None:
    client.error = ServerUnavailableError("it has not answered for 120 s")
    with pytest.raises(ServerUnavailableError, match="has not answered for 120 s"):
        next(read_job(client, blocked(), "photos"))


@pytest.mark.parametrize(
    ("lost_at", "message"),
    [
        (4.0, "at the next check"),
        (6.0, r"no batch of 'photos' for 500 s, .*: 10\.0\.0\.2:7473"),
    ],
)
def test_worker_lost_since_the_read_began_ends_a_long_wait(
    client: Any, blocked: Any, monkeypatch: pytest.MonkeyPatch, lost_at: float, message: str
) -> None:
    times = iter([5, 124, 505])

    def monotonic() -> int:
        now = next(times)
        if now == 505:
            client.error = SourceError("at the next check")
        return now

    client.lost_at = lost_at
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic))
    with pytest.raises(SourceError, match=message) as caught:
        next(read_job(client, blocked(), "photos"))
    metadata = {"pipeline": "photos", "workers": "10.0.0.2:7473"} if lost_at > 5 else {}
    assert caught.value.metadata == metadata


def test_thread_ends_on_close(client: Any) -> None:
    elements = read_job(client, tf.data.Dataset.range(1 << 40), "closed")
    next(elements)

    def is_alive() -> bool:
        return any(thread.name == "infeed-service-closed" for thread in threading.enumerate())

    assert is_alive()
    elements.close()
    wait_until(lambda: not is_alive(), "the thread ends")
