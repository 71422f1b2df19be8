"""Options of a feed, as far as they can be checked for every pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from infeed.cursor import Shard
from infeed.prefetch.byte_window import MAX_BATCHES, MIN_BATCHES
from infeed.shared.arguments import (
    MAX_INT64,
    check_choice,
    check_integer,
    check_seconds,
    check_text,
)
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import MAX_BATCH_SIZE, FinishPlacement, Remainder
from infeed.shared.spec.dataset import MAX_JOB_NAME_LENGTH


@dataclass(frozen=True)
class FeedOptions:
    """The options of `connect` by name, with numbers as int and float.

    Raises `InvalidRequestError`.
    """

    batch_size: int | None = None
    shard: Shard | None = None
    seed: int | None = None
    epochs: int | None = None
    remainder: Remainder | None = None
    finish: FinishPlacement = "trainer"
    job_name: str | None = None
    prefetch_bytes: int = 0
    prefetch_batches: int | None = None
    reconnect_timeout: float = 60.0

    def __post_init__(self) -> None:
        integers = {
            "batch_size": (1, MAX_BATCH_SIZE, "the pipeline's"),
            "seed": (0, MAX_INT64, "the pipeline's"),
            "epochs": (1, MAX_INT64, "an endless feed"),
            "prefetch_batches": (MIN_BATCHES, MAX_BATCHES, "as many as prefetch_bytes holds"),
        }
        for name, (low, high, or_none) in integers.items():
            if (value := getattr(self, name)) is not None:
                self._set(name, check_integer(name, value, low, high, or_none=or_none))
        self._set("prefetch_bytes", check_integer("prefetch_bytes", self.prefetch_bytes, 0))
        seconds = check_seconds("reconnect_timeout", self.reconnect_timeout, endless=True)
        self._set("reconnect_timeout", seconds)
        if self.shard is not None and not isinstance(self.shard, Shard):
            raise InvalidRequestError(
                f"shard must be an infeed.Shard or None, not {self.shard!r}; use "
                "shard=infeed.Shard(rank=0, world_size=2)"
            )
        if self.remainder is not None:
            check_choice("remainder", self.remainder, get_args(Remainder))
        check_choice("finish", self.finish, get_args(FinishPlacement))
        if self.job_name is not None:
            check_text("job_name", self.job_name)
            if len(self.job_name) > MAX_JOB_NAME_LENGTH:
                raise InvalidRequestError(
                    f"job_name must have at most {MAX_JOB_NAME_LENGTH} characters, not "
                    f"{len(self.job_name)}"
                )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
