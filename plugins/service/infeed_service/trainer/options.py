"""Options of `distribute`, with their texts and checks."""
# ruff: noqa: RUF009 - `checked_option` and `_of_connect` return fields

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypedDict

import tensorflow as tf

from infeed.http2.tls_config import TLS
from infeed.prefetch.feed_options import CheckedOptions, FeedOptions, checked_option
from infeed.rpc.credentials import Token
from infeed.shared.arguments import check_choice, check_flag, check_integer, check_text
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Remainder
from infeed.transport import Transport
from infeed_frameworks.keras.elements import DEFAULT_LABEL
from infeed_service.dataset import COMPRESSIONS, Compression

ShardingPolicy: Any = tf.data.experimental.service.ShardingPolicy

SHARDING_POLICIES = {policy.name.lower(): policy for policy in ShardingPolicy}
"""The values of `processing_mode`."""


class DistributeArguments(TypedDict, total=False):
    """The options of `distribute`, for type checkers."""

    batch_size: int | None
    seed: int | None
    epochs: int | None
    remainder: Remainder | None
    processing_mode: Any
    job_name: str | None
    num_consumers: int | None
    consumer_index: int | None
    cross_trainer_cache: str | None
    compression: Compression | None
    max_outstanding_requests: int | None
    label: str | None
    mask: bool
    replicas: int | None
    sample_ids: bool
    timeout: float
    token: Token | None
    tls: TLS | bool | None
    transport: Transport | None


def _of_connect(name: str, text: str = "") -> Any:
    """Declares an option of `connect` again, with its default and check."""
    option = FeedOptions.__dataclass_fields__[name]
    metadata = {**option.metadata, "text": text or option.metadata["text"]}
    return field(default=option.default, metadata=metadata)


def _check_policy(name: str, mode: Any) -> Any:
    if isinstance(mode, ShardingPolicy):
        return mode
    return SHARDING_POLICIES[check_choice(name, str(mode).lower(), tuple(SHARDING_POLICIES))]


def _positive(name: str, value: Any) -> int:
    return check_integer(name, value, 1)


@dataclass(frozen=True, kw_only=True)
class DistributeOptions(CheckedOptions):
    """The options of one dataset. Raises `InvalidRequestError`."""

    batch_size: int | None = _of_connect("batch_size", "slots of a batch; None: the pipeline's")
    seed: int | None = _of_connect("seed", "seed of order and augmentation; None: the pipeline's")
    epochs: int | None = _of_connect("epochs")
    remainder: Remainder | None = _of_connect(
        "remainder", '`"drop"` or `"pad"` the last samples; None: the pipeline\'s'
    )
    processing_mode: Any = checked_option(
        "dynamic",
        "how the workers share the batches: the name of a policy, or TensorFlow's `ShardingPolicy`",
        _check_policy,
    )
    job_name: str | None = _of_connect(
        "job_name",
        "the job to join: each batch goes to one of its trainers; None: a new job",
    )
    num_consumers: int | None = checked_option(
        None,
        "coordinated reads: number of trainers in the job",
        _positive,
    )
    consumer_index: int | None = checked_option(
        None,
        "this trainer's number in the job, from 0",
        lambda name, value: check_integer(name, value, 0),
    )
    cross_trainer_cache: str | None = checked_option(
        None,
        "this trainer's name: trainers of the job with other names may get the same batches from "
        "the workers' memory. Requires `job_name` and no `epochs`",
        check_text,
    )
    compression: Compression | None = checked_option(
        None,
        'compression of batches on the network: `"none"`, `"snappy"`, or `"auto"` (not within a '
        "host); None: the server's choice",
        lambda name, value: check_choice(name, value, COMPRESSIONS),
    )
    max_outstanding_requests: int | None = checked_option(
        None,
        "batches requested at a time, which limits the memory; None: TensorFlow's choice",
        _positive,
    )
    label: str | None = checked_option(
        DEFAULT_LABEL, "the field used as y; None: the elements are dicts of all fields"
    )
    mask: bool = checked_option(
        False,
        "whether to keep empty slots, for static shapes, and add a weight per slot, 1.0 or 0.0, as "
        "the last component; False: empty slots are cut",
        check_flag,
    )
    replicas: int | None = checked_option(
        None,
        "replicas that each take whole batches, as with `distribute_datasets_from_function`; "
        "None: one, with an error under a strategy with several",
        _positive,
    )
    sample_ids: bool = checked_option(
        False,
        "whether to add a field `sample_ids`: int64 for each slot, the sample's index in the "
        "source, -1 for an empty slot",
        check_flag,
    )
    timeout: float = _of_connect(
        "timeout", "seconds to wait for the server, and then for dispatcher and workers"
    )
    token: Token | None = _of_connect("token", "as for `connect`")
    tls: TLS | bool | None = _of_connect("tls", "as for `connect`")
    transport: Transport | None = _of_connect("transport", "as for `connect`")

    def __post_init__(self) -> None:
        super().__post_init__()
        count, index = self.num_consumers, self.consumer_index
        if (count is None) != (index is None) or (index or 0) >= (count or 1):
            raise InvalidRequestError(
                "num_consumers and consumer_index must be given together, with an index from 0 to "
                f"num_consumers - 1, not {count} and {index}"
            )
        shared = [name for name in ("num_consumers", "cross_trainer_cache") if getattr(self, name)]
        if len(shared) > 1 or (shared and (not self.job_name or self.epochs)):
            raise InvalidRequestError(
                f"{' and '.join(shared)}: coordinated reads and a cross-trainer cache exclude each "
                "other, and need a job_name shared by all its trainers and endless data; leave out "
                "epochs"
            )
