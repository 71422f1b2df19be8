"""The pipelines that a server serves, and the streams that are opened on them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace

from infeed.errors import FingerprintError, InvalidRequestError, PipelineNotFoundError
from infeed.finish import finish
from infeed.registered import MAX_JOB_NAME, DatasetRequest, RegisteredDataset
from infeed.spec import MAX_BATCH_SIZE, Array, PipelineSpec, Spec
from infeed.v1 import stream_pb2
from infeed.wire import EncodedBatch, encode_batch
from infeed_server.engines.base import Answer, End, Engine, HostBatch, Request, Session, Trainer
from infeed_server.pipeline.definition import MAX_SEED
from infeed_server.service.access import Caller

_MAX_POSITION = 1 << 62

_MAX_BATCH_BYTES = 1 << 30
"""The largest batch that a peer may ask for where it is not the pipeline's own batch size: a server
holds several of each stream's, and who asks must not be the one who says how much memory it has."""

_MAX_WORLD_SIZE = 1 << 16

_MAX_FEED_ID = 128


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
        _check_fingerprint(spec, message.fingerprint)
        on_server = message.finish == stream_pb2.FINISH_PLACEMENT_SERVER
        batch_size = _batch_size(spec, message.batch_size)
        _check_batch_bytes(spec, batch_size, finish_here=on_server)
        seed = message.seed if message.HasField("seed") else spec.seed
        _check_numbers(seed, message.epochs)
        trainer = _trainer(message)
        session = engine.open(batch_size, message.epochs, trainer)
        stream = Stream(spec, session, batch_size, seed, trainer.world_size, finish_here=on_server)
        session.weigh(stream.batch_bytes)
        return stream

    def register(self, request: DatasetRequest) -> RegisteredDataset:
        """A data set for trainers that read from workers. Raises as `open` does."""
        engine = self.engine(request.pipeline)
        spec = engine.spec
        _check_fingerprint(spec, request.fingerprint)
        batch_size = _batch_size(spec, request.batch_size or 0)
        _check_batch_bytes(spec, batch_size, finish_here=False)
        seed = spec.seed if request.seed is None else request.seed
        _check_numbers(seed, request.epochs)
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
        if not 0 <= message.min_position_count <= most:
            raise InvalidRequestError(
                f"the batch at position {message.start} needs no {message.min_position_count} "
                f"positions; a step of {self.world_size} ranks ends at {most} at most",
                start=message.start,
                min_position_count=message.min_position_count,
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
        )
        self.session.weigh(batch.header.payload_size)
        return batch

    def _arrays(self, batch: HostBatch) -> dict[str, Array]:
        if not self.finish_here:
            return batch.arrays
        return finish(batch.arrays, self.pipeline.finish_transforms, batch.mask)


def _trainer(message: stream_pb2.StreamOpen) -> Trainer:
    world_size = message.world_size or 1
    if not 0 <= message.rank < world_size <= _MAX_WORLD_SIZE:
        raise InvalidRequestError(
            f"rank {message.rank} of {world_size}: ranks go from 0 to world_size - 1, and there "
            f"are {_MAX_WORLD_SIZE} at most",
            rank=message.rank,
            world_size=world_size,
        )
    if len(message.feed_id) > _MAX_FEED_ID:
        raise InvalidRequestError(
            f"a feed_id of {len(message.feed_id)} characters; {_MAX_FEED_ID} at most are taken"
        )
    if len(message.job_name) > MAX_JOB_NAME:
        raise InvalidRequestError(
            f"a job_name of {len(message.job_name)} characters; {MAX_JOB_NAME} at most are taken"
        )
    return Trainer(message.rank, world_size, message.feed_id, message.job_name)


def _check_fingerprint(spec: PipelineSpec, expected: str) -> None:
    if expected and expected != spec.fingerprint:
        raise FingerprintError(
            f"{spec.name!r} has the fingerprint {spec.fingerprint} here, not {expected}: its "
            "definition, its data or its TensorFlow differs",
            pipeline=spec.name,
            expected=expected,
            served=spec.fingerprint,
        )


def _check_numbers(seed: int, epochs: int) -> None:
    if not 0 <= seed <= MAX_SEED:
        raise InvalidRequestError(f"seed {seed} is outside of [0, 2^63)", seed=seed)
    if epochs < 0:
        raise InvalidRequestError(f"epochs {epochs} is negative", epochs=epochs)


def _batch_size(spec: PipelineSpec, asked: int) -> int:
    size = asked or spec.batch_size
    if not 1 <= size <= MAX_BATCH_SIZE:
        raise InvalidRequestError(
            f"batch size {size} is outside of [1, {MAX_BATCH_SIZE}]", batch_size=size
        )
    if spec.batch_stride and size != spec.batch_size:
        raise InvalidRequestError(
            f"the dataset of {spec.name!r} makes batches of {spec.batch_size}, so {size} cannot be "
            "had",
            batch_size=size,
        )
    if not spec.batch_stride and spec.sample_count is not None and size > spec.sample_count:
        raise InvalidRequestError(
            f"batch size {size} is larger than the data set of {spec.name!r}, which has "
            f"{spec.sample_count} samples",
            batch_size=size,
            sample_count=spec.sample_count,
        )
    return size


def _check_batch_bytes(spec: PipelineSpec, batch_size: int, *, finish_here: bool) -> None:
    held = [spec.wire_spec, *([spec.element_spec] if finish_here else [])]
    sample = max(sum(field.sample_bytes or 0 for field in fields) for fields in held)
    if batch_size > spec.batch_size and batch_size * sample > _MAX_BATCH_BYTES:
        raise InvalidRequestError(
            f"batch size {batch_size} makes batches of {batch_size * sample} bytes of "
            f"{spec.name!r}; at most {_MAX_BATCH_BYTES} can be asked for, or the pipeline's own "
            f"batch size, {spec.batch_size}",
            batch_size=batch_size,
        )
