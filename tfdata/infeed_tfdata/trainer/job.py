"""Jobs of TensorFlow's data service: the trainers of one job share its batches."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
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
    """The options of a job, as `distribute` takes them. Raises `InvalidRequestError`."""

    pipeline: str
    processing_mode: Any
    job_name: str | None
    num_consumers: int | None
    consumer_index: int | None
    cross_trainer_cache: str | None
    max_outstanding_requests: int | None
    target_workers: str
    epochs: int | None
    policy: Any = field(init=False)
    workers: str = field(init=False)
    name: str = field(init=False)
    """The name that the user chose, or one of this job alone."""

    def __post_init__(self) -> None:
        self._set("policy", _sharding_policy(self.processing_mode))
        self._set("workers", str(self.target_workers).lower())
        self._set("name", self.job_name or f"{self.pipeline}-{uuid.uuid4().hex}")
        if self.workers not in get_args(TargetWorkers):
            raise InvalidRequestError(
                f"target_workers must be one of {', '.join(get_args(TargetWorkers))}, not "
                f"{self.target_workers!r}"
            )
        if self.max_outstanding_requests is not None:
            check_integer("max_outstanding_requests", self.max_outstanding_requests, 1)
        self._check_consumers()
        if self.cross_trainer_cache is not None:
            check_text("cross_trainer_cache", self.cross_trainer_cache, "the name of this trainer")
            if self.num_consumers is not None:
                raise InvalidRequestError(
                    "coordinated reads cannot use a cross-trainer cache; leave out "
                    "cross_trainer_cache or num_consumers"
                )
            self._require_shared_endless("cross_trainer_cache")

    def read(self, registered: RegisteredDataset, element_spec: Any) -> tf.data.Dataset:
        """Returns the elements of the registered dataset that this consumer of the job gets."""
        name = self.cross_trainer_cache
        return _SERVICE.from_dataset_id(
            self.policy,
            f"grpc://{registered.dispatcher_address}",
            registered.dataset_id,
            element_spec=element_spec,
            job_name=self.name,
            consumer_index=self.consumer_index,
            num_consumers=self.num_consumers,
            max_outstanding_requests=self.max_outstanding_requests,
            cross_trainer_cache=None if name is None else _SERVICE.CrossTrainerCache(name),
            target_workers=self.workers.upper(),
        )

    def _check_consumers(self) -> None:
        count, index = self.num_consumers, self.consumer_index
        if (count is None) != (index is None):
            raise InvalidRequestError("num_consumers and consumer_index must be given together")
        if count is None or index is None:
            return
        check_integer("num_consumers", count, 1)
        check_integer("consumer_index", index, 0)
        if index >= count:
            raise InvalidRequestError(
                f"consumer_index must be from 0 to num_consumers - 1, not {index} of {count}"
            )
        self._require_shared_endless("num_consumers")
        if self.workers == "local":
            raise InvalidRequestError(
                "coordinated reads need all workers, so target_workers cannot be local"
            )

    def _require_shared_endless(self, option: str) -> None:
        if self.job_name is None:
            raise InvalidRequestError(
                f"{option} needs a job_name, the same for all trainers of a job"
            )
        if self.epochs is not None:
            raise InvalidRequestError(
                f"{option} needs endless data: leave out epochs={self.epochs} and count steps"
            )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


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


def _sharding_policy(mode: Any) -> Any:
    if isinstance(mode, _SERVICE.ShardingPolicy):
        return mode
    try:
        return SHARDING_POLICIES[str(mode).lower()]
    except KeyError:
        raise InvalidRequestError(
            f"processing_mode must be one of {', '.join(SHARDING_POLICIES)}, not {mode!r}"
        ) from None
