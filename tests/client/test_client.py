"""Options of `connect`: one list, their names in errors and in `help`."""

from __future__ import annotations

import dataclasses
import pydoc
from functools import partial
from typing import Any

import pytest

import infeed
from infeed.client import ConnectOptions, check_options
from infeed.prefetch.feed_options import OPTION_NAMES, FeedOptions


def adapter(target: str, *, device: str = "cpu", **options: Any) -> None:
    check_options(options, adapter)


class Adapter:
    def __init__(self, target: str, *, restart: bool = False, **options: Any) -> None:
        check_options(options, Adapter.__init__)


@pytest.mark.parametrize(
    ("call", "name", "own", "nearest"),
    [
        (
            adapter,
            "adapter",
            ["device"],
            {"batchsize": "batch_size", "devise": "device", "targets": "target"},
        ),
        (Adapter, "Adapter", ["restart"], {"re_start": "restart", "epoch": "epochs"}),
        (
            partial(infeed.connect, "fake"),
            "connect",
            [],
            {"pipelin": "pipeline", "conections": "connections"},
        ),
    ],
)
def test_unknown_option_names_the_nearest_of_all(
    call: Any, name: str, own: list[str], nearest: dict[str, str]
) -> None:
    for wrong, right in nearest.items():
        with pytest.raises(TypeError) as caught:
            call("fake", **{wrong: 1})
        message = str(caught.value)
        assert message.startswith(f"{name} has no option {wrong!r} (did you mean {right!r}?)")
        assert message.endswith(f"; options: {', '.join([*own, *OPTION_NAMES])}")


@pytest.mark.parametrize("call", [adapter, Adapter])
def test_wrong_value_of_an_option_is_named_before_a_connection(call: Any) -> None:
    with pytest.raises(infeed.InvalidRequestError, match=r"connections.* 17"):
        call("fake", connections=17)
    call("fake", connections=16)


def test_type_checkers_see_the_names_and_types_of_the_options() -> None:
    typed = {name: item.__forward_arg__ for name, item in ConnectOptions.__annotations__.items()}
    assert typed == {field.name: field.type for field in dataclasses.fields(FeedOptions)}


def test_help_of_connect_has_each_option_with_its_default() -> None:
    text = pydoc.plain(pydoc.render_doc(infeed.connect))
    for field in dataclasses.fields(FeedOptions):
        assert f"{field.name}: " in text
        assert f" {field.default!r}" in text
        assert f"\n    {field.name} " in text
    assert "OPTIONS" not in text
