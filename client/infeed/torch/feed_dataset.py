"""Iterable dataset over feeds, for DataLoader, StatefulDataLoader, Lightning and Accelerate.

    dataset = infeed.torch.FeedDataset("localhost:7470", "imagenet-train", epochs=1)
    for epoch in range(90):
        for batch in StatefulDataLoader(dataset, batch_size=None):
            step(batch["image"], batch["label"])

An iteration is a pass of `epochs` epochs: the first one has the first epoch of the pipeline's
order, the second one the second. One that was left early is continued by the next, and `set_epoch`
chooses another pass. The position is the feed's, less the batches that the caller takes
ahead; where the caller begins again behind it, the dataset connects again at its position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch.utils.data import IterableDataset, get_worker_info

from infeed.client import check_option_names
from infeed.cursor import Cursor
from infeed.feed import Feed
from infeed.shared.arguments import check_flag, check_integer
from infeed.shared.errors import FeedClosedError, InvalidRequestError
from infeed.stats import Stats
from infeed.torch.passes import Pass, Passes
from infeed.torch.tensor_feed import Tensors
from infeed.torch.tensors import TensorConverter

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions


class Place(NamedTuple):
    """A dataset's place in a training: its epoch, and its state if a checkpoint was restored."""

    epoch: int
    state: Mapping[str, Any] | None


