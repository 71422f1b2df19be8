from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from infeed.errors import ConfigError
from infeed_server.transforms import Cache, Drop, Rename

SAMPLE = {"a": np.int64(1), "b": np.int64(2), "c": np.int64(3)}
SPEC = {name: tf.TensorSpec([], tf.int64) for name in SAMPLE}


def test_rename_keeps_order_and_values(run: Any) -> None:
    assert run(Rename(fields={"b": "x"}), SAMPLE) == {"a": 1, "x": 2, "c": 3}


def test_fields_can_swap_their_names(run: Any) -> None:
    assert run(Rename(fields={"a": "b", "b": "a"}), SAMPLE) == {"b": 1, "a": 2, "c": 3}


def test_rename_refuses_a_name_that_is_taken(spec: Any) -> None:
    with pytest.raises(ConfigError, match="rename: 'a' cannot become 'c', there is a field"):
        spec(Rename(fields={"a": "c"}), SPEC)


def test_rename_refuses_one_name_for_two(spec: Any) -> None:
    with pytest.raises(ValidationError, match="gives the name 'x' to two fields"):
        Rename(fields={"a": "x", "b": "x"})


def test_drop(run: Any) -> None:
    assert run(Drop(fields=("a", "c")), SAMPLE) == {"b": 2}


@pytest.mark.parametrize("transform", [Drop(fields=("z",)), Rename(fields={"z": "y"})])
def test_a_missing_field_is_told_with_those_there_are(spec: Any, transform: Any) -> None:
    with pytest.raises(ConfigError, match="no field 'z'; available: a, b, c"):
        spec(transform, SPEC)


def test_cache_changes_nothing_and_its_limit_no_bits(run: Any) -> None:
    assert run(Cache(), SAMPLE) == SAMPLE
    assert Cache().fields() == set()
    assert Cache(limit_mb=1).identity() == Cache().identity() == {"cache": {}}
    assert Cache().limit_mb == 4096


def test_identities_hold_every_option_under_yamls_names() -> None:
    assert Rename(fields={"a": "b"}).identity() == {"rename": {"fields": {"a": "b"}}}
    assert Drop(fields=("a",)).identity() == {"drop": {"fields": ["a"]}}
