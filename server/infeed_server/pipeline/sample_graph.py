"""The graph of one sample: a source's columns, the transforms, the fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from infeed.shared.errors import ConfigError, InfeedError, within
from infeed.shared.spec import DATA_TYPES, Array, FieldSpec, Spec
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.transforms.base import (
    Step,
    describe_tensor,
    draw_number,
    format_shape,
)

SampleFunction = Callable[[Sample, tf.Tensor], Sample]
"""(columns, key) → fields."""

ColumnsFunction = Callable[[Columns, Array], Mapping[str, tf.Tensor]]
"""(columns, keys) → fields, of any number of samples."""

Specs = dict[str, tf.TensorSpec]
"""Field name → tensor spec of one sample."""

KEY_SPEC = tf.TensorSpec([2], tf.int64)


def apply_step(step: Step, sample: Sample, key: tf.Tensor) -> Sample:
    """Applies a transform to a sample, with a random key of its own."""
    return step[1].apply(sample, step_key(step, key))


def step_key(step: Step, key: tf.Tensor) -> tf.Tensor:
    """Returns the key of a transform, from the sample's key."""
    _, transform = step
    return fold(key, draw_number(transform.draw_name)) if transform.random else key


def fold(key: tf.Tensor, number: int) -> tf.Tensor:
    """Derives a key, int64[2], unique to the number: 64 bits drawn from `key`, and `number`."""
    # The number's type is the type of the new key: a Python int would leave 32 of its bits.
    return tf.random.experimental.stateless_fold_in(key, tf.constant(number, tf.int64))


def sample_function(source: Source, steps: Sequence[Step]) -> SampleFunction:
    """Returns the function from a sample's columns to its fields, for `Dataset.map`."""

    def transform(columns: Sample, key: tf.Tensor) -> Sample:
        sample = source.parse(columns)
        for step in steps:
            sample = apply_step(step, sample, key)
        return sample

    return transform


def columns_function(
    columns: Mapping[str, tf.TensorSpec], function: SampleFunction, *, parallel: bool = True
) -> ColumnsFunction:
    """Returns the traced function of any number of samples, from columns of these specs. It makes
    them as the graph of batches does, so the bits are the same. If a sample takes less time than a
    change of threads, they should not be `parallel`."""
    signature = {
        name: tf.TensorSpec([None, *spec.shape], spec.dtype) for name, spec in columns.items()
    }
    specs = [signature, tf.TensorSpec([None, 2], tf.int64)]

    @tf.function(input_signature=specs, autograph=False)  # type: ignore[untyped-decorator]
    def run(columns: Sample, keys: tf.Tensor) -> Sample:
        count = tf.shape(keys, out_type=tf.int64)[0]
        samples = tf.data.Dataset.from_tensor_slices((columns, keys))
        threads = tf.data.AUTOTUNE if parallel else None
        mapped = samples.map(tf.autograph.experimental.do_not_convert(function), threads)
        fields: Sample = mapped.batch(count).get_single_element()
        return fields

    # Called without a check for other signatures, about which TensorFlow would warn.
    return run.get_concrete_function()  # type: ignore[no-any-return]


class Traced(NamedTuple):
    """The fields before each step and after the last, and for each the source's field whose classes
    it still has."""

    stages: list[Specs]
    origins: list[Mapping[str, str]]


def trace(source: Source, steps: Sequence[Step]) -> Traced:
    """Traces the steps. Raises `ConfigError` that names the step with an invalid option or field,
    and `UserCodeError` when a user's function raises."""
    return trace_columns(dict(source.columns), source.parse, steps)


