"""The contract of every adapter, by a dataset's iterator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.plugins.frameworks.shared.contract import AdapterContract

pytest.importorskip("grain")

from infeed.grain import FeedDataset, FeedIterator


class GrainAdapter:
    """The iterator of a dataset; a state is set after `iter`, as Grain's handlers do."""

    def __init__(self, transport: Any, state: Any = None, **options: Any) -> None:
        if isinstance(transport, str):
            dataset = FeedDataset(transport, "fake", **options)
        else:
            dataset = FeedDataset("fake", "fake", transport=transport, **options)
        self.iterator: FeedIterator = iter(dataset)
        if state is not None:
            self.iterator.set_state(state)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterator)

    def state(self) -> Any:
        return self.iterator.get_state()

    def close(self) -> None:
        self.iterator.close()


class TestContract(AdapterContract):
    def open(self, transport: Any, **options: Any) -> GrainAdapter:
        return GrainAdapter(transport, **options)
