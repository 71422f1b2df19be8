"""Examination of one sample: whether it is bad, at which stage, and where it is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import InfeedError, SampleError, SourceError, UserCodeError, format_path
from infeed.shared.spec import Array
from infeed_server.pipeline import sample_graph
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.storage.faults import is_storage_fault, one_line, retry_faults
from infeed_server.storage.git_lfs import name_pointer
from infeed_server.transforms.base import Step

_FUNCTIONS = "map"
"""The stage of functions in Python, whose errors name the function's stage."""


@dataclass(frozen=True)
class SampleFailure:
    """The error of a bad sample. `depends_on_key`: the sample may be good under another key."""

    error: InfeedError
    depends_on_key: bool


Look = Callable[[Source | Step, Sample], None]
"""Receives the columns of a sample, with their source, and the sample before each step."""


def _ignore(_: Source | Step, __: Sample) -> None:
    """Looks at nothing."""


def find_bad_sample(
    source: Source, steps: Sequence[Step], index: int, key: Array, look: Look = _ignore
) -> SampleFailure | None:
    """Runs the pipeline on one sample. Returns its failure; None if it is good. Raises
    `SourceError` for a storage fault that remains after retries."""
    examine = partial(_examine, source, steps, index, key, look)
    subject = f"sample {index} ({source.provenance(index)})"
    failure = retry_faults(examine, subject, is_storage_fault)
    if failure is not None:
        name_pointer(failure.error)
    return failure


def _examine(
    source: Source, steps: Sequence[Step], index: int, key: Array, look: Look
) -> SampleFailure | None:
    stage: str | Step = "read"
    depends_on_key = False
    sample: Sample = {}
    try:
        indices = np.array([index], np.int64)
        if source.behind is not None:
            look(source.behind, _first_row(source.behind.read_checked(indices)))
            stage, depends_on_key = _FUNCTIONS, bool(source.keyed_stages)
        columns = source.read_keyed(indices, np.asarray(key)[None])
        sample = _first_row(columns)
        stage = "parse"
        if source.behind is None:
            look(source, sample)
        sample = source.parse(sample)
        for step in steps:
            stage = step
            depends_on_key = depends_on_key or step[1].random
            look(step, sample)
            sample = sample_graph.apply_step(step, sample, tf.constant(key))
    except SampleError as error:
        return SampleFailure(error, depends_on_key)
    except SourceError:
        raise  # A missing or changed file is no fault of the sample.
    except Exception as error:  # a user's function may raise anything
        if is_storage_fault(error):
            raise
        found = _describe(source, index, stage, error, sample)
        return SampleFailure(found, depends_on_key)
    return None


def _first_row(columns: Columns) -> Sample:
    return {name: tf.constant(rows[0]) for name, rows in columns.items()}


def _describe(
    source: Source, index: int, stage: str | Step, error: Exception, sample: Sample
) -> InfeedError:
    origin = source.provenance(index)
    name = stage if isinstance(stage, str) else f"transforms[{stage[0]}].{stage[1].display_name}"
    if stage == _FUNCTIONS and isinstance(error, InfeedError):
        name = format_path(error.at) or name
    metadata: dict[str, Any] = {
        "sample_id": index,
        "file": origin.file,
        "offset": origin.offset,
        "stage": name,
    }
    prefix = f"sample {index} ({origin}): {name}: "
    if isinstance(error, UserCodeError):
        return UserCodeError(prefix + error.problem, **metadata)
    reasons = ["" if isinstance(stage, str) else stage[1].explain(sample), one_line(error)]
    return SampleError(prefix + ": ".join(filter(None, reasons)), **metadata)
