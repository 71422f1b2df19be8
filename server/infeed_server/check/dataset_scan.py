"""The scan of a sequential pipeline: its dataset is read once from its beginning."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed.shared.finish import apply
from infeed.shared.spec import BYTES, Array, FieldSpec
from infeed_server.check.indexed_scan import Advance
from infeed_server.check.ranges import SOURCE_STAGE, ClassCounts, FieldRange
from infeed_server.check.report import PipelineReport
from infeed_server.pipeline.sequential_plan import SequentialPlan


def scan_dataset(plan: SequentialPlan, limit: int | None, advance: Advance) -> PipelineReport:
    """Reads the dataset, or its first `limit` samples, and measures its fields.

    Raises `UserCodeError` where the dataset fails, and `ConfigError` for an endless one without a
    limit.
    """
    spec = plan.spec
    dataset = plan.dataset(spec.seed, spec.batch_size)
    if limit is None and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ConfigError("source.dataset: the dataset is endless; give --limit")
    # Of a dataset of batches, the number of batches is known, but not that of samples.
    report = PipelineReport(spec.name, None if plan.batched else spec.sample_count)
    ranges = [FieldRange(SOURCE_STAGE, each.name, *_described(each)) for each in spec.wire_spec]
    classes = {
        each.name: ClassCounts(each.name)
        for each in spec.wire_spec
        if not each.shape and (each.data_type == BYTES or "int" in each.data_type)
    }
    by_field = {each.name: each for each in spec.element_spec}
    for number, transform in enumerate(spec.finish_transforms):
        described = _described(by_field[transform.field])
        ranges.append(FieldRange(number, transform.field, *described))
        report.stages[number] = f"{number}: {transform}"
    report.ranges, report.classes = ranges, list(classes.values())
    try:
        for element in dataset:
            arrays = {name: np.asarray(value) for name, value in element.items()}
            left = None if limit is None else limit - report.scanned
            arrays = {name: rows[:left] for name, rows in arrays.items()}
            count = len(next(iter(arrays.values())))
            for name, counts in classes.items():
                counts.add(arrays[name])
            for each in ranges:
                if each.stage != SOURCE_STAGE:
                    transform = spec.finish_transforms[each.stage]
                    arrays[each.field] = apply(transform, arrays[each.field])
                each.add(_measures(arrays[each.field]))
            report.scanned += count
            advance(count)
            if limit is not None and report.scanned >= limit:
                break
    except tf.errors.OpError as error:
        raise plan.explain(error) or error from error
    return report


def _described(field: FieldSpec) -> tuple[str, str]:
    return field.data_type, str(list(field.shape))


def _measures(rows: Array) -> Array:
    """Returns measures of whole samples as `measures.py` makes them in a graph, without sizes."""
    flat = rows.reshape(len(rows), -1)
    if rows.dtype == object:
        flat = np.vectorize(len, otypes=[np.float64])(flat) if flat.size else flat
    numbers = flat.astype(np.float64)
    finite = np.isfinite(numbers)
    count = np.maximum(finite.sum(axis=1), 1)
    zeroed = np.where(finite, numbers, 0.0)
    return np.stack(
        [
            np.where(finite, numbers, np.inf).min(axis=1, initial=np.inf),
            np.where(finite, numbers, -np.inf).max(axis=1, initial=-np.inf),
            zeroed.sum(axis=1) / count,
            (zeroed**2).sum(axis=1) / count,
            (~finite).sum(axis=1),
            np.full(len(rows), numbers.shape[1]),
        ],
        axis=1,
    )
