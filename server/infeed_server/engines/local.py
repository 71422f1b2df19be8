"""A user's dataset, read in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import numpy as np

from infeed.errors import InfeedError, SourceError
from infeed.registered import DatasetRequest, RegisteredDataset
from infeed.spec import PipelineSpec
from infeed_server.engines.base import made_here
from infeed_server.engines.blocks import Block, Element, Kind
from infeed_server.engines.iteration import Iteration
from infeed_server.engines.witness import Witness
from infeed_server.pipeline.sequential import SequentialPlan


class LocalDataset:
    """A `Readable`: the dataset epoch after epoch. Samples are counted from 0 in each."""

    shared = False

    def __init__(self, plan: SequentialPlan) -> None:
        self._plan = plan
        self._witness = Witness(plan)

    @property
    def spec(self) -> PipelineSpec:
        return self._plan.spec

    @property
    def whole(self) -> bool:
        return self._plan.batched

    def read(self, kind: Kind) -> Generator[Element, None, None]:
        return _read(self._plan, kind)

    def check_first(self, kind: Kind, first: Block) -> None:
        if self.spec.guarantee.order == "deterministic":
            self._witness.check(kind, first)

    def explain(self, error: Exception) -> InfeedError | None:
        return self._plan.explain(error)

    def register(self, request: DatasetRequest) -> RegisteredDataset:
        raise made_here(request.pipeline, "data set to read from workers")


# No method: a reader that nobody uses any more shall go at once, with its window, which a
# generator that holds it would prevent.
def _read(plan: SequentialPlan, kind: Kind) -> Generator[Element, None, None]:
    position = epoch = 0
    dataset = plan.dataset(kind.seed, kind.slots)
    while not kind.epochs or epoch < kind.epochs:
        seen = 0
        with contextlib.closing(Iteration(dataset)) as elements:
            for number, values in enumerate(elements):
                rows = _rows(plan, values, kind.slots, f"element {number} of epoch {epoch}")
                length = 1 if plan.batched else rows
                yield Element(position, length, epoch, values, seen + np.arange(rows))
                position += length
                seen += rows
        if not seen:
            raise plan.empty()
        epoch += 1


def _rows(plan: SequentialPlan, values: dict[str, Any], slots: int, where: str) -> int:
    """The rows of an element. Raises `SourceError` where they do not fit the slots."""
    counts = {name: int(value.shape[0]) for name, value in values.items()}
    rows = next(iter(counts.values()))
    if rows <= slots and set(counts.values()) == {rows}:
        return rows
    told = ", ".join(f"{name!r} has {count} rows" for name, count in counts.items())
    raise SourceError(
        f"the dataset of {plan.source.label}: {where} is no batch of {slots} samples or fewer: "
        f"{told}",
        pipeline=plan.spec.name,
    )


__all__ = ["LocalDataset"]
