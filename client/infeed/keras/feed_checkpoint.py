"""Keras callback that saves a model with the cursor of its feed.

state = FeedCheckpoint.saved_state("checkpoint")  # None at the first start
with infeed.connect("localhost:7470", "photos", state=state) as feed:
    checkpoint = FeedCheckpoint(feed, "checkpoint", save_every=1000)
    epochs = {"steps_per_epoch": feed.steps_per_epoch, "initial_epoch": checkpoint.initial_epoch}
    model.fit(infeed.keras.generator(feed), callbacks=[checkpoint], epochs=90, **epochs)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

import keras

from infeed.cursor import Cursor
from infeed.feed import Feed
from infeed.keras.batch_reader import reader_of
from infeed.keras.checkpoint_folder import CheckpointFolder, SavedRun
from infeed.keras.seeds import seeds_of, set_seeds, set_torch_seeds
from infeed.shared.arguments import check_integer
from infeed.shared.errors import CursorError, InvalidRequestError

IN_FIT = "fit(..., steps_per_epoch=feed.steps_per_epoch)"
DATASET = "infeed.tensorflow.from_generator(feed, steps_per_epoch=feed.steps_per_epoch)"
SaveEvery = int | Literal["epoch"]
Logs = dict[str, Any] | None


class _EndOfEpoch:
    """A true value of `stop_training` that ends the epoch, and not all of `fit`."""


_END_OF_EPOCH = _EndOfEpoch()


class FeedCheckpoint(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves weights, optimizer, seeds and cursor together, and restores them when `fit` begins.

    feed        the feed whose `generator`, or dataset of `from_generator`, the model is fitted to
    directory   folder of the newest checkpoint, which rank 0 writes and each rank reads; None:
                nothing is saved, and `state()` goes into a checkpoint of your own
    save_every  steps between checkpoints, besides one at the end of each epoch; `"epoch"`: only
                those

    The cursor counts the steps that `fit` has completed. Batches that Keras has taken in advance
    are trained on after a resume, and by the next `fit` on the same feed.

    Raises `InvalidRequestError`, and in `fit` also `CursorError` if the feed does not begin where
    the checkpoint ends.
    """

    def __init__(
        self,
        feed: Feed,
        directory: str | os.PathLike[str] | None = None,
        *,
        save_every: SaveEvery = "epoch",
    ) -> None:
        super().__init__()
        if not isinstance(feed, Feed):
            raise InvalidRequestError(f"feed must be the feed of infeed.connect, not {feed!r}")
        self._save_every = None
        if save_every != "epoch":
            self._save_every = check_integer("save_every", save_every, 1, or_none='only "epoch"')
        self._feed = feed
        self._folder = None if directory is None else CheckpointFolder(directory)
        self._saved = None if self._folder is None else self._folder.latest()
        self._reader = reader_of(feed)
        self._reader.track(feed)
        self._first_epoch: int | None = None
        """The epoch that `fit` must begin with, until it has begun."""
        self._epoch = 0
        self._last_batch = -1
        self._torch_seeds: Mapping[str, str] = {}
        self._is_first = True
        """Whether `fit` has completed no step yet."""
        self._is_short = False
        """Whether an execution of this epoch has had fewer batches than steps, as the last may."""
        self._unsaved_steps = 0
        self._rest: int | None = None
        """Steps that are left of a continued epoch, which the callback ends."""

    @staticmethod
    def saved_state(directory: str | os.PathLike[str]) -> dict[str, Any] | None:
        """Returns the cursor of the newest checkpoint, for `connect`; None if there is none."""
        saved = CheckpointFolder(directory).latest()
        return None if saved is None else dict(saved.state)

    @property
    def initial_epoch(self) -> int:
        """The epoch in which `fit` continues the checkpoint; 0 without one."""
        return self._saved.epoch if self._saved else 0

    def state(self) -> dict[str, Any]:
        """Returns the cursor after the last step that `fit` has completed."""
        return self._feed.state(self._reader.completed)

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002 - Keras' signature
        self._reader.begin_training(self._feed)
        self._is_first = True
        self._check_steps()
        restored = self._saved is not None
        if self._saved is not None:
            self._restore(self._saved)
            self._saved = None
        self._rest = self._rest_of_epoch(restored=restored)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        expected, self._first_epoch = self._first_epoch, None
        if expected not in (None, epoch):
            raise InvalidRequestError(
                f"fit begins with epoch {epoch}, but the checkpoint continues in epoch {expected}; "
                "give fit(..., initial_epoch=checkpoint.initial_epoch)"
            )
        self._epoch = epoch
        self._last_batch = -1
        self._is_short = False

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        saved, self._torch_seeds = self._torch_seeds, {}
        set_torch_seeds(saved)  # not before: Keras' loader draws from them when an epoch begins

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        steps = batch - self._last_batch  # several with steps_per_execution
        self._last_batch = batch
        completed = self._reader.complete(steps)
        if not completed and self._is_first:
            raise InvalidRequestError(
                f"fit has trained on no batch of this feed of {self._feed.spec.name!r}, so its "
                "cursor would not move; give FeedCheckpoint the feed that fit reads"
            )
        self._is_first = False
        if self._is_short or (completed < steps and self.model.steps_per_execution == 1):
            self._refuse_other_batches("more")
        self._is_short = completed < steps
        self._unsaved_steps += steps
        is_due = self._save_every is not None and self._unsaved_steps >= self._save_every
        if self._rest is not None:
            self._rest -= steps
        is_end = self._is_epoch_end(batch)
        # The end of an epoch is saved after its validation, with the number of the next.
        if is_due and not is_end:
            self._save(self._epoch)
        if is_end and self._rest is not None:
            self.model.stop_training = self.model.stop_training or _END_OF_EPOCH

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        is_whole = self.params.get("steps") is None and not self.model.stop_training
        if is_whole and self._reader.untrained():
            self._refuse_other_batches("fewer")
        if self._rest is not None and self.model.stop_training is _END_OF_EPOCH:
            self.model.stop_training = False
        self._rest = None
        self._save(epoch + 1)

    def _refuse_other_batches(self, number: str) -> NoReturn:
        raise InvalidRequestError(
            f"fit has trained on {number} batches than the feed of {self._feed.spec.name!r} has "
            "given, so its cursor would be wrong: each element of the dataset must be one batch of "
            "the feed, in its order; leave out unbatch, batch, filter, skip and shuffle between "
            "from_generator and fit, and give infeed.connect another batch_size"
        )

    def _is_epoch_end(self, batch: int) -> bool:
        if self._rest is not None:
            return self._rest <= 0
        if self._reader.steps_per_epoch is not None:
            return self._reader.epoch_step(self._feed) == 0
        steps = self.params.get("steps")
        return steps is not None and batch + 1 >= steps

    def _save(self, epoch: int) -> None:
        self._unsaved_steps = 0
        if self._folder is not None and self._feed.shard.rank == 0:
            self._folder.save(self.state(), epoch, self._save_weights, seeds_of(self.model))

    def _save_weights(self, path: str) -> None:
        if keras.backend.backend() != "tensorflow":
            self.model.save_weights(path)
            return
        from infeed.keras.scopes import outside_of_scopes  # noqa: PLC0415 - TensorFlow

        outside_of_scopes(lambda: self.model.save_weights(path))

    def _restore(self, saved: SavedRun) -> None:
        if Cursor.from_json(saved.state) != Cursor.from_json(self.state()):
            raise CursorError(
                f"the checkpoint {saved.folder} is at position {saved.state['position']}, and the "
                f"feed is not: it is at {self.state()}; connect with "
                f"state=FeedCheckpoint.saved_state({str(saved.folder.parent)!r}), or give another "
                "folder"
            )
        if not self.model.built:
            raise InvalidRequestError(
                f"the weights of {saved.folder} need a model that is built before fit: give it a "
                "keras.Input, or call model.build"
            )
        if self.model.optimizer is not None and not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        self.model.load_weights(str(saved.weights))
        set_seeds(self.model, saved.seeds)
        self._torch_seeds = saved.seeds.torch
        self._first_epoch = saved.epoch

    def _rest_of_epoch(self, *, restored: bool) -> int | None:
        """Returns the steps that are left of the epoch; None if it has just begun.

        Keras counts the steps of a continued epoch from 0. It must not find the end of a dataset
        by itself: TensorFlow counts the step that got no batch in `optimizer.iterations`.
        """
        if (own := self._reader.steps_per_epoch) is not None:
            done = self._reader.epoch_step(self._feed)
            return own - done if done else None
        steps = self.params.get("steps")
        if not restored or steps is None or not self._reader.is_generator:
            return None  # each fit on a generator has the steps that it is given
        # The last execution is completed.
        each = self.model.steps_per_execution
        length = -(-steps // each) * each
        done = (self._feed.first_step + self._reader.completed) % length
        return length - done if done else None

    def _check_generator(self, steps: int | None) -> None:
        """Raises `InvalidRequestError` where Keras would lose or repeat batches of a generator."""
        name = self._feed.spec.name
        if keras.backend.backend() == "tensorflow":
            raise InvalidRequestError(
                f"on the TensorFlow backend, Keras prefetches batches of the generator of {name!r} "
                f"and drops them; give fit {DATASET}"
            )
        if steps is None and self.params.get("epochs", 0) > self.initial_epoch + 1:
            raise InvalidRequestError(
                f"fit finds no end of an epoch: without steps_per_epoch it ends with the generator "
                f"of {name!r}, and Keras repeats its first two batches in each further epoch; give "
                f"{IN_FIT}"
            )

    def _check_steps(self) -> None:
        """Raises `InvalidRequestError` if `fit` cannot find the end of an epoch."""
        steps, own = self.params.get("steps"), self._reader.steps_per_epoch
        name = self._feed.spec.name
        if own is None and steps is None and self._feed.endless:
            remedy = IN_FIT if self._reader.is_generator else DATASET
            raise InvalidRequestError(
                f"fit finds no end of an epoch: the feed of {name!r} is endless; give {remedy}"
            )
        if self._reader.is_generator:
            self._check_generator(steps)
        if own is None:
            return
        if steps is not None and (steps > own or (steps < own and self._feed.endless)):
            raise InvalidRequestError(
                f"fit(steps_per_epoch={steps}): an iteration of the dataset of {name!r} has {own} "
                "steps; give steps_per_epoch to infeed.tensorflow.from_generator alone"
            )
        epoch = self.initial_epoch
        in_epoch = self._reader.epoch_step(self._feed)
        if in_epoch and steps is None and self.params.get("epochs", 0) > epoch + 1:
            raise InvalidRequestError(
                f"the run continues at step {in_epoch} of an epoch of {own}, and Keras would take "
                "the rest of it for the length of every epoch, because map, prefetch or "
                "class_weight has removed the length of the dataset; call fit for this epoch "
                f"alone, with initial_epoch={epoch} and epochs={epoch + 1}, and again for the "
                "others"
            )
