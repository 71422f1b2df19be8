"""Fields of all samples, either known to the source or read from it."""

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
"""Samples read at once if a field is unknown."""


def field_values(
    source: Source, name: str, option: str, *, with_rows: bool = False
) -> npt.NDArray[Any]:
    """Returns a field of all samples, reading them if the source does not know it. Raises
    `ConfigError` for a field that does not exist, or that has several values in a sample; with
    `with_rows`, each sample of such a field has an array."""
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
            f"field {name!r} has shape {spec.shape} in each sample, but {option} takes one value; "
            f"mix parts of the source instead, each with a where such as any({name} == 0)",
            at=(option,),
        )
    log.warning(
        "%s reads all %d samples at each start, because the source does not know the field %r; an "
        "arrays, csv or images source knows its labels",
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
