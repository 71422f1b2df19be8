"""Mixed source: the samples of several parts in the order of a mixture."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import ConfigError
from infeed_mixtures.mixture import Mixture
from infeed_mixtures.order import MixedOrder
from infeed_server.order import SampleOrder
from infeed_server.pipeline.fingerprint import kernel_selection
from infeed_server.sources.base import Columns, Sample, Source
from infeed_server.sources.places import Indices
from infeed_server.sources.work import PythonWork
from infeed_server.storage.files import abbreviate

log = logging.getLogger(__name__)

_MAX_SHOWN = 12
"""Parts named in one line of the log."""


@dataclass(frozen=True)
class Course:
    """The epochs of a mixture: their number of positions (None: the number of samples), whether
    they stop at the first part without samples left, and the maximum epochs of each part.
    """

    epoch: int | None = None
    stops: bool = False
    max_epochs: tuple[int | None, ...] = ()


class MixedSource(Source):
    """Samples numbered part by part, in the order of a mixture."""

    def __init__(
        self,
        source: Source,
        sizes: Sequence[int],
        mixture: Mixture,
        course: Course,
        transforms: Sequence[Any] = (),
    ) -> None:
        """Takes over the source. Raises `ConfigError` for an impossible epoch."""
        self.source, self.transforms = source, transforms
        self.shown, self.exif = source.shown, source.exif
        self.part_sizes = dict(zip(mixture.names, sizes, strict=True))
        self._mixture, self._course = mixture, course
        self._length = self._epoch_length()
        counts = mixture.counts(self._length).tolist()
        epochs = [
            f"{name} {count / size:.3g}"
            for name, size, count in zip(mixture.names, sizes, counts, strict=True)
        ]
        log.info(
            "an epoch of %d positions contains these epochs of its parts: %s",
            self._length,
            abbreviate(epochs, _MAX_SHOWN),
        )
        steps = [transform.identity() for transform in transforms]
        has_other_code = any(transform.has_other_code for transform in transforms)
        kernels = kernel_selection() if has_other_code else None
        limits = [course.stops, course.max_epochs]
        self.arrangement = [mixture.digest, self._length, limits, steps, kernels]
        super().__init__(
            source.places,
            source.columns,
            source.identity,
            parsed=source.parsed and not transforms,
            classes=source.classes,
            advice=source.advice,
        )

    def order(self, plain: SampleOrder) -> SampleOrder:
        if plain.removed.shrinks:
            raise ConfigError(
                "shrink cannot go with a mixture, whose epochs have their own length; leave it "
                "out, and other samples of the same part take their place",
                at=("remove", "then"),
            )
        most = self._course.max_epochs
        order = MixedOrder(
            count=self._length,
            seed=plain.seed,
            mode=plain.mode,
            block=plain.block,
            window=plain.window,
            removed=plain.removed,
            mixture=self._mixture,
            sizes=tuple(self.part_sizes.values()),
            restarts=self._course.stops,
            max_epochs=tuple(n or 1 << 62 for n in most) if any(most) else (),
        )
        gone = np.bincount(order.parts_of(plain.removed.ids), minlength=len(order.sizes))
        for name, size, count in zip(self.part_sizes, order.sizes, gone.tolist(), strict=True):
            if size == count:
                raise ConfigError(f"lists all {size} samples of part {name!r}; keep at least one")
        return order

    def read(self, indices: Indices) -> Columns:
        return self.source.read_checked(indices)

    def parse(self, columns: Sample) -> Sample:
        return self.source.parse(columns)

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.source.sources

    def known_fields(self) -> Mapping[str, npt.NDArray[Any]]:
        return self.source.known_fields()

    def whole_field(self, name: str) -> npt.NDArray[Any] | None:
        return self.source.whole_field(name)

    def work(self) -> PythonWork:
        return self.source.work()

    def close(self) -> None:
        self.source.close()

    def _epoch_length(self) -> int:
        sizes, names = [*self.part_sizes.values()], self._mixture.names
        if self._course.stops:
            return min(self._first(part, size) for part, size in enumerate(sizes))
        length = self._course.epoch or sum(sizes)
        for part, most in enumerate(self._course.max_epochs):
            if most and (position := self._first(part, most * sizes[part])) < length:
                raise ConfigError(
                    f"part {names[part]!r} begins its epoch {most + 1} at about position "
                    f"{position}, but an epoch of the mixture has {length} positions; raise "
                    f"max_epochs, lower the weight, or shorten epoch to {max(1, position)}",
                    at=("mix", names[part], "max_epochs"),
                )
        return length

    def _first(self, part: int, draw: int) -> int:
        """Returns the number of a draw in the schedule, or one after all positions."""
        number = int(self._mixture.numbers(part, np.array([draw]))[0])
        return number if number >= 0 else 1 << 62
