"""Iterable dataset over feeds, for DataLoader, StatefulDataLoader, Lightning and Accelerate.

    dataset = infeed.torch.FeedDataset("localhost:7470", "imagenet-train", epochs=1)
    for epoch in range(90):
        for batch in StatefulDataLoader(dataset, batch_size=None):
            step(batch["image"], batch["label"])

An iteration is a pass of `epochs` epochs: the first one has the first epoch of the pipeline's
order, the second one the second. One that was left early is continued by the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset

from infeed.arguments import check_flag, check_integer
from infeed.client import check_option_names
from infeed.cursor import Cursor
from infeed.errors import FeedClosedError, InvalidRequestError
from infeed.feed import Feed
from infeed.lazy_feed import LazyFeed
from infeed.stats import Stats
from infeed.tensor_reader import TensorReader, Tensors
from infeed.torch.callers import batches_ahead, check_callers, unrestored_state
from infeed.torch.saved_pass import SavedPass
from infeed.torch.shard import with_shard
from infeed.torch.tensors import TensorConverter

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions


class FeedDataset(IterableDataset[Tensors]):  # type: ignore[misc, unused-ignore]
    """Iterates over passes of a pipeline as batches of tensors. It is its own iterator.

    It connects when the first batch, `len` or `stats` is asked for, in the process that asks. Give
    it to a loader with `batch_size=None` and without workers. Used by one thread at a time.
    """

    def __init__(
        self,
        target: str,
        pipeline: str,
        *,
        device: str | torch.device | None = None,
        ids: str | None = None,
        mask: str | None = None,
        restart: bool = False,
        ahead: int | None = None,
        **options: Unpack[ConnectOptions],
    ) -> None:
        """Takes what `infeed.torch.connect` takes, except for a feed.

        target     as for `infeed.connect`
        pipeline   name of the pipeline
        device     the tensors' device; None: tensors of the batch's own memory
        ids        name of a field for the sample ids; None: no such field
        mask       name of a field for the mask; None: no such field
        restart    whether each iteration begins again with the same pass, for evaluation; False:
                   it continues an unfinished pass, and then begins the next one
        ahead      batches that the caller takes before its training step; None: 1 for Lightning if
                   it finds no length, otherwise 0
        options    those of `infeed.connect`; `epochs` is the number of epochs in each pass, None
                   for one without an end. `state` may be a result of `state_dict`; if its pass is
                   finished, the first iteration is empty

        Raises `InvalidRequestError` for a feed, `CursorError` for a state that is none, and
        `TypeError` for an unknown option.
        """
        super().__init__()
        if isinstance(target, Feed):
            raise InvalidRequestError(
                "FeedDataset connects for each of its passes, so it takes the address of a server, "
                "and no feed; infeed.torch.connect takes one"
            )
        check_option_names(options, FeedDataset.__init__)
        self._target, self._pipeline = target, pipeline
        self._convert = TensorConverter(device, ids, mask)
        self._restart = check_flag("restart", restart)
        if ahead is not None:
            ahead = check_integer("ahead", ahead, 0, or_none="the number of the calling library")
        self._ahead = ahead
        self._epochs = options.get("epochs")
        state = options.get("state")
        self._first = self._begin_at = SavedPass.from_json(state, self._epochs)
        self._options = options
        self._reader: TensorReader | None = None
        self._begins = False
        """Whether `iter` was called after the last batch."""
        self._finishes = state is not None
        """Whether the next iteration continues a pass even if that is finished."""
        self._is_new = state is None
        """Whether neither a state nor a batch has set a position."""
        self._closed = False

    def __iter__(self) -> FeedDataset:
        """Begins an iteration, without connecting; returns itself.

        Raises `InvalidRequestError` in a worker process of a loader, and under Accelerate if it
        would split the batches again.
        """
        check_callers()
        self._begins = True
        return self

    def __next__(self) -> Tensors:
        """Returns the next batch; raises `StopIteration` after the last, and the feed's errors."""
        if self._is_new and (state := unrestored_state()) is not None:
            self.load_state_dict(state)
            self._begins = True
        self._is_new = False
        reader = self._open()
        if self._begins:
            if (begin_at := self._next_pass(reader)) is not None:
                self._move_to(begin_at)
                reader = self._open()
            reader.begin(batches_ahead() if self._ahead is None else self._ahead)
            self._begins = self._finishes = False
        return reader.next()

    def __len__(self) -> int:
        """Returns the batches of a whole pass, also after a resume within it.

        Raises `TypeError` if it is endless or its length unknown, and as `infeed.connect`.
        """
        feed = self._open().feed
        steps, samples = len(feed), feed.spec.sample_count
        if samples is None or self._begin_at.until_epoch is None or self._epochs is None:
            return steps
        pass_start = (self._begin_at.until_epoch - self._epochs) * samples
        stride = feed.spec.stride(feed.batch_size) * feed.shard.world_size
        before: int = max(0, feed.state(0)["position"] - pass_start)
        return steps + -(-before // stride)  # the last step of a padded pass has fewer samples

    def __bool__(self) -> bool:
        """Returns True, also for a dataset without batches or without a length."""
        return True

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the last batch that the loop has taken; JSON can encode it.

        Once `iter` was called after the end, it is that of the next pass. It is valid on every
        rank, and for another world size. Does not connect.
        """
        if self._reader is None:
            return self._begin_at.to_json()
        if self._begins and (begin_at := self._next_pass(self._reader)) is not None:
            return begin_at.to_json()
        cursor = self._reader.feed.state(self._reader.taken)
        return SavedPass(cursor, self._begin_at.until_epoch).to_json()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues at a state: a result of `state_dict`, or a cursor of `infeed.connect`.

        After the state of a finished pass, `iter` begins the next one. Raises `CursorError` if it
        is none.
        """
        saved = SavedPass.from_json(state_dict, self._epochs)
        self._move_to(saved)
        self._begins = self._finishes = self._is_new = self._closed = False

    def reset(self, initial_state: Mapping[str, Any] | None = None) -> None:
        """Continues at a state, or begins an iteration: the method of torchdata's nodes."""
        if initial_state is None:
            iter(self)
        else:
            self.load_state_dict(initial_state)

    next = __next__
    get_state = state_dict

    def set_epoch(self, epoch: int) -> None:  # noqa: ARG002 - the order follows from the position
        """Checks the caller as `iter` does: loaders call it first. The epoch has no effect."""
        check_callers()

    def stats(self) -> Stats:
        """Returns the statistics of the current pass so far."""
        return self._open().feed.stats()

    def close(self) -> None:
        """Closes the connection; tensors stay valid."""
        self._closed = True
        if self._reader is not None:
            self._reader.feed.close()

    def __enter__(self) -> FeedDataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a copy, as in a spawned process, needs to continue; it connects itself."""
        saved = SavedPass.from_json(self.state_dict(), self._epochs)
        return {**self.__dict__, "_reader": None, "_begin_at": saved}

    def __repr__(self) -> str:
        feed = "not connected" if self._reader is None else repr(self._reader.feed)
        return f"FeedDataset({self._target!r}, {self._pipeline!r}: {feed})"

    def _open(self) -> TensorReader:
        if self._reader is None:
            if self._closed:
                raise FeedClosedError(f"the dataset of {self._pipeline!r} was closed")
            check_callers()
            feed = self._connect(self._begin_at)
            if (known := self._begin_at.with_end(feed.spec, self._epochs)) != self._begin_at:
                feed.close()
                self._begin_at = known
                feed = self._connect(known)
            self._reader = TensorReader(feed, self._convert, self._ahead or 0)
        return self._reader

    def _connect(self, saved: SavedPass) -> Feed:
        options = with_shard(self._options)
        options["state"], options["epochs"] = saved.cursor, saved.until_epoch
        return LazyFeed(self._target, self._pipeline, **options).open()

    def _next_pass(self, reader: TensorReader) -> SavedPass | None:
        """Returns where an iteration begins, None if it continues; raises `FeedClosedError` if no
        further pass can begin."""
        feed = reader.feed
        if self._restart:
            return self._first if reader.returned else None
        ended = reader.ended if feed.steps is None else reader.taken >= feed.steps
        if self._finishes or not ended:
            return None
        cursor = Cursor.from_json(feed.state(reader.taken))
        return self._begin_at.following(cursor, feed.spec, self._epochs)

    def _move_to(self, saved: SavedPass) -> None:
        before = self._reader
        # First: a signal handler may raise an exception while the feed is closed.
        self._reader, self._begin_at = None, saved
        if before is not None:
            before.feed.close()
