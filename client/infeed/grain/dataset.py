"""Dataset of a feed for Grain: `FeedDataset`, whose iterators connect a feed each."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any, NoReturn

import grain

from infeed.adapters.named_fields import NamedFields
from infeed.client import check_options
from infeed.feed import Feed
from infeed.grain.iterator import FeedIterator
from infeed.ranks import jax_shard
from infeed.shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions


class FeedDataset(grain.IterDataset):  # type: ignore[misc]
    """Dataset of a pipeline's batches, each an exact dict of field → NumPy array, `[slots, ...]`.

    target    as `infeed.connect` takes it; or a feed that is connected, alone
    pipeline  name of the pipeline
    ids       name of a field for the sample ids, int64 `[slots]`; None: there is none
    mask      name of a field for the mask, bool `[slots]`; None: there is none
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
        **options: Unpack[ConnectOptions],
    ) -> None:
        super().__init__()
        check_options(options, FeedDataset.__init__)
        self._target, self._pipeline, self._options = target, pipeline, options
        self._fields = NamedFields(ids, mask)
        self._is_iterated = self._is_copy = False
        self._new_iterator()  # checks the arguments, and connects nothing

    def __iter__(self) -> FeedIterator:
        if isinstance(self._target, Feed):
            if self._is_iterated:
                raise InvalidRequestError(
                    f"the feed of {self._target.spec.name!r} was given to the dataset, so it can "
                    "be iterated once; give target and pipeline instead of a feed"
                )
            self._is_iterated = True
        iterator = self._new_iterator()
        in_child = self._is_copy and multiprocessing.parent_process() is not None
        if iterator.derives_shard and in_child and jax_shard() is None:
            _refuse_workers()  # JAX in a worker process does not know the rank
        return iterator

    def mp_prefetch(self, *_: Any, **__: Any) -> NoReturn:
        """Raises `InvalidRequestError`: a feed prefetches by itself, and workers would each read
        all of its batches."""
        _refuse_workers()

    set_slice = mp_prefetch  # which Grain calls in each of several workers

    def __getstate__(self) -> dict[str, Any]:
        """Returns the arguments, with which a copy in another process connects itself."""
        if isinstance(self._target, Feed):
            raise InvalidRequestError(
                f"the feed of {self._target.spec.name!r} is connected in this process, so its "
                "dataset cannot be copied to another; give target and pipeline instead of a feed"
            )
        return {**vars(self), "_is_copy": True}

    def __str__(self) -> str:
        # In Grain's visualization and summaries, which may be published: without target and token.
        return f"FeedDataset({self._pipeline!r})"

    def _new_iterator(self) -> FeedIterator:
        return FeedIterator(self._target, self._pipeline, self._fields, **self._options)


def _refuse_workers() -> NoReturn:
    raise InvalidRequestError(
        "a FeedDataset cannot be read by Grain's worker processes (mp_prefetch): each would read "
        "all batches; leave out mp_prefetch, and run expensive transformations in the server's "
        "pipeline, or with grain.experimental.ThreadPrefetchIterDataset; in a child process of "
        "another kind, give shard=infeed.Shard(rank, world_size)"
    )
