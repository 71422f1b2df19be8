"""The dataset backend of a pipeline whose batches are made by workers of the tf.data service.

Trainers without TensorFlow read such a pipeline like any other. Each read is one consumer of a job,
and the ranks of one feed share a read.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import (
    InfeedError,
    InvalidRequestError,
    ServerError,
    SourceError,
    UserCodeError,
)
from infeed.shared.spec import Array, PipelineSpec
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.storage.faults import is_storage_fault
from infeed_service.dataset import Compression, DatasetRequest, RegisteredDataset
from infeed_service.gateway.client import DataServiceClient
from infeed_service.gateway.reading import read_job
from infeed_service.graph.plan import DataServicePlan, Variant
from infeed_service.graph.readers import FILE_CHANGED
from infeed_service.sequential.engine import SequentialEngine
from infeed_service.sequential.window import Block, ReadKey


class DataServiceBackend:
    """A `DatasetBackend`. Positions count the slots of batches in order of arrival."""

    def __init__(self, plan: DataServicePlan, client: DataServiceClient) -> None:
        self._plan = plan
        self._client = client

    @property
    def spec(self) -> PipelineSpec:
        return self._plan.spec

    def read(self, key: ReadKey) -> Generator[Block, None, None]:
        spec = self.spec
        variant = Variant(key.slots, key.seed, key.epochs, key.remainder)
        dataset_id = self._register(variant, self._client.compression)
        job_name = key.job_name or f"{spec.name}-{uuid.uuid4().hex}"
        dataset = self._client.read(dataset_id, job_name)
        position = sample_count = 0
        try:
            with closing(read_job(self._client, dataset, spec.name)) as batches:
                for fields, metadata in batches:
                    ids = _sample_ids(metadata, sample_count)
                    sample_count += int(np.count_nonzero(metadata["mask"]))
                    yield Block(position, key.slots, int(metadata["epoch"]), fields, ids)
                    position += key.slots
        except tf.errors.OpError as error:
            raise self.explain(error) from error
        if not position:
            raise _no_batch(key)

    def explain(self, error: tf.errors.OpError) -> InfeedError:
        """Converts an error of TensorFlow."""
        name, message = self.spec.name, error.message.strip()
        service = "TensorFlow's data service"
        if isinstance(error, tf.errors.ResourceExhaustedError):
            problem = f"not enough memory or disk space for {name!r}: {message}"
            text = f"{service} at {self._client.address} has {problem}"
            return ServerError(text, target=self._client.address, pipeline=name)
        if is_storage_fault(error) or FILE_CHANGED in message:
            text = f"{service} makes no more batches of {name!r}: {message}"
            return SourceError(text, pipeline=name)
        return UserCodeError(
            f"a worker of {service} could not make a batch of {name!r}: {message}\n"
            "Workers do not report which sample failed: --engine local names it; on_error: mask or "
            "substitute continues without it",
            pipeline=name,
        )

    def register(self, request: DatasetRequest) -> RegisteredDataset:
        spec, client = self.spec, self._client
        variant = Variant(
            request.batch_size or spec.batch_size,
            spec.seed if request.seed is None else request.seed,
            request.epochs,
            request.remainder or spec.remainder,
            shard_hint=request.shard_hint,
        )
        return RegisteredDataset(
            dispatcher_address=client.address,
            dataset_id=self._register(variant, request.compression or client.compression),
            tensorflow_version=tf.__version__,
            seed=variant.seed,
            batch_size=variant.batch_size,
            may_mask=self._plan.may_mask(variant),
            lost_workers=client.lost_workers,
        )

    def _register(self, variant: Variant, compression: Compression) -> str:
        dataset_id = self._plan.dataset_id(variant, compression)
        self._client.register(dataset_id, compression, partial(self._plan.dataset, variant))
        return dataset_id


class DataServiceEngine(SequentialEngine):
    """The engine of a pipeline on the tf.data service."""

    has_jobs = True

    def __init__(self, backend: DataServiceBackend, budget: MemoryBudget) -> None:
        super().__init__(backend, budget)
        self._backend = backend

    def register(self, request: DatasetRequest) -> RegisteredDataset:
        """Registers a data set of the pipeline; equal requests share one data set."""
        return self._backend.register(request)


def _sample_ids(metadata: dict[str, Any], sample_count: int) -> Array:
    """Returns the ids of a batch; samples of a source without ids are numbered on arrival."""
    if "sample_ids" in metadata:
        ids: Array = np.asarray(metadata["sample_ids"])
        return ids
    mask = np.asarray(metadata["mask"])
    return np.where(mask, sample_count + np.cumsum(mask) - 1, -1)


def _no_batch(key: ReadKey) -> InfeedError:
    if key.job_name:
        return InvalidRequestError(
            f"job {key.job_name!r} gave no batch: it has already ended, or its other consumers "
            "received every batch; choose another job_name",
            job_name=key.job_name,
        )
    return SourceError(
        "TensorFlow's data service gave no batch: the workers with the data are lost, or the data "
        "set is empty"
    )
