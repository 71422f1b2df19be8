"""Batches of a feed for `fit`, `evaluate` and `predict` on the JAX and torch backends.

    with infeed.connect("localhost:7470", "photos") as feed:
        model.fit(infeed.keras.generator(feed), steps_per_epoch=feed.steps_per_epoch, epochs=90)

Keras takes a batch before the first step, to build the model, and trains on it first. On an
accelerator it takes one more in advance, which is lost to the next `fit` on the same feed, unless a
`FeedCheckpoint` keeps it, or `steps` ends the generator with the last step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.keras.elements import DEFAULT_LABEL, keras_arranger
from infeed.keras.feed_reader import reader_of
from infeed.shared.arguments import check_flag, check_integer
from infeed.shared.errors import InvalidRequestError

if TYPE_CHECKING:
    from infeed.keras.feed_batches import FeedBatches


def generator(
    feed: Feed,
    label: str | None = DEFAULT_LABEL,
    *,
    mask: bool | None = None,
    steps: int | None = None,
    restart: bool = False,
) -> FeedBatches | Generator[Any, None, None]:
    """Returns the feed's batches for one `fit`, `evaluate` or `predict`, or as `validation_data`.

    It is a `keras.utils.PyDataset`, and an iterable for a loop of one's own. If a `FeedCheckpoint`
    of the feed was made before, it is a Python generator, which the callback checks.

    feed     the feed of `infeed.connect`
    label    the field used as y; x is the only other field, or a dict of the others. None, or no
             field "label": x is a dict of all fields, and there is no y
    mask     whether a weight per slot comes last, 0.0 for an empty slot; None: if there can be any
    steps    batches after which it ends; None: with the feed
    restart  whether each iteration begins where the feed began, by a connection of its own; False:
             each batch is given once, and Keras gets an error if it begins again

    Raises `InvalidRequestError` for wrong arguments; the feed's errors leave `fit` as themselves.
    """
    mask = feed.may_mask if mask is None else mask
    names = [field.name for field in feed.element_spec]
    arrange_fields = keras_arranger(names, label, mask, as_tuple=True)
    if steps is not None:
        steps = check_integer("steps", steps, 1, or_none="all batches of the feed")
    if check_flag("restart", restart) and feed.endless:
        raise InvalidRequestError(
            f"restart=True: the feed of {feed.spec.name!r} is endless, so an evaluation of it has "
            "no end; give infeed.connect epochs=1"
        )

    def arrange(batch: Batch) -> Any:
        return arrange_fields(dict(batch), batch.mask.astype("float32"))

    if reader_of(feed).completed is not None and not restart:
        return _tracked(feed, arrange, steps)
    from infeed.keras.feed_batches import FeedBatches  # noqa: PLC0415 - it imports Keras

    return FeedBatches(feed, arrange, steps, restart=restart)


def _tracked(
    feed: Feed, arrange: Callable[[Batch], Any], steps: int | None
) -> Generator[Any, None, None]:
    """Yields the elements of a feed whose training is tracked by a `FeedCheckpoint`.

    The callback ends a continued epoch, after which Keras begins no epoch of a `PyDataset`.
    """
    reader = reader_of(feed)
    reader.steps_per_epoch = None
    iteration = reader.begin(feed, steps, is_generator=True)
    while (batch := reader.take(feed, iteration)) is not None:
        yield arrange(batch)
        del batch
