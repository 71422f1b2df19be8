"""The contract of adapters, by `infeed.jax` on a single device."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.adapters.contract import AdapterContract

import infeed

pytest.importorskip("jax")


class TestContract(AdapterContract):
    def open(self, transport: Any, **options: Any) -> Any:
        if isinstance(transport, str):
            return infeed.jax.connect(transport, "fake", **options)
        return infeed.jax.connect("fake", "fake", transport=transport, **options)
