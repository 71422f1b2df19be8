"""The dataset backend of a pipeline whose batches the workers of the tf.data service make.

Trainers without TensorFlow read such a pipeline like any other. Each reading is one consumer of a
job, and the ranks of one feed share a reading.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Generator
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
from infeed.shared.spec.dataset import Compression, DatasetRequest, RegisteredDataset
from infeed_server.engines.sequential.window import Block, ReadKey
from infeed_server.sources.storage_faults import is_storage_fault
from infeed_tfdata.gateway.background_iterator import BackgroundIterator
from infeed_tfdata.gateway.client import DataServiceClient
from infeed_tfdata.gateway.read_watch import ReadWatch
from infeed_tfdata.gateway.registrations import GRAPH_OVERHEAD_BYTES
from infeed_tfdata.graph.plan import DataServicePlan, Variant
from infeed_tfdata.graph.readers import FILE_CHANGED


class DataServiceBackend:
    """A `DatasetBackend`. Positions count the slots of batches in the order of their arrival."""

    supports_jobs = True

    def __init__(self, plan: DataServicePlan, client: DataServiceClient) -> None:
        self._plan = plan
        self._client = client

    def register_default(self) -> None:
        """Registers the variant without any request options, so that a problem is found at the
        start. Raises `ConfigError` and `ServerUnavailableError`."""
        self.register(DatasetRequest(self.spec.name), caller="")

    @property
    def spec(self) -> PipelineSpec:
        return self._plan.spec

    @property
    def elements_are_batches(self) -> bool:
        return False

    def read(self, kind: ReadKey, caller: str) -> Generator[Block, None, None]:
        spec = self.spec
        remainder = kind.remainder or spec.remainder
        variant = Variant(kind.slots, kind.seed, kind.epochs, remainder)
        dataset_id = self._register(variant, self._client.compression, caller)
        job_name = kind.job_name or f"{spec.name}-{uuid.uuid4().hex}"
        dataset = self._client.read(dataset_id, job_name)
        watch = ReadWatch(self._client, spec.name)
        batches = BackgroundIterator(dataset, watch.on_wait, f"infeed-service-{spec.name}")
        position = sample_count = 0
        with contextlib.closing(batches), self._job_errors(watch):
            for fields, metadata in batches:
                watch.require_job()
                ids = _sample_ids(metadata, sample_count)
                sample_count += int(np.count_nonzero(metadata["mask"]))
                yield Block(position, kind.slots, int(metadata["epoch"]), fields, ids)
                position += kind.slots
        if not position:
            raise _no_batch(kind)

    @contextlib.contextmanager
    def _job_errors(self, watch: ReadWatch) -> Generator[None, None, None]:
        """Raises `SourceError` instead of an error of TensorFlow that a lost job explains."""
        try:
            yield
        except tf.errors.OpError:
            with contextlib.suppress(InfeedError):
                self._client.check_journal()
            watch.require_job()
            raise

    def check_first_block(self, key: ReadKey, block: Block) -> None:
        """Accepts any first batch, since the order is not defined."""

    def translate_error(self, error: Exception) -> InfeedError | None:
        if not isinstance(error, tf.errors.OpError):
            return None
        name = self.spec.name
        message = error.message.strip()
        if isinstance(error, tf.errors.ResourceExhaustedError):
            return ServerError(
                f"TensorFlow's data service at {self._client.address} has too little memory or "
                f"disk space for {name!r}: {message}",
                pipeline=name,
            )
        if is_storage_fault(error) or FILE_CHANGED in message:
            return SourceError(
                f"TensorFlow's data service gives no more batches of {name!r}: {message}",
                pipeline=name,
            )
        return UserCodeError(
            f"a worker of TensorFlow's data service could not make a batch of {name!r}: "
            f"{message}\n"
            "Workers do not report which sample failed: on_error: mask or substitute continues "
            "without it, and --engine local names it",
            pipeline=name,
        )

    def register(self, request: DatasetRequest, caller: str) -> RegisteredDataset:
        spec = self.spec
        variant = Variant(
            request.batch_size or spec.batch_size,
            spec.seed if request.seed is None else request.seed,
            request.epochs,
            request.remainder or spec.remainder,
            shard_hint=request.shard_hint,
        )
        compression = request.compression or self._client.compression
        dataset_id = self._register(variant, compression, caller)
        return RegisteredDataset(
            dispatcher_address=self._client.address,
            dataset_id=dataset_id,
            tensorflow_version=tf.__version__,
            seed=variant.seed,
            batch_size=variant.batch_size,
            may_mask=self._plan.may_mask(variant),
            lost_workers=self._client.lost_workers,
        )

    def _register(self, variant: Variant, compression: Compression, caller: str) -> str:
        plan = self._plan
        dataset_id = plan.dataset_id(variant, compression)
        size = plan.graph_bytes + GRAPH_OVERHEAD_BYTES
        make = partial(plan.dataset, variant)
        self._client.register(dataset_id, compression, make, caller, size)
        return dataset_id


def _sample_ids(metadata: dict[str, Any], sample_count: int) -> Array:
    """Returns the ids of a batch; a source without ids has its samples numbered on arrival."""
    if "sample_ids" in metadata:
        ids: Array = np.asarray(metadata["sample_ids"])
        return ids
    mask = np.asarray(metadata["mask"])
    return np.where(mask, sample_count + np.cumsum(mask) - 1, -1)


def _no_batch(kind: ReadKey) -> InfeedError:
    if kind.job_name:
        return InvalidRequestError(
            f"the job {kind.job_name!r} gave no batch: it has ended already, or its other "
            "consumers received every batch; choose another job_name",
            job_name=kind.job_name,
        )
    return SourceError(
        "the workers of TensorFlow's data service gave no batch: the workers that had the data are "
        "lost, or the data set is empty"
    )
