"""Tests of sample ids, mask and parts as named fields, and of empty slots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import infeed
from infeed import Batch, Feed, InvalidRequestError, Shard
from infeed.testing import FakeTransport
from infeed_frameworks.named_fields import NamedFields


def connect(**options: Any) -> Feed:
    """Opens a feed of 6 samples in batches of 4."""
    transport = FakeTransport({"x": np.arange(6, dtype=np.int32)}, batch_size=4)
    return infeed.connect("fake", "fake", transport=transport, **options)


def last(feed: Feed) -> Batch:
    *_, batch = feed
    return batch


PADDED: Any = {"epochs": 1, "remainder": "pad"}


def test_arrays_are_an_exact_dict_with_the_named_fields() -> None:
    with connect(**PADDED) as feed:
        given = last(feed)
        arrays = NamedFields("id", "kept").arrays(given, feed)
    assert type(arrays) is dict
    assert arrays["id"].tolist() == given.sample_ids.tolist()
    assert arrays["kept"].tolist() == [True, True, False, False]
    assert list(arrays) == ["x", "id", "kept"]
    assert list(given) == ["x"]


def test_empty_slots_are_cut_where_nothing_marks_them() -> None:
    with connect(**PADDED) as feed:
        given = last(feed)
        arrays = NamedFields("id").arrays(given, feed)
    assert arrays["x"].tolist() == given["x"][:2].tolist()
    assert arrays["id"].tolist() == given.sample_ids[:2].tolist()


def test_empty_slots_with_a_value_are_kept() -> None:
    with connect(**PADDED, empty={"x": -100}) as feed:
        arrays = NamedFields().arrays(last(feed), feed)
    assert arrays["x"][2:].tolist() == [-100, -100]


@pytest.mark.parametrize(
    ("static", "shard", "problem"),
    [
        (False, Shard(1, 2), "2 ranks need batches of one shape"),
        (True, Shard(), "shapes are static"),
    ],
)
def test_empty_slots_that_would_count_are_refused(static: bool, shard: Shard, problem: str) -> None:
    with (
        connect(**PADDED, shard=shard) as feed,
        pytest.raises(InvalidRequestError, match=problem + '.*Give mask="valid".*empty='),
    ):
        NamedFields("id").check(feed, is_static=static)
    marked: list[tuple[dict[str, Any], NamedFields]] = [
        ({"batch_size": 2}, NamedFields()),
        ({"remainder": "pad", "empty": {"x": -1}}, NamedFields()),
        ({"remainder": "pad"}, NamedFields(mask="valid")),
    ]
    for options, fields in marked:
        with connect(epochs=1, shard=shard, **options) as feed:
            fields.check(feed, is_static=static)


@pytest.mark.parametrize("option", ["ids", "mask", "part"])
def test_name_of_a_field_is_refused(option: str) -> None:
    problem = f"{option}='x' is already a field of the pipeline; its fields: x"
    with connect() as feed, pytest.raises(InvalidRequestError, match=problem):
        NamedFields(**{option: "x"}).check(feed)


def test_chosen_fields_are_in_their_order() -> None:
    with connect(**PADDED, empty={"x": -100}) as feed:
        given = last(feed)
        chosen = NamedFields("id", "kept", fields=("kept", "id", "x"))
        assert [*chosen.arrays(given, feed)] == ["kept", "id", "x"]
        spec = [(field.name, field.data_type) for field in chosen.spec(feed)]
        assert spec == [("kept", "bool"), ("id", "int64"), ("x", "int32")]
        # The value that marks empty slots is not in the element, so they are cut.
        assert NamedFields("id", fields=("id",)).arrays(given, feed)["id"].min() >= 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fields": ("x", "lable")}, "'lable' is not a field of 'fake'.*; its fields: x$"),
        ({"fields": "x"}, r'fields must be field names, such as \("image", "label"\), not \'x\''),
        ({"fields": ()}, "fields must be field names"),
        ({"fields": ("x", 1)}, "fields must be a nonempty str"),
        ({"fields": ("x",), "mask": "kept"}, r"mask='kept' is not in fields=\('x',\)"),
    ],
)
def test_wrong_fields_are_refused(options: Any, problem: str) -> None:
    with connect() as feed, pytest.raises(InvalidRequestError, match=problem):
        NamedFields(**options).check(feed)


@pytest.mark.parametrize("names", [{"ids": "x", "mask": "x"}, {"mask": "x", "part": "x"}])
def test_one_name_for_two_fields_is_refused(names: dict[str, str]) -> None:
    problem = rf"{' and '.join(names)} must differ, not \['x', 'x'\]"
    with pytest.raises(InvalidRequestError, match=problem):
        NamedFields(**names)


def test_a_part_is_a_number_and_an_empty_slot_has_none() -> None:
    transport = FakeTransport({"x": np.arange(6, dtype=np.int32)}, batch_size=4)
    transport.spec = replace(transport.spec, parts={"web": 2, "none": 0, "books": 4})
    with infeed.connect("fake", "fake", transport=transport, **PADDED) as feed:
        named = NamedFields("id", "kept", "part")
        batches = [named.arrays(batch, feed) for batch in feed]
        assert [field.data_type for field in named.spec(feed)][1:] == ["int64", "bool", "int64"]
    pairs = [pair for x in batches for pair in zip(x["id"], x["part"], strict=True)]
    assert all(part == (-1 if i < 0 else 0 if i < 2 else 2) for i, part in pairs)
    assert {part for _, part in pairs} == {-1, 0, 2}
    assert batches[0]["part"].dtype == np.int64


def test_a_part_of_a_pipeline_without_parts_is_refused() -> None:
    problem = "part='part': 'fake' has no parts, because it is not a mixture; leave"
    with connect() as feed, pytest.raises(InvalidRequestError, match=problem):
        NamedFields(part="part").check(feed)
