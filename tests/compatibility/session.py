"""One small session between a trainer and a server: the same for each release's recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
from tests.harness.counting_engine import CountingEngine

import infeed
from infeed.rpc.channel import GrpcTransport
from infeed.shared.finish import finished_spec
from infeed.shared.spec import FieldSpec, Guarantee, Normalize, OneHot, PipelineSpec
from infeed_server.config.address import Address
from infeed_server.engines.base import Answer, HostBatch, Request
from infeed_server.rpc.server import RpcServer
from infeed_server.serving.catalog import Catalog
from infeed_server.serving.instrument import Instrument

NAME, UNKNOWN = "recorded", "no-such-pipeline"
SAMPLES, SLOTS, CLASSES = 10, 4, 3
FEED_OPTIONS: dict[str, Any] = {"seed": 5, "epochs": 1, "remainder": "pad"}


class RecordedEngine(CountingEngine):
    """Serves ten samples of three fields, each made from its number, in the order of the ids."""

    def __init__(self) -> None:
        super().__init__(NAME)
        wire = (
            FieldSpec("image", "uint8", (2, 3)),
            FieldSpec("label", "int64"),
            FieldSpec("name", "bytes"),
        )
        finish = (Normalize("image", 255.0, (0.5,), (0.25, 0.5, 1.0)), OneHot("label", CLASSES))
        self.spec = PipelineSpec(
            name=NAME,
            element_spec=finished_spec(wire, finish),
            wire_spec=wire,
            finish_transforms=finish,
            sample_count=SAMPLES,
            fingerprint="f" * 32,
            guarantee=Guarantee(),
            batch_size=SLOTS,
            seed=7,
            remainder="drop",
            on_error="mask",
            server_version="recorded",
            source_kind="arrays",
            shuffle_mode="none",
        )

    def submit(self, request: Request) -> Future[Answer]:
        mask = np.arange(request.slots) < request.count
        ids = np.where(mask, (request.start + np.arange(request.slots)) % SAMPLES, -1)
        images = np.where(mask, ids, 0)[:, None, None] * 20 + np.arange(6).reshape(2, 3)
        names = [b"sample %d" % item if item >= 0 else b"" for item in ids]
        arrays = {
            "image": np.where(mask[:, None, None], images, 0).astype(np.uint8),
            "label": np.where(mask, ids % CLASSES, 0).astype(np.int64),
            "name": np.array(names, dtype=object),
        }
        answer: Future[Answer] = Future()
        answer.set_result(HostBatch(request.start, request.start // SAMPLES, arrays, ids, mask))
        return answer


@contextmanager
def running_server() -> Iterator[str]:
    """Yields the address of a server of this session's pipeline."""
    server = RpcServer(Catalog({NAME: RecordedEngine()}), Instrument())
    server.open(Address.parse("127.0.0.1:0"))
    server.set_serving(True)
    server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.stop(0)


def play(target: str, before_first: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Plays the trainer's part; returns what it received, as JSON can hold it.

    `before_first` is called when the feed is open, before it takes a batch.
    """
    transport = GrpcTransport(target)
    try:
        pipelines = [spec_json(list_pipeline) for list_pipeline in transport.list_pipelines()]
        try:
            transport.get_pipeline(UNKNOWN)
        except infeed.PipelineNotFoundError as error:
            refusal = {"reason": error.reason, "metadata": dict(error.metadata)}
    finally:
        transport.close()
    with infeed.connect(target, NAME, **FEED_OPTIONS) as feed:
        before_first()
        batches, cursors = [], []
        for batch in feed:
            batches.append(batch_json(batch))
            cursors.append(feed.state())
        return {
            "pipelines": pipelines,
            "pipeline": spec_json(feed.spec),
            "refusal": refusal,
            "batches": batches,
            "cursors": cursors,
        }


def spec_json(spec: PipelineSpec) -> dict[str, Any]:
    """Returns the fields of a spec, each as text: a later release may add some."""
    return {name: repr(value) for name, value in asdict(spec).items()}


def batch_json(batch: infeed.Batch) -> dict[str, Any]:
    """Returns a batch with all values."""
    values = {
        name: [item.decode() for item in array] if array.dtype == object else array.tolist()
        for name, array in batch.items()
    }
    types = {name: array.dtype.name for name, array in batch.items()}
    return {
        "start": int(batch.start),
        "epoch": int(batch.epoch),
        "sample_ids": batch.sample_ids.tolist(),
        "mask": batch.mask.tolist(),
        "types": types,
        "values": values,
    }
