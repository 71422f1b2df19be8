"""Iterable dataset over feeds, for DataLoader, StatefulDataLoader, Lightning and Accelerate.

    dataset = infeed.torch.FeedDataset("localhost:7470", "imagenet-train", epochs=1)
    for epoch in range(90):
        for batch in StatefulDataLoader(dataset, batch_size=None):
            step(batch["image"], batch["label"])

An iteration is a pass of `epochs` epochs: the first one has the first epoch of the pipeline's
order, the second one the second. One that was left early is continued by the next, and `set_epoch`
chooses another pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset

from infeed.adapters.tensor_reader import TensorReader, Tensors
from infeed.client import check_option_names
from infeed.cursor import Cursor
from infeed.feed import Feed
from infeed.shared.arguments import check_flag, check_integer
from infeed.shared.errors import FeedClosedError, InvalidRequestError
from infeed.stats import Stats
from infeed.torch.callers import check_callers
from infeed.torch.pass_connector import PassConnector
from infeed.torch.saved_pass import SavedPass
from infeed.torch.tensors import TensorConverter
from infeed.torch.training_loop import place_in_loop

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions


class FeedDataset(IterableDataset[Tensors]):  # type: ignore[misc, unused-ignore]
    """Iterates over passes of a pipeline as batches of tensors. It is its own iterator.

    It connects when the first batch or `stats` is asked for, in the process that asks; `len` opens
    no stream. Give it to a loader with `batch_size=None`, without a collate function and without
    workers. Used by one thread at a time.
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
        ahead      batches that the caller takes before its training step; None: Lightning's
                   Trainer reports each step that has ended, and other callers take none
        options    those of `infeed.connect`; `epochs` is the number of epochs in each pass, None
                   for one without an end. `state` may be a result of `state_dict`; if its pass is
                   finished, the first iteration is empty. Without `shard`, rank and world size are
                   those of `torch.distributed` at the first batch

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
        self._connector = PassConnector(target, pipeline, options)
        self._convert = TensorConverter(device, ids, mask)
        self.restart = check_flag("restart", restart)
        if ahead is not None:
            ahead = check_integer("ahead", ahead, 0, or_none="the steps of Lightning")
        self._ahead = ahead
        self._epochs = options.get("epochs")
        state = options.get("state")
        if isinstance(state, Cursor):
            state = state.to_json()
        self._first = self._begin_at = SavedPass.from_json(state, self._epochs)
        self._reader: TensorReader | None = None
        self._begins = False
        """Whether `iter` was called after the last batch."""
        self._entered = False
        """Whether a batch was asked for since `iter`, or since a state was loaded."""
        self._finishes = state is not None
        """Whether the next iteration continues a pass even if that is finished."""
        self._is_new = state is None
        """Whether neither a state nor a batch has set a position."""
        self._has_state = state is not None
        self._epoch: int | None = None
        """The pass of the next iteration, if `set_epoch` was called since the last began."""
        self._closed = False

    def __iter__(self) -> FeedDataset:
        """Begins an iteration, without connecting; returns itself.

        Raises `InvalidRequestError` in a worker process of a loader, and under Accelerate if it
        would split the batches again.
        """
        check_callers()
        self._begins, self._entered = True, False
        return self

    def __next__(self) -> Tensors:
        """Returns the next batch; raises `StopIteration` after the last, and the feed's errors."""
        if not self._entered:
            self._enter()
        return self._open().next()

    def __len__(self) -> int:
        """Returns the batches of a whole pass, also after a resume within it.

        Before `torch.distributed` is initialized, the world size is that of the environment. Raises
        `TypeError` if the pass is endless or its length unknown, `InvalidRequestError` if a length
        was asked for with another world size, and as `infeed.connect`.
        """
        self._begin_at = self._connector.locate(self._begin_at)
        return self._connector.length(self._begin_at)

    def __bool__(self) -> bool:
        """Returns True, also for a dataset without batches or without a length."""
        return True

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the last batch that the loop has taken; JSON can encode it.

        Once `iter` was called after the end, it is that of the next pass. It is valid on every
        rank, and for another world size. Does not connect, unless `set_epoch` has chosen the pass.
        """
        if self._reader is None:
            if self._epoch is not None:
                self._begin_at = self._connector.locate(self._begin_at)
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
        self._begins = self._entered = self._finishes = self._is_new = self._closed = False
        self._has_state, self._epoch = True, None

    def reset(self, initial_state: Mapping[str, Any] | None = None) -> None:
        """Continues at a state, or begins an iteration: the method of torchdata's nodes."""
        if initial_state is None:
            iter(self)
        else:
            self.load_state_dict(initial_state)

    next = __next__
    get_state = state_dict

    def set_epoch(self, epoch: int) -> None:
        """Chooses the pass of the next iteration, counted from 0; loaders call it before `iter`.

        An unfinished pass of that number is continued. Has no effect with `restart=True`, and after
        a state, which has the position itself. Raises `InvalidRequestError` for an epoch other than
        0 of an endless dataset that has not begun, whose position it does not tell.
        """
        check_callers()
        epoch = check_integer("epoch", epoch, 0)
        if self.restart or self._has_state:
            return
        if self._epochs is None:
            if epoch and self._is_new:
                raise InvalidRequestError(
                    f"set_epoch({epoch}) of a new dataset without an end: it has one pass, and "
                    "would begin at the first batch again; give FeedDataset(..., epochs=1), or the "
                    "state of the dataset before: state=..."
                )
            return
        self._epoch = epoch
        if self._reader is None:
            self._begin_at = SavedPass.of_epoch(epoch, self._epochs)

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
        own = {"_reader": None, "_begin_at": saved, "_entered": False}
        return {**self.__dict__, **own}

    def __repr__(self) -> str:
        feed = "not connected" if self._reader is None else repr(self._reader.feed)
        return f"FeedDataset({self._connector.target!r}, {self._connector.pipeline!r}: {feed})"

    def _enter(self) -> None:
        """Begins to read, at the position that a training loop has for the dataset, if any."""
        place = place_in_loop(self)
        if place is not None and self._is_new:
            if place.state is not None:
                self.load_state_dict(place.state)
                self._begins = True
            elif self._epoch is None:
                self.set_epoch(place.epoch)
        self._is_new = False
        reader = self._open()
        if self._begins:
            if (begin_at := self._next_pass(reader)) is not None:
                self._move_to(begin_at)
                reader = self._open()
            self._begins = self._finishes = False
            self._epoch = None
        reader.begin(self._ahead or 0, confirms=place is not None and self._ahead is None)
        self._entered = True

    def _confirm(self) -> None:
        """Counts a batch whose step has ended, for the training loop."""
        if self._reader is not None:
            self._reader.confirm()

    def _open(self) -> TensorReader:
        reader = self._reader
        if reader is not None and self._connector.must_reconnect(reader.feed, reader.returned):
            self._move_to(self._begin_at)
        if self._reader is None:
            if self._closed:
                raise FeedClosedError(f"the dataset of {self._connector.pipeline!r} was closed")
            check_callers()
            self._begin_at = self._connector.locate(self._begin_at)
            feed = self._connector.connect(self._begin_at)
            self._reader = TensorReader(feed, self._convert, self._ahead or 0)
        return self._reader

    def _next_pass(self, reader: TensorReader) -> SavedPass | None:
        """Returns where an iteration begins, None if it continues; raises `FeedClosedError` if no
        further pass can begin."""
        feed, begin_at = reader.feed, self._begin_at
        ended = reader.ended or (feed.steps is not None and reader.taken >= feed.steps)
        if self.restart:
            return self._first if reader.returned or (ended and not self._finishes) else None
        if self._epoch is not None and self._epochs is not None:
            chosen = SavedPass.of_epoch(self._epoch, self._epochs)
            if chosen.until_epoch != begin_at.until_epoch or ended:
                first = replace(Cursor.from_json(feed.state(0)), position=0)
                return chosen.located(first, feed.spec, self._epochs)
        if self._finishes or not ended:
            return None
        cursor = Cursor.from_json(feed.state(reader.taken))
        return begin_at.following(cursor, feed.spec, self._epochs)

    def _move_to(self, saved: SavedPass) -> None:
        before = self._reader
        # First: a signal handler may raise an exception while the feed is closed.
        self._reader, self._begin_at = None, saved
        if before is not None:
            before.feed.close()
