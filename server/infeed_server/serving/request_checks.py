"""Checks of the values in client messages."""

from __future__ import annotations

from infeed.shared.errors import FingerprintError, InvalidRequestError
from infeed.shared.spec import MAX_BATCH_SIZE, MAX_JOB_NAME_LENGTH, PipelineSpec
from infeed.shared.spec.messages import optional_enum_name
from infeed.shared.spec.segment import MAX_SEGMENTS, lineage_from_proto
from infeed.v1 import spec_pb2, stream_pb2
from infeed_server.engines.base import RunKey, Trainer
from infeed_server.order import MAX_SEED

_MAX_BATCH_BYTES = 1 << 30
"""The largest batch that a client may request, unless it has the pipeline's own batch size. The
server holds several batches of each stream, and clients must not control its memory."""

_MAX_WORLD_SIZE = 1 << 16

_MAX_FEED_ID_CHARS = 128


def require_range(name: str, value: int, least: int, most: int) -> None:
    """Raises `InvalidRequestError` for a number out of its range."""
    if not least <= value <= most:
        problem = f"{name} {value} is out of range; it must be {least} to {most}"
        raise InvalidRequestError(problem, **{name.replace(" ", "_"): value})


def parse_trainer(message: stream_pb2.StreamOpen) -> Trainer:
    """Returns the trainer that opens a stream."""
    world_size = message.world_size or 1
    require_range("world_size", world_size, 1, _MAX_WORLD_SIZE)
    require_range("rank", message.rank, 0, world_size - 1)
    for name, limit in (("feed_id", _MAX_FEED_ID_CHARS), ("job_name", MAX_JOB_NAME_LENGTH)):
        if (length := len(getattr(message, name))) > limit:
            raise InvalidRequestError(f"{name} has {length} characters; the limit is {limit}")
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
            "definition, its data, TensorFlow or an algorithm of infeed differs; infeed list A,B "
            "shows what differs between servers A and B",
            pipeline=spec.name,
            expected=expected,
            served=spec.fingerprint,
        )


def parse_run(spec: PipelineSpec, seed: int | None, lineage: spec_pb2.Lineage) -> RunKey:
    """Returns the seed, by default the pipeline's, and the segments of a run."""
    seed = spec.seed if seed is None else seed
    require_range("seed", seed, 0, MAX_SEED)
    require_range("segments", len(lineage.segments), 0, MAX_SEGMENTS)
    return seed, lineage_from_proto(lineage)


def resolve_batch_size(spec: PipelineSpec, requested: int) -> int:
    """Returns the requested batch size; 0 means the pipeline's own."""
    size = requested or spec.batch_size
    require_range("batch size", size, 1, MAX_BATCH_SIZE)
    spec.check_batch_size(size)
    return size


def check_batch_bytes(
    spec: PipelineSpec, batch_size: int, string_bytes: int, *, finish_on_server: bool
) -> None:
    """Raises `InvalidRequestError` when a batch would take too much memory. `string_bytes` is the
    size of one sample's byte strings, if known."""
    specs = [spec.wire_spec, *([spec.element_spec] if finish_on_server else [])]
    sample_bytes = max(sum(field.sample_bytes or 0 for field in fields) for fields in specs)
    batch_bytes = batch_size * (sample_bytes + string_bytes)
    if batch_size > spec.batch_size and batch_bytes > _MAX_BATCH_BYTES:
        about = "about " if string_bytes else ""
        raise InvalidRequestError(
            f"batch size {batch_size} makes batches of {about}{batch_bytes} bytes; the limit is "
            f"{_MAX_BATCH_BYTES}: use a smaller one, such as {spec.batch_size} of pipeline "
            f"{spec.name!r}",
            batch_size=batch_size,
        )
