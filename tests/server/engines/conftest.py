"""Fixtures: waits for events."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.harness.waiting import wait_until


@pytest.fixture
def eventually() -> Callable[..., None]:
    """`wait_until`: `eventually(condition, what)`."""
    return wait_until