def trace_columns(
    columns: Specs, parse: Callable[[Sample], Sample], steps: Sequence[Step]
) -> Traced:
    """Traces the steps as `trace` does, over columns that `parse` turns into a sample."""
    stages: list[Specs] = []
    origins: list[Mapping[str, str]] = []

    def traced(columns: Sample, key: tf.Tensor) -> Sample:
        sample = parse(columns)
        stages.append(_specs(sample))
        origin = {id(value): name for name, value in sample.items()}
        origins.append({name: name for name in sample})
        kept = [sample]  # an id means this tensor as long as it lives
        for step in steps:
            before, sample = sample, _apply_located(step, sample, key)
            stages.append(_specs(sample))
            kept.append(sample)
            same = before.keys() & sample.keys() if step[1].keeps_classes else set()
            for field in same & (step[1].fields() or set()):
                origin[id(sample[field])] = origin.get(id(before[field]), "")
            origin.update({id(sample[field]): field for field in step[1].class_fields})
            named = {name: origin.get(id(value), "") for name, value in sample.items()}
            origins.append({name: field for name, field in named.items() if field})
        return sample

    wrapped = tf.function(traced, autograph=False)
    wrapped.get_concrete_function(columns, KEY_SPEC)
    return Traced(stages, origins)


def field_specs(specs: Specs, *place: str) -> Spec:
    """Returns the specs for trainers. Raises `ConfigError` for a shape that varies, at `place` or
    at the transforms."""
    with within(*(place or ("transforms",))):
        _refuse_rows(specs)
        return tuple(_field_spec(name, spec) for name, spec in specs.items())


def rows_beside(boxes: str, specs: Specs) -> list[str]:
    """Returns the fields that may have a row for each box: the same number of rows, or any."""
    count = specs[boxes].shape[0] if boxes in specs else None
    return [
        name
        for name, spec in specs.items()
        if name != boxes and spec.shape.rank and spec.shape[0] in (None, count)
        if spec.shape[1:].is_fully_defined()
    ]


def _refuse_rows(specs: Specs) -> None:
    """Raises `ConfigError` for fields where only the number of rows varies."""
    loose = [
        name
        for name, spec in specs.items()
        if spec.shape.rank and spec.shape[0] is None and spec.shape[1:].is_fully_defined()
    ]
    if not loose:
        return
    of_boxes = [name for name, spec in specs.items() if spec.shape.rank == 2 and spec.shape[1] == 4]
    boxes = next((n for n in of_boxes if n in loose or f"{n}_count" in specs), "boxes")
    together = f"with: [{', '.join(rows_beside(boxes, specs))}]"
    remedy = f"write targets: {{{boxes}: {{boxes: {{{together}, pad: N}}}}}}, with N the most "
    remedy += "boxes of a picture"
    if boxes in specs and boxes not in loose:
        remedy = f"give the targets {together} of {boxes!r}, where these are padded"
    shape = format_shape(specs[loose[0]].shape)
    raise ConfigError(
        f"field {loose[0]!r} ends with the shape {shape}, whose rows vary from sample to sample, "
        f"but batches have fixed shapes. For one row per box, {remedy}; otherwise end with "
        "tf.ensure_shape in your own function"
    )


def _apply_located(step: Step, sample: Sample, key: tf.Tensor) -> Sample:
    ordinal, transform = step
    with within(*(("transforms", ordinal) if ordinal >= 0 else ("source",))):
        try:
            result = apply_step(step, sample, key)
        except InfeedError:
            raise
        except (ValueError, TypeError, tf.errors.OpError) as error:
            found = ", ".join(f"{n}: {describe_tensor(spec)}" for n, spec in sample.items())
            problem = str(error).strip().splitlines()[0]
            raise transform.error(f"{problem}; its fields are {found}") from error
        if not result:
            raise transform.error("no field is left")
    return result


def _specs(sample: Sample) -> Specs:
    return {name: tf.TensorSpec(value.shape, value.dtype) for name, value in sample.items()}


def _field_spec(name: str, spec: tf.TensorSpec) -> FieldSpec:
    data_type = "bytes" if spec.dtype == tf.string else spec.dtype.name
    if data_type not in DATA_TYPES:
        raise ConfigError(
            f"field {name!r} ends as {data_type}, which cannot be sent; allowed: "
            f"{', '.join(DATA_TYPES)}"
        )
    if not spec.shape.is_fully_defined():
        raise ConfigError(
            f"field {name!r} ends with the shape {format_shape(spec.shape)}, which varies from "
            "sample to sample, but batches have fixed shapes; end with resize to a size, a crop, "
            "pad, or `tf.ensure_shape` in your own function"
        )
    return FieldSpec(name, data_type, tuple(spec.shape.as_list()))
