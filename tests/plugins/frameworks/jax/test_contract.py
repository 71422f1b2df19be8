"""The contract of adapters, by `infeed.jax` on one device and on a mesh with replicas."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plugins.frameworks.shared.contract import AdapterContract

import infeed

jax = pytest.importorskip("jax")


class TestContract(AdapterContract):
    def open(self, transport: Any, **options: Any) -> Any:
        if isinstance(transport, str):
            return infeed.jax.connect(transport, "fake", **options)
        return infeed.jax.connect("fake", "fake", transport=transport, **options)


class TestContractOnMesh(TestContract):
    def open(self, transport: Any, **options: Any) -> Any:
        mesh = jax.make_mesh((2, 4), ("data", "model"))
        spec = jax.sharding.PartitionSpec("data")
        return super().open(transport, sharding=(mesh, spec), **options)
