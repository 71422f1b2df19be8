"""Items of a feed: batches, and behind them the end or the error that ended the feed."""

from __future__ import annotations

from dataclasses import dataclass

from infeed.wire.assembler import ReceivedBatch


@dataclass(frozen=True)
class EndOfFeed:
    """The item behind the last batch."""

    position_count: int | None = None
    """Positions of the data, if its length was unknown before."""


FeedItem = ReceivedBatch | BaseException | EndOfFeed
