"""The reader of samples for checks, which notes and leaves out samples that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from infeed.shared.errors import InfeedError, SampleError, SourceError
from infeed.shared.spec import Array
from infeed_server.engines.indexed.examination import SampleFailure, find_bad_sample
from infeed_server.order import RunOrder
from infeed_server.sources.base import Columns, Source
from infeed_server.storage.faults import one_line
from infeed_server.transforms.base import Step


class SampleReader:
    """Reads samples under their keys in the first epoch. Thread-safe if the source is."""

    def __init__(self, source: Source, steps: Sequence[Step], order: RunOrder) -> None:
        self.unread: dict[int, InfeedError] = {}
        """The errors of the samples left out, by sample id."""
        self._source = source
        self._steps = steps
        self._order = order

    def read(self, index: Array) -> tuple[Array, Columns]:
        """Returns the readable samples, int64[n], and their columns. Raises `SourceError` for a
        storage fault."""
        while len(index):
            try:
                return index, self._source.read_keyed(index, self.keys(index))
            except SampleError as error:
                bad = int(error.metadata["sample_id"])
                self.unread[bad] = error
                index = index[index != bad]
            except SourceError:
                raise
            except Exception as error:  # code of other packages may raise anything
                good = self._without_raising(index)
                if len(good) == len(index):
                    raise SourceError(
                        f"{len(index)} samples cannot be read together, although each can be read "
                        f"alone: {one_line(error)}"
                    ) from error
                index = good
        return index, {}

    def keys(self, index: Any) -> Array:
        """Returns the keys of samples, int64[n, 2]."""
        return self._order.last.keys(np.zeros(len(index), np.int64), np.asarray(index, np.int64))

    def failure(self, index: int) -> SampleFailure | None:
        """Returns why a sample alone cannot be read or transformed; None if it can."""
        return find_bad_sample(self._source, self._steps, index, self.keys([index])[0])

    def _without_raising(self, index: Array) -> Array:
        """Leaves out samples that raise an error which does not name them."""
        failures = {number: self.failure(number) for number in index.tolist()}
        self.unread |= {number: failure.error for number, failure in failures.items() if failure}
        return np.array(
            [number for number in index.tolist() if failures[number] is None], index.dtype
        )
