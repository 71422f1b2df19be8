"""Fields of all samples of a source: known to it, or read."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import ConfigError
from infeed_mixtures.rows import has_rows
from infeed_server.config.model import did_you_mean
from infeed_server.pipeline.sample_graph import columns_function, trace
from infeed_server.sources.base import Sample, Source

log = logging.getLogger(__name__)

_AT_ONCE = 1024
"""Samples that are read at once where a field is not known."""


def field_values(
    source: Source, name: str, option: str, *, with_rows: bool = False
) -> npt.NDArray[Any]:
    """Returns a field of all samples, which are read where it is not known. Raises `ConfigError`
    for one that is not there, and one with several values in a sample, unless it is `with_rows`:
    then each sample has an array."""
    known = source.whole_field(name)
    if known is not None and (with_rows or not has_rows(known)):
        return known
    fields = trace(source, ()).stages[0]
    if name not in fields:
        available = ", ".join(sorted({*fields, *source.known_fields()}))
        hint = did_you_mean(name, [*fields])
        raise ConfigError(f"no field {name!r}{hint}; available: {available}", at=(option,))
    spec = fields[name]
    if not with_rows and spec.shape.rank != 0:
        raise ConfigError(
            f"field {name!r} has the shape {spec.shape} in each sample, and {option} takes one "
            f"value; mix parts of the source instead, each with a where such as any({name} == 0)",
            at=(option,),
        )
    log.warning(
        "%s reads all %d samples at each start, as the field %r is not known without; an arrays, "
        "csv or images source knows its labels",
        option,
        len(source),
        name,
    )

    def one(columns: Sample, _: Any) -> Sample:
        value = source.parse(columns)[name]
        return {name: value if spec.shape.rank == 0 else tf.io.serialize_tensor(value)}

    run = columns_function(source.columns, one)
    values = []
    for begin in range(0, len(source), _AT_ONCE):
        indices = np.arange(begin, min(len(source), begin + _AT_ONCE))
        keys = np.zeros((len(indices), 2), np.int64)
        read = np.asarray(run(source.read_checked(indices), keys)[name])
        if spec.shape.rank != 0:
            rows = [tf.io.parse_tensor(one, spec.dtype).numpy() for one in read]
            read = np.empty(len(rows), object)
            read[:] = rows
        values.append(read)
    return np.concatenate(values)
