"""The stages of a sample as pictures and texts, for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infeed.shared.spec import Array
from infeed_server.observe.pictures import data_url, long_text_of, picture_field
from infeed_server.pipeline.sample_stage import SampleStage


def stages_json(stages: Sequence[SampleStage]) -> list[dict[str, Any]]:
    """Returns each stage with its picture, and the fields that it added, changed or removed."""
    listed = []
    before: Mapping[str, Any] = {}
    image: str | None = None
    for stage in stages:
        changed = [name for name, value in stage.fields.items() if not _same(before, name, value)]
        field = picture_field(stage.fields)
        if stage.error is not None:
            image = None if stage.recovered is None else data_url(stage.recovered)
        elif field is None:
            image = None
        elif field in changed or image is None:
            image = data_url(stage.fields[field])
        listed.append(
            {
                "stage": stage.name,
                "place": stage.place,
                "image_field": field,
                "image": image,
                "values": {name: long_text_of(stage.fields[name]) for name in changed},
                "removed": [name for name in before if name not in stage.fields],
                "error": stage.error,
            }
        )
        before = stage.fields
    return listed


def is_sent(stages: Sequence[SampleStage], sent: Mapping[str, Array]) -> bool | None:
    """Returns whether the last stage of the server has the bits of the batch that was served.

    None without stages.
    """
    at_server = [each for each in stages if each.place == "server"]
    if not at_server:
        return None
    last = at_server[-1]
    return (
        last.error is None
        and last.fields.keys() == sent.keys()
        and all(_equal(value, last.fields[name]) for name, value in sent.items())
    )


def _same(before: Mapping[str, Any], name: str, value: Any) -> bool:
    return name in before and _equal(before[name], value)


def _equal(one: Any, other: Any) -> bool:
    """Returns whether two values have the same type, shape and bits."""
    if one is other:
        return True
    first, second = np.asarray(one), np.asarray(other)
    if first.dtype.kind in "OS" or second.dtype.kind in "OS":
        return first.shape == second.shape and bool(np.all(first == second))
    same = (first.dtype, first.shape) == (second.dtype, second.shape)
    return same and first.tobytes() == second.tobytes()
