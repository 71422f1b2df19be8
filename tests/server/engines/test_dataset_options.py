"""Tests of `engines/tf_data.py`: the limits of a user's dataset, and the samples of batches."""

from __future__ import annotations

import pytest
import tensorflow as tf

from infeed_server.engines.tf_data import unbatched, within_limits
from infeed_server.processes import cgroup


@pytest.fixture(autouse=True)
def small_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "cpu_count", lambda: 1)
    monkeypatch.setattr(cgroup, "memory_bytes", lambda: 2 << 30)


def test_dataset_without_budgets_gets_those_of_the_container() -> None:
    autotune = within_limits(tf.data.Dataset.range(3)).options().autotune
    assert autotune.cpu_budget == 1
    assert autotune.ram_budget == 256 << 20


def test_budgets_of_the_user_are_kept() -> None:
    options = tf.data.Options()
    options.autotune.cpu_budget = 7
    options.deterministic = False
    given = within_limits(tf.data.Dataset.range(3).with_options(options)).options()
    assert given.autotune.cpu_budget == 7
    assert given.autotune.ram_budget == 256 << 20
    assert given.deterministic is False


def test_samples_without_a_number_leave_their_batches() -> None:
    batches = tf.data.Dataset.from_tensors({"x": tf.zeros([4, 2, 0]), "n": tf.range(4)}).repeat(2)
    samples = list(unbatched(batches).as_numpy_iterator())  # `unbatch` ends the process
    assert [sample["n"] for sample in samples] == [0, 1, 2, 3] * 2
    assert all(sample["x"].shape == (2, 0) for sample in samples)
