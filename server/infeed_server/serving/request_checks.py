"""Checks of the numbers in client messages.

A number out of range raises `InvalidRequestError` with its name, value and range.
"""

from __future__ import annotations

from infeed.shared.errors import FingerprintError, InvalidRequestError
from infeed.shared.spec import MAX_BATCH_SIZE, MAX_JOB_NAME_LENGTH, PipelineSpec
from infeed.shared.spec.messages import optional_enum_name
from infeed.shared.spec.segment import MAX_SEGMENTS, Lineage, lineage_from_proto
from infeed.v1 import spec_pb2, stream_pb2
from infeed_server.engines.base import Trainer
from infeed_server.order import MAX_SEED

_MAX_BATCH_BYTES = 1 << 30
"""The largest batch that a client may request, unless it has the pipeline's own batch size. The
server holds several batches of each stream, and clients must not control its memory."""

_MAX_WORLD_SIZE = 1 << 16

_MAX_FEED_ID_CHARS = 128


def parse_trainer(message: stream_pb2.StreamOpen) -> Trainer:
    """Returns the rank that opens a stream."""
    world_size = message.world_size or 1
    if not 0 <= message.rank < world_size <= _MAX_WORLD_SIZE:
        raise InvalidRequestError(
            f"rank {message.rank} of {world_size} is out of range: ranks are 0 to world_size - 1, "
            f"and world_size is at most {_MAX_WORLD_SIZE}",
            rank=message.rank,
            world_size=world_size,
        )
    limits = {"feed_id": _MAX_FEED_ID_CHARS, "job_name": MAX_JOB_NAME_LENGTH}
    for name, limit in limits.items():
        if (length := len(getattr(message, name))) > limit:
            raise InvalidRequestError(f"{name} has {length} characters, more than {limit}")
    return Trainer(
        message.rank,
        world_size,
        message.feed_id,
        message.job_name,
        optional_enum_name(spec_pb2.Remainder, message.remainder),
    )


def check_fingerprint(spec: PipelineSpec, expected: str) -> None:
    """Raises `FingerprintError` when the client expects another pipeline."""
    if expected and expected != spec.fingerprint:
        raise FingerprintError(
            f"{spec.name!r} has the fingerprint {spec.fingerprint} here, not {expected}: its "
            "definition, its data, TensorFlow or an algorithm of infeed differs",
            pipeline=spec.name,
            expected=expected,
            served=spec.fingerprint,
        )


def check_seed_and_epochs(seed: int, epochs: int) -> None:
    """Raises `InvalidRequestError` when one is out of range."""
    if not 0 <= seed <= MAX_SEED:
        raise InvalidRequestError(f"seed {seed} is outside of [0, 2^63)", seed=seed)
    if epochs < 0:
        raise InvalidRequestError(f"epochs {epochs} is negative", epochs=epochs)


def parse_lineage(message: spec_pb2.Lineage) -> Lineage:
    """Returns the segments of a run. Raises `InvalidRequestError` for too many."""
    if len(message.segments) > MAX_SEGMENTS:
        raise InvalidRequestError(
            f"the run has {len(message.segments)} segments; at most {MAX_SEGMENTS} are allowed",
            segments=len(message.segments),
        )
    return lineage_from_proto(message)


def resolve_batch_size(spec: PipelineSpec, requested: int) -> int:
    """Returns the requested batch size; 0 means the pipeline's own."""
    size = requested or spec.batch_size
    if not 1 <= size <= MAX_BATCH_SIZE:
        raise InvalidRequestError(
            f"batch size {size} is outside of [1, {MAX_BATCH_SIZE}]", batch_size=size
        )
    spec.check_batch_size(size)
    return size


def check_batch_bytes(
    spec: PipelineSpec, batch_size: int, string_bytes: int, *, finish_on_server: bool
) -> None:
    """Raises `InvalidRequestError` when a batch would take too much memory. `string_bytes` is what
    the byte strings of one sample take, as far as it is known."""
    specs = [spec.wire_spec, *([spec.element_spec] if finish_on_server else [])]
    sample_bytes = max(sum(field.sample_bytes or 0 for field in fields) for fields in specs)
    batch_bytes = batch_size * (sample_bytes + string_bytes)
    if batch_size > spec.batch_size and batch_bytes > _MAX_BATCH_BYTES:
        about = "about " if string_bytes else ""
        raise InvalidRequestError(
            f"batch size {batch_size} makes batches of {about}{batch_bytes} bytes of "
            f"{spec.name!r}; at most {_MAX_BATCH_BYTES} are allowed, or the pipeline's own batch "
            f"size, {spec.batch_size}",
            batch_size=batch_size,
        )
