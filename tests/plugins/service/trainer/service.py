"""A fake infeed server that registers arrays with a data service, and workers of the service."""

from __future__ import annotations

import uuid
from typing import Any

import tensorflow as tf

from infeed.testing import FakeTransport
from infeed_service.dataset import DatasetRequest, RegisteredDataset

SERVICE = tf.data.experimental.service


def address_of(server: Any) -> str:
    return str(server.target).partition("//")[2]


def new_worker(dispatcher: str, advertised: str = "127.0.0.1:%port%") -> Any:
    return SERVICE.WorkerServer(
        SERVICE.WorkerConfig(dispatcher, worker_address=advertised, heartbeat_interval_ms=100)
    )


class FakeServer(FakeTransport):
    """Registers its arrays as infeed's server does, in the order of the source."""

    def __init__(self, dispatcher: str, arrays: Any, *, indexed: bool = True, **options: Any):
        super().__init__(arrays, shuffle=False, **options)
        self.dispatcher = dispatcher
        self.version = tf.__version__
        self.requests: list[DatasetRequest] = []
        self.indexed = indexed
        self._id = uuid.uuid4().hex

    def call(self, method: str, message: Any, *_: Any) -> Any:
        assert method == "RegisterDataset"
        return self.register_dataset(DatasetRequest.from_proto(message)).to_proto()

    def register_dataset(self, request: DatasetRequest) -> RegisteredDataset:
        self.requests.append(request)
        slots = request.batch_size or self.spec.batch_size
        pad = (request.remainder or self.spec.remainder) == "pad"
        with tf.init_scope():  # a server is not affected by the graph of the caller
            dataset = self.dataset(slots, request.epochs, pad)
            if request.shard_hint:
                dataset = dataset.shard(tf.data.experimental.SHARD_HINT, 0)
            dataset_id = f"{self._id}-{request}"
            SERVICE.register_dataset(
                f"grpc://{self.dispatcher}", dataset, compression=None, dataset_id=dataset_id
            )
        may_mask = (pad and request.epochs > 0) or self.spec.on_error == "mask"
        return RegisteredDataset(self.dispatcher, dataset_id, self.version, 0, slots, may_mask)

    def dataset(self, slots: int, epochs: int, pad: bool) -> tf.data.Dataset:
        total = self._count * epochs if epochs else tf.int64.max
        batches = (self._count * (epochs or 1) + pad * (slots - 1)) // slots
        starts = tf.data.Dataset.range(batches)
        starts = starts if epochs else starts.repeat()
        options = tf.data.Options()
        # A worker that stops waits for the autotuning thread, which sleeps for up to a minute.
        options.autotune.enabled = False
        # The optimizer takes half of the time that an iterator needs to start.
        options.experimental_optimization.apply_default_optimizations = False
        dataset = starts.map(lambda batch: self.element(batch * slots, slots, total))
        return dataset.with_options(options)

    def element(self, start: tf.Tensor, slots: int, total: int) -> Any:
        positions = start + tf.range(slots, dtype=tf.int64)
        mask = positions < total
        ids = tf.where(mask, positions % self._count, -1)
        fields = {}
        for field in self.spec.wire_spec:
            rows = tf.gather(self._arrays[field.name], tf.maximum(ids, 0))
            broadcast = tf.reshape(mask, [-1, *[1] * len(field.shape)])
            rows = tf.where(broadcast, rows, tf.zeros((), rows.dtype))
            fields[field.name] = tf.ensure_shape(rows, [slots, *field.shape])
        metadata = {"epoch": start // self._count, "mask": mask}
        if self.indexed:
            metadata |= {"start": start, "sample_ids": ids}
        return fields, metadata
