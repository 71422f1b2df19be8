"""Connections of a dataset's passes: where a pass begins and ends, its length, and its feed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infeed.adapters.lazy_feed import LazyFeed, fetch_plan, first_cursor
from infeed.feed import Feed
from infeed.torch.saved_pass import SavedPass
from infeed.torch.shard import ShardChoice, changed_shard

if TYPE_CHECKING:
    from infeed.client import ConnectOptions
    from infeed.cursor import Shard
    from infeed.prefetch.feed_plan import FeedPlan


class PassConnector:
    """Connects the passes of one dataset, with the options of `infeed.connect`."""

    def __init__(self, target: str, pipeline: str, options: ConnectOptions) -> None:
        self.target, self.pipeline = target, pipeline
        self.epochs = options.get("epochs")
        self._options = options
        self._shard = ShardChoice(options.get("shard"))
        self._measured: tuple[SavedPass, int, FeedPlan] | None = None
        """The pass whose length was asked for last, its world size and plan."""

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a copy in another process needs, whose rank may differ."""
        return {**self.__dict__, "_shard": self._shard.for_copy(), "_measured": None}

    def locate(self, saved: SavedPass) -> SavedPass:
        """Returns a pass with its position and end."""
        if saved.is_located(self.epochs):
            return saved
        plan = self._plan(saved, None, None)
        return saved.located(first_cursor(plan.spec, plan.contract.seed), plan.spec, self.epochs)

    def connect(self, saved: SavedPass) -> Feed:
        """Opens the feed of a located pass. Raises what `infeed.connect` raises, and
        `InvalidRequestError` if the shard is not known yet."""
        options = self._options_at(saved, saved.until_epoch, self._shard.for_batches())
        return LazyFeed(self.target, self.pipeline, **options).open()

    def must_reconnect(self, feed: Feed, returned: int) -> bool:
        """Returns whether another shard is that of the process since the feed was connected.

        Raises `InvalidRequestError` if batches of the feed were returned.
        """
        if not self._shard.has_changed(feed.shard):
            return False
        if returned:
            raise changed_shard(feed.shard)
        return True

    def length(self, saved: SavedPass) -> int:
        """Returns the batches of a whole located pass, also after a resume within it."""
        shard = self._shard.for_length()
        if self._measured is None or self._measured[:2] != (saved, shard.world_size):
            plan = self._plan(saved, saved.until_epoch, shard)
            self._measured = (saved, shard.world_size, plan)
        plan = self._measured[2]
        steps, samples = plan.length(), plan.spec.sample_count
        if samples is None or saved.until_epoch is None or self.epochs is None:
            return steps
        pass_start = (saved.until_epoch - self.epochs) * samples
        before = max(0, plan.shard_plan.base - pass_start)
        # The last step of a padded pass has fewer samples.
        return steps + -(-before // plan.shard_plan.global_stride)

    def _plan(self, saved: SavedPass, until_epoch: int | None, shard: Shard | None) -> FeedPlan:
        options = self._options_at(saved, until_epoch, shard)
        return fetch_plan(self.target, self.pipeline, options)

    def _options_at(
        self, saved: SavedPass, until_epoch: int | None, shard: Shard | None
    ) -> ConnectOptions:
        options = self._options.copy()
        options["state"], options["epochs"], options["shard"] = saved.cursor, until_epoch, shard
        return options
