"""Jobs of TensorFlow's data service: the trainers of one job share its batches."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Literal, get_args

import tensorflow as tf

from infeed.shared.arguments import check_integer, check_text
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec.dataset import RegisteredDataset
from infeed.shared.tensorflow.from_callable import take_elements

_SERVICE = tf.data.experimental.service

TargetWorkers = Literal["auto", "any", "local"]

SHARDING_POLICIES = {policy.name.lower(): policy for policy in _SERVICE.ShardingPolicy}
"""The values of `processing_mode`."""

STATIC_POLICIES = tuple(
    SHARDING_POLICIES[name] for name in ("file", "data", "file_or_data", "hint")
)
"""The policies that need a dispatcher with a fixed list of workers."""


@dataclass(frozen=True)
class ServiceJob:
    """The checked options of a job. Made by `plan_job`."""

    name: str
    shared: bool
    """Whether the user chose the name, so that other trainers can join."""
    policy: Any
    num_consumers: int | None
    consumer_index: int | None
    trainer_id: str | None
    max_outstanding_requests: int | None
    target_workers: TargetWorkers

    def read(self, registered: RegisteredDataset, element_spec: Any) -> tf.data.Dataset:
        """Returns the elements of the registered dataset that this consumer of the job gets."""
        cache = None if self.trainer_id is None else _SERVICE.CrossTrainerCache(self.trainer_id)
        return _SERVICE.from_dataset_id(
            self.policy,
            f"grpc://{registered.dispatcher_address}",
            registered.dataset_id,
            element_spec=element_spec,
            job_name=self.name,
            consumer_index=self.consumer_index,
            num_consumers=self.num_consumers,
            max_outstanding_requests=self.max_outstanding_requests,
            cross_trainer_cache=cache,
            target_workers=self.target_workers.upper(),
        )


def plan_job(
    pipeline: str,
    *,
    processing_mode: Any,
    job_name: str | None,
    num_consumers: int | None,
    consumer_index: int | None,
    cross_trainer_cache: str | None,
    max_outstanding_requests: int | None,
    target_workers: str,
    epochs: int | None,
) -> ServiceJob:
    """Checks the options, each and together. Raises `InvalidRequestError`."""
    policy = _sharding_policy(processing_mode)
    workers = str(target_workers).lower()
    if workers not in get_args(TargetWorkers):
        raise InvalidRequestError(
            f"target_workers must be one of {', '.join(get_args(TargetWorkers))}, not "
            f"{target_workers!r}"
        )
    if max_outstanding_requests is not None:
        check_integer("max_outstanding_requests", max_outstanding_requests, 1)
    if (num_consumers is None) != (consumer_index is None):
        raise InvalidRequestError("num_consumers and consumer_index must be given together")
    if num_consumers is not None and consumer_index is not None:
        check_integer("num_consumers", num_consumers, 1)
        check_integer("consumer_index", consumer_index, 0)
        if consumer_index >= num_consumers:
            raise InvalidRequestError(
                f"consumer_index must be from 0 to num_consumers - 1, not {consumer_index} of "
                f"{num_consumers}"
            )
        _require_shared_endless("num_consumers", job_name, epochs)
        if workers == "local":
            raise InvalidRequestError(
                "coordinated reads need all workers, so target_workers cannot be local"
            )
    if cross_trainer_cache is not None:
        check_text("cross_trainer_cache", cross_trainer_cache, "the name of this trainer")
        if num_consumers is not None:
            raise InvalidRequestError(
                "coordinated reads cannot use a cross-trainer cache; leave out "
                "cross_trainer_cache or num_consumers"
            )
        _require_shared_endless("cross_trainer_cache", job_name, epochs)
    return ServiceJob(
        name=job_name or f"{pipeline}-{uuid.uuid4().hex}",
        shared=job_name is not None,
        policy=policy,
        num_consumers=num_consumers,
        consumer_index=consumer_index,
        trainer_id=cross_trainer_cache,
        max_outstanding_requests=max_outstanding_requests,
        target_workers=workers,  # type: ignore[arg-type]
    )


def require_elements(dataset: tf.data.Dataset, message: str) -> tf.data.Dataset:
    """Raises `InvalidArgumentError` with the message if the dataset has no elements.

    A job that has ended would otherwise look like one without data. The check runs in the graph:
    it appends a sentinel, asserts that it is not the first element, and removes it.
    """
    spec = dataset.element_spec

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def as_element(*element: Any) -> Any:
        return True, element[0] if len(element) == 1 else element

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def as_sentinel(_: tf.Tensor) -> Any:
        return False, tf.nest.map_structure(lambda part: tf.zeros(part.shape, part.dtype), spec)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def assert_not_empty(not_first: tf.Tensor, pair: Any) -> Any:
        is_element, element = pair
        with tf.control_dependencies([tf.debugging.Assert(not_first | is_element, [message])]):
            return tf.constant(True), (tf.identity(is_element), element)

    # Synchronous, or tf.data would parallelize these steps, and prefetch.
    elements = dataset.map(as_element, synchronous=True)
    sentinel = tf.data.Dataset.range(1).map(as_sentinel, synchronous=True)
    return take_elements(elements.concatenate(sentinel).scan(tf.constant(False), assert_not_empty))


def _require_shared_endless(option: str, job_name: str | None, epochs: int | None) -> None:
    if job_name is None:
        raise InvalidRequestError(f"{option} needs a job_name, the same for all trainers of a job")
    if epochs is not None:
        raise InvalidRequestError(
            f"{option} needs endless data: leave out epochs={epochs} and count steps"
        )


def _sharding_policy(mode: Any) -> Any:
    if isinstance(mode, _SERVICE.ShardingPolicy):
        return mode
    try:
        return SHARDING_POLICIES[str(mode).lower()]
    except KeyError:
        raise InvalidRequestError(
            f"processing_mode must be one of {', '.join(SHARDING_POLICIES)}, not {mode!r}"
        ) from None
