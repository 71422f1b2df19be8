"""Batches of a feed for `fit`, `evaluate` and `predict` on the JAX and torch backends.

On an accelerator Keras takes one batch in advance, which is lost to the next `fit` on the same
feed, unless a `FeedCheckpoint` keeps it, or `steps` ends the generator with the last step.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from infeed.feed import Feed
from infeed.shared.arguments import check_flag, check_integer
from infeed.shared.errors import InvalidRequestError
from infeed_frameworks.keras.elements import DEFAULT_LABEL, ClassWeight, KerasElements
from infeed_frameworks.keras.feed_reader import Restarts, reader_of

if TYPE_CHECKING:
    from infeed_frameworks.keras.feed_batches import FeedBatches


def generator(
    feed: Feed,
    label: str | None = DEFAULT_LABEL,
    *,
    mask: bool = False,
    ids: str | None = None,
    part: str | None = None,
    steps: int | None = None,
    restart: bool = False,
    class_weight: ClassWeight | None = None,
) -> FeedBatches | Generator[Any, None, None]:
    """Returns the feed's batches for one `fit`, `evaluate` or `predict`, or as `validation_data`.

    It is a `keras.utils.PyDataset`, and an iterable for a custom loop. If the feed already has a
    `FeedCheckpoint`, it is a Python generator, which the callback checks.

    feed          the feed of `infeed.connect`
    label         the field used as y; x is the only other field, or a dict of the others. None, or
                  no field "label": x is a dict of all fields, and there is no y
    mask          whether empty slots stay, so that shapes are static, and a weight per slot comes
                  last, 0.0 for an empty one; False: empty slots are cut
    ids           name of a further field of x for the sample ids, int64 for each slot, -1 for an
                  empty one; None: no such field
    part          name of a further field of x for the number of each slot's part of a mixture, as
                  `ids`; None: no such field
    steps         batches after which it ends; None: with the feed
    restart       whether each iteration begins where the feed began, by a connection of its own;
                  False: each batch is given once, and Keras gets an error if it begins again
    class_weight  weight by class, which comes last; 1.0 for a class that it lacks

    Raises `InvalidRequestError` for wrong arguments; the feed's errors leave `fit` unchanged.
    """
    elements = KerasElements(
        feed, label, mask=mask, ids=ids, part=part, class_weight=class_weight, as_tuple=True
    )
    if steps is not None:
        steps = check_integer("steps", steps, 1, or_none="all batches of the feed")
    restarts = Restarts(feed) if check_flag("restart", restart) else None
    if elements.is_cut:
        _check_distribution(feed)
    if reader_of(feed).completed is not None and restarts is None:
        return _tracked(feed, elements, steps)
    from infeed_frameworks.keras.feed_batches import FeedBatches  # noqa: PLC0415 - it imports Keras

    return FeedBatches(feed, elements, steps, restarts)


def _check_distribution(feed: Feed) -> None:
    """Raises `InvalidRequestError` if Keras divides batches, which can be shorter, over devices."""
    import keras  # noqa: PLC0415 - it takes a second

    if (distribution := keras.distribution.distribution()) is not None:
        mesh = distribution.device_mesh
        sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))
        if (devices := sizes[distribution.batch_dim_name]) > 1:
            raise InvalidRequestError(
                f"batches of {feed.spec.name!r} can have empty slots, which are cut, but Keras "
                f"divides each batch over {devices} devices; use infeed.keras.generator(feed, "
                "mask=True), and compile(weighted_metrics=...)"
            )


def _tracked(feed: Feed, elements: KerasElements, steps: int | None) -> Generator[Any, None, None]:
    """Yields the elements of a feed whose training is tracked by a `FeedCheckpoint`.

    The callback ends a continued epoch, after which Keras begins no epoch of a `PyDataset`.
    """
    reader = reader_of(feed)
    iteration = reader.begin(feed, steps, is_generator=True)
    while (batch := reader.take(feed, iteration)) is not None:
        yield elements(batch)
        del batch