class FeedDataset(IterableDataset[Tensors]):  # type: ignore[misc, unused-ignore]
    """Iterates over passes of a pipeline as batches of tensors. It is its own iterator.

    It connects when the first batch or `stats` is asked for, in the process that asks; `len` opens
    no stream. Give it to a loader with `batch_size=None`, without a collate function and without
    workers. Used by one thread at a time.
    """

    training: ClassVar[Callable[[], Callable[[FeedDataset], Place | None] | None]] = lambda: None
    """Returns what gives a dataset its place in a training of this process that reports the end of
    each step by `confirm`, as Lightning's does; None without one."""

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
        options    as for `infeed.connect`; `epochs` is the number of epochs in each pass, None for
                   one without an end. `state` may be a result of `state_dict`; if its pass is
                   finished, the first iteration is empty. Without `shard`, `torch.distributed` has
                   rank and world size at the first batch

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
        self._passes = Passes(target, pipeline, options)
        self._convert = TensorConverter(device, ids, mask)
        self.restart = check_flag("restart", restart)
        if ahead is not None:
            ahead = check_integer("ahead", ahead, 0, or_none="the steps of Lightning")
        self._ahead = ahead
        state = options.get("state")
        self._first = self._pass = Pass.from_json(state)
        """Where the dataset begins, and where its feed has begun, or will."""
        self._feed: Feed | None = None
        self._confirmed: int | None = None
        """Batches of the feed whose steps have ended; None if the caller does not report them."""
        self._has_ended = False
        """Whether the feed has reported its end."""
        self._begins = False
        """Whether the next batch begins a pass, if the one before has ended."""
        self._entered = False
        """Whether a batch was asked for since `iter`, or since a state was loaded."""
        self._finishes = self._has_state = state is not None
        """Whether the next iteration is the rest of the state's pass, also if nothing is left."""
        self._is_new = not self._has_state
        """Whether neither a state nor a batch has set a position."""
        self._epoch: int | None = None
        """The pass of the next iteration, if `set_epoch` was called since the last began."""
        self._closed = False

    def __iter__(self) -> FeedDataset:
        """Begins an iteration, without connecting; refuses a worker process of a loader."""
        if (worker := get_worker_info()) is not None:
            raise InvalidRequestError(
                f"FeedDataset in a worker process of DataLoader (worker {worker.id} of "
                f"{worker.num_workers}): the feed would be read once for each worker, and its "
                "state would be lost; give num_workers=0. The feed prefetches in the background "
                "already"
            )
        self._begins, self._entered = not self._finishes, False
        return self

    def __next__(self) -> Tensors:
        """Returns the next batch; raises `StopIteration` after the last, and the feed's errors."""
        if not self._entered:
            self._enter()
        try:
            return self._convert(self._open().next())
        except StopIteration:
            self._has_ended = True
            raise

    def __len__(self) -> int:
        """Returns the batches of a whole pass, also after a resume within it.

        Raises `TypeError` if it is endless or unknown, and `InvalidRequestError` after a length for
        another world size, which the environment tells before `torch.distributed` does.
        """
        return self._passes.length(self._pass)

    def __bool__(self) -> bool:
        """Returns True, also for a dataset without batches or without a length."""
        return True

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the last batch that the loop has taken; JSON can encode it.

        Once `iter` was called after the end, it is the next pass's. It is valid on every
        rank, and for another world size. Does not connect, unless `set_epoch` has chosen the pass.
        """
        return (self._next_pass() or self._position()).to_json()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues at a state: a result of `state_dict`, or a cursor of `infeed.connect`.

        After the state of a finished pass, `iter` begins the next one. Raises `CursorError` if it
        is none.
        """
        self._move_to(Pass.from_json(state_dict))
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
        a state. Raises `InvalidRequestError` for a new endless dataset, except for epoch 0.
        """
        epoch = check_integer("epoch", epoch, 0)
        if self.restart or self._has_state:
            return
        if self._passes.epochs is not None:
            self._epoch = epoch
        elif epoch and self._is_new:
            raise InvalidRequestError(
                f"set_epoch({epoch}) of a new dataset without an end: it has one pass, and would "
                "begin at the first batch again; give FeedDataset(..., epochs=1), or the state of "
                "the dataset before: state=..."
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
        at = Pass.from_json(self.state_dict())
        return {**self.__dict__, "_feed": None, "_pass": at, "_entered": False, "_epoch": None}

    def __repr__(self) -> str:
        feed = "not connected" if self._feed is None else repr(self._feed)
        return f"FeedDataset({self._passes.target!r}, {self._passes.pipeline!r}: {feed})"

    @property
    def _taken(self) -> int:
        """Batches of the feed that the loop has taken."""
        if self._feed is None or self._confirmed is not None:
            return self._confirmed or 0
        # At the end the caller asks for a batch ahead that there is not.
        return max(0, self._feed.delivered - max(0, (self._ahead or 0) - self._has_ended))

    def _position(self) -> Pass:
        """Returns where the loop is."""
        if self._feed is None:
            return self._pass
        return Pass(Cursor.from_json(self._feed.state(self._taken)), self._pass.until_epoch)

    def _enter(self) -> None:
        """Begins to read, at the position that a training has for the dataset, if any."""
        self._passes.shard.check_accelerate(self)
        place_of = FeedDataset.training()
        place = None if place_of is None else place_of(self)
        if place is not None and self._is_new:
            if place.state is not None:
                self.load_state_dict(place.state)
                self._begins = True
            elif self._epoch is None:
                self.set_epoch(place.epoch)
        self._is_new = False
        if self._epoch is None:
            self._open()
        if (begin_at := self._next_pass()) is not None:
            self._move_to(begin_at)
        elif self._feed is not None and self._feed.delivered != self._taken:
            self._move_to(self._position())  # the caller has dropped what it took ahead
        self._begins = self._finishes = False
        self._epoch = None
        self._confirmed = self._taken if place is not None and self._ahead is None else None
        self._entered = True

    def _next_pass(self) -> Pass | None:
        """Returns where the next iteration begins, None if it continues; raises `FeedClosedError`
        if no further pass can begin."""
        if self._feed is not None and not self._begins:
            return None
        steps = None if self._feed is None else self._feed.steps
        ended = self._has_ended or (steps is not None and self._taken >= steps)
        if self.restart:
            return self._first if ended or self._taken else None
        if self._epoch is not None:
            if not ended and self._passes.is_pass(self._epoch, self._pass):
                return None
            return self._passes.of_epoch(self._epoch)
        return self._passes.after(self._position()) if ended else None

    def _open(self) -> Feed:
        if self._feed is not None and self._passes.shard.has_changed(self._feed.shard):
            if self._feed.delivered:
                self._passes.shard.check_unchanged(self._feed.shard)
            self._move_to(self._pass)
        if self._feed is None:
            if self._closed:
                raise FeedClosedError(f"the dataset of {self._passes.pipeline!r} was closed")
            self._pass = self._passes.located(self._pass)
            self._feed = self._passes.connect(self._pass)
        return self._feed

    def _move_to(self, at: Pass) -> None:
        if self._feed is not None:
            self._feed.close()
        self._feed, self._pass = None, at
        self._confirmed, self._has_ended = None, False
