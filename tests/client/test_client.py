"""Tests of the names of options; those of feeds are in `test_feed.py`."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.client import check_option_names


def adapter(target: str, *, device: str = "cpu", **options: Any) -> None:
    check_option_names(options, adapter)


class Adapter:
    def __init__(self, target: str, *, restart: bool = False, **options: Any) -> None:
        check_option_names(options, Adapter.__init__)


def test_options_of_adapter_and_connect_are_accepted() -> None:
    adapter("fake", device="gpu", batch_size=3, shard=None)


@pytest.mark.parametrize(
    ("call", "name", "nearest"),
    [
        (adapter, "adapter", {"batchsize": "batch_size", "devise": "device", "targets": "target"}),
        (Adapter, "Adapter", {"re_start": "restart", "epoch": "epochs"}),
    ],
)
def test_unknown_option_names_the_nearest_of_all_first(
    call: Any, name: str, nearest: dict[str, str]
) -> None:
    for wrong, right in nearest.items():
        with pytest.raises(TypeError) as caught:
            call("fake", **{wrong: 1})
        message = str(caught.value)
        assert f".{name} has no option {wrong!r} (did you mean {right!r}?)" in message
        *_, listed = message.partition("similar first: ")
        names = listed.split(", ")
        assert names[0] == right
        assert {"target", "batch_size", "tls"} <= set(names)
        assert not {"self", "options"} & set(names)
