"""Engine of numbers, without TensorFlow."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np

from infeed.shared.errors import SampleError
from infeed.shared.spec import FieldSpec, Guarantee, PipelineSpec
from infeed_server.engines.base import Answer, HostBatch, Request, Trainer

SLOTS, WIDTH = 8, 1000
SAMPLES = 400
BAD_FROM = 80
"""A position for engines with bad samples."""


class CountingEngine:
    """Answers each request at once; sample i is filled with i. Also its own session."""

    def __init__(self, name: str, bad_from: int = 1 << 62) -> None:
        """Batches from position `bad_from` on are errors."""
        self._bad_from = bad_from
        field = (FieldSpec("x", "int64", (WIDTH,)),)
        guarantee = Guarantee()
        self.spec = PipelineSpec(
            name, field, field, (), SAMPLES, "f" * 32, guarantee, SLOTS, 7, "drop", "raise"
        )

    def open(self, slots: int, epochs: int, trainer: Trainer) -> CountingEngine:
        return self

    def submit(self, request: Request) -> Future[Answer]:
        ids = np.arange(request.start, request.start + request.slots) % SAMPLES
        values = np.repeat(ids, WIDTH).reshape(request.slots, WIDTH)
        mask = np.arange(request.slots) < request.count
        answer: Future[Answer] = Future()
        if request.start >= self._bad_from:
            answer.set_exception(SampleError(f"sample {request.start} is bad"))
            return answer
        epoch = request.start // SAMPLES
        sample_ids = np.where(mask, ids, -1)
        answer.set_result(HostBatch(request.start, epoch, {"x": values}, sample_ids, mask))
        return answer

    def set_batch_bytes(self, size: int) -> None: ...

    def on_sent(self) -> None: ...

    def held_seconds(self) -> dict[str, float]:
        return {}

    def warm_up(self) -> None: ...

    def queued_requests(self) -> int:
        return 0

    def unsent_batches(self) -> int:
        return 0

    def unsent_bytes(self) -> int:
        return 0

    def window_bytes(self) -> int:
        return 0

    def close(self) -> None: ...
