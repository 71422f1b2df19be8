"""Limits of the batches of a stream."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import FieldSpec, Normalize
from infeed.testing import FakeTransport
from infeed.v1 import stream_pb2
from infeed_server.serving.auth import Caller
from infeed_server.serving.catalog import Catalog

SAMPLE_BYTES = 1 << 20


STRING_BYTES = {"strings": 100_000}


@pytest.fixture
def catalog() -> Catalog:
    """Returns a catalog whose samples take 1 MiB, and 4 MiB after their finish transforms."""
    fake = FakeTransport(
        {"x": np.zeros((2, 1), np.uint8)},
        batch_size=4,
        finish_transforms=[Normalize("x", 255.0)],
        length_known=False,
    )
    wire, finished = (
        FieldSpec("x", "uint8", (SAMPLE_BYTES,)),
        FieldSpec("x", "float32", (SAMPLE_BYTES,)),
    )
    spec = replace(fake.spec, wire_spec=(wire,), element_spec=(finished,))
    session = SimpleNamespace(set_batch_bytes=lambda size: None)
    engine: Any = SimpleNamespace(spec=spec, open=lambda slots, epochs, trainer: session)
    large = replace(spec, name="large", batch_size=5000)
    other: Any = SimpleNamespace(spec=large, open=engine.open)
    strings = replace(
        spec, name="strings", wire_spec=(FieldSpec("s", "bytes"),), finish_transforms=()
    )
    strings = replace(strings, element_spec=strings.wire_spec)
    third: Any = SimpleNamespace(spec=strings, open=engine.open)
    return Catalog({"fake": engine, "large": other, "strings": third}, STRING_BYTES)


def stream_open(size: int, finish: Any = 0, name: str = "fake") -> stream_pb2.StreamOpen:
    return stream_pb2.StreamOpen(pipeline=name, batch_size=size, finish=finish)


def test_largest_batches_are_allowed(catalog: Catalog) -> None:
    on_server = stream_pb2.FINISH_PLACEMENT_SERVER
    assert catalog.open(stream_open(1024)).batch_size == 1024
    assert catalog.open(stream_open(256, on_server)).batch_size == 256
    # The pipeline's own batch size has no limit.
    assert catalog.open(stream_open(0, on_server, "large")).batch_size == 5000
    assert catalog.open(stream_open(4999, name="large")).batch_size == 4999


@pytest.mark.parametrize(
    ("message", "size"),
    [
        (stream_open(1025), 1025 << 20),
        (stream_open(257, stream_pb2.FINISH_PLACEMENT_SERVER), 1028 << 20),
        (stream_open(1 << 17), 1 << 37),
        (stream_open(5001, name="large"), 5001 << 20),
    ],
)
def test_too_large_batches_are_refused(
    catalog: Catalog, message: stream_pb2.StreamOpen, size: int
) -> None:
    with pytest.raises(InvalidRequestError, match=f"batches of {size} bytes; .* is 1073741824"):
        catalog.open(message)


def test_byte_strings_count_with_their_mean_once_it_is_known(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert catalog.open(stream_open(10_737, name="strings")).batch_size == 10_737
    for seen in (catalog, catalog.visible_to(Caller("a"))):
        with pytest.raises(
            InvalidRequestError, match=r"batches of about 1073800000 bytes; the limit"
        ):
            seen.open(stream_open(10_738, name="strings"))
    monkeypatch.delitem(STRING_BYTES, "strings")
    assert catalog.open(stream_open(10_738, name="strings")).batch_size == 10_738
