"""Tests of sample ids and mask as named fields."""

from __future__ import annotations

import numpy as np
import pytest

from infeed import Batch, InvalidRequestError
from infeed.adapters.named_fields import NamedFields


def batch() -> Batch:
    ids, mask = np.array([7, -1]), np.array([True, False])
    return Batch({"x": np.zeros(2)}, start=0, epoch=0, sample_ids=ids, mask=mask)


def test_arrays_are_an_exact_dict_with_the_named_fields() -> None:
    given = batch()
    arrays = NamedFields("id", "kept").arrays(given)
    assert type(arrays) is dict
    assert arrays["id"].tolist() == [7, -1]
    assert arrays["kept"].tolist() == [True, False]
    assert list(arrays) == ["x", "id", "kept"]
    assert list(given) == ["x"]
    assert list(NamedFields().arrays(given)) == ["x"]


@pytest.mark.parametrize("option", ["ids", "mask"])
def test_name_of_a_field_is_refused(option: str) -> None:
    problem = f"{option}='x' is the name of a field of the pipeline already; its fields: x"
    with pytest.raises(InvalidRequestError, match=problem):
        NamedFields(**{option: "x"}).arrays(batch())


def test_one_name_for_both_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="must be two names, not 'x' for both"):
        NamedFields("x", "x")


@pytest.mark.parametrize("option", ["ids", "mask"])
def test_name_is_a_text(option: str) -> None:
    with pytest.raises(InvalidRequestError, match=option):
        NamedFields(**{option: True})  # type: ignore[arg-type]
