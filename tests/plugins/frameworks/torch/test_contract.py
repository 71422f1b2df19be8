"""Tests of the contract of every adapter with tensors, for the direct iterator and the dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.plugins.frameworks.shared.contract import AdapterContract
from torch.utils.data import DataLoader

from infeed.torch import FeedDataset, connect


class TestContract(AdapterContract):
    def open(self, transport: Any, **options: Any) -> Any:
        if isinstance(transport, str):
            return connect(transport, "fake", **options)
        return connect("fake", "fake", transport=transport, **options)


def dataset(transport: Any, **options: Any) -> FeedDataset:
    if isinstance(transport, str):
        return FeedDataset(transport, "fake", **options)
    return FeedDataset("fake", "fake", transport=transport, **options)


class _Dataset:
    def __init__(self, wrapped: FeedDataset) -> None:
        self._wrapped = wrapped
        self.close = wrapped.close
        self.state = wrapped.state_dict

    def __iter__(self) -> Iterator[Any]:
        return iter(self._wrapped)


class TestDatasetContract(AdapterContract):
    repeats = True

    def open(self, transport: Any, **options: Any) -> Any:
        return _Dataset(dataset(transport, **options))


class _Loader(_Dataset):
    def __iter__(self) -> Iterator[Any]:
        return iter(DataLoader(self._wrapped, batch_size=None))


class TestLoaderContract(AdapterContract):
    repeats = True

    def open(self, transport: Any, **options: Any) -> Any:
        return _Loader(dataset(transport, **options))
