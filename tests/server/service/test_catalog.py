"""What a peer may ask to be opened."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from infeed.errors import InvalidRequestError
from infeed.spec import FieldSpec, Normalize
from infeed.testing import FakeTransport
from infeed.v1 import stream_pb2
from infeed_server.service.catalog import Catalog

PIXELS = 1 << 20


@pytest.fixture
def catalog() -> Catalog:
    """One pipeline whose samples take 1 MiB, and 4 MiB once they are finished."""
    fake = FakeTransport(
        {"x": np.zeros((2, 1), np.uint8)},
        batch_size=4,
        finish_transforms=[Normalize("x", 255.0)],
        length_known=False,
    )
    wire, finished = FieldSpec("x", "uint8", (PIXELS,)), FieldSpec("x", "float32", (PIXELS,))
    spec = replace(fake.spec, wire_spec=(wire,), element_spec=(finished,))
    session = SimpleNamespace(weigh=lambda size: None)
    engine: Any = SimpleNamespace(spec=spec, open=lambda slots, epochs, trainer: session)
    large = replace(spec, name="large", batch_size=5000)
    other: Any = SimpleNamespace(spec=large, open=engine.open)
    return Catalog({"fake": engine, "large": other})


def opening(size: int, finish: Any = 0, name: str = "fake") -> stream_pb2.StreamOpen:
    return stream_pb2.StreamOpen(pipeline=name, batch_size=size, finish=finish)


def test_batches_as_large_as_they_may_be(catalog: Catalog) -> None:
    on_server = stream_pb2.FINISH_PLACEMENT_SERVER
    assert catalog.open(opening(1024)).batch_size == 1024
    assert catalog.open(opening(256, on_server)).batch_size == 256
    # What the pipeline's definition says is for its owner to answer for.
    assert catalog.open(opening(0, on_server, "large")).batch_size == 5000
    assert catalog.open(opening(4999, name="large")).batch_size == 4999


@pytest.mark.parametrize(
    ("message", "size"),
    [
        (opening(1025), 1025 << 20),
        (opening(257, stream_pb2.FINISH_PLACEMENT_SERVER), 1028 << 20),
        (opening(1 << 17), 1 << 37),
        (opening(5001, name="large"), 5001 << 20),
    ],
)
def test_batches_that_are_too_large(
    catalog: Catalog, message: stream_pb2.StreamOpen, size: int
) -> None:
    with pytest.raises(InvalidRequestError, match=f"batches of {size} bytes.*at most 1073741824"):
        catalog.open(message)
