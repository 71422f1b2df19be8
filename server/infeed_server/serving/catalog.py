"""The catalog of served pipelines, and the streams opened on them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from infeed.shared.arguments import MAX_INT64
from infeed.shared.errors import PipelineNotFoundError
from infeed.shared.finish import finish
from infeed.shared.spec import PipelineSpec, Spec
from infeed.shared.spec.segment import Lineage
from infeed.v1 import stream_pb2
from infeed.wire.batch import EncodedBatch, Payload, encode_batch, encode_end, payload_bytes
from infeed_server.engines.base import Answer, EndOfData, Engine, HostBatch, Request, Session
from infeed_server.engines.capabilities import random_access, requires_other_engine
from infeed_server.order import MAX_POSITION
from infeed_server.serving import request_checks
from infeed_server.serving.auth import Caller
from infeed_server.serving.request_checks import require_range

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchSpan


class Catalog:
    """The engines of a server, by pipeline name."""

    def __init__(
        self,
        engines: Mapping[str, Engine],
        string_bytes: Mapping[str, int] | None = None,
        broken: Mapping[str, str] | None = None,
    ) -> None:
        """By pipeline, `string_bytes` has the bytes of a sample's byte strings once known, and
        `broken` the reason why it is not served."""
        self._engines = dict(sorted(engines.items()))
        self._string_bytes = {} if string_bytes is None else string_bytes
        self.broken = broken or {}

    def specs(self) -> list[PipelineSpec]:
        """Returns the specs of all pipelines, sorted by name."""
        return [engine.spec for engine in self._engines.values()]

    def visible_to(self, caller: Caller) -> Catalog:
        """Returns a catalog of the pipelines that the caller may read."""
        engines = {n: engine for n, engine in self._engines.items() if caller.has_access(n)}
        broken = {n: reason for n, reason in self.broken.items() if caller.has_access(n)}
        return Catalog(engines, self._string_bytes, broken)

    def engine(self, name: str) -> Engine:
        """Returns a pipeline's engine. Raises `PipelineNotFoundError` with the known names."""
        if name not in self._engines:
            known = ", ".join(self._engines)
            problem = f"no pipeline {name!r}"
            if name in self.broken:
                problem = f"the pipeline {name!r} is broken: {self.broken[name]}"
            raise PipelineNotFoundError(
                f"{problem}; this server has: {known}", pipeline=name, known=known
            )
        return self._engines[name]

    def open(self, message: stream_pb2.StreamOpen, *, is_protected: bool = False) -> BatchStream:
        """Opens a stream; `is_protected` is whether the server uses TLS or a Unix socket. Raises
        `InvalidRequestError` or `FingerprintError`."""
        engine = self.engine(message.pipeline)
        spec = engine.spec
        request_checks.check_fingerprint(spec, message.fingerprint)
        on_server = message.finish == stream_pb2.FINISH_PLACEMENT_SERVER
        batch_size = request_checks.resolve_batch_size(spec, message.batch_size)
        string_bytes = self._string_bytes.get(spec.name, 0)
        request_checks.check_batch_bytes(spec, batch_size, string_bytes, finish_on_server=on_server)
        given = message.seed if message.HasField("seed") else None
        seed, lineage = request_checks.parse_run(spec, given, message.lineage)
        require_range("epochs", message.epochs, 0, MAX_INT64)
        trainer = request_checks.parse_trainer(message)
        if lineage:
            random_access(engine).order(seed, lineage)
        if trainer.job_name and not engine.has_jobs:
            raise requires_other_engine(engine, "jobs to join")
        session = engine.open(batch_size, message.epochs, trainer)
        off = (stream_pb2.CHECKSUM_OFF, *[stream_pb2.CHECKSUM_AUTO] * is_protected)
        stream = BatchStream(
            spec,
            session,
            batch_size,
            seed,
            trainer.world_size,
            finish_on_server=on_server,
            has_checksums=message.checksum not in off,
            lineage=lineage,
        )
        session.set_batch_bytes(stream.payload_bytes)
        return stream


@dataclass(frozen=True)
class BatchStream:
    """One open stream: accepts request messages and encodes the engine's answers."""

    pipeline: PipelineSpec
    session: Session
    batch_size: int
    seed: int
    world_size: int
    finish_on_server: bool
    has_checksums: bool = True
    """Whether payloads have checksums."""
    lineage: Lineage = ()

    @property
    def stride(self) -> int:
        return self.pipeline.stride(self.batch_size)

    @property
    def spec(self) -> Spec:
        """The fields that are sent."""
        return self.pipeline.element_spec if self.finish_on_server else self.pipeline.wire_spec

    @property
    def payload_bytes(self) -> int:
        """The size of a batch; 0 when it varies, as with byte strings."""
        return payload_bytes(self.spec, self.batch_size) or 0

    def opened_message(self) -> stream_pb2.StreamOpened:
        return stream_pb2.StreamOpened(
            fingerprint=self.pipeline.fingerprint,
            spec=[field.to_proto() for field in self.spec],
            batch_size=self.batch_size,
            seed=self.seed,
            batch_stride=self.stride,
            has_checksums=True,
            checksum="CHECKSUM_XXH3" if self.has_checksums else "CHECKSUM_OFF",
            segments=len(self.lineage),
        )

    def submit(
        self, message: stream_pb2.BatchRequest, span: BatchSpan | None = None
    ) -> Future[Answer]:
        """Submits a request to the engine. Raises `InvalidRequestError` for invalid positions."""
        require_range("start", message.start, 0, MAX_POSITION)
        require_range("count", message.count, 0, self.stride)
        # The engine keeps a request's needs in memory, and no request needs more than its own step.
        step_end = message.start + self.world_size * self.stride
        require_range("min_position_count", message.min_position_count, 0, step_end)
        require_range("step_end", message.step_end, 0, step_end)
        return self.session.submit(
            Request(
                self.seed,
                message.start,
                message.count,
                self.batch_size,
                message.min_position_count,
                message.step_end,
                self.lineage,
                span,
            )
        )

    def encode(
        self, request: stream_pb2.BatchRequest, answer: Answer
    ) -> EncodedBatch | stream_pb2.EndOfData:
        """Encodes the answer, after the finish transforms if the stream has them on the server."""
        if isinstance(answer, EndOfData):
            return encode_end(request, answer.position_count)
        batch = encode_batch(
            request,
            answer.start,
            answer.epoch,
            answer.payload(self.finish_on_server, partial(self._payload, answer)),
            answer.sample_ids,
            answer.mask,
            answer.position_count,
            has_checksums=self.has_checksums,
        )
        self.session.set_batch_bytes(batch.header.payload_size)
        return batch

    def _payload(self, batch: HostBatch, shared: bool) -> Payload:
        arrays = batch.arrays
        if self.finish_on_server:
            arrays = finish(arrays, self.pipeline.finish_transforms, batch.mask)
        return Payload(self.spec, arrays, shared=shared)
