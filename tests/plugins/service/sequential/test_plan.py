"""Tests of plans over a dataset: the options that only samples by index have."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.pipeline.load import parse
from infeed_service.sequential.plan import plan_sequential


@pytest.mark.parametrize(
    "options",
    [
        {"add": [{"arrays": "a.npz"}]},
        {"remove": [1]},
        {"skip": [[1, 2]]},
        {"shuffle": {"order": "stable"}},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_dataset_has_none_of_them(options: Any) -> None:
    definition = parse({"source": {"dataset": "a:b"}, "batch": 4, **options})
    with pytest.raises(ConfigError, match=r"^(add|remove|skip|shuffle\.mode|shuffle\.order): "):
        plan_sequential("data", definition)
