"""Iterable dataset over feeds, for DataLoader, StatefulDataLoader, Lightning and Accelerate.

An iteration is a pass of `epochs` epochs. One that was left early is continued by the next, and
`set_epoch` chooses another. The position is the feed's, or in a training that reports its steps
what it has trained on; where that begins again, the dataset connects again at its position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch.utils.data import IterableDataset, get_worker_info

from infeed.client import check_options
from infeed.cursor import Cursor
from infeed.feed import Feed
from infeed.shared.arguments import check_flag, check_integer
from infeed.shared.errors import FeedClosedError, InvalidRequestError
from infeed.stats import Stats
from infeed.torch.passes import Pass, Passes
from infeed.torch.shard import prepared_loader
from infeed.torch.tensor_feed import TensorConverter, Tensors

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions


class Place(NamedTuple):
    """A dataset's place in a training: its epoch, and its state if a checkpoint was restored."""

    epoch: int
    state: Mapping[str, Any] | None


class FeedDataset(IterableDataset[Tensors]):  # type: ignore[misc, unused-ignore]
    """Iterates over passes of a pipeline as batches of tensors. It is its own iterator.

    It connects when the first batch or `stats` is asked for, in the process that asks. Give it to a
    loader with `batch_size=None` and without workers.
    """

    training: ClassVar[Callable[[], Callable[[FeedDataset], Place | None] | None]] = lambda: None
    """Returns what gives a dataset its place in a training that reports its steps by `confirm`."""

    def __init__(
        self,
        target: str,
        pipeline: str,
        *,
        device: str | torch.device | None = None,
        ids: str | None = None,
        mask: str | None = None,
        restart: bool = False,
        **options: Unpack[ConnectOptions],
    ) -> None:
        """Takes what `infeed.torch.connect` takes, except for a feed.

        restart    whether each iteration begins again with the same pass, for evaluation; False:
                   it continues an unfinished pass, and then begins the next one
        options    as for `infeed.connect`; `epochs` is the number of epochs in each pass, None for
                   one without an end. `state` may be a result of `state_dict`; if its pass is
                   finished, the first iteration is empty
        """
        super().__init__()
        if isinstance(target, Feed):
            raise InvalidRequestError(
                "FeedDataset takes the address of a server, and no feed; infeed.torch.connect "
                "takes one"
            )
        check_options(options, FeedDataset.__init__)
        self._passes = Passes(target, pipeline, options)
        self._convert = TensorConverter(device, ids, mask)
        self.restart = check_flag("restart", restart)
        self._first = self._at = Pass.from_json(options.get("state"))
        """Where the dataset begins, and where its feed has begun, or will."""
        self._has_state = options.get("state") is not None
        self._feed: Feed | None = None
        self._confirmed: int | None = None
        """Batches of the feed whose steps have ended; None if the caller does not report them."""
        self._has_ended = False
        """Whether the feed has reported its end."""
        self._is_new = True
        """Whether there was no batch and no `load_state_dict`: then `iter` begins nothing."""
        self._begins = False
        """Whether `iter` was called after the last batch."""
        self._closed = False

    def __iter__(self) -> FeedDataset:
        """Begins an iteration, without connecting; refuses a worker process of a loader."""
        if (worker := get_worker_info()) is not None:
            raise InvalidRequestError(
                f"FeedDataset in a worker process of DataLoader, one of {worker.num_workers}, each "
                "of which would read the whole feed; give num_workers=0: it prefetches already"
            )
        if not self._is_new:
            self._begins = True
            if self._feed is not None:
                self._begin()
        return self

    def __next__(self) -> Tensors:
        """Returns the next batch; raises `StopIteration` after the last, and the feed's errors."""
        if self._is_new or self._begins or self._feed is None:
            self._start_reading()
        try:
            return self._convert(self._open().next())
        except StopIteration:
            self._has_ended = True
            raise

    def __len__(self) -> int:
        """Returns the batches of a whole pass; raises `TypeError` if it is endless or unknown."""
        return self._passes.length(self._at)

    def __bool__(self) -> bool:
        """Returns True, also for a dataset without batches or without a length."""
        return True

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the last batch that the loop has taken, valid on every rank and
        for another world size; JSON can encode it. Does not connect."""
        loader = None if self._has_ended else prepared_loader(self)
        if loader is not None and not loader.use_stateful_dataloader:
            raise InvalidRequestError(
                "the state of FeedDataset would count a batch that Accelerate has taken ahead of "
                "the loop; pass the loader to no accelerator.prepare, or save its own state, with "
                "DataLoaderConfiguration(use_stateful_dataloader=True)"
            )
        return self._position().to_json()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues at a result of `state_dict`, or a cursor of `infeed.connect`; after a finished
        pass, `iter` begins the next one. Raises `CursorError`."""
        self._move_to(Pass.from_json(state_dict))
        self._has_state, self._is_new, self._begins, self._closed = True, False, False, False

    def reset(self, initial_state: Mapping[str, Any] | None = None) -> None:
        """Continues at a state, or begins an iteration: the method of torchdata's nodes."""
        if initial_state is None:
            iter(self)
        else:
            self.load_state_dict(initial_state)

    next = __next__
    get_state = state_dict

    def set_epoch(self, epoch: int) -> None:
        """Chooses the pass of the next iteration, counted from 0, also if it is unfinished. Has no
        effect with `restart=True`, and after a state."""
        epoch = check_integer("epoch", epoch, 0)
        epochs = self._passes.epochs
        if self.restart or self._has_state:
            return
        if epochs is not None:
            until_epoch = self._passes.located(self._at).until_epoch
            if self._is_over() or until_epoch != (epoch + 1) * epochs:
                self._move_to(self._passes.of_epoch(epoch))
        elif epoch and self._is_new:
            raise InvalidRequestError(
                f"set_epoch({epoch}) of a new dataset without an end, which would begin at the "
                "first batch again; give FeedDataset(..., epochs=1), or state=..."
            )

    def confirm(self) -> None:
        """Counts the first batch whose step was not reported, if there is one, as trained on."""
        if self._confirmed is not None and self._feed is not None:
            self._confirmed = min(self._confirmed + 1, self._feed.delivered)

    def stats(self) -> Stats:
        """Returns the statistics of the current pass so far."""
        return self._open().stats()

    def close(self) -> None:
        """Closes the connection; tensors stay valid."""
        self._closed = True
        if self._feed is not None:
            self._feed.close()

    def __enter__(self) -> FeedDataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a copy, as in a spawned process, needs to continue; it connects itself."""
        return {**vars(self), "_feed": None, "_confirmed": None, "_at": self._position()}

    @property
    def _taken(self) -> int:
        """Batches of the feed that the loop has taken."""
        if self._confirmed is not None or self._feed is None:
            return self._confirmed or 0
        return self._feed.delivered

    def _position(self) -> Pass:
        """Returns where the loop is."""
        if self._feed is None:
            return self._at
        return Pass(Cursor.from_json(self._feed.state(self._taken)), self._at.until_epoch)

    def _is_over(self) -> bool:
        """Returns whether the loop has taken every batch of the pass, as far as that is known."""
        steps = None if self._feed is None else self._feed.steps
        return self._has_ended or (steps is not None and self._taken >= steps)

    def _start_reading(self) -> None:
        """Connects, at the position that a training has for a new dataset, if any."""
        self._passes.shard.check_accelerate(self)
        place_of = FeedDataset.training()
        place = None if place_of is None else place_of(self)
        if place is not None and self._is_new and not self._has_state:
            if place.state is not None:
                self.load_state_dict(place.state)
                self._begins = True
            elif self._at == self._first:
                self.set_epoch(place.epoch)
        self._open()
        if self._begins:
            self._begin()
        self._is_new = self._begins = False
        self._confirmed = None if place is None else self._taken

    def _begin(self) -> None:
        """Moves to where the iteration begins; raises `FeedClosedError` without a further pass."""
        if self.restart:
            if self._is_over() or self._taken:
                self._move_to(self._first)
        elif self._is_over():
            self._move_to(self._passes.after(self._position()))
        elif self._feed is not None and self._feed.delivered != self._taken:
            self._move_to(self._position())  # the caller has dropped what it took ahead

    def _open(self) -> Feed:
        if self._feed is None:
            if self._closed:
                raise FeedClosedError(f"the dataset of {self._passes.pipeline!r} was closed")
            self._at = self._passes.located(self._at)
            self._feed = self._passes.connect(self._at)
        self._passes.shard.check_unchanged(self._feed.shard)
        return self._feed

    def _move_to(self, at: Pass) -> None:
        if self._feed is not None:
            self._feed.close()
        self._feed, self._at = None, at
        self._confirmed, self._has_ended = None, False
