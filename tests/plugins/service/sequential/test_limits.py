"""The limits of a user's dataset."""

from __future__ import annotations

import pytest
import tensorflow as tf

from infeed_server.processes import cgroup
from infeed_service.sequential.local_backend import within_limits


@pytest.fixture(autouse=True)
def small_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "cpu_count", lambda: 1)
    monkeypatch.setattr(cgroup, "memory_bytes", lambda: 2 << 30)


def test_budgets_of_the_user_are_kept() -> None:
    options = tf.data.Options()
    options.autotune.cpu_budget = 7
    options.deterministic = False
    given = within_limits(tf.data.Dataset.range(3).with_options(options)).options()
    assert given.autotune.cpu_budget == 7
    assert given.autotune.ram_budget == 256 << 20
    assert given.deterministic is False
