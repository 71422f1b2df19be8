"""What a peer may ask for: the numbers in its messages, checked.

What is out of range raises `InvalidRequestError` that names it and the range.
"""

from __future__ import annotations

from infeed.errors import FingerprintError, InvalidRequestError
from infeed.registered import MAX_JOB_NAME
from infeed.spec import MAX_BATCH_SIZE, PipelineSpec, Remainder
from infeed.v1 import spec_pb2, stream_pb2
from infeed_server.engines.base import Trainer
from infeed_server.pipeline.definition import MAX_SEED

_MAX_BATCH_BYTES = 1 << 30
"""The largest batch that a peer may ask for where it is not the pipeline's own batch size: a server
holds several of each stream's, and who asks must not be the one who says how much memory it has."""

_MAX_WORLD_SIZE = 1 << 16

_MAX_FEED_ID = 128

_REMAINDERS: dict[int, Remainder | None] = {
    spec_pb2.REMAINDER_UNSPECIFIED: None,
    spec_pb2.REMAINDER_DROP: "drop",
    spec_pb2.REMAINDER_PAD: "pad",
}


def trainer(message: stream_pb2.StreamOpen) -> Trainer:
    """Who opens a stream."""
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
    return Trainer(
        message.rank, world_size, message.feed_id, message.job_name, _remainder(message.remainder)
    )


def _remainder(value: int) -> Remainder | None:
    if value not in _REMAINDERS:
        raise InvalidRequestError(f"there is no remainder {value}", remainder=value)
    return _REMAINDERS[value]


def check_fingerprint(spec: PipelineSpec, expected: str) -> None:
    """Raises `FingerprintError` where another pipeline is expected."""
    if expected and expected != spec.fingerprint:
        raise FingerprintError(
            f"{spec.name!r} has the fingerprint {spec.fingerprint} here, not {expected}: its "
            "definition, its data or its TensorFlow differs",
            pipeline=spec.name,
            expected=expected,
            served=spec.fingerprint,
        )


def check_numbers(seed: int, epochs: int) -> None:
    """Those that any pipeline takes."""
    if not 0 <= seed <= MAX_SEED:
        raise InvalidRequestError(f"seed {seed} is outside of [0, 2^63)", seed=seed)
    if epochs < 0:
        raise InvalidRequestError(f"epochs {epochs} is negative", epochs=epochs)


def batch_size(spec: PipelineSpec, asked: int) -> int:
    """The slots of a batch; `asked` 0 are the pipeline's."""
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


def check_batch_bytes(spec: PipelineSpec, batch_size: int, *, finish_here: bool) -> None:
    held = [spec.wire_spec, *([spec.element_spec] if finish_here else [])]
    sample = max(sum(field.sample_bytes or 0 for field in fields) for fields in held)
    if batch_size > spec.batch_size and batch_size * sample > _MAX_BATCH_BYTES:
        raise InvalidRequestError(
            f"batch size {batch_size} makes batches of {batch_size * sample} bytes of "
            f"{spec.name!r}; at most {_MAX_BATCH_BYTES} can be asked for, or the pipeline's own "
            f"batch size, {spec.batch_size}",
            batch_size=batch_size,
        )
