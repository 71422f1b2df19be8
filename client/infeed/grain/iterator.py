"""Iterator of a feed for Grain: elements, state, prefetch and Orbax's protocol."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import grain

from infeed.adapters.feed_adapter import FeedAdapter
from infeed.cursor import Shard
from infeed.feed import Feed
from infeed.grain.checkpoint import Checkpointable
from infeed.ranks import evidence_of_ranks, jax_shard
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Array

if TYPE_CHECKING:
    from typing_extensions import Self

    from infeed.client import ConnectOptions


class FeedIterator(FeedAdapter, grain.DatasetIterator):  # type: ignore[misc]
    """Iterates over the batches of one feed, as exact dicts of NumPy arrays, each `[slots, ...]`.
    Made by `FeedDataset`. Connected by the first of `next`, `start_prefetch` and `feed`."""

    @property
    def derives_shard(self) -> bool:
        """Whether the shard is this process's place in `jax.distributed`."""
        return self._given is None and self._options.get("shard") is None

    def _late_options(self) -> ConnectOptions:
        return {"shard": jax_shard() or _single_shard()} if self.derives_shard else {}

    @property
    def feed(self) -> Feed:
        """The feed, connected. Raises `InvalidRequestError` for several processes whose ranks JAX
        does not know, or has learned after the connection."""
        feed = super().feed
        if self.derives_shard and (shard := jax_shard()) not in (None, feed.shard):
            raise InvalidRequestError(
                f"the feed was connected before jax.distributed was initialized, for {feed.shard}, "
                f"and this process is {shard}; give FeedDataset shard=infeed.Shard(rank, "
                "world_size), or initialize jax.distributed first"
            )
        return feed

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, Array]:
        feed = self.feed
        return self._fields.arrays(feed.next(), feed)

    def get_state(self) -> dict[str, Any]:
        """Returns the cursor after the last element that `next` returned, the same on every rank
        after the same step."""
        return self.state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at a state of `get_state`, of any number of ranks, without connecting. Raises
        `CursorError`, and `InvalidRequestError` for a feed that was given."""
        self.load_state(state)

    def start_prefetch(self) -> None:
        """Connects the feed, which prefetches from then on. Idempotent."""
        self.feed  # noqa: B018 - connects

    def close(self) -> None:
        """Ends the feed and its threads. Idempotent; the state can still be read."""
        # Grain's transformations call this in their `__del__`, also when the interpreter ends: then
        # modules are gone, `sys` first of all here, and the threads with them.
        if sys is not None and not sys.is_finalizing():
            super().close()

    def __del__(self) -> None:
        """Does nothing: Grain would close the feed here, and so wait for its threads in the
        garbage collector. A feed that is dropped ends by itself."""

    async def save(self, directory: Any) -> Awaitable[None]:
        return await Checkpointable(self).save(directory)

    async def load(self, directory: Any) -> Awaitable[None]:
        return await Checkpointable(self).load(directory)

    def __str__(self) -> str:
        return "FeedIterator"


def _single_shard() -> Shard:
    if evidence := evidence_of_ranks():
        raise InvalidRequestError(
            f"FeedDataset has no shard: this process is one of several ({evidence}), and "
            "jax.distributed is not initialized, so each of them would read the same batches; give "
            "shard=infeed.Shard(rank, world_size), or initialize it before the first batch"
        )
    return Shard()
