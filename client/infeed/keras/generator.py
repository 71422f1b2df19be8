"""A Python generator over a feed, for `fit` on the JAX and torch backends.

    with infeed.connect("localhost:7470", "photos") as feed:
        model.fit(infeed.keras.generator(feed), steps_per_epoch=feed.steps_per_epoch, epochs=90)

Keras takes two batches of a generator before the first step, to learn their shapes, and trains on
them first. What it has taken and not trained on when `fit` returns is lost to the next `fit` on the
same feed, unless a `FeedCheckpoint` keeps it, or `steps` ends the generator with the last step.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from infeed.arguments import check_integer
from infeed.feed import Feed
from infeed.keras.batch_reader import reader_of
from infeed.keras.elements import DEFAULT_LABEL, ToKerasElement, keras_arranger


def generator(
    feed: Feed,
    label: str | None = DEFAULT_LABEL,
    *,
    mask: bool | None = None,
    steps: int | None = None,
) -> Generator[tuple[Any, ...], None, None]:
    """Returns a generator of the feed's batches for one `fit`, `evaluate` or `predict` of Keras.

    feed   the feed of `infeed.connect`
    label  the field used as y; x is the only other field, or a dict of the others. None, or no
           field "label": x is a dict of all fields, and there is no y
    mask   whether a weight per slot comes last: 1.0 for a sample, 0.0 for an empty slot; None: if
           slots can be empty
    steps  batches after which it ends, such as steps_per_epoch * epochs of `fit`, so that Keras
           takes none in advance; None: with the feed

    It yields `(x, y)`, `(x, y, weights)`, `(x,)` or `(x, None, weights)` of NumPy arrays, slots
    first. Weights are float32. An endless feed needs `fit(steps_per_epoch=...)`.

    Raises `InvalidRequestError` for wrong arguments. An error of the feed leaves `fit` as itself; a
    feed that has ended raises `FeedClosedError` at the first batch.
    """
    if mask is None:
        mask = feed.may_mask
    names = [field.name for field in feed.element_spec]
    arrange = keras_arranger(names, label, mask)
    has_label = label is not None and label in names
    if steps is not None:
        steps = check_integer("steps", steps, 1, or_none="all batches of the feed")
    return _elements(feed, arrange if has_label else _inputs_only(mask), steps)


def _inputs_only(mask: bool) -> ToKerasElement:
    """Arranges batches without targets: Keras takes a pair for inputs and targets."""
    if mask:
        return lambda fields, weights: (fields, None, weights)
    return lambda fields, _: (fields,)


def _elements(
    feed: Feed, arrange: ToKerasElement, steps: int | None
) -> Generator[tuple[Any, ...], None, None]:
    reader = reader_of(feed)
    reader.steps_per_epoch = None
    iteration = reader.begin(feed, steps=steps, is_generator=True)
    while (batch := reader.take(feed, iteration)) is not None:
        yield arrange(dict(batch), batch.mask.astype("float32"))
        del batch
