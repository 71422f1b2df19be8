"""Previews of fake engines: pictures, provenance, and the time between them."""

from __future__ import annotations

import base64
import io
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.harness.clock import ManualClock
from tests.harness.observed import fake_engine
from tests.harness.waiting import wait_until

from infeed.shared.errors import (
    InfeedError,
    InvalidRequestError,
    PipelineNotFoundError,
)
from infeed_observe import preview
from infeed_observe.preview import INTERVAL_SECONDS, BusyError, Previews
from infeed_server.engines.base import HostBatch, Request

PIXELS = np.arange(4 * 9 * 10 * 3, dtype=np.uint8).reshape(4, 9, 10, 3)


class Session:
    """A session with a given answer, a batch or an error; None never answers."""

    def __init__(self, answer: HostBatch | Exception | None) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.futures: list[Future[Any]] = []
        self.calls: list[str] = []

    def submit(self, request: Request) -> Future[Any]:
        self.requests.append(request)
        future: Future[Any] = Future()
        self.futures.append(future)
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        elif self.answer is not None:
            future.set_result(self.answer)
        return future

    def on_sent(self) -> None:
        self.calls.append("sent")

    def close(self) -> None:
        self.calls.append("closed")


def batch(**arrays: Any) -> HostBatch:
    mask = np.array([True, True, True, False])
    return HostBatch(8, 2, arrays, np.array([5, 3, 9, -1]), mask)


def previews(answer: HostBatch | Exception | None, **spec: Any) -> SimpleNamespace:
    """Returns previews of the pipeline `photos`, with its session and clock."""
    session, clock, engine = Session(answer), ManualClock(), fake_engine("photos")
    engine.spec = replace(engine.spec, **spec)
    engine.open = lambda slots, epochs, trainer: session
    engine.provenance = lambda sample_id: (f"/data/{sample_id}.jpg", 10 * sample_id)
    return SimpleNamespace(
        previews=Previews({"photos": engine}, clock),
        session=session,
        clock=clock,
        engine=engine,
    )


def drawn(sample: dict[str, Any]) -> Any:
    """Returns the pixels of a sample's picture."""
    prefix, _, data = sample["image"].partition(",")
    assert prefix == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        return np.asarray(image)


def test_a_preview_has_pictures_values_and_where_they_are_from() -> None:
    labels = np.array([b"cat", b"\xff" * 99, b"", b""], object)
    made = previews(batch(label=labels, image=PIXELS))
    document = made.previews.make("photos", 8)
    assert (document["epoch"], document["seed"], document["image_field"]) == (2, 3, "image")
    first, second, _, empty = document["samples"]
    assert {**first, "image": None} == {
        "position": 8,
        "sample_id": 5,
        "file": "/data/5.jpg",
        "offset": 50,
        "image": None,
        "values": {"label": "cat"},
    }
    assert np.array_equal(drawn(first), PIXELS[0])
    assert second["values"]["label"] == "99 bytes"
    assert (empty["sample_id"], empty["file"], empty["position"]) == (None, None, 11)
    assert made.session.requests == [Request(3, 8, 4, 4)]
    assert made.session.calls == ["sent", "closed"]


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((9, 10), np.float32), ((9, 10, 1), np.int64), ((9, 10, 4), np.uint8), ((600, 10, 3), bool)],
    ids=str,
)
def test_every_kind_of_picture_is_drawn(shape: tuple[int, ...], dtype: Any) -> None:
    values = np.linspace(0, 3, 4 * int(np.prod(shape))).reshape(4, *shape).astype(dtype)
    document = previews(batch(x=values)).previews.make("photos", 0)
    size = drawn(document["samples"][0]).shape
    assert max(size) <= 256
    assert size[1] <= size[0] or shape[:2] == (9, 10)


def test_there_is_one_preview_at_a_time() -> None:
    made = previews(None)
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(made.previews.make, "photos", 0)
        wait_until(lambda: bool(made.session.requests), "the first preview waits for its batch")
        made.clock.now += INTERVAL_SECONDS
        with pytest.raises(BusyError):
            made.previews.make("photos", 0)
        made.session.futures[0].set_result(batch(image=PIXELS))
        assert len(first.result()["samples"]) == 4
    assert made.session.calls == ["sent", "closed"]
    with pytest.raises(BusyError):  # previews are rare
        made.previews.make("photos", 0)
    made.clock.now += INTERVAL_SECONDS
    made.session.answer = batch(image=PIXELS)
    made.previews.make("photos", 0)
    assert len(made.session.requests) == 2


def test_a_batch_that_takes_too_long_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "_BATCH_TIMEOUT_SECONDS", 0.01)
    made = previews(None)
    with pytest.raises(InfeedError, match="no batch within 0 s: the trainers keep the server busy"):
        made.previews.make("photos", 0)
    assert made.session.calls == ["closed"]


def test_what_cannot_be_previewed_is_an_error() -> None:
    made = previews(batch(image=PIXELS))
    with pytest.raises(PipelineNotFoundError, match="'fotos'; available: 'photos'"):
        made.previews.make("fotos", 0)
    for position in (-1, 1 << 63):
        with pytest.raises(InvalidRequestError, match="must be from 0 to 2\\^62"):
            made.previews.make("photos", position)
    del made.engine.order
    with pytest.raises(InvalidRequestError, match="has no random access"):
        made.previews.make("photos", 0)
    assert made.session.requests == []
