"""The stages of one sample: its fields as they are read, and after each transform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from infeed.shared.finish import apply
from infeed.shared.spec import Array
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.sources.base import Sample, Source
from infeed_server.sources.python.mapped import MappedSource, read_samples
from infeed_server.storage.faults import one_line
from infeed_server.transforms.base import Key, Step, snake_case
from infeed_server.transforms.decode import DecodeAndCrop

_JPEG_START = b"\xff\xd8"

_MAX_RECOVERED_PIXELS = 1 << 25
"""Of a damaged file, which is decoded to be looked at alone."""

_MAX_MESSAGE = 500
"""Characters; the traceback of a function of the user is longer."""


@dataclass(frozen=True)
class SampleStage:
    """The fields of a sample after a stage, without a slot dimension. `name` is `source`, `map`, or
    a transform with its path: `transforms[1].resize`. `place` is where the stage runs."""

    name: str
    place: Literal["server", "trainer"]
    fields: dict[str, Any]
    error: str | None = None
    """Message of the failure; the fields are then those before the stage."""
    recovered: Array | None = None
    """What could be decoded of a damaged JPEG, uint8[height, width, 3], where the stage fails."""


def sample_stages(plan: IndexedPlan, index: int, key: Array) -> Iterator[SampleStage]:
    """Yields the stages of a sample under a key, int64[2], each when it is requested. The
    transforms are the plan's, so the last stage of the server has the bits that are sent. A failing
    read or transform ends the stages, as one with an `error`."""
    fields: dict[str, Any] = {}
    name = "source"
    try:
        for name, sample in _at_server(plan, index, key):
            if sample is None:
                continue
            fields = {field: np.asarray(value)[()] for field, value in sample.items()}
            yield SampleStage(name, "server", fields)
    except Exception as error:  # noqa: BLE001 - of the sample, or of a function of the user
        yield SampleStage(name, "server", fields, _message(error), _recovered(fields))
        return
    for finish in plan.spec.finish_transforms:
        after = apply(finish, np.asarray(fields[finish.field])[None])[0]
        fields = {**fields, finish.field: after}
        yield SampleStage(snake_case(type(finish).__name__), "trainer", fields)


def _at_server(plan: IndexedPlan, index: int, key: Array) -> Iterator[tuple[str, Sample | None]]:
    """Yields a stage's name with None before it runs, and with the sample after it."""
    source, steps = plan.uncached
    indices, keys = np.array([index], np.int64), np.asarray(key, np.int64)[None]
    if isinstance(source, MappedSource):
        yield "source", _parsed(source.source, source.source.read(indices))
        yield "map", None
    sample = _parsed(source, read_samples(source, indices, keys))
    yield "map" if isinstance(source, MappedSource) else "source", sample
    for step in steps:
        for name, function in _shown(plan, step):
            yield name, None
            after = function(sample, tf.constant(keys[0]))
            yield name, after
        sample = after


def _shown(plan: IndexedPlan, step: Step) -> Iterator[tuple[str, Any]]:
    """Yields the transforms of a step as the user wrote them; the last one is the step."""
    ordinal, transform = step

    def run(sample: Sample, key: Key) -> Sample:
        return sample_graph.apply_step(step, sample, key)

    if isinstance(transform, DecodeAndCrop):
        decode = transform.decode
        before = list(plan.definition.transforms[:ordinal])
        number = max(n for n, transform in enumerate(before) if transform == decode)
        # The whole image: the step itself decodes only the window.
        yield f"transforms[{number}].{decode.name}", decode.apply
        yield f"transforms[{ordinal}].{transform.crop.name}", run
    else:
        yield f"transforms[{ordinal}].{transform.display_name}", run


def _parsed(source: Source, columns: dict[str, Array]) -> Sample:
    sample = {name: tf.constant(rows[0]) for name, rows in columns.items()}
    return source.parse(sample)


def _recovered(fields: Mapping[str, Any]) -> Array | None:
    """Returns the part of a damaged JPEG that can be decoded."""
    for value in fields.values():
        if isinstance(value, bytes) and value.startswith(_JPEG_START):
            try:
                height, width, _ = tf.io.extract_jpeg_shape(value).numpy().tolist()
                if height * width > _MAX_RECOVERED_PIXELS:
                    return None
                return tf.io.decode_jpeg(  # type: ignore[no-any-return]
                    value, channels=3, try_recover_truncated=True, acceptable_fraction=0.0
                ).numpy()
            except (ValueError, tf.errors.OpError):
                continue
    return None


def _message(error: Exception) -> str:
    text = one_line(error)
    return text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE - 3]}..."
