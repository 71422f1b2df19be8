"""Tests of `change/changes.py`."""

from __future__ import annotations

from typing import Any

import pytest

from infeed_runs.change.changes import transform_changes
from infeed_server.pipeline.load import parse

DECODE: Any = {"decode_image": {"field": "image"}}
CROP: Any = {"random_crop": {"field": "image", "size": [8, 8]}}
RENAME: Any = {"rename": {"fields": {"image": "x"}}}
ONE_HOT: Any = {"one_hot": {"field": "label", "depth": 3}}


def changes(old: list[Any], new: list[Any]) -> list[str]:
    lists = [
        parse({"source": {"arrays": "x.npz"}, "transforms": steps}).transforms
        for steps in (old, new)
    ]
    return [str(change) for change in transform_changes(*lists, ["x", "image", "label"])]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([DECODE, CROP, RENAME], [DECODE, CROP, RENAME], []),
        (
            [DECODE, {"one_hot": {"field": "label", "depth": 2}}],
            [DECODE, ONE_HOT],
            ['transforms[1].one_hot: {"depth": 2'],
        ),
        ([DECODE, ONE_HOT, RENAME], [DECODE, RENAME], ["transforms[1].one_hot: without"]),
        (
            [DECODE, CROP, RENAME],
            [ONE_HOT, "cache", DECODE, CROP, RENAME],
            ["transforms[0].one_hot: with "],
        ),
        (
            [DECODE, CROP, RENAME],
            [DECODE, {"random_crop": {**CROP["random_crop"], "draw": "mine"}}, RENAME],
            ['transforms[1].random_crop: {"draw": "random_crop-0"'],
        ),
    ],
)
def test_changes_are_named_by_place(old: list[Any], new: list[Any], expected: list[str]) -> None:
    found = changes(old, new)
    assert len(found) == len(expected)
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True)), found


def test_fields_follow_renames_and_are_all_behind_a_function() -> None:
    assert changes([DECODE, CROP, RENAME], [DECODE, RENAME])[0].endswith("; can affect x")
    own = {"map": {"function": len}}
    assert changes([DECODE, own], [own])[0].endswith("can affect x, image, label")
