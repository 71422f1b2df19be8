"""A pipeline whose batches are made by the workers of TensorFlow's data service: the gateway.

Trainers without TensorFlow ask for batches here as of any other pipeline; each reading is one
consumer of a job, and the ranks of one feed share a reading.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Generator
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.errors import InfeedError, InvalidRequestError, SourceError, UserCodeError
from infeed.registered import Compression, DatasetRequest, RegisteredDataset
from infeed.spec import Array, PipelineSpec
from infeed_server.cluster.service import Service
from infeed_server.engines.ahead import Ahead
from infeed_server.engines.blocks import Block, Element, Kind
from infeed_server.pipeline.spread import SpreadPlan, Variant

_MOST_DATASETS = 1024
"""Data sets of one pipeline. A dispatcher never forgets one, and who asks chooses the seed."""


class ServiceDataset:
    """A `Readable`. Positions count the slots of the batches as they come, whoever made them."""

    shared = True

    def __init__(self, plan: SpreadPlan, service: Service) -> None:
        self._plan = plan
        self._service = service
        self._registered: set[str] = set()

    def prepare(self) -> None:
        """Registers what trainers get who ask for nothing else, so that what is wrong with it is
        known at once. Raises `ConfigError` and `ServerUnavailableError`."""
        self.register(DatasetRequest(self.spec.name))

    @property
    def spec(self) -> PipelineSpec:
        return self._plan.spec

    @property
    def whole(self) -> bool:
        return False

    def read(self, kind: Kind) -> Generator[Element, None, None]:
        spec = self.spec
        remainder = kind.remainder or spec.remainder
        variant = Variant(kind.slots, kind.seed, kind.epochs, remainder)
        dataset_id = self._register(variant, self._service.compression)
        job_name = kind.job_name or f"{spec.name}-{uuid.uuid4().hex}"
        dataset = self._service.read(dataset_id, job_name)
        ahead = Ahead(dataset, self._service.require, f"infeed-service-{spec.name}")
        position = counted = 0
        with contextlib.closing(ahead):
            for fields, about in ahead:
                ids = _sample_ids(about, counted)
                counted += int(np.count_nonzero(about["mask"]))
                yield Element(position, kind.slots, int(about["epoch"]), fields, ids)
                position += kind.slots
        if not position:
            raise _nothing(kind)

    def check_first(self, kind: Kind, first: Block) -> None:
        """Nothing is promised of what comes first."""

    def explain(self, error: Exception) -> InfeedError | None:
        if not isinstance(error, tf.errors.OpError):
            return None
        name = self.spec.name
        said = error.message.strip()
        if isinstance(error, tf.errors.UnavailableError):
            return SourceError(
                f"TensorFlow's data service gives no more batches of {name!r}: {said}",
                pipeline=name,
            )
        return UserCodeError(
            f"a worker of TensorFlow's data service could not make a batch of {name!r}: {said}\n"
            "Which sample it was, a worker does not tell: on_error: mask or substitute goes on "
            "without it, and --engine local names it",
            pipeline=name,
        )

    def register(self, request: DatasetRequest) -> RegisteredDataset:
        spec = self.spec
        variant = Variant(
            request.batch_size or spec.batch_size,
            spec.seed if request.seed is None else request.seed,
            request.epochs,
            request.remainder or spec.remainder,
            hint=request.shard_hint,
        )
        dataset_id = self._register(variant, request.compression or self._service.compression)
        return RegisteredDataset(
            dispatcher_address=self._service.address,
            dataset_id=dataset_id,
            tensorflow_version=tf.__version__,
            seed=variant.seed,
            batch_size=variant.batch_size,
            may_mask=self._plan.may_mask(variant),
            lost_workers=self._service.lost_workers,
        )

    def _register(self, variant: Variant, compression: Compression) -> str:
        plan = self._plan
        dataset_id = plan.dataset_id(variant, compression)
        if dataset_id not in self._registered and len(self._registered) >= _MOST_DATASETS:
            raise InvalidRequestError(
                f"{plan.spec.name!r} was asked for in {_MOST_DATASETS} ways (seeds, batch sizes, "
                "numbers of epochs) already, each of which the dispatcher keeps: take one of them, "
                "or restart server and dispatcher",
                pipeline=plan.spec.name,
            )
        self._service.register(dataset_id, compression, lambda: plan.dataset(variant))
        self._registered.add(dataset_id)
        return dataset_id


def _sample_ids(about: dict[str, Any], counted: int) -> Array:
    """The indices of the samples; where a source has none, they count on from `counted`."""
    if "sample_ids" in about:
        ids: Array = np.asarray(about["sample_ids"])
        return ids
    mask = np.asarray(about["mask"])
    return np.where(mask, counted + np.cumsum(mask) - 1, -1)


def _nothing(kind: Kind) -> InfeedError:
    if kind.job_name:
        return InvalidRequestError(
            f"the job {kind.job_name!r} gave no batch: it has ended already, or its other "
            "consumers took all there was; take another job_name",
            job_name=kind.job_name,
        )
    return SourceError(
        "the workers of TensorFlow's data service gave no batch: those that had the data are lost, "
        "or there is none"
    )


__all__ = ["ServiceDataset"]
