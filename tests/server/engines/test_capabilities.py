"""Refusals of an engine without a capability."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infeed.shared.errors import InvalidRequestError
from infeed_server.engines.capabilities import dataset_registry, random_access

ENGINE: Any = SimpleNamespace(spec=SimpleNamespace(name="n"))


def test_an_engine_that_is_read_front_to_back_has_no_order() -> None:
    with pytest.raises(InvalidRequestError, match="'n' has no random access"):
        random_access(ENGINE)


def test_an_engine_without_workers_has_no_jobs() -> None:
    with pytest.raises(InvalidRequestError, match=r"'n' has no jobs: .* an --engine that has them"):
        dataset_registry(ENGINE, "jobs")
