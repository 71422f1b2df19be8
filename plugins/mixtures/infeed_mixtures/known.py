"""Fields of all samples of a source: known to it, or read."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import ConfigError
from infeed_server.config.model import did_you_mean
from infeed_server.pipeline.sample_graph import columns_function, trace
from infeed_server.sources.base import Sample, Source

log = logging.getLogger(__name__)

_AT_ONCE = 1024
"""Samples that are read at once where a field is not known."""


def field_values(source: Source, name: str, option: str) -> npt.NDArray[Any]:
    """Returns a field of all samples, which are read where it is not known. Raises `ConfigError`
    for one that is not there, or is no number or text."""
    known = source.whole_field(name)
    if known is not None:
        return known
    fields = trace(source, ()).stages[0]
    if name not in fields:
        available = ", ".join(sorted({*fields, *source.known_fields()}))
        hint = did_you_mean(name, [*fields])
        raise ConfigError(f"no field {name!r}{hint}; available: {available}", at=(option,))
    if fields[name].shape.rank != 0:
        raise ConfigError(
            f"field {name!r} has the shape {fields[name].shape} in each sample, and {option} takes "
            "fields with one value; list the ids of samples to leave out in remove, or write a "
            "python source that has such a value as a field",
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
        return {name: source.parse(columns)[name]}

    run = columns_function(source.columns, one)
    values = []
    for begin in range(0, len(source), _AT_ONCE):
        indices = np.arange(begin, min(len(source), begin + _AT_ONCE))
        keys = np.zeros((len(indices), 2), np.int64)
        values.append(np.asarray(run(source.read_checked(indices), keys)[name]))
    return np.concatenate(values)
