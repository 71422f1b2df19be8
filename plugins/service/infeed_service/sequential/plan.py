"""The plan of a sequential pipeline, over a `tf.data.Dataset` that a function returns."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from infeed.shared.errors import ConfigError, KeyPath, SourceError, within
from infeed.shared.finish import finished_spec
from infeed.shared.spec import BYTES, FieldSpec, FinishTransform, Guarantee, PipelineSpec, Spec
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.fingerprint import fingerprint, kernel_selection
from infeed_server.version import VERSION
from infeed_service.sequential.source import DatasetSource


@dataclass(frozen=True)
class SequentialPlan:
    """A sequential pipeline, ready to run. If `batched`, the dataset's elements are whole batches
    and a position counts them."""

    source: DatasetSource
    spec: PipelineSpec
    batched: bool

    def dataset(self, seed: int, slots: int) -> tf.data.Dataset:
        """Returns the user's dataset for a seed; elements are dicts of arrays, slots first."""
        dataset = self.source.make(seed)
        if not self.batched:
            dataset = dataset.batch(slots)
        return dataset.prefetch(2)

    def empty_error(self) -> SourceError:
        return SourceError(f"the dataset of {self.source.label} is empty", pipeline=self.spec.name)


def plan_sequential(name: str, definition: Pipeline) -> SequentialPlan:
    """Plans a pipeline over a dataset function. Raises `ConfigError` and `UserCodeError`."""
    source = definition.source
    assert isinstance(source, DatasetSource)
    _refuse_indexed_options(definition)
    with within("source", "dataset"):
        dataset = source.make(definition.shuffle.seed)
    batched = definition.batch is None
    wire_spec, batch_size = _specs(dataset, definition)
    finish = _finish(definition, wire_spec)
    cardinality = int(dataset.cardinality())
    count = cardinality if cardinality >= 0 else None
    if definition.batch and count is not None:
        definition.batch.check(count)
    deterministic = source.is_deterministic(dataset)
    spec = PipelineSpec(
        name=name,
        element_spec=finished_spec(wire_spec, finish),
        wire_spec=wire_spec,
        finish_transforms=finish,
        sample_count=count,
        fingerprint=fingerprint(
            source=source.identity(),
            transforms=[transform.identity() for transform in definition.transforms],
            batched=batch_size if batched else None,
            kernels=kernel_selection(),
        ),
        guarantee=Guarantee("deterministic", "exactly_once", "replay")
        if deterministic
        else Guarantee("none", "at_most_once", "none"),
        batch_size=batch_size,
        seed=definition.shuffle.seed,
        remainder=definition.batch.remainder if definition.batch else "pad",
        on_error=definition.on_error,
        batch_stride=1 if batched else 0,
        server_version=VERSION,
        source_kind=source.kind,
        shuffle_mode="own",
    )
    return SequentialPlan(source, spec, batched)


def _refuse_indexed_options(definition: Pipeline) -> None:
    """Raises `ConfigError` for options that require samples by index."""
    shuffle = definition.shuffle
    if shuffle.mode != "none" and "mode" in shuffle.model_fields_set:
        raise ConfigError(
            "a dataset has its own order; call shuffle() in the dataset function, where "
            "shuffle.seed seeds it",
            at=("shuffle", "mode"),
        )
    given: list[KeyPath] = [
        (name,) for name in ("add", "remove", "skip", "targets") if getattr(definition, name)
    ]
    given += [("shuffle", "order")] * (shuffle.order == "stable")
    if given:
        raise ConfigError(
            "a dataset has no samples by index; do it in the dataset function instead",
            at=given[0],
        )
    if definition.on_error != "raise":
        raise ConfigError(
            f"a dataset has no samples by index to {definition.on_error}; call ignore_errors() in "
            "the dataset function",
            at=("on_error",),
        )


def _specs(dataset: tf.data.Dataset, definition: Pipeline) -> tuple[tuple[FieldSpec, ...], int]:
    """Returns the fields of a sample and the number of slots in a batch."""
    element = dict(dataset.element_spec)
    if definition.batch is not None:
        return sample_graph.field_specs(element, "source", "dataset"), definition.batch.size
    per_sample = {}
    for field, spec in element.items():
        if not spec.shape.rank:
            raise ConfigError(
                f"missing, but the dataset's elements are not batches: field {field!r} is a single "
                "value; add a batch, such as batch: {size: 32}",
                at=("batch",),
            )
        per_sample[field] = tf.TensorSpec(spec.shape[1:], spec.dtype)
    return sample_graph.field_specs(per_sample, "source", "dataset"), _slots(dataset, element)


def _slots(dataset: tf.data.Dataset, element: sample_graph.Specs) -> int:
    known = {spec.shape[0] for spec in element.values()}
    if None in known:
        # `batch` without drop_remainder leaves the size open; the first element has it.
        for first in dataset.take(1):
            known = {int(value.shape[0]) for value in first.values()}
    if len(known) != 1 or None in known:
        sizes = sorted(str(size) for size in known)
        raise ConfigError(
            f"the fields of an element differ in their first dimension ({', '.join(sizes)}), so "
            "it is not a batch; add batch: {size: n}",
            at=("source", "dataset"),
        )
    return int(known.pop())


def _finish(definition: Pipeline, fields: Spec) -> tuple[FinishTransform, ...]:
    result = []
    for number, transform in enumerate(definition.transforms):
        finish = transform.finish_transform()
        if finish is None or transform.random:
            raise ConfigError(
                "cannot follow a dataset source, where only finish transforms can (cast, "
                "normalize, one_hot); put it into the dataset function",
                at=("transforms", number, transform.name),
            )
        result.append(finish)
    # Raises for an invalid field or option, as with any other source.
    steps = list(enumerate(definition.transforms))
    sample_graph.trace_columns(_tensor_specs(fields), lambda sample: sample, steps)
    return tuple(result)


def _tensor_specs(fields: Spec) -> sample_graph.Specs:
    return {
        field.name: tf.TensorSpec(
            field.shape, tf.string if field.data_type == BYTES else tf.as_dtype(field.data_type)
        )
        for field in fields
    }
