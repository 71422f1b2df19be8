"""Selected samples of a source, as a source with its own sample numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import InfeedError
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.concat import renumbered
from infeed_server.sources.places import Indices, Places, Provenance
from infeed_server.sources.work import PythonWork


class _Places(Places):
    """The places of selected samples."""

    def __init__(self, places: Places, ids: Indices) -> None:
        self._places, self._ids, self.stamp = places, ids, places.stamp

    def __len__(self) -> int:
        return len(self._ids)

    def provenance(self, index: int) -> Provenance:
        return self._places.provenance(int(self._ids[index]))

    def samples_in(self, end: str) -> Iterator[range]:
        for found in self._places.samples_in(end):
            inside = (self._ids >= found.start) & (self._ids < found.stop)
            for index in np.flatnonzero(inside).tolist():
                yield range(index, index + 1)

    def close(self) -> None:
        self._places.close()


class SelectedSource(Source):
    """The samples `ids` of a source in this order; each takes 8 bytes of memory."""

    def __init__(self, source: Source, ids: Indices, selection: Any) -> None:
        """Takes over the source. `selection`, a JSON value, describes how the ids were chosen."""
        self.source, self.ids = source, ids
        self.shown, self.exif = source.shown, source.exif
        content = json.dumps([source.identity, selection, len(ids)])
        super().__init__(
            _Places(source.places, ids),
            source.columns,
            hashlib.sha256(content.encode()).hexdigest(),
            parsed=source.parsed,
            classes=source.classes,
            advice=source.advice,
        )

    def read(self, indices: Indices) -> Columns:
        ids = self.ids[indices]
        try:
            return self.source.read_checked(ids)
        except InfeedError as error:
            if (bad := error.metadata.get("sample_id")) is None:
                raise
            index = int(indices[np.flatnonzero(ids == int(bad))[0]])
            raise renumbered(error, index) from error

    def known_fields(self) -> Mapping[str, npt.NDArray[Any]]:
        return {name: values[self.ids] for name, values in self.source.known_fields().items()}

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        values = self.source.whole_field(name)
        return None if values is None else values[self.ids]

    def parse(self, columns: Sample) -> Sample:
        return self.source.parse(columns)

    def work(self) -> PythonWork:
        return self.source.work()

    def close(self) -> None:
        self.source.close()
