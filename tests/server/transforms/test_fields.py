"""`rename`, `drop` and `cache`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from infeed.shared.errors import ConfigError
from infeed_server.pipeline.load import parse
from infeed_server.transforms import Cache, Drop, Rename

SAMPLE = {"a": np.int64(1), "b": np.int64(2), "c": np.int64(3)}
SPEC = {name: tf.TensorSpec([], tf.int64) for name in SAMPLE}


def test_rename_keeps_order_and_values(run: Any) -> None:
    assert run(Rename(fields={"b": "x"}), SAMPLE) == {"a": 1, "x": 2, "c": 3}


def test_rename_can_swap_two_names(run: Any) -> None:
    assert run(Rename(fields={"a": "b", "b": "a"}), SAMPLE) == {"b": 1, "a": 2, "c": 3}


def test_rename_to_an_existing_field_is_refused(spec: Any) -> None:
    with pytest.raises(
        ConfigError, match="rename: 'a' cannot be renamed to 'c', which already exists"
    ):
        spec(Rename(fields={"a": "c"}), SPEC)


def test_rename_of_two_fields_to_one_name_is_refused(spec: Any) -> None:
    with pytest.raises(ValidationError, match="gives the name 'x' to two fields"):
        Rename(fields={"a": "x", "b": "x"})


def test_drop_removes_fields(run: Any) -> None:
    assert run(Drop(fields=("a", "c")), SAMPLE) == {"b": 2}


@pytest.mark.parametrize("transform", [Drop(fields=("z",)), Rename(fields={"z": "y"})])
def test_missing_field_is_refused_with_the_available(spec: Any, transform: Any) -> None:
    with pytest.raises(ConfigError, match="no field 'z'; available: a, b, c"):
        spec(transform, SPEC)


def test_cache_changes_no_sample(run: Any) -> None:
    assert run(Cache(), SAMPLE) == SAMPLE
    assert Cache().fields() == set()
    with pytest.raises(ValueError, match="limit_mb is now budget: 7MiB"):
        Cache(limit_mb=7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": "auto"}, "store: should be 'memory' or 'disk'"),
        ({"budget": "8gigs"}, "budget: should be bytes, or a size such as 8GiB, not '8gigs'"),
    ],
)
def test_option_that_no_cache_can_use_is_refused(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse({"source": {"arrays": {}}, "transforms": [{"cache": options}]})


def test_identity_has_every_option_by_its_yaml_name() -> None:
    assert Rename(fields={"a": "b"}).identity() == {"rename": {"fields": {"a": "b"}}}
    assert Drop(fields=("a",)).identity() == {"drop": {"fields": ["a"]}}
