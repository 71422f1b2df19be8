"""Batches of a feed for `fit`, `evaluate` and `predict` on the JAX and torch backends.

    with infeed.connect("localhost:7470", "photos") as feed:
        model.fit(infeed.keras.generator(feed), steps_per_epoch=feed.steps_per_epoch, epochs=90)

Keras takes a batch before the first step, to build the model, and trains on it first. On an
accelerator it takes one more in advance, which is lost to the next `fit` on the same feed, unless a
`FeedCheckpoint` keeps it, or `steps` ends the generator with the last step.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from infeed.feed import Feed
from infeed.keras.batch_reader import reader_of
from infeed.keras.elements import DEFAULT_LABEL, ToKerasElement, keras_arranger
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
) -> FeedBatches | Generator[tuple[Any, ...], None, None]:
    """Returns the feed's batches for one `fit`, `evaluate` or `predict` of Keras, or as its
    `validation_data`.

    It is a `keras.utils.PyDataset`, and an iterable for a loop of one's own. If a `FeedCheckpoint`
    of the feed was made before, it is a Python generator for one `fit`, which the callback checks.

    feed     the feed of `infeed.connect`
    label    the field used as y; x is the only other field, or a dict of the others. None, or no
             field "label": x is a dict of all fields, and there is no y
    mask     whether a weight per slot comes last: 1.0 for a sample, 0.0 for an empty slot; None: if
             slots can be empty
    steps    batches after which it ends, such as steps_per_epoch * epochs of `fit`, so that Keras
             takes none in advance; None: with the feed
    restart  whether each iteration begins where the feed began, by a connection of its own, as for
             `validation_data`; False: each batch is given once, and Keras gets an error if it
             begins again

    An element is `(x, y)`, `(x, y, weights)`, `(x,)` or `(x, None, weights)` of NumPy arrays, slots
    first. Weights are float32. An endless feed needs `fit(steps_per_epoch=...)`; one that ends,
    `fit(shuffle=False)`, or Keras would take its batches in another order.

    Raises `InvalidRequestError` for wrong arguments, and for an endless feed with `restart`. An
    error of the feed leaves `fit` as itself; a feed that has ended raises `FeedClosedError` at the
    first batch.
    """
    if mask is None:
        mask = feed.may_mask
    names = [field.name for field in feed.element_spec]
    arrange = keras_arranger(names, label, mask)
    has_label = label is not None and label in names
    if steps is not None:
        steps = check_integer("steps", steps, 1, or_none="all batches of the feed")
    if check_flag("restart", restart) and feed.endless:
        raise InvalidRequestError(
            f"restart=True: the feed of {feed.spec.name!r} is endless, so an evaluation of it has "
            "no end; give infeed.connect epochs=1"
        )
    # Keras takes a pair for inputs and targets.
    inputs_only: ToKerasElement = lambda x, weights: (x, None, weights) if mask else (x,)  # noqa: E731
    arrange_all = arrange if has_label else inputs_only
    if reader_of(feed).completed is not None and not restart:
        return _elements(feed, arrange_all, steps)
    from infeed.keras.feed_batches import FeedBatches  # noqa: PLC0415 - it imports Keras

    return FeedBatches(feed, arrange_all, steps, restart=restart)


def _elements(
    feed: Feed, arrange: ToKerasElement, steps: int | None
) -> Generator[tuple[Any, ...], None, None]:
    """Yields the elements of a feed whose training is tracked by a `FeedCheckpoint`.

    The callback ends a continued epoch, after which Keras begins no epoch of a `PyDataset`.
    """
    reader = reader_of(feed)
    reader.steps_per_epoch = None
    iteration = reader.begin(feed, steps=steps, is_generator=True)
    while (batch := reader.take(feed, iteration)) is not None:
        yield arrange(dict(batch), batch.mask.astype("float32"))
        del batch
