"""The pipelines that a server serves, and the streams that are opened on them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace

from infeed.errors import InvalidRequestError, PipelineNotFoundError
from infeed.finish import finish
from infeed.registered import DatasetRequest, RegisteredDataset
from infeed.spec import Array, PipelineSpec, Spec
from infeed.v1 import stream_pb2
from infeed.wire import EncodedBatch, encode_batch
from infeed_server.engines.base import Answer, End, Engine, HostBatch, Request, Session
from infeed_server.service import asked
from infeed_server.service.access import Caller

_MAX_POSITION = 1 << 62


class Catalog:
    """Engines by pipeline name."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = dict(sorted(engines.items()))

    def specs(self) -> list[PipelineSpec]:
        """All pipelines, sorted by name."""
        return [engine.spec for engine in self._engines.values()]

    def seen_by(self, caller: Caller) -> Catalog:
        """The part of it that a caller has a right to, and is told of."""
        engines = self._engines.items()
        return Catalog({name: engine for name, engine in engines if caller.may(name)})

    def engine(self, name: str) -> Engine:
        """Raises `PipelineNotFoundError` that lists the known names."""
        if name not in self._engines:
            known = ", ".join(self._engines)
            raise PipelineNotFoundError(
                f"no pipeline {name!r}; this server has: {known}", pipeline=name, known=known
            )
        return self._engines[name]

    def open(self, message: stream_pb2.StreamOpen) -> Stream:
        """Opens a stream. Raises `InvalidRequestError` or `FingerprintError`."""
        engine = self.engine(message.pipeline)
        spec = engine.spec
        asked.check_fingerprint(spec, message.fingerprint)
        on_server = message.finish == stream_pb2.FINISH_PLACEMENT_SERVER
        batch_size = asked.batch_size(spec, message.batch_size)
        asked.check_batch_bytes(spec, batch_size, finish_here=on_server)
        seed = message.seed if message.HasField("seed") else spec.seed
        asked.check_numbers(seed, message.epochs)
        trainer = asked.trainer(message)
        session = engine.open(batch_size, message.epochs, trainer)
        stream = Stream(spec, session, batch_size, seed, trainer.world_size, finish_here=on_server)
        session.weigh(stream.batch_bytes)
        return stream

    def register(self, request: DatasetRequest) -> RegisteredDataset:
        """A data set for trainers that read from workers. Raises as `open` does."""
        engine = self.engine(request.pipeline)
        spec = engine.spec
        asked.check_fingerprint(spec, request.fingerprint)
        batch_size = asked.batch_size(spec, request.batch_size or 0)
        asked.check_batch_bytes(spec, batch_size, finish_here=False)
        seed = spec.seed if request.seed is None else request.seed
        asked.check_numbers(seed, request.epochs)
        return engine.register(
            replace(
                request,
                batch_size=batch_size,
                seed=seed,
                remainder=request.remainder or spec.remainder,
            )
        )


@dataclass(frozen=True)
class Stream:
    """One open stream: requests as messages go in, encoded batches come out."""

    pipeline: PipelineSpec
    session: Session
    batch_size: int
    seed: int
    world_size: int
    finish_here: bool

    @property
    def stride(self) -> int:
        return self.pipeline.stride(self.batch_size)

    @property
    def spec(self) -> Spec:
        """The fields as they travel."""
        return self.pipeline.element_spec if self.finish_here else self.pipeline.wire_spec

    @property
    def batch_bytes(self) -> int:
        """What a batch takes; 0 where only a batch tells, for byte strings vary."""
        sizes = [field.sample_bytes for field in self.spec]
        return 0 if None in sizes else self.batch_size * sum(size or 0 for size in sizes)

    def opened(self) -> stream_pb2.StreamOpened:
        return stream_pb2.StreamOpened(
            fingerprint=self.pipeline.fingerprint,
            spec=[field.to_proto() for field in self.spec],
            batch_size=self.batch_size,
            seed=self.seed,
            batch_stride=self.stride,
        )

    def submit(self, message: stream_pb2.BatchRequest) -> Future[Answer]:
        """Raises `InvalidRequestError` for positions that make no sense."""
        if not 0 <= message.start <= _MAX_POSITION:
            raise InvalidRequestError(
                f"position {message.start} is outside of [0, 2^62]", start=message.start
            )
        # Beyond the end of its own step no request needs anything, and what it needs is kept.
        most = message.start + self.world_size * self.stride
        for name in ("min_position_count", "step_end"):
            needs = getattr(message, name)
            if not 0 <= needs <= most:
                raise InvalidRequestError(
                    f"the batch at position {message.start} needs no {needs} positions ({name}); "
                    f"a step of {self.world_size} ranks ends at {most} at most",
                    start=message.start,
                    **{name: needs},
                )
        if not 0 <= message.count <= self.stride:
            raise InvalidRequestError(
                f"{message.count} positions asked for; a batch of this stream takes 0 to "
                f"{self.stride}",
                count=message.count,
            )
        return self.session.submit(
            Request(
                self.seed,
                message.start,
                message.count,
                self.batch_size,
                message.min_position_count,
                message.step_end,
            )
        )

    def encode(self, request_id: int, answer: Answer) -> EncodedBatch | stream_pb2.EndOfData:
        """The answer as it travels, finish transforms applied if the stream wants them here."""
        if isinstance(answer, End):
            return stream_pb2.EndOfData(request_id=request_id, position_count=answer.position_count)
        batch = encode_batch(
            request_id,
            answer.start,
            answer.epoch,
            self.spec,
            self._arrays(answer),
            answer.sample_ids,
            answer.mask,
            answer.position_count,
        )
        self.session.weigh(batch.header.payload_size)
        return batch

    def _arrays(self, batch: HostBatch) -> dict[str, Array]:
        if not self.finish_here:
            return batch.arrays
        return finish(batch.arrays, self.pipeline.finish_transforms, batch.mask)
