"""Dataset of a feed for Grain, and its iterator: elements, state, prefetch and Orbax's protocol."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NoReturn

import grain

from infeed.client import check_options
from infeed.cursor import Shard
from infeed.feed import Feed
from infeed.ranks import evidence_of_ranks, jax_shard
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Array
from infeed_frameworks.feed_adapter import FeedAdapter
from infeed_frameworks.grain.checkpoint import Checkpointable
from infeed_frameworks.named_fields import NamedFields

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from infeed.client import ConnectOptions


class FeedIterator(FeedAdapter, grain.DatasetIterator):  # type: ignore[misc]
    """Iterates over the batches of one feed, as plain dicts of NumPy arrays, each `[slots, ...]`.
    Made by `FeedDataset`. Connected by the first of `next`, `start_prefetch` and `feed`."""

    @property
    def derives_shard(self) -> bool:
        """Whether the shard is this process's place in `jax.distributed`."""
        return self._given is None and self._options.get("shard") is None

    def _late_options(self) -> ConnectOptions:
        return {"shard": jax_shard() or _single_shard()} if self.derives_shard else {}

    @property
    def feed(self) -> Feed:
        """The connected feed. Raises `InvalidRequestError` for several processes whose ranks JAX
        does not know, or learned only after the connection."""
        feed = super().feed
        if self.derives_shard and (shard := jax_shard()) not in (None, feed.shard):
            raise InvalidRequestError(
                f"the feed connected for {feed.shard} before jax.distributed was initialized, but "
                f"this process is {shard}; give FeedDataset shard=infeed.Shard(rank, "
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
        # Grain's transformations call this in their `__del__`, also when the interpreter exits: the
        # modules, first of all `sys` here, and the threads are gone by then.
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


class FeedDataset(grain.IterDataset):  # type: ignore[misc]
    """Dataset of a pipeline's batches, each a plain dict of field → NumPy array, `[slots, ...]`.

    target    as for `infeed.connect`, or a connected feed, alone
    pipeline  name of the pipeline
    ids       name of a field for the sample ids, int64 `[slots]`; None: there is none
    mask      name of a field for the mask, bool `[slots]`; None: there is none
    part      name of a field for the number of each slot's part of a mixture, int64 `[slots]`, -1
              for an empty slot; None: there is none
    options   as for `infeed.connect`. Without `shard`, it is this process's place in
              `jax.distributed` when an iterator connects

    Each iterator connects a feed of its own when it is first needed, and begins at `state`. A feed
    that is given instead can be iterated once.
    """

    def __init__(
        self,
        target: str | Feed,
        pipeline: str | None = None,
        *,
        ids: str | None = None,
        mask: str | None = None,
        part: str | None = None,
        **options: Unpack[ConnectOptions],
    ) -> None:
        super().__init__()
        check_options(options, FeedDataset.__init__)
        self._target, self._pipeline, self._options = target, pipeline, options
        self._fields = NamedFields(ids, mask, part)
        self._is_iterated = self._is_copy = False
        self._new_iterator()  # checks the arguments, and connects nothing

    def __iter__(self) -> FeedIterator:
        if isinstance(self._target, Feed):
            if self._is_iterated:
                raise InvalidRequestError(
                    f"the dataset reads the connected feed of {self._target.spec.name!r}, so it "
                    "can be iterated once; pass target and pipeline instead of a feed"
                )
            self._is_iterated = True
        iterator = self._new_iterator()
        in_child = self._is_copy and multiprocessing.parent_process() is not None
        if iterator.derives_shard and in_child and jax_shard() is None:
            _refuse_workers()  # JAX in a worker process does not know the rank
        return iterator

    def mp_prefetch(self, *_: Any, **__: Any) -> NoReturn:
        """Raises `InvalidRequestError`: a feed prefetches already, and each worker would read all
        its batches."""
        _refuse_workers()

    set_slice = mp_prefetch  # which Grain calls in each of several workers

    def __getstate__(self) -> dict[str, Any]:
        """Returns the arguments with which a copy in another process connects itself."""
        if isinstance(self._target, Feed):
            raise InvalidRequestError(
                f"the feed of {self._target.spec.name!r} is connected in this process, so its "
                "dataset cannot be copied to another; pass target and pipeline instead of a feed"
            )
        return {**vars(self), "_is_copy": True}

    def __str__(self) -> str:
        # In Grain's visualization and summaries, which may be published: without target and token.
        return f"FeedDataset({self._pipeline!r})"

    def _new_iterator(self) -> FeedIterator:
        return FeedIterator(self._target, self._pipeline, self._fields, **self._options)


def _refuse_workers() -> NoReturn:
    raise InvalidRequestError(
        "Grain's worker processes (mp_prefetch) cannot read a FeedDataset, since each would read "
        "all batches. Leave out mp_prefetch, and run expensive transformations in the server's "
        "pipeline, or with grain.experimental.ThreadPrefetchIterDataset; in any other child "
        "process, give shard=infeed.Shard(rank, world_size)"
    )
