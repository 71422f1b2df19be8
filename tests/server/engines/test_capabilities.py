"""Refusals of an engine without a capability."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infeed.shared.errors import InvalidRequestError
from infeed_server.engines.capabilities import random_access

ENGINE: Any = SimpleNamespace(spec=SimpleNamespace(name="n"))


def test_an_engine_that_is_read_front_to_back_has_no_order() -> None:
    with pytest.raises(InvalidRequestError, match="'n' has no random access"):
        random_access(ENGINE)
