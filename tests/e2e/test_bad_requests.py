"""Requests for a pipeline, or a place in a run, that a server does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import infeed
from infeed_server.pipeline.load import parse
from infeed_server.runtime.options import ServerOptions
from infeed_server.runtime.server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    arrays = {"x": np.arange(10, dtype=np.int64)}
    pipeline = parse({"source": {"arrays": arrays}, "batch": {"size": 4}})
    running = Server({"beta": pipeline, "alpha": pipeline}, ServerOptions("127.0.0.1:0", None))
    with running:
        yield running


@pytest.fixture
def address(server: Server) -> str:
    return str(server.address)


def test_connect_to_an_unknown_pipeline_lists_the_known(address: str) -> None:
    with pytest.raises(infeed.PipelineNotFoundError, match="this server has: alpha, beta") as error:
        infeed.connect(address, "gamma")
    assert error.value.metadata == {"pipeline": "gamma", "known": "alpha, beta"}


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"pipeline": "beta"}, "its pipeline is "),
        ({"seed": 5}, "its seed is "),
        ({"fingerprint": "0" * 32}, "its fingerprint is "),
        ({"pipeline": "x", "fingerprint": "y"}, r"its pipeline is .*; its fingerprint is "),
    ],
)
def test_cursor_of_another_run_is_refused(
    address: str, changes: dict[str, Any], pattern: str
) -> None:
    with infeed.connect(address, "alpha") as feed:
        feed.next(10)
        state = feed.state()
    seed = {} if len(changes) > 1 else {"seed": 0}
    with pytest.raises(infeed.CursorError, match=pattern) as caught:
        infeed.connect(address, "alpha", state={**state, **changes}, **seed)
    if len(changes) == 1:
        assert [caught.value.metadata["differs"]] == list(changes)
