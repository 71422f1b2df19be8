"""Iterable dataset over feeds, for DataLoader, StatefulDataLoader, Lightning and Accelerate.

An iteration is a pass of `epochs` epochs. The next iteration continues an unfinished one, and
`set_epoch` chooses another. The position is the feed's, or, if the training confirms its steps, the
last trained step's; a training that restarts makes the dataset connect again at its position.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset

from infeed.client import check_options
from infeed.cursor import Cursor
from infeed.feed import Feed
from infeed.shared.arguments import check_flag, check_integer
from infeed.shared.errors import FeedClosedError, InvalidRequestError
from infeed.stats import Stats
from infeed_frameworks.named_fields import NamedFields
from infeed_frameworks.torch.loaders import check_accelerate, check_loader, prepared_loader
from infeed_frameworks.torch.passes import Pass, Passes
from infeed_frameworks.torch.tensor_feed import TensorConverter, Tensors

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions


class FeedDataset(IterableDataset[Tensors]):  # type: ignore[misc, unused-ignore]
    """Iterates over passes of a pipeline as batches of tensors. It is its own iterator.

    It connects at the first batch or `stats`, in the calling process. Give it to a loader with
    `batch_size=None` and without workers.
    """

    def __init__(  # noqa: PLR0913 - a user's options, flat as in the other frameworks
        self,
        target: str,
        pipeline: str,
        *,
        device: str | torch.device | None = None,
        ids: str | None = None,
        mask: str | None = None,
        part: str | None = None,
        fields: Sequence[str] | None = None,
        channels_first: Sequence[str] | None = None,
        restart: bool = False,
        **options: Unpack[ConnectOptions],
    ) -> None:
        """Takes what `infeed.torch.connect` takes, except for a feed.

        restart    whether each iteration begins again with the first pass, for evaluation, which
                   leaves out no sample: `remainder` is then `"pad"` by default; False: it continues
                   an unfinished pass, and then begins the next one
        options    as for `infeed.connect`; `epochs` is the number of epochs in each pass, None for
                   one without an end. `state` is what `load_state_dict` takes
        """
        super().__init__()
        if isinstance(target, Feed):
            raise InvalidRequestError(
                "FeedDataset takes the address of a server, not a feed; give the feed to "
                "infeed.torch.connect"
            )
        state = options.pop("state", None)
        check_options(options, FeedDataset.__init__)
        self.restart = check_flag("restart", restart)
        if restart and options.get("remainder") is None:
            options["remainder"] = "pad"
        self._passes = Passes(target, pipeline, options)
        self._convert = TensorConverter(
            device, NamedFields(ids, mask, part, fields), channels_first
        )
        self._at = Pass()
        """Where the feed began or will begin."""
        self._has_state = False
        self._feed: Feed | None = None
        self._earlier: Stats | None = None
        """The statistics of earlier feeds."""
        self._confirmed: int | None = None
        """Batches of the feed whose steps have ended; None if the caller does not confirm them."""
        self._has_ended = False
        """Whether the feed has reported its end."""
        self._is_fresh = True
        """Whether no batch was taken since the construction or `load_state_dict`."""
        self._begins = False
        """Whether `iter` was called after the last batch."""
        self._closed = False
        if state is not None:
            self.load_state_dict(state)

    def __iter__(self) -> FeedDataset:
        """Begins an iteration, without connecting; refuses a worker process of a loader, and a
        loader that would stack batches."""
        frame = inspect.currentframe()
        check_loader(frame and frame.f_back)
        self._begins = True
        if self._feed is not None:
            self._begin()
        return self

    def __next__(self) -> Tensors:
        """Returns the next batch; raises `StopIteration` after the last, and the feed's errors."""
        if self._begins or self._feed is None:
            check_accelerate(self, self._passes.shard)
            if self._begins and self._feed is None:
                self._begin()
            self._begins = False
        feed = self._open()
        try:
            batch = feed.next()
        except StopIteration:
            self._has_ended = True
            raise
        self._is_fresh = False
        return self._convert(batch, feed)

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """Class names by field; a class's number is the index of its name."""
        return self._passes.classes

    @property
    def epoch(self) -> int:
        """The number of the pass that the loop reads, from 0, and after its last batch that of the
        next: for `range(dataset.epoch, epochs)`. It holds for another number of ranks or batch size
        than the saved state's. Raises `InvalidRequestError` without `epochs`."""
        return self._passes.number(self._position())

    def __len__(self) -> int:
        """Returns the batches of a whole pass; raises `TypeError` if it is endless or unknown."""
        return self._passes.length(self._at)

    def __bool__(self) -> bool:
        """Returns True, even for a dataset without batches or without a length."""
        return True

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the last batch that the loop has taken, valid on every rank and
        for another world size; JSON can encode it. Does not connect."""
        loader = None if self._has_ended else prepared_loader(self)
        if loader is not None and not loader.use_stateful_dataloader:
            raise InvalidRequestError(
                "the state of FeedDataset would count a batch that Accelerate has taken ahead of "
                "the loop; do not pass the loader to accelerator.prepare, or save the loader's "
                "state, with DataLoaderConfiguration(use_stateful_dataloader=True)"
            )
        return self._position().to_json()

    def load_state_dict(self, state_dict: Mapping[str, Any] | Cursor) -> None:
        """Continues at a result of `state_dict`, or a cursor of `infeed.connect`; after a finished
        pass, `iter` begins the next one. Raises `CursorError`."""
        self._move_to(Pass.from_json(state_dict))
        self._has_state, self._is_fresh, self._begins, self._closed = True, True, False, False

    def reset(self, initial_state: Mapping[str, Any] | None = None) -> None:
        """Continues at a state, or begins an iteration: the method of torchdata's nodes."""
        if initial_state is None:
            iter(self)
        else:
            self.load_state_dict(initial_state)

    next = __next__
    get_state = state_dict

    def set_epoch(self, epoch: int) -> None:
        """Chooses the pass of the next iteration, counted from 0, even if it is unfinished; before
        the first batch, earlier passes count as taken. Has no effect with `restart=True`, or after
        a state."""
        epoch = check_integer("epoch", epoch, 0)
        epochs = self._passes.epochs
        if self.restart or self._has_state:
            return
        if epochs is not None:
            until_epoch = self._passes.located(self._at).until_epoch
            if self._is_over() or until_epoch != (epoch + 1) * epochs:
                at = Pass() if self._is_fresh else self._position()
                self._move_to(self._passes.of_epoch(epoch, at))
        elif epoch and self._is_fresh:
            raise InvalidRequestError(
                f"set_epoch({epoch}) of a new endless dataset would begin at the first batch "
                "again; use FeedDataset(..., epochs=1), or state=..."
            )

    def confirm(self, steps: int = 1) -> None:
        """Counts further batches as trained on: for a caller that takes batches ahead of
        its steps. After `confirm(0)`, before the first batch, the state counts these alone."""
        taken = 0 if self._feed is None else self._feed.delivered
        begun = taken if self._confirmed is None else self._confirmed
        self._confirmed = min(begun + steps, taken)

    def stats(self) -> Stats:
        """Returns the statistics of all passes so far."""
        if self._feed is None and self._earlier is not None:
            return self._earlier
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
        cursor = Cursor.from_json(self._feed.state(self._taken))
        if not self.restart:
            cursor = self._passes.stated(cursor, self._feed.spec)
        return Pass(cursor, self._at.until_epoch)

    def _is_over(self) -> bool:
        """Returns whether the loop has taken every batch of the pass, as far as that is known."""
        steps = None if self._feed is None else self._feed.steps
        return self._has_ended or (steps is not None and self._taken >= steps)

    def _begin(self) -> None:
        """Moves to the iteration's start; raises `FeedClosedError` if no pass is left."""
        if self.restart and not self._is_fresh:
            self._move_to(Pass())
            return
        feed = self._open()
        if self._is_over():
            self._move_to(Pass() if self.restart else self._passes.after(self._position()))
        elif feed.delivered != self._taken:
            self._move_to(self._position())  # the caller has dropped what it took ahead

    def _open(self) -> Feed:
        if self._feed is None:
            if self._closed:
                raise FeedClosedError(f"the dataset of {self._passes.pipeline!r} was closed")
            self._at = self._passes.located(self._at)
            self._feed = self._passes.connect(self._at)
            if self._earlier is not None:
                self._feed.follow(self._earlier)
        self._convert.check(self._feed)
        self._passes.shard.check_unchanged(self._feed.shard)
        return self._feed

    def _move_to(self, at: Pass) -> None:
        if self._feed is not None:
            self._earlier = self._feed.stats()
            self._feed.close()
        self._feed, self._at, self._has_ended = None, at, False
        self._confirmed = None if self._confirmed is None else 0
