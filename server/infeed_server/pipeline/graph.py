"""The graph of one sample: from a source's columns, through transforms, to fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from infeed.errors import ConfigError, UserCodeError
from infeed.spec import DATA_TYPES, FieldSpec, Spec
from infeed_server.sources.base import Sample, Source
from infeed_server.transforms import Transform

Step = tuple[int, Transform]
"""A transform and its ordinal, its place in the user's list: its share of the sample's key."""

SampleFunction = Callable[[Sample, tf.Tensor], Sample]
"""(columns, key) → fields."""

Specs = dict[str, tf.TensorSpec]
"""Field name → tensor spec, of one sample."""

KEY_SPEC = tf.TensorSpec([2], tf.int64)


def run(step: Step, sample: Sample, key: tf.Tensor) -> Sample:
    """One transform on one sample. Its draws are independent of every other transform's."""
    ordinal, transform = step
    folded = tf.random.experimental.stateless_fold_in(key, ordinal) if transform.random else key
    return transform.apply(sample, folded)


def function(source: Source, steps: Sequence[Step]) -> SampleFunction:
    """The whole way of one sample, for `Dataset.map`."""

    def sample_function(columns: Sample, key: tf.Tensor) -> Sample:
        sample = source.parse(columns)
        for step in steps:
            sample = run(step, sample, key)
        return sample

    return sample_function


def trace(source: Source, steps: Sequence[Step]) -> list[Specs]:
    """The fields before each step, and after the last.

    Raises `ConfigError` that names the step a bad option or field belongs to, and `UserCodeError`
    when a user's function raises.
    """
    return trace_from(dict(source.columns), source.parse, steps)


def trace_from(
    columns: Specs, parse: Callable[[Sample], Sample], steps: Sequence[Step]
) -> list[Specs]:
    """The same from columns that are known before there is a source."""
    stages: list[Specs] = []

    def traced(columns: Sample, key: tf.Tensor) -> Sample:
        sample = parse(columns)
        stages.append(_specs(sample))
        for step in steps:
            sample = _located(step, sample, key)
            stages.append(_specs(sample))
        return sample

    wrapped = tf.function(traced, autograph=False)
    wrapped.get_concrete_function(columns, KEY_SPEC)
    return stages


def field_specs(specs: Specs, place: str = "transforms") -> Spec:
    """The specs as they are told to trainers. Raises `ConfigError` for a shape that varies.

    `place` is the part of the definition that a message names.
    """
    return tuple(_field_spec(name, spec, place) for name, spec in specs.items())


def _located(step: Step, sample: Sample, key: tf.Tensor) -> Sample:
    ordinal, transform = step
    where = f"transforms[{ordinal}].{transform.name}"
    try:
        result = run(step, sample, key)
    except (ConfigError, UserCodeError) as error:
        # A transform tells its name itself, for errors that come while samples pass.
        message = error.message.removeprefix(f"{transform.name}: ")
        raise type(error)(f"{where}: {message}", stage=where) from error
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise ConfigError(
            f"{where}: {str(error).strip().splitlines()[0]}; the fields there are "
            f"{_shown(_specs(sample))}",
            stage=where,
        ) from error
    if not result:
        raise ConfigError(f"{where}: no field is left", stage=where)
    return result


def _specs(sample: Sample) -> Specs:
    return {name: tf.TensorSpec(value.shape, value.dtype) for name, value in sample.items()}


def _shown(specs: Specs) -> str:
    return ", ".join(f"{name}: {spec.dtype.name}{spec.shape}" for name, spec in specs.items())


def _field_spec(name: str, spec: tf.TensorSpec, place: str) -> FieldSpec:
    data_type = "bytes" if spec.dtype == tf.string else spec.dtype.name
    if data_type not in DATA_TYPES:
        raise ConfigError(
            f"{place}: field {name!r} ends as {data_type}, which cannot be sent; allowed: "
            f"{', '.join(DATA_TYPES)}"
        )
    if not spec.shape.is_fully_defined():
        raise ConfigError(
            f"{place}: field {name!r} ends with the shape {spec.shape}, which varies from "
            "sample to sample; batches have fixed shapes: end with resize, random_crop, "
            "random_resized_crop or another transform that fixes it (or `tf.ensure_shape` in your "
            "own function)"
        )
    return FieldSpec(name, data_type, tuple(spec.shape.as_list()))
