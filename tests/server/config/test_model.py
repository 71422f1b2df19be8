"""Tests of `config/model.py`."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from infeed.shared.errors import format_path
from infeed_server.config.model import Definition, explain


class Leaf(Definition):
    size: int = 1
    colour: str = "red"


class Other(Definition):
    weight: float = 1.0


class Aliased(Definition):
    inner: Annotated[int, Field(alias="class")]


class Root(Definition):
    leaf: Leaf | None = None
    leaves: list[Leaf] = Field([])
    named: dict[str, Leaf] = Field({})
    either: int | list[int] = 0
    one_of: Leaf | Other | None = None
    aliased: Aliased | None = None


def problems(value: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Root.model_validate(value)
    return [f"{format_path(path)}: {text}" for path, text in explain(caught.value, value)]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            {"lef": 1},
            "lef: unknown key 'lef' (did you mean 'leaf'?); allowed: aliased, either, leaf",
        ),
        (
            {"leaf": {"siz": 1}},
            "leaf.siz: unknown key 'siz' (did you mean 'size'?); allowed: colour",
        ),
        ({"leaves": [{}, {"colr": 1}]}, "leaves[1].colr: unknown key 'colr' (did you mean"),
        (
            {"named": {"my-name": {"siz": 1}}},
            "named.my-name.siz: unknown key 'siz' (did you mean 'size'?); allowed: colour, size",
        ),
        (
            {"aliased": {"clas": 1, "class": 1}},
            "aliased.clas: unknown key 'clas' (did you mean 'cl",
        ),
        ({"aliased": {}}, "aliased.class: missing; it is required"),
        ({"leaf": {"size": "3"}}, "leaf.size: should be a valid integer, not '3'"),
        ({"leaf": 3}, "leaf: should be a valid mapping such as {"),
        ({"leaf": {"colour": None}}, "leaf.colour: should be a valid string"),
        ({"leaf": {"{x}": 1}}, "leaf.{x}: unknown key '{x}'; allowed: colour, size"),
    ],
    ids=str,
)
def test_problem_has_place_and_description(value: Any, problem: str) -> None:
    (line,) = problems(value)
    assert line.startswith(problem)


def test_union_members_are_not_in_the_place() -> None:
    assert problems({"either": ["x"]}) == [
        "either: should be a valid integer, not ['x']",
        "either[0]: should be a valid integer, not 'x'",
    ]


def test_unknown_key_of_a_union_lists_the_keys_of_each_member() -> None:
    assert problems({"one_of": {"sise": 1}}) == [
        "one_of.sise: unknown key 'sise' (did you mean 'size'?); allowed: colour, size",
        "one_of.sise: unknown key 'sise'; allowed: weight",
    ]


def test_long_value_is_truncated() -> None:
    (problem,) = problems({"leaf": {"size": "x" * 500}})
    assert problem.endswith("xxx...")
    assert len(problem) < 140
