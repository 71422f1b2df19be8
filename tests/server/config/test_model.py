"""Telling what is wrong with a definition: where, and what is allowed there."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from infeed_server.config.model import Definition, Variants, did_you_mean, dotted, explain


class Leaf(Definition):
    size: int = 1
    colour: str = "red"


class Other(Definition):
    weight: float = 1.0


class Aliased(Definition):
    inner: Annotated[int, Field(alias="class")]


def _validated(value: Any) -> Any:
    class Tagged(BaseModel):
        other: Other

    return Tagged.model_validate(value).other


OneKey = Annotated[Other, BeforeValidator(_validated), Variants({"other": Other})]


class Root(Definition):
    leaf: Leaf | None = None
    leaves: list[Leaf] = Field([])
    named: dict[str, Leaf] = Field({})
    either: int | list[int] = 0
    one_of: Leaf | Other | None = None
    aliased: Aliased | None = None
    variant: OneKey | None = None


def told(value: Any, *, with_value: bool = True) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Root.model_validate(value)
    found = explain(caught.value, Root, value if with_value else None)
    return [f"{dotted(path)}: {text}" for path, text in found]


def test_dotted() -> None:
    assert dotted(("transforms", 1, "resize", "size", 0)) == "transforms[1].resize.size[0]"
    assert dotted(()) == ""


def test_did_you_mean() -> None:
    assert did_you_mean("resiz", ["cast", "resize"]) == " (did you mean 'resize'?)"
    assert did_you_mean("qqq", ["cast", "resize"]) == ""


@pytest.mark.parametrize("with_value", [True, False])
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
        ({"variant": {"other": {"wight": 1}}}, "variant.other.wight: unknown key 'wight' (did you"),
        (
            {"aliased": {"clas": 1, "class": 1}},
            "aliased.clas: unknown key 'clas' (did you mean 'cl",
        ),
        ({"aliased": {}}, "aliased.class: missing; it is required"),
        ({"leaf": {"size": "3"}}, "leaf.size: should be a valid integer, not '3'"),
        ({"leaf": {"size": True}}, "leaf.size: should be a valid integer, not True"),
        ({"leaf": 3}, "leaf: should be a valid mapping, not 3"),
        ({"named": []}, "named: should be a valid mapping, not []"),
        ({"leaf": {"colour": None}}, "leaf.colour: should be a valid string"),
    ],
    ids=str,
)
def test_a_problem_is_told_where_it_is(value: Any, problem: str, with_value: bool) -> None:
    found = told(value, with_value=with_value)
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_members_of_a_union_are_no_places() -> None:
    assert told({"either": ["x"]}) == [
        "either: should be a valid integer, not ['x']",
        "either[0]: should be a valid integer, not 'x'",
    ]


def test_an_unknown_key_of_a_union_is_told_with_every_members_keys() -> None:
    found = told({"one_of": {"sise": 1}})
    assert found == [
        "one_of.sise: unknown key 'sise' (did you mean 'size'?); allowed: colour, size, weight"
    ]


def test_names_that_look_like_unions_stay_with_the_value() -> None:
    assert told({"named": {"a[1]": {"size": "x"}}}) == [
        "named.a[1].size: should be a valid integer, not 'x'"
    ]


def test_long_values_are_cut() -> None:
    (problem,) = told({"leaf": {"size": "x" * 500}})
    assert problem.endswith("xxx...")
    assert len(problem) < 140
