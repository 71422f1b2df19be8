"""The search for the number of trainers."""

from __future__ import annotations

import pytest

from infeed.loadtest.find_max import Probe, find_max


@pytest.mark.parametrize("most", range(13))
def test_the_largest_number_is_found(most: int) -> None:
    asked: list[int] = []

    def probe(trainers: int) -> Probe:
        asked.append(trainers)
        return Probe(trainers, 0.95 if trainers <= most else 0.5, 1.0, 7)

    search = find_max(probe, 0.9, limit=12)
    assert search.max_trainers == most
    assert search.is_bounded is (most < 12)
    assert len(asked) == len(set(asked)) <= 8
    assert search.forecast == 7


def test_a_search_says_what_it_found() -> None:
    text = str(find_max(lambda n: Probe(n, 1.0, 1.0, 3), 0.9, limit=4))
    assert text == "4 or more trainers can be fed; the forecast of the first test was 3"
    text = str(find_max(lambda n: Probe(n, 0.351, 1.0, None), 0.9, limit=4))
    assert text == "0 trainers can be fed: a single one reaches 35.1 %"
