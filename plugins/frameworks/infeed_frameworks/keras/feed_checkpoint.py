"""Keras callback that saves a model with the cursor of its feed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import keras

from infeed.cursor import Cursor
from infeed.feed import Feed
from infeed.shared.arguments import check_integer
from infeed.shared.errors import CursorError, InvalidRequestError
from infeed_frameworks.keras.feed_reader import reader_of
from infeed_frameworks.keras.saved_run import (
    SavedRun,
    local_folder,
    newest_run,
    save_run,
    seeds_of,
    set_seeds,
    set_torch_seeds,
)

SaveEvery = int | Literal["epoch"]
Logs = dict[str, Any] | None


class FeedCheckpoint(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves weights, optimizer, seeds and cursor together, and restores them when `fit` begins.

    feed        the feed whose `generator`, or dataset of `from_generator`, the model is fitted to
    directory   folder of the newest checkpoint, which rank 0 writes; None: nothing is saved
    save_every  steps between checkpoints, besides one at the end of each epoch; `"epoch"`: only
                those

    The cursor counts the steps that `fit` has completed. `stop_training` ends the rest of a
    continued epoch, so this callback comes before those that end the training.
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
        self._feed, self._reader = feed, reader_of(feed)
        self._folder = None if directory is None else local_folder(directory)
        self._saved = None if self._folder is None else newest_run(self._folder)
        """The checkpoint to continue, until the first batch of `fit`."""
        self._reader.track(feed)
        self._epoch = 0
        self._saved_at = self._epoch_began = self._completed
        """The completed steps at the last checkpoint, and at the beginning of the epoch."""
        self._rest_ends: int | None = None
        """The completed steps at which a continued epoch ends, by this callback."""

    @staticmethod
    def saved_state(directory: str | os.PathLike[str]) -> dict[str, Any] | None:
        """Returns the cursor of the newest checkpoint, for `connect`; None if there is none."""
        saved = newest_run(local_folder(directory))
        return None if saved is None else dict(saved.state)

    @property
    def initial_epoch(self) -> int:
        """The epoch in which `fit` continues the checkpoint; 0 without one."""
        return self._saved.epoch if self._saved else 0

    @property
    def _completed(self) -> int:
        return self._reader.completed or 0

    def state(self) -> dict[str, Any]:
        """Returns the cursor after the last step that `fit` has completed."""
        return self._feed.state(self._completed)

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002 - Keras' signature
        self._reader.begin_training()
        self._check_epochs()
        rest = self._rest_of_epoch()
        if self._saved is not None:
            self._restore(self._saved)
        self._rest_ends = self._completed + rest if rest else None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        if self._saved is not None and self._saved.epoch != epoch:
            raise InvalidRequestError(
                f"fit begins with epoch {epoch}, but the checkpoint continues in epoch "
                f"{self._saved.epoch}; call fit(..., initial_epoch=checkpoint.initial_epoch)"
            )
        self._epoch, self._epoch_began = epoch, self._completed

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        if self._saved is not None:
            # Not before: Keras' loader draws from PyTorch's generators when an epoch begins.
            set_torch_seeds(self._saved.seeds)
            self._saved = None

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        # With steps_per_execution an execution has several steps, the last perhaps too few batches.
        missing = batch + 1 - (self._completed - self._epoch_began)
        if missing - self._reader.complete(missing) >= self.model.steps_per_execution:
            raise InvalidRequestError(
                f"fit has trained on more batches than the feed of {self._feed.spec.name!r} "
                "delivered, so its cursor would be wrong: create the FeedCheckpoint for the feed "
                "that fit reads, before its generator, and do not use unbatch, batch, filter, skip "
                "or shuffle between from_generator and fit"
            )
        if self._is_epoch_end(batch):
            # The end of an epoch is saved after its validation, with the number of the next.
            if self._rest_ends is not None and not self.model.stop_training:
                self.model.stop_training = True
            else:
                self._rest_ends = None
        elif self._save_every and self._completed - self._saved_at >= self._save_every:
            self._save(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        if self._rest_ends is not None and self._completed >= self._rest_ends:
            self.model.stop_training = False  # it ended only this epoch
        self._rest_ends = None
        self._save(epoch + 1)

    def _is_epoch_end(self, batch: int) -> bool:
        if self._rest_ends is not None:
            return self._completed >= self._rest_ends
        steps = self.params.get("steps")
        return steps is not None and batch + 1 >= steps

    def _save(self, epoch: int) -> None:
        self._saved_at = self._completed
        if self._folder is not None and self._feed.shard.rank == 0:
            run = SavedRun(self._folder, self.state(), epoch, seeds_of(self.model))
            save_run(run, self._save_weights)

    def _save_weights(self, path: str) -> None:
        # Keras creates variables while it saves. In the scope of a TensorFlow strategy of several
        # workers that is a collective operation, which a worker that saves alone begins without the
        # others. A scope belongs to a thread.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(self.model.save_weights, path).result()

    def _restore(self, saved: SavedRun) -> None:
        if Cursor.from_json(saved.state) != Cursor.from_json(self.state()):
            raise CursorError(
                f"the checkpoint {saved.folder} is at position {saved.state['position']}, but the "
                f"feed is at {self.state()}; connect with "
                "state=FeedCheckpoint.saved_state(directory), or give another folder"
            )
        if self.model.optimizer is not None and not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        self.model.load_weights(str(saved.weights))
        set_seeds(self.model, saved.seeds)

    def _rest_of_epoch(self) -> int:
        """Returns the remaining steps of the epoch that a checkpoint continues; 0 if it has just
        begun. Each further `fit` has the steps that it is given."""
        steps = self.params.get("steps")
        if self._saved is None or steps is None:
            return 0
        # The last execution is completed.
        execution = self.model.steps_per_execution
        length: int = -(-steps // execution) * execution
        state = self.state()
        # Not from its number of steps, which may have had other sizes.
        taken: int = state["position"] // state["course"]["stride"]
        return -taken % length

    def _check_epochs(self) -> None:
        """Raises `InvalidRequestError` if `fit` cannot find the end of an epoch, or would lose or
        repeat batches."""
        name, is_generator = self._feed.spec.name, self._reader.is_generator
        has_more = self.params.get("epochs", 0) > self.initial_epoch + 1
        if is_generator and keras.backend.backend() == "tensorflow":
            raise InvalidRequestError(
                f"the TensorFlow backend drops batches of the generator of {name!r}; give fit "
                "infeed.tensorflow.from_generator(feed)"
            )
        if is_generator and self._reader.begun != self._completed:
            raise InvalidRequestError(
                f"another fit has read this generator of {name!r}; give each fit its own "
                "infeed.keras.generator(feed)"
            )
        if self._reader.batches_per_step > 1:
            raise InvalidRequestError(
                f"{self._reader.batches_per_step} replicas each take a whole batch of the feed of "
                f"{name!r} per step, but FeedCheckpoint counts one; give fit the dataset of "
                "from_generator itself, whose batches Keras splits over the replicas"
            )
        if self.params.get("steps") is None and (self._feed.endless or has_more):
            raise InvalidRequestError(
                f"fit cannot tell where an epoch of the feed of {name!r} ends; call fit(..., "
                "steps_per_epoch=feed.steps_per_epoch)"
            )
