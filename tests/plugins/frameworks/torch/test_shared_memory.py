"""PyTorch's tensors of shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.plugins.frameworks.shared.held_block import check_block_is_held

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("convert", [torch.from_numpy, torch.from_dlpack])
def test_tensors_hold_their_block(convert: Callable[[Any], Any]) -> None:
    check_block_is_held(convert, aliases=True)


def test_a_copy_does_not_hold_it() -> None:
    check_block_is_held(torch.tensor, aliases=False)
