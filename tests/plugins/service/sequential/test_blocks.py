"""Tests of the blocks of other packages' engines: what a wrong one is refused with."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.shared.spec import FieldSpec, Guarantee, PipelineSpec
from infeed_server.engines.memory_budget import MemoryBudget, default_limit
from infeed_service.sequential.engine import SequentialEngine
from infeed_service.sequential.window import Block, ReadKey

FIELDS = (FieldSpec("x", "float32", (2,)),)
GOOD = np.zeros((4, 2), np.float32)
IDS = np.arange(4)


class Backend:
    """A backend that yields some blocks, and ends."""

    spec = PipelineSpec(
        name="walk",
        element_spec=FIELDS,
        wire_spec=FIELDS,
        finish_transforms=(),
        sample_count=None,
        fingerprint="0" * 32,
        guarantee=Guarantee("deterministic", "exactly_once", "replay"),
        batch_size=4,
        seed=0,
        remainder="drop",
        on_error="raise",
    )

    def __init__(self, *blocks: Any) -> None:
        self._blocks = blocks

    def read(self, key: ReadKey) -> Generator[Block, None, None]:
        yield from self._blocks
        if not self._blocks:
            raise ValueError("no queue")


@pytest.mark.parametrize(
    ("blocks", "error", "text"),
    [
        ([Block(0, 4, 0, {"y": GOOD}, IDS)], infeed.SourceError, r"has x: float32\[4, 2\]$"),
        (
            [Block(0, 4, 0, {"x": GOOD.astype(">f4")}, IDS)],
            infeed.SourceError,
            r"engine of 'walk' read a block with x: >f4\[4, 2\]; its spec has x: float32",
        ),
        ([Block(0, 4, 0, {"x": GOOD}, IDS[:3])], infeed.SourceError, r"sample_ids: int64\[3\]; it"),
        (
            [Block(5, 4, 0, {"x": GOOD}, IDS)],
            infeed.SourceError,
            "begins at position 5, not 0",
        ),
        ([Block(0, 2, 0, {"x": GOOD[:2]}, IDS[:2])], infeed.SourceError, "ends at position 2, but"),
        ([], infeed.UserCodeError, "(?s)the engine of 'walk' raised ValueError:.*no queue"),
    ],
)
def test_a_wrong_block_is_named(blocks: list[Block], error: type[Exception], text: str) -> None:
    engine = SequentialEngine(Backend(*blocks), MemoryBudget(default_limit()))
    try:
        with pytest.raises(error, match=text):
            engine.warm_up()
    finally:
        engine.close()
