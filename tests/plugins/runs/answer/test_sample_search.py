"""Samples of a label, of a source that has several in each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from infeed_runs.answer.sample_search import find_samples

ROWS = np.empty(4, object)
ROWS[:] = [np.array(rows, np.int64) for rows in ([], [1], [2, 1, 0], [0])]
TABLE = np.array([[0, 0], [1, 0], [2, 1], [0, 0]])


class _Source:
    classes = {"label": ("cat", "dog", "cow")}  # noqa: RUF012

    def __init__(self, values: Any) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def whole_field(self, name: str) -> Any:
        return self._values


@pytest.mark.parametrize("values", [ROWS, TABLE], ids=["rows", "table"])
@pytest.mark.parametrize(
    ("text", "found"), [("label:dog", [1, 2]), ("label:2", [2]), ("label:ape", []), ("label:7", [])]
)
def test_a_label_of_one_row_is_enough(values: Any, text: str, found: list[int]) -> None:
    plan: Any = SimpleNamespace(source=_Source(values))
    assert [*find_samples(plan, text)] == found
