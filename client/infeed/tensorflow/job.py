"""A job of TensorFlow's data service: how the trainers that take part in it share the batches."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Literal, get_args

import tensorflow as tf

from infeed.errors import InvalidRequestError
from infeed.registered import RegisteredDataset

_SERVICE = tf.data.experimental.service

TargetWorkers = Literal["auto", "any", "local"]

POLICIES = {policy.name.lower(): policy for policy in _SERVICE.ShardingPolicy}
"""How the batches are shared out among the workers, by the names that users give."""

STATIC = tuple(POLICIES[name] for name in ("file", "data", "file_or_data", "hint"))
"""Those that need the dispatcher's fixed list of workers."""


@dataclass(frozen=True)
class Job:
    """What is told TensorFlow of a job. Made by `new_job`."""

    name: str
    shared: bool
    """Whether the user gave the name, so that others can take part."""
    policy: Any
    num_consumers: int | None
    consumer_index: int | None
    trainer_id: str | None
    max_outstanding_requests: int | None
    target_workers: TargetWorkers

    def read(self, registered: RegisteredDataset, element_spec: Any) -> tf.data.Dataset:
        """The elements of the data set that this consumer of the job gets."""
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


def new_job(
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
) -> Job:
    """Checks the options, each and together. Raises `InvalidRequestError`."""
    policy = _policy(processing_mode)
    workers = str(target_workers).lower()
    if workers not in get_args(TargetWorkers):
        raise InvalidRequestError(
            f"target_workers must be one of {', '.join(get_args(TargetWorkers))}, not "
            f"{target_workers!r}"
        )
    if max_outstanding_requests is not None and max_outstanding_requests < 1:
        raise InvalidRequestError(
            f"max_outstanding_requests must be at least 1, not {max_outstanding_requests}"
        )
    if (num_consumers is None) != (consumer_index is None):
        raise InvalidRequestError("num_consumers and consumer_index go together: give both or none")
    if num_consumers is not None and consumer_index is not None:
        if num_consumers < 1 or not 0 <= consumer_index < num_consumers:
            raise InvalidRequestError(
                f"consumer_index must be from 0 to num_consumers - 1, not {consumer_index} of "
                f"{num_consumers}"
            )
        _check("num_consumers", "coordinated reads", job_name, epochs)
        if workers == "local":
            raise InvalidRequestError(
                "coordinated reads go round all workers; target_workers cannot be local"
            )
    if cross_trainer_cache is not None:
        if not cross_trainer_cache:
            raise InvalidRequestError("cross_trainer_cache must be the name of this trainer")
        if num_consumers is not None:
            raise InvalidRequestError(
                "TensorFlow has no cross-trainer cache for coordinated reads; leave out "
                "cross_trainer_cache or num_consumers"
            )
        _check("cross_trainer_cache", "trainers that share a cache", job_name, epochs)
    return Job(
        name=job_name or f"{pipeline}-{uuid.uuid4().hex}",
        shared=job_name is not None,
        policy=policy,
        num_consumers=num_consumers,
        consumer_index=consumer_index,
        trainer_id=cross_trainer_cache,
        max_outstanding_requests=max_outstanding_requests,
        target_workers=workers,  # type: ignore[arg-type]
    )


def _check(option: str, what: str, job_name: str | None, epochs: int | None) -> None:
    if job_name is None:
        raise InvalidRequestError(f"{option} needs a job_name, the same for all {what}")
    if epochs is not None:
        raise InvalidRequestError(
            f"{option} needs data without an end: leave out epochs={epochs} and count steps"
        )


def _policy(mode: Any) -> Any:
    if isinstance(mode, _SERVICE.ShardingPolicy):
        return mode
    try:
        return POLICIES[str(mode).lower()]
    except KeyError:
        raise InvalidRequestError(
            f"processing_mode must be one of {', '.join(POLICIES)}, not {mode!r}"
        ) from None


__all__ = ["POLICIES", "STATIC", "Job", "TargetWorkers", "new_job"]
