"""JAX's arrays of shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.plugins.frameworks.shared.held_block import check_block_is_held

jax = pytest.importorskip("jax")


@pytest.mark.parametrize(
    "convert",
    [jax.device_put, jax.dlpack.from_dlpack],
    ids=["device_put", "from_dlpack"],
)
def test_arrays_hold_their_block(convert: Callable[[Any], Any]) -> None:
    check_block_is_held(convert, aliases=True)


def test_a_copy_does_not_hold_it() -> None:
    check_block_is_held(lambda array: jax.numpy.array(array).block_until_ready(), aliases=False)
